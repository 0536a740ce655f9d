"""What was deleted is gone from the files once the daemon has seen to it, not only from answers.

Every place that can hold content gets a word of its own, and the files of the database are searched for it. Words are
random letters: nothing in them can be packed, cut or folded.
"""

from __future__ import annotations

import io
import random
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from appview.faces.xrpc import PREFIX
from indexer import erasure
from indexer.arrivals import FrameBroken, IdentityResolved, TakedownOrdered
from indexer.erasure import Erasure
from indexer.store import erasure as statements
from memory.cluster import Cluster
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.telemetry import set_up_logging
from tests.api_client import NAMESPACE, Api
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, forget, rkey
from tests.store.expiry import expire

LETTERS = "bcdfghjkmnpqrtvwz"  # no stemmer knows an ending in these
PLACES = ("content", "kind", "scope", "agent", "client", "unknown", "overwritten", "invalid", "long", "parked")


class Words:
    """A word for each place, found again in files."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = random.Random(f"{seed} {name}")
        self._words = {place: self.text(16) for place in PLACES}

    def __getitem__(self, place: str) -> str:
        return self._words[place]

    def text(self, length: int) -> str:
        return "".join(self._random.choices(LETTERS, k=length))


async def written(feed: Feed, name: str, words: Words) -> RepoBuilder:
    """Someone whose words stand in every place that keeps content."""
    person = feed.account(name)
    beginning = memory(f"{words['overwritten']} tea", scope=words["overwritten"])
    record = memory(
        f"{words['content']} tea",
        kind=words["kind"],
        scope=words["scope"],
        agent=words["agent"],
        provenance={"client": words["client"]},
        x={"y": words["unknown"]},
    )
    long = memory(f"{words['long']} {words.text(6000)}")
    await feed.send(
        person.create(rkey(1), beginning),
        person.update(rkey(1), record),
        person.create(rkey(2), memory(words["invalid"], kind=7)),
        person.create(rkey(3), long),
        person.create(rkey(4), memory("jazz")),
    )
    return person


async def parked(feed: Feed, person: RepoBuilder, words: Words) -> None:
    """A commit that waits for its author's key."""
    feed.directory.announce(person, feed.clock, signing_key=None)
    await feed.send(person.create(rkey(5), memory(words["parked"])))
    assert await feed.rows("select from parked_commits where repo = $1", person.did) != []


async def in_files(cluster: Cluster, database: Database, words: Words, places: Iterable[str]) -> set[str]:
    """The places whose words stand in some file of this database, or in the server's log."""
    async with database.connection() as conn:
        await conn.execute("checkpoint")
        number = await conn.fetchval("select oid from pg_database where datname = current_database()")
    files = [*(cluster.data / "base" / str(number)).iterdir(), cluster.log]
    contents = [file.read_bytes() for file in files if file.is_file()]
    return {place for place in places if any(words[place].encode() in content for content in contents)}


async def erased(database: Database, **options: Any) -> None:
    """Half a day later."""
    daemon = Erasure(database, **options)
    await daemon.look()
    async with database.connection() as conn:
        await conn.execute("update settings set value = '2026-01-01T00:00:00+00:00 ' where name = 'erasure'")
    assert await daemon.look()


async def delete_records(feed: Feed, person: RepoBuilder) -> None:
    await feed.send(person.delete(rkey(1)), person.delete(rkey(2)), person.delete(rkey(3)))


async def delete_account(feed: Feed, person: RepoBuilder) -> None:
    buried = feed.directory.bury(person, feed.clock + timedelta(seconds=1))
    await feed.write(IdentityResolved(feed.place(), buried))


async def take_down_records(feed: Feed, person: RepoBuilder) -> None:
    await feed.write(*(TakedownOrdered(feed.place(), person.did, rkey(number)) for number in (1, 2, 3)))


async def take_down_repo(feed: Feed, person: RepoBuilder) -> None:
    await feed.write(TakedownOrdered(feed.place(), person.did, None))


FATES = pytest.mark.parametrize(
    "delete", [delete_records, delete_account, take_down_records, take_down_repo], ids=lambda fate: fate.__name__
)
WRITTEN = [place for place in PLACES if place != "parked"]


@FATES
async def test_no_file_holds_what_was_deleted_and_all_hold_what_was_not(
    cluster: Cluster, database: Database, seed: int, delete: Callable[[Feed, RepoBuilder], Awaitable[None]]
):
    feed, theirs, others = Feed(database), Words(seed, "alice"), Words(seed, "bob")
    alice, _ = await written(feed, "alice", theirs), await written(feed, "bob", others)
    async with database.connection() as conn:
        await conn.execute("vacuum analyze")  # what is sampled for the planner is in a file of its own
    assert await in_files(cluster, database, theirs, WRITTEN) == set(WRITTEN)
    await delete(feed, alice)
    await erased(database)
    assert await in_files(cluster, database, theirs, PLACES) == set()
    assert await in_files(cluster, database, others, WRITTEN) == set(WRITTEN)


async def test_vacuum_alone_would_leave_words_in_the_index_of_terms(cluster: Cluster, database: Database, seed: int):
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    await delete_records(feed, alice)
    async with database.connection() as conn:
        await statements.vacuum(conn)
    assert "content" in await in_files(cluster, database, words, PLACES)


async def test_index_of_terms_is_built_anew_where_tables_are_too_large_to_be(
    cluster: Cluster, database: Database, seed: int
):
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    await delete_account(feed, alice)
    async with database.connection() as conn:
        before = await conn.fetchval("select pg_relation_filepath('memories_public_terms')")
        table = await conn.fetchval("select pg_relation_filepath('memories')")
    await erased(database, rewritten_bytes_max=0)
    async with database.connection() as conn:
        assert await conn.fetchval("select pg_relation_filepath('memories_public_terms')") != before
        assert await conn.fetchval("select pg_relation_filepath('memories')") == table
        after = await conn.fetchval("select pg_relation_filepath('memories_public_terms')")
        await conn.execute("checkpoint")
    assert words["content"].encode() not in (cluster.data / after).read_bytes()


async def test_broken_off_rebuild_of_the_index_is_done_anew(database: Database):
    async with database.connection() as conn:
        await conn.execute("create index memories_public_terms_ccnew on memories using gin (terms)")
    async with database.connection() as conn:
        await statements.rebuild_terms(conn)
        assert await conn.fetchval("select to_regclass('memories_public_terms_ccnew')") is None


# What waits


@pytest.mark.parametrize("delete", [delete_account, take_down_records, take_down_repo], ids=lambda fate: fate.__name__)
async def test_what_waited_for_a_key_goes_with_what_is_deleted(
    cluster: Cluster, database: Database, seed: int, delete: Callable[[Feed, RepoBuilder], Awaitable[None]]
):
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    await parked(feed, alice, words)
    assert await in_files(cluster, database, words, ["parked"]) == {"parked"}
    await delete(feed, alice)
    assert await feed.rows("select from parked_commits") == []
    await erased(database)
    assert await in_files(cluster, database, words, ["parked"]) == set()


async def test_takedown_of_a_record_has_the_repo_fetched_whose_commits_it_throws_away(database: Database, seed: int):
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    await take_down_records(feed, alice)
    assert "fetch" not in await feed.requests(alice)
    await parked(feed, alice, words)
    await take_down_records(feed, alice)
    assert (await feed.requests(alice))["fetch"] == "takedown"


async def test_deletion_takes_along_what_is_parked_behind_the_gate_and_leaves_what_is_not(
    database: Database, seed: int
):
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    async with database.connection() as conn:
        for rev in (alice.rev, "4"):
            await conn.execute(
                "insert into parked_commits values ($1, $2, 'relay', 1, 'frame', 'key_unknown', now())", alice.did, rev
            )
    await delete_records(feed, alice)
    assert [row["rev"] for row in await feed.rows("select rev from parked_commits")] == ["4"]


async def test_bytes_that_are_no_frame_and_overwritten_content_are_gone_when_their_time_is_over(
    cluster: Cluster, database: Database, seed: int
):
    feed, words = Feed(database), Words(seed, "alice")
    await written(feed, "alice", words)
    await feed.write(FrameBroken(feed.place(), words["parked"].encode(), "frame_malformed"))
    assert await in_files(cluster, database, words, ["parked", "overwritten", "invalid"]) == {
        *("parked", "overwritten", "invalid")
    }
    await expire(database, feed.clock + timedelta(days=31))
    await erased(database)
    # What is invalid now keeps its reason, and its author's words no more.
    assert await in_files(cluster, database, words, ["parked", "overwritten", "invalid"]) == set()


# Answers, cursors, logs


async def test_page_cursor_from_before_a_deletion_shows_nothing_of_it(database: Database, seed: int):
    feed, words, api = Feed(database), Words(seed, "alice"), Api(database)
    alice = await written(feed, "alice", words)
    page = await api.get("listRecords", repo=alice.did, limit=1)
    found = str(page)
    rest = str(await api.get("listRecords", repo=alice.did, cursor=page["cursor"]))
    assert words["content"] in found + rest
    assert not any(words[place] in page["cursor"] for place in PLACES)
    await delete_account(feed, alice)
    uri = f"at://{alice.did}/{COLLECTION}/{rkey(1)}"
    for method, asked in {
        "listRecords": {"repo": alice.did, "cursor": page["cursor"]},
        "getRecord": {"uri": uri},
        "getHistory": {"uri": uri},
        "searchRecords": {"q": words["content"]},
    }.items():
        answer = await api.send("GET", PREFIX + NAMESPACE + method, params=asked)
        told = answer.text.replace(f'"{words["content"]}"', "")  # a search says what it looked for
        assert not any(words[place] in told for place in PLACES)


@FATES
async def test_log_of_a_deletion_holds_no_word_of_it(
    database: Database,
    seed: int,
    delete: Callable[[Feed, RepoBuilder], Awaitable[None]],
):
    log = io.StringIO()
    set_up_logging(log)
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    await delete(feed, alice)
    await erased(database)
    assert "contents_erased" in log.getvalue()
    assert not any(words[place] in log.getvalue() for place in PLACES)


async def test_deleted_account_keeps_no_access_token(database: Database, seed: int):
    feed = Feed(database)
    alice = await written(feed, "alice", Words(seed, "alice"))
    bob = await written(feed, "bob", Words(seed, "bob"))
    async with database.connection() as conn:
        for person in (alice, bob):
            token = "insert into access_tokens values ($1, 'id', '', 'Notes on my knee', now(), now())"
            await conn.execute(token, person.did)
    await delete_account(feed, alice)
    assert await feed.rows("select repo from access_tokens") == [(bob.did,)]


# When


async def test_new_database_is_first_seen_to_after_half_a_day(database: Database):
    assert not await Erasure(database).look()
    assert not await Erasure(database).look()


async def test_only_what_changed_is_seen_to(database: Database, seed: int):
    feed = Feed(database)
    alice = await written(feed, "alice", Words(seed, "alice"))
    await delete_account(feed, alice)
    await erased(database)
    async with database.connection() as conn:
        state = await statements.load_state(conn)
        # The next half day has passed, and the counts are what they are by now.
        await statements.store_state(conn, state.now - erasure.EVERY, state.changes)
    assert not await Erasure(database).look()


async def test_two_processes_never_erase_at_once(database: Database):
    await Erasure(database).look()
    async with database.connection() as conn:
        await conn.execute("update settings set value = '2026-01-01T00:00:00+00:00 ' where name = 'erasure'")
        assert await statements.try_lock(conn)
        assert not await Erasure(database).look()
        await statements.unlock(conn)
    assert await Erasure(database).look()


async def test_table_that_is_in_use_is_not_waited_for_and_the_session_waits_as_before(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(erasure, "LOCK_ATTEMPTS", 1)
    async with database.transaction() as reader:
        await reader.fetch("select from quarantine")
        async with database.connection() as conn:
            assert not await erasure._rewrite(conn, "quarantine")
            assert await conn.fetchval("show lock_timeout") == "0"
    async with database.connection() as conn:
        assert await erasure._rewrite(conn, "quarantine")


# The planner's samples


async def test_planner_keeps_no_sample_of_whole_records(database: Database, seed: int):
    feed = Feed(database)
    await written(feed, "alice", Words(seed, "alice"))
    async with database.connection() as conn:
        await conn.execute("analyze")
        columns = await conn.fetch(
            "select tablename, attname from pg_stats where schemaname = 'public'"
            " and attname in ('record', 'content', 'client', 'excerpt', 'frame')"
        )
    assert columns == []


async def test_whoever_was_forgotten_by_hand_leaves_words_that_are_found(
    cluster: Cluster, database: Database, seed: int
):
    feed, words = Feed(database), Words(seed, "alice")
    alice = await written(feed, "alice", words)
    await forget(database, alice.did)
    assert await in_files(cluster, database, words, WRITTEN) == set(WRITTEN)
