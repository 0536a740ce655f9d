"""`python -m indexer` as its users call it: what it prints, how it ends, and never a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from indexer.__main__ import main
from memory.cluster import Cluster
from memory.database import Database
from tests.recorded import FOLDER, did, frames_of

ROOT = Path(__file__).parents[2]
EXPORT = FOLDER / "plc" / "export.jsonl"
LIVE, BULK = FOLDER / "pds1-live.bin", FOLDER / "pds1-bulk.bin"
HOST = ("--host", "localhost:2583")
FROM = (*HOST, "--identities", str(EXPORT))
REPORT = {"frames", "commits_verified", "rejected", "already_applied", "memories", "seconds"}
STATUS = {
    "problems",
    "cursors",
    "repos",
    "memories",
    "invalid",
    "rejections",
    "requests",
    "parked_commits",
    "parked_bytes",
    "quarantined_frames",
    "parked_for_fetch",
    "fetches",
    "spaces",
    "spaces_set_up",
    "gaps",
    "sweeps",
    "erasure",
    "embeddings",
}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    status: int
    output: str
    errors: str

    @property
    def last_line(self) -> dict[str, Any]:
        return json.loads(self.output.splitlines()[-1])


async def indexer(*arguments: object, **environment: str) -> Ended:
    """Runs the command with these variables, and none of ours beside them."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "indexer",
        *map(str, arguments),
        cwd=ROOT,
        env=inherited | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    ended = Ended(process.returncode, output.decode(), errors.decode())
    assert "Traceback" not in ended.output + ended.errors
    assert "process_crashed" not in ended.errors
    return ended


def refused(ended: Ended, *words: str) -> None:
    """Ended with 2, and one line that says what to mend."""
    assert ended.status == 2, ended.errors
    assert ended.output == ""
    for word in words:
        assert word in ended.errors


# Help


async def test_help_names_every_command():
    ended = await indexer("--help")
    assert ended.status == 0
    for command in ("run", "replay", "record", "backfill", "resync", "status"):
        assert command in ended.output


@pytest.mark.parametrize("command", ["replay", "record", "backfill", "resync", "status"])
async def test_every_command_explains_itself(command: str):
    ended = await indexer(command, "--help")
    assert ended.status == 0
    assert f"python -m indexer {command}" in ended.output


async def test_call_without_a_command_is_refused():
    refused(await indexer(), "COMMAND")


async def test_unknown_command_is_told_those_that_there_are():
    ended = await indexer("statsu")
    refused(ended, "'status'", "'doctor'")
    assert "crew" not in ended.errors


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("status",), "The exit status is 0 either way"),
        (("doctor",), "Exit status 1 if something failed."),
        (("rotate-key",), "Exit status 1 if some were not opened."),
        (("cursor", "set"), "  python -m indexer cursor set relay.example.com 0\n"),
        (("takedown",), "of Spaces only a whole author can be taken down"),
    ],
)
def test_help_says_what_a_command_ends_with_and_takes(
    command: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert words in capsys.readouterr().out


# Run


async def test_run_without_sources_says_what_to_name(tmp_path: Path):
    sources = "Nothing to follow: name relays in INDEXER_RELAY_URLS, or PDSes in INDEXER_PDS_URLS"
    refused(await indexer("run"), f"{sources}.\n")
    spaces = await indexer("run", SPACES_KEY_FILE=str(tmp_path / "keys"))
    refused(spaces, f"{sources} (`python -m indexer spaces` keeps private Spaces alone).\n")


# Replay


async def test_replay_ends_with_one_line_of_json(database: Database, database_url: str):
    ended = await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url)
    assert (ended.status, ended.errors) == (0, "")
    assert len(ended.output.splitlines()) == 1
    report = ended.last_line
    assert report.keys() == REPORT
    assert report["memories"].keys() == {"current", "masked", "invalid"}
    assert report["frames"] == len(frames_of("pds1-live.bin"))
    assert report["rejected"] == {"wrong_host": 1}
    async with database.connection() as conn:
        held = await conn.fetchval("select count(*) from memories join repos using (repo, space) where visible")
    assert report["memories"]["current"] + report["memories"]["masked"] == held > 0
    assert report["commits_verified"] > 0
    assert report["seconds"] > 0


async def test_replay_from_the_cursor_verifies_nothing_twice(database_url: str):
    first = await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url)
    ended = await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url)
    assert ended.last_line["frames"] == first.last_line["frames"]
    assert (ended.last_line["commits_verified"], ended.last_line["already_applied"]) == (0, 0)


async def test_replay_without_cursor_meets_all_again(database: Database, database_url: str):
    await indexer("replay", LIVE, *FROM, "--no-cursor", DATABASE_URL=database_url)
    ended = await indexer("replay", LIVE, *FROM, "--no-cursor", DATABASE_URL=database_url)
    assert ended.last_line["commits_verified"] == 0
    assert ended.last_line["already_applied"] > 50
    async with database.connection() as conn:
        assert await conn.fetch("select from sources") == []


async def test_rejected_frames_are_no_failure(database_url: str):
    ended = await indexer("replay", FOLDER / "tampered.bin", *FROM, "--no-cursor", DATABASE_URL=database_url)
    assert ended.status == 0
    assert ended.last_line["rejected"]["broken_frame"] == 5
    assert ended.last_line["rejected"]["malformed_event"] == 1


async def test_several_files_are_merged_by_seq(database: Database, database_url: str):
    ended = await indexer("replay", BULK, LIVE, *FROM, DATABASE_URL=database_url)
    assert ended.last_line["frames"] == len(frames_of("pds1-live.bin", "pds1-bulk.bin"))
    async with database.connection() as conn:
        assert await conn.fetch("select from repos where state <> 'active' and visible") == []


async def test_relay_speaks_for_every_account(database_url: str):
    ended = await indexer("replay", LIVE, "--relay", "relay.test", "--identities", EXPORT, DATABASE_URL=database_url)
    assert ended.last_line["rejected"].get("wrong_host") is None


async def test_empty_recording_beside_another_is_no_fault(tmp_path: Path, database_url: str):
    (tmp_path / "empty.bin").touch()
    ended = await indexer("replay", tmp_path / "empty.bin", LIVE, *FROM, DATABASE_URL=database_url)
    assert (ended.status, ended.last_line["frames"]) == (0, len(frames_of("pds1-live.bin")))


async def test_only_admitted_repos_are_tracked(tmp_path: Path, database: Database, database_url: str):
    admitted = tmp_path / "repos"
    admitted.write_text(f"# one\n{did('bob')}\n")
    await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url, INDEXER_REPOS=str(admitted))
    async with database.connection() as conn:
        assert [row["repo"] for row in await conn.fetch("select repo from repos")] == [did("bob")]


async def test_quotas_come_from_the_settings(database: Database, database_url: str):
    await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url, INDEXER_REPO_MAX_MEMORIES="2")
    async with database.connection() as conn:
        rows = await conn.fetch("select memory_count, over_quota_count from repos")
    assert max(row["memory_count"] for row in rows) == 2
    assert sum(row["over_quota_count"] for row in rows) > 0


# Input that cannot be used


async def test_missing_recording_is_told(tmp_path: Path, database_url: str):
    missing = tmp_path / "missing.bin"
    refused(await indexer("replay", missing, *FROM, DATABASE_URL=database_url), str(missing), "No such file")


async def test_recordings_without_a_frame_are_told(tmp_path: Path, database_url: str):
    empty = [tmp_path / name for name in ("empty.bin", "another.bin")]
    for path in empty:
        path.touch()
    refused(await indexer("replay", empty[0], *FROM, DATABASE_URL=database_url), "empty.bin", "no frame")
    refused(await indexer("replay", *empty, *FROM, DATABASE_URL=database_url), "empty.bin", "another.bin", "no frame")


async def test_folder_is_no_recording(tmp_path: Path, database_url: str):
    refused(await indexer("replay", tmp_path, *FROM, DATABASE_URL=database_url), str(tmp_path))


@pytest.mark.parametrize("cut", [1, 3, 100])
async def test_cut_recording_is_told_with_the_place(tmp_path: Path, database_url: str, cut: int):
    whole = LIVE.read_bytes()
    (tmp_path / "cut.bin").write_bytes(whole[:-cut])
    refused(
        await indexer("replay", tmp_path / "cut.bin", *FROM, DATABASE_URL=database_url), "cut.bin", "cut off", "byte"
    )


async def test_recording_that_is_none_is_told(tmp_path: Path, database_url: str):
    (tmp_path / "text.bin").write_text("this is no recording at all")
    refused(await indexer("replay", tmp_path / "text.bin", *FROM, DATABASE_URL=database_url), "text.bin", "byte 0")


async def test_cut_recording_among_several_is_told(tmp_path: Path, database_url: str):
    (tmp_path / "cut.bin").write_bytes(BULK.read_bytes()[:-1])
    refused(await indexer("replay", LIVE, tmp_path / "cut.bin", *FROM, DATABASE_URL=database_url), "cut.bin")


@pytest.mark.parametrize(
    "content", [b"not json\n", b"[]\n", b"{}\n", b"\xff\xfe\x00", b'{"did": "did:plc:x", "createdAt": "2026"}\n']
)
async def test_malformed_export_is_told_with_its_line(tmp_path: Path, database_url: str, content: bytes):
    export = tmp_path / "export.jsonl"
    export.write_bytes(EXPORT.read_bytes().splitlines(keepends=True)[0] + content)
    ended = await indexer("replay", LIVE, *HOST, "--identities", export, DATABASE_URL=database_url)
    refused(ended, "export.jsonl", "line 2")


async def test_missing_export_is_told(tmp_path: Path, database_url: str):
    missing = tmp_path / "missing.jsonl"
    refused(await indexer("replay", LIVE, *HOST, "--identities", missing, DATABASE_URL=database_url), str(missing))


@pytest.mark.parametrize(
    "option",
    [
        "--host=",
        "--host=ftp://pds.test",
        "--host=pds.test/path",
        "--host=a b",
        "--host=[::",
        "--relay=",
        "--relay=r:99999",
    ],
)
async def test_bad_host_is_told(option: str):
    refused(await indexer("replay", LIVE, option, "--identities", EXPORT), option.partition("=")[0])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((LIVE, "--identities", EXPORT), "--relay"),
        ((LIVE, *HOST, "--relay", "relay.test", "--identities", EXPORT), "not allowed"),
        ((LIVE, *HOST), "--identities"),
        (FROM, "FILE"),
    ],
)
async def test_incomplete_call_is_refused(arguments: tuple[object, ...], word: str):
    refused(await indexer("replay", *arguments), word)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INDEXER_REPOS", "/does/not/exist"),
        ("INDEXER_BATCH_EVENTS", "0"),
        ("INDEXER_BATCH_EVENT", "1"),
        ("DATABASE_URL", "mysql://localhost/x"),
        ("DATABASE_URL", "postgresql://localhost:port/x"),
    ],
)
async def test_bad_setting_is_named(database_url: str, name: str, value: str):
    refused(await indexer("replay", LIVE, *FROM, **{"DATABASE_URL": database_url, name: value}), name)


async def test_database_that_is_not_migrated_is_told(cluster: Cluster):
    ended = await indexer("status", DATABASE_URL=cluster.url("postgres"))
    refused(ended, "python -m migrations up")


async def test_database_that_does_not_answer_is_told():
    ended = await indexer("status", DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    assert (ended.status, ended.output) == (1, "")
    assert ended.errors.count("\n") == 1


async def test_refusal_of_the_database_tells_nothing_of_a_record(database: Database, database_url: str):
    async with database.connection() as conn:
        await conn.execute("alter table memories add constraint none_longer check (content_bytes < 30)")
    ended = await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url)
    assert (ended.status, ended.output) == (1, "")
    assert "23514" in ended.errors
    assert ended.errors.count("\n") == 1
    assert "did:" not in ended.errors


# Status


async def test_status_of_an_empty_index(database_url: str):
    ended = await indexer("status", DATABASE_URL=database_url)
    assert (ended.status, ended.errors) == (0, "")
    assert ended.output.startswith("All is well\n\nMemories   0 current, 0 masked, 0 invalid\n")
    assert "nothing was followed or replayed yet" in ended.output


async def test_status_as_json_has_every_key_also_when_empty(database_url: str):
    status = (await indexer("status", "--json", DATABASE_URL=database_url)).last_line
    assert status.keys() == STATUS
    assert status["memories"] == {"current": 0, "masked": 0, "invalid": 0}
    assert status["fetches"] == {"waiting": 0, "under_way": 0, "failed": [], "confirmed_at": None}


async def test_status_says_how_spaces_are_followed(database_url: str, tmp_path: Path):
    given = {"DATABASE_URL": database_url, "SPACES_KEY_FILE": str(tmp_path / "keys")}
    assert "notifications: sweeps only" in (await indexer("status", **given)).output
    given["APPVIEW_PUBLIC_URL"] = "https://memory.example"
    assert "as did:web:memory.example#atproto_space_syncer" in (await indexer("status", **given)).output
    told = (await indexer("status", "--json", **given)).last_line
    assert told["spaces_set_up"] == {"kept": True, "syncer": "did:web:memory.example#atproto_space_syncer"}
    assert told["spaces"]["spaces"] == {}


async def test_status_tells_what_a_replay_left(database_url: str):
    report = (await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url)).last_line
    status = (await indexer("status", "--json", DATABASE_URL=database_url)).last_line
    assert status["memories"] == report["memories"]
    [cursor] = status["cursors"]
    assert cursor.keys() == {
        "source", "seq", "frame_time", "updated_at", "stopped_reason", "gap_at", "followed",
    }  # fmt: skip
    assert (cursor["source"], cursor["seq"]) == ("http://localhost:2583", len(frames_of("pds1-live.bin")))
    assert {(group["state"], group["reason"]) for group in status["repos"]} == {("active", None)}
    assert status["invalid"]["rkeyNoTid"] > 0
    assert [(each["reason"], each["effect"], each["times"]) for each in status["rejections"]] == [
        ("wrong_host", "ignored", 1)
    ]


async def test_status_for_people_tells_the_same(database_url: str):
    await indexer(
        "replay", LIVE, FOLDER / "control.bin", *FROM, DATABASE_URL=database_url, INDEXER_REPO_MAX_MEMORIES="2"
    )
    shown = (await indexer("status", DATABASE_URL=database_url)).output
    for words in ("Cursors", "http://localhost:2583  seq", "active", "over quota", "Invalid records", "Not applied"):
        assert words in shown
    assert "info (ignored) from http://localhost:2583" in shown
