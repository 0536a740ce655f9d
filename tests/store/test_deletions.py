"""The list of deletions: what is written down as it goes, and what goes again after a backup brought it back."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from appview.store.access import add_access_token, is_token_kept
from appview.tokens import make_access_token
from indexer import deletions_command
from indexer.__main__ import main
from indexer.arrivals import IdentityResolved, RestoreOrdered, TakedownOrdered
from indexer.deletions_command import export, read_since
from indexer.quota import QuotaLimits
from memory.database import Database
from memory.errors import Misconfigured
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, forget, holdings, rkey
from tests.store.expiry import expire

TEXT_IS_NO_LIST = [
    "",
    "tea",
    "[]",
    "{}",
    '{"repo": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "subject_sha256": "00", "deleted_at": "2026-11-01T00:00:00Z"}',
    f'{{"repo": "alice.example.com", "subject_sha256": "{"00" * 32}", "deleted_at": "2026-11-01T00:00:00Z"}}',
    f'{{"repo": 7, "subject_sha256": "{"00" * 32}", "deleted_at": "2026-11-01T00:00:00Z"}}',
    f'{{"repo": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "subject_sha256": "{"00" * 32}", "deleted_at": "today"}}',
    f'{{"repo": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "subject_sha256": "{"00" * 32}", "deleted_at": 7}}',
    f'{{"subject_sha256": "{"00" * 32}", "denied_at": "0001-01-01T00:00:00+23:00"}}',
    '{"subject_sha256": "' + "00" * 5000,
    "[" * 4000,
    "\x00",
]


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


async def listed(feed: Feed) -> set[tuple[str, bytes]]:
    return {(row["repo"], row["subject_sha256"]) for row in await feed.rows("select * from deletions")}


def named(person: RepoBuilder, *subjects: str) -> set[tuple[str, bytes]]:
    return {(person.did, sha256(subject.encode()).digest()) for subject in subjects}


async def apply(feed: Feed, file: Path) -> dict[str, int]:
    return asdict(await deletions_command.apply(feed.database, feed.writer, file, feed.clock))


async def restored(feed: Feed, *people: RepoBuilder, frames: list[bytes]) -> None:
    """As from a backup that was made when only `frames` had come."""
    for person in people:
        await forget(feed.database, person.did)
    async with feed.database.transaction() as conn:
        for table in ("deletions", "denials", "sources"):
            await conn.execute(f"delete from {table}")
    await feed.restart()
    await feed.send(*frames)


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# What is written down


async def test_deleted_record_is_written_down_by_the_hash_of_its_uri_with_its_time(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("jazz")))
    assert await listed(feed) == set()
    await feed.send(alice.delete(rkey(1)))
    assert await listed(feed) == named(alice, uri(alice, 1))
    assert (await feed.row("select * from deletions"))["deleted_at"] == feed.clock


async def test_deleted_invalid_record_is_written_down(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea", kind=7)))
    await feed.send(alice.delete(rkey(1)))
    assert await listed(feed) == named(alice, uri(alice, 1))


async def test_record_that_is_deleted_and_written_again_at_once_is_written_down(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    await feed.send(alice.delete(rkey(1)), alice.create(rkey(1), memory("jazz")))
    assert await listed(feed) == named(alice, uri(alice, 1))


async def test_deleted_account_is_written_down_by_the_hash_of_its_did(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    await feed.write(IdentityResolved(feed.place(), feed.directory.bury(alice, feed.clock)))
    assert await listed(feed) == named(alice, alice.did)


@pytest.mark.parametrize("number", [None, 1])
async def test_takedown_is_written_down_also_of_what_is_not_held(database: Database, number: int | None):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(number) if number else None))
    assert await listed(feed) == named(alice, uri(alice, number) if number else alice.did)


async def test_neither_an_update_nor_a_quota_is_a_deletion(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory(f"tea {number}")) for number in (1, 3, 5)))
    await feed.send(alice.update(rkey(1), memory("jazz")), alice.create(rkey(2), memory("rain")))
    assert await feed.memories(alice) == {rkey(1): "jazz", rkey(2): "rain"}
    assert await listed(feed) == set()


async def test_rolled_back_deletion_is_not_written_down(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    arrivals = feed.arrivals(alice.delete(rkey(1)))
    with pytest.raises(RuntimeError):
        async with database.transaction() as conn:
            await feed.writer.take(conn, arrivals)
            raise RuntimeError
    assert await listed(feed) == set()


async def test_list_is_forgotten_with_the_backups(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.delete(rkey(1)))
    await expire(database, feed.clock + timedelta(days=89))
    assert len(await listed(feed)) == 1
    await expire(database, feed.clock + timedelta(days=91))
    assert await listed(feed) == set()


# After a restore


async def test_what_a_backup_brings_back_goes_again_and_a_second_time_nothing_does(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice, bob, carol = (feed.account(name) for name in ("alice", "bob", "carol"))
    frames = [
        alice.create(rkey(1), memory("tea")),
        alice.create(rkey(2), memory("secret", supersedes=[uri(alice, 1)])),
        alice.create(rkey(3), memory("secret", kind=7)),
        bob.create(rkey(1), memory("secret")),
        carol.create(rkey(1), memory("rain")),
    ]
    await feed.send(*frames)
    await feed.send(alice.delete(rkey(2)), alice.delete(rkey(3)))
    await feed.write(IdentityResolved(feed.place(), feed.directory.bury(bob, feed.clock)))
    assert await export(database, None, file) == 3
    await restored(feed, alice, bob, carol, frames=frames)
    assert await feed.memories(bob) != {}

    done = await apply(feed, file)
    assert (done["deletions"], done["records_deleted"], done["repos_deleted"]) == (3, 2, 1)
    assert await feed.memories(alice) == {rkey(1): "tea"}
    assert (await feed.memories(bob), await feed.memories(carol)) == ({}, {rkey(1): "rain"})
    assert "secret" not in str([await holdings(database, person.did) for person in (alice, bob)])
    assert await feed.rows("select from memories where masked_from is not null") == []
    assert await feed.rows("select from denials") == []
    assert await listed(feed) == named(alice, uri(alice, 2), uri(alice, 3)) | named(bob, bob.did)
    assert {(await feed.requests(person))["fetch"] for person in (alice, bob)} == {"restored"}
    again = await apply(feed, file)
    assert (again["records_deleted"], again["repos_deleted"]) == (0, 0)


async def test_what_was_written_again_after_its_deletion_stays(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.delete(rkey(1)))
    await export(database, None, file)
    await feed.send(alice.create(rkey(1), memory("jazz")))
    assert (await apply(feed, file))["records_deleted"] == 0
    assert await feed.memories(alice) == {rkey(1): "jazz"}


@pytest.mark.parametrize("number", [None, 1])
async def test_takedown_that_a_backup_does_not_know_is_taken_over(
    database: Database, tmp_path: Path, number: int | None
):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    frames = [alice.create(rkey(1), memory("secret"))]
    await feed.send(*frames)
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(number) if number else None))
    await export(database, None, file)
    await restored(feed, alice, frames=frames)
    assert (await apply(feed, file))["takedowns"] == 1
    await feed.send(alice.update(rkey(1), memory("secret again")))
    assert await feed.memories(alice) == {}
    await feed.write(RestoreOrdered(feed.place(), alice.did, rkey(number) if number else None))
    assert (await apply(feed, file))["takedowns"] == 1


async def test_takedown_that_stands_is_not_lifted(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    await export(database, None, file)
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "deleted_at" in line))
    await apply(feed, file)
    assert len(await feed.rows("select from denials")) == 1


async def test_commit_that_a_backup_parked_goes_and_its_repo_is_fetched(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    earlier = feed.clock
    await feed.send(alice.create(rkey(2), memory("rain")), alice.delete(rkey(2)))
    await export(database, None, file)
    async with database.connection() as conn:
        for rev, at in {"early": earlier, "late": feed.clock + timedelta(seconds=1)}.items():
            await conn.execute(
                "insert into parked_commits values ($1, $2, 'relay', 1, 'frame', 'key_unknown', $3)", alice.did, rev, at
            )
    assert (await apply(feed, file))["repos_to_fetch"] == 1
    assert [row["rev"] for row in await feed.rows("select rev from parked_commits")] == ["late"]
    assert (await feed.requests(alice))["fetch"] == "restored"


async def test_access_token_that_a_backup_brings_back_does_not_hold_again(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    token = make_access_token(alice.did)
    await feed.send(alice.create(rkey(1), memory("tea")), alice.delete(rkey(1)))
    await export(database, None, file)
    async with database.transaction() as conn:
        await add_access_token(conn, token, "laptop", created_at=feed.clock, expires_at=feed.clock + timedelta(days=90))
        assert await is_token_kept(conn, token, now=feed.clock)
    assert (await apply(feed, file))["access_tokens_deleted"] == 1
    async with database.connection() as conn:
        assert not await is_token_kept(conn, token, now=feed.clock)
    assert (await apply(feed, file))["access_tokens_deleted"] == 0


async def test_however_many_access_tokens_there_are_all_of_them_end(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    await export(database, None, file)
    async with database.connection() as conn:
        await conn.execute(
            "insert into access_tokens select 'did:plc:' || n % 7, n::text, '', '', now(), now()"
            " from generate_series(1, 2500) n"
        )
    assert (await apply(feed, file))["access_tokens_deleted"] == 2500
    assert await feed.rows("select from access_tokens") == []


@pytest.mark.parametrize("text", TEXT_IS_NO_LIST, ids=range(len(TEXT_IS_NO_LIST)))
async def test_file_that_is_no_list_is_refused_before_anything_is_done(database: Database, tmp_path: Path, text: str):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    frames = [alice.create(rkey(1), memory("tea"))]
    await feed.send(*frames, alice.delete(rkey(1)))
    await export(database, None, file)
    await restored(feed, alice, frames=frames)
    file.write_text(file.read_text() + text if text else "")
    with pytest.raises(Misconfigured) as refused:
        await apply(feed, file)
    assert file.name in refused.value.message
    assert "subject_sha256" not in refused.value.message
    assert await feed.memories(alice) == {rkey(1): "tea"}


async def test_file_that_is_not_there_or_no_text_is_refused(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    with pytest.raises(Misconfigured):
        await apply(feed, file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured):
        await apply(feed, file)


# Out


async def test_export_names_no_record_and_may_begin_late(database: Database, tmp_path: Path):
    feed, file = Feed(database), tmp_path / "deletions.jsonl"
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("jazz")), alice.delete(rkey(1)))
    since = feed.clock + timedelta(microseconds=1)
    await feed.send(alice.delete(rkey(2)))
    assert await export(database, since, file) == 1
    told: dict[str, Any] = json.loads(file.read_text())
    assert told == {
        "subject_sha256": sha256(uri(alice, 2).encode()).hexdigest(),
        "repo": alice.did,
        "deleted_at": feed.clock.isoformat(),
    }
    assert await export(database, None, file) == 2
    assert rkey(1) not in file.read_text()


async def test_export_of_many_pages_is_whole_and_leaves_one_file(database: Database, tmp_path: Path):
    async with database.connection() as conn:
        await conn.execute(
            "insert into deletions"
            " select 'did:plc:' || n % 7, sha256(n::text::bytea), now() from generate_series(1, 2500) n"
        )
    assert await export(database, None, tmp_path / "deletions") == 2500
    assert list_names(tmp_path) == ["deletions"]
    assert len(set((tmp_path / "deletions").read_text().splitlines())) == 2500


async def test_export_that_cannot_be_written_leaves_what_was_there(database: Database, tmp_path: Path):
    with pytest.raises(Misconfigured, match="cannot be written"):
        await export(database, None, tmp_path / "nowhere" / "deletions")


def test_times_of_since_are_utc_unless_they_say_otherwise():
    assert read_since("2026-11-01") == read_since("2026-11-01T01:00:00+01:00")
    assert read_since(None) is None
    for text in ("yesterday", "0001-01-01T00:00:00+23:00"):
        with pytest.raises(Misconfigured, match="--since"):
            read_since(text)


@pytest.mark.parametrize("command", [["deletions"], ["deletions", "export"], ["deletions", "apply"]], ids=" ".join)
def test_help_shows_how_it_is_done(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "deletions.jsonl" in capsys.readouterr().out


def test_commands_carry_a_list_from_one_database_to_another(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("DATABASE_URL", database_url)
    file = tmp_path / "deletions"
    assert main(["takedown", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"]) == 0
    assert capsys.readouterr().out.startswith("taken down: 0 public memories")
    assert main(["deletions", "export", "--out", str(file)]) == 0
    assert main(["deletions", "apply", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "deletions": 1,
        "takedowns": 1,
        "repos_deleted": 0,
        "records_deleted": 0,
        "repos_to_fetch": 0,
        "access_tokens_deleted": 0,
    }
    assert main(["deletions", "apply", str(tmp_path / "nowhere")]) == 2
