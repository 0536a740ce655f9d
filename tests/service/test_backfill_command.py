"""`python -m indexer backfill` as its users call it."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from memory.database import Database
from tests.backfilling import Ended, World, backfilling, ended
from tests.fakes.pds import Fault

REPORT = {
    "found", "new", "whole", "fetched", "records", "failed", "failures", "waiting", "continued_from", "broken_off",
    "named", "seconds",
}  # fmt: skip


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        yield opened


def last_line(run: Ended) -> dict[str, Any]:
    return json.loads(run.output.splitlines()[-1])


async def lapse_claims(world: World) -> None:
    """As if two minutes had gone by."""
    await world.rows("update requests set not_before = now()")


async def test_discovered_repos_are_fetched_and_summed_up(world: World, database_url: str):
    for name in ("alice", "bob"):
        world.account(name, memories=2)
    run = await world.command(database_url, "backfill", "--discover", world.relay.url)
    assert run.status == 0
    assert run.output.startswith("Found 2 repos: 2 new, 0 already whole.\nFetched 2 with 4 records, all verified, in ")
    assert run.errors == f"Discovering repos at {world.relay.url}\n"
    assert set((await world.states()).values()) == {"active"}


async def test_last_line_is_json_where_machines_read(world: World, database_url: str):
    alice, _ = world.account("alice"), world.account("bob")
    world.pds.misbehave(Fault.WRONG_CIDS, "getRepo", alice.did)
    run = await world.command(database_url, "backfill", "--discover", world.pds.url, "--json")
    assert run.status == 0
    assert len(run.output.splitlines()) == 1
    report = last_line(run)
    assert report.keys() == REPORT
    assert (report["found"], report["new"], report["whole"], report["fetched"]) == (2, 2, 0, 1)
    assert (report["failed"], report["failures"], report["named"]) == (1, {"block_hash": 1}, [])
    assert report["seconds"] > 0


@pytest.mark.parametrize("setting", ["INDEXER_RELAY_URLS", "INDEXER_PDS_URLS"])
async def test_nobody_named_means_whom_the_first_source_lists(world: World, database_url: str, setting: str):
    world.account("alice")
    run = await world.command(database_url, "backfill", **{setting: f"{world.relay.url},{world.pds.url}"})
    assert run.status == 0
    assert f"Discovering repos at {world.relay.url} (the first of {setting})" in run.errors


async def test_own_list_of_repos_is_gone_through_where_there_is_one(world: World, database_url: str, tmp_path: Path):
    alice, _ = world.account("alice"), world.account("bob")
    (tmp_path / "repos").write_text(f"{alice.did}\n")
    run = await world.command(
        database_url, "backfill", INDEXER_REPOS=str(tmp_path / "repos"), INDEXER_RELAY_URLS=world.relay.url
    )
    assert (run.status, run.errors) == (0, "Going through the list of repos (INDEXER_REPOS)\n")
    assert (await world.states()).keys() == {alice.did}


async def test_named_repos_are_told_one_by_one_where_they_fail(world: World, database_url: str, tmp_path: Path):
    alice, bob = world.account("alice"), world.account("bob")
    world.pds.misbehave(Fault.WRONG_CIDS, "getRepo", bob.did)
    (tmp_path / "repos.txt").write_text(f"# friends\n\n@{bob.handle.upper()}  # and his\nnobody.test\n")
    run = await world.command(database_url, "backfill", alice.did, "--file", tmp_path / "repos.txt", "--json")
    assert run.status == 1
    unknown, failed = sorted(run.errors.splitlines(), key=lambda line: "block_hash" in line)
    assert unknown == "nobody.test: no such handle"
    assert failed.startswith(f"{bob.handle} ({bob.did}): not fetched: block_hash; tried again from ")
    report = last_line(run)
    assert (report["found"], report["fetched"], report["failed"]) == (3, 1, 2)
    assert report["failures"] == {"unknown_handle": 1, "block_hash": 1}
    assert {(each["subject"], each["did"], each["reason"]) for each in report["named"]} == {
        ("nobody.test", None, "unknown_handle"),
        (bob.handle, bob.did, "block_hash"),
    }
    assert await world.states() == {alice.did: "active", bob.did: "error"}


async def test_server_that_lists_nobody_is_told(world: World, database_url: str):
    world.relay.unknown_methods |= {"listReposByCollection", "listRepos"}
    run = await world.command(database_url, "backfill", "--discover", world.relay.url)
    assert run.status == 1
    assert f"error: {world.relay.url} has neither listReposByCollection nor listRepos" in run.errors


# Stopped


async def test_interrupt_says_that_it_goes_on_at_the_next_call(world: World, database_url: str):
    world.account("alice")
    world.pds.misbehave(Fault.SLOW, "getRepo")
    process = await world.begin(database_url, "backfill", "--discover", world.relay.url, "--json")
    await world.pds.until_asked("getRepo")
    run = await ended(process, interrupt=True)
    assert (run.status, run.output) == (130, "")
    assert run.errors.endswith("Interrupted: the next call goes on from where this one was.\n")


async def test_what_was_killed_is_finished_by_the_next_call(world: World, database_url: str):
    for name in ("alice", "bob", "carol"):
        world.account(name)
    world.pds.misbehave(Fault.STALLED, "getRepo")
    process = await world.begin(database_url, "backfill", "--discover", world.relay.url)
    await world.pds.until_asked("getRepo", 2)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await process.communicate()
    world.pds.misbehave(None, "getRepo")
    await lapse_claims(world)
    run = await world.command(database_url, "backfill", "--discover", world.relay.url, "--json")
    assert (run.status, last_line(run)["fetched"]) == (0, 3)
    assert await world.contents() == ["alice 0", "bob 0", "carol 0"]


async def test_sweep_that_was_not_finished_is_continued_and_told(world: World, database_url: str):
    world.account("alice")
    await world.rows(
        "insert into discoveries (origin, page_cursor, repos_found, started_at, updated_at) values ($1, $2, 7, $3, $3)",
        world.relay.url,
        "collection:" + world.relay.lists._cursor(0, 0),
        world.clock.now,
    )
    run = await world.command(database_url, "backfill", "--discover", world.relay.url, "--json")
    assert f": continuing the sweep begun at {world.clock.now:%Y-%m-%d %H:%M:%S} UTC\n" in run.errors
    assert last_line(run)["continued_from"] == world.clock.now.isoformat()
    [row] = await world.rows("select repos_found, finished_at from discoveries")
    assert row["repos_found"] == 8
    assert row["finished_at"] is not None


# Calls that cannot be carried out: `tests/unit/test_command_lines.py` has all of them


async def test_call_that_makes_no_sense_is_refused(world: World, database_url: str):
    run = await world.command(database_url, "backfill", "alice.test", "what is this")
    assert (run.status, run.output, run.errors) == (2, "", "error: Neither a DID nor a handle: what is this.\n")


async def test_help_teaches_by_examples(world: World, database_url: str):
    run = await world.command(database_url, "backfill", "--help")
    assert run.status == 0
    for example in ("--discover https://pds.example.com", "alice.example.com", "--file repos.txt"):
        assert f"python -m indexer backfill {example}" in run.output
