"""What a host gives away must be its author's, of now, and no older than what is held."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from indexer.verify.car import read_car
from memory.database import Database
from memory.identifiers import cid_text
from tests.builders import CommitParts, RepoBuilder, SigningKey, memory, tid, write_car
from tests.fakes.pds import Pds
from tests.feed import rkey
from tests.mending import Mending, mending


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        opened.start()
        yield opened


def written(world: Mending, *contents: str) -> RepoBuilder:
    alice = world.account("alice")
    for number, content in enumerate(contents):
        alice.create(rkey(number), memory(content))
    return alice


def sign_anew(host: Pds, person: RepoBuilder, key: SigningKey | None = None, **changes: Any) -> None:
    """Has a host give away the repo with another commit on top of the same tree."""
    assert person.data is not None
    assert person.commit is not None
    commit = {"did": person.did, "version": 3, "rev": person.rev, "data": person.data, "prev": None}
    cid, block = CommitParts(key or person.key, commit | changes, {}, {}).sign()
    _, *blocks = read_blocks(person)
    host.frozen[person.did] = (write_car(cid, [(cid, block), *blocks]), cid_text(cid), changes.get("rev", person.rev))


def read_blocks(person: RepoBuilder) -> list[tuple[bytes, bytes]]:
    return list(read_car(person.car()).blocks.items())


async def assert_whole(world: Mending, person: RepoBuilder, *contents: str) -> None:
    await world.until(lambda: world.contents(person), list(contents))
    await world.until_state(person, "active")


# Signatures


async def test_repo_that_somebody_else_signed_is_refused(world: Mending):
    alice = written(world, "one")
    sign_anew(world.pds, alice, SigningKey("mallory"))
    await world.ask(alice)
    assert await world.until_failed(alice) == "bad_signature"
    assert await world.state(alice) == ("error", "bad_signature")
    assert await world.contents(alice) == []
    world.pds.frozen.clear()
    world.clock.advance(minutes=1)
    await assert_whole(world, alice, "one")


async def test_key_that_was_rotated_a_moment_ago_is_asked_for_anew(world: Mending):
    alice = written(world, "one")
    await world.ask(alice)
    await assert_whole(world, alice, "one")
    alice.rotate_key("new")
    world.register(alice)
    alice.create(rkey(1), memory("two"))
    world.clock.advance(minutes=10)
    await world.ask(alice)
    await assert_whole(world, alice, "one", "two")


@pytest.fixture
def moved(world: Mending) -> RepoBuilder:
    """Someone whose repo was brought to another host, as the old key signed it, which now is another."""
    alice = written(world, "one")
    old = alice.key
    alice.rotate_key("new")
    world.other_pds.add(alice)
    del world.pds.repos[alice.did]
    world.register(alice)
    sign_anew(world.other_pds, alice, old)
    return alice


async def test_repo_that_the_old_key_signed_while_it_held_is_the_authors(world: Mending, moved: RepoBuilder):
    await world.ask(moved)
    await assert_whole(world, moved, "one")
    assert world.directory.asked_for(f"/{moved.did}/log/audit") == 1


async def test_commit_of_the_new_key_chains_on_to_one_of_the_old(world: Mending, moved: RepoBuilder):
    await world.ask(moved)
    await assert_whole(world, moved, "one")
    world.other_pds.frozen.clear()
    await world.live(moved.create(rkey(1), memory("two")))
    assert await world.contents(moved) == ["one", "two"]


async def test_repo_that_the_old_key_signed_after_it_was_replaced_is_refused(world: Mending, moved: RepoBuilder):
    rotated_at = world.clock.now
    world.clock.advance(hours=1)
    sign_anew(world.other_pds, moved, SigningKey("alice"), rev=tid(rotated_at + timedelta(minutes=1)))
    await world.ask(moved)
    assert await world.until_failed(moved) == "bad_signature"


async def test_directory_without_a_history_is_asked_again_later(world: Mending, moved: RepoBuilder):
    log = world.directory.audit_logs.pop(moved.did)
    await world.ask(moved)
    assert await world.until_failed(moved) == "bad_identity"
    world.directory.audit_logs[moved.did] = log
    world.clock.advance(minutes=1)
    await assert_whole(world, moved, "one")


async def test_repo_of_a_host_that_the_account_left_a_moment_ago_is_not_believed(world: Mending):
    """The old host's repo is the author's all the same, but not of now."""
    alice = written(world, "one")
    await world.ask(alice)
    await assert_whole(world, alice, "one")
    old = alice.key
    alice.create(rkey(1), memory("two"))
    sign_anew(world.pds, alice, SigningKey("mallory"))
    alice.rotate_key("new")
    world.other_pds.add(alice)
    alice.create(rkey(2), memory("three"))
    world.register(alice)
    del old
    world.clock.advance(minutes=10)
    await world.ask(alice)
    await world.until(lambda: world.contents(alice), ["one", "two", "three"])
    assert (await world.row(alice))["host"] == world.other_pds.url


# Revs


async def test_repo_that_is_older_than_what_is_held_changes_nothing_and_is_tried_again(world: Mending):
    alice = world.account("alice")
    await world.live(*alice.genesis(), alice.create(rkey(1), memory("one")))
    world.pds.freeze(alice.did)
    await world.live(alice.create(rkey(2), memory("two")))
    await world.ask(alice)
    assert await world.until_failed(alice) == "stale_repo"
    await assert_whole(world, alice, "one", "two")
    assert (await world.row(alice))["rev"] == alice.rev
    world.pds.frozen.clear()
    world.clock.advance(minutes=1)
    await world.until_answered(alice)
    await assert_whole(world, alice, "one", "two")


async def test_stale_repo_of_one_that_lost_its_chain_is_told(world: Mending):
    alice = world.account("alice")
    await world.live(*alice.genesis())
    world.pds.freeze(alice.did)
    await world.live(alice.create(rkey(1), memory("one")))
    alice.create(rkey(2), memory("two"))
    await world.live(alice.create(rkey(3), memory("three")))
    assert await world.until_failed(alice) == "stale_repo"
    assert await world.state(alice) == ("error", "stale_repo")
    assert await world.contents(alice) == ["one"]


async def test_repo_of_the_rev_that_is_held_is_applied(world: Mending):
    alice = world.account("alice")
    await world.live(*alice.genesis(), alice.create(rkey(1), memory("one")))
    await world.ask(alice)
    await world.until_answered(alice)
    await assert_whole(world, alice, "one")


@pytest.mark.parametrize(
    ("ahead", "reason"),
    [(timedelta(minutes=4), None), (timedelta(minutes=6), "rev_in_future")],
    ids=["a little", "far"],
)
async def test_repo_of_the_future_is_refused(world: Mending, ahead: timedelta, reason: str | None):
    alice = written(world, "one")
    sign_anew(world.pds, alice, rev=tid(world.clock.now + ahead))
    await world.ask(alice)
    if reason is None:
        await assert_whole(world, alice, "one")
    else:
        assert await world.until_failed(alice) == reason
        assert await world.state(alice) == ("error", reason)


@pytest.mark.parametrize("rev", ["latest", "3", "zzzzzzzzzzzzz"])
async def test_repo_whose_rev_is_none_is_refused(world: Mending, rev: str):
    alice = written(world, "one")
    sign_anew(world.pds, alice, rev=rev)
    await world.ask(alice)
    assert await world.until_failed(alice) == "rev_not_tid"


async def test_repo_of_another_account_is_refused_whoever_signed_it(world: Mending):
    alice = written(world, "one")
    sign_anew(world.pds, alice, did=world.account("bob").did)
    await world.ask(alice)
    assert await world.until_failed(alice) == "did_mismatch"


async def test_repo_without_a_node_of_its_tree_is_refused(world: Mending):
    alice = written(world, *(f"{number}" for number in range(30)))
    commit, *blocks = read_blocks(alice)
    world.pds.frozen[alice.did] = (write_car(commit[0], [commit, *blocks[1:]]), cid_text(commit[0]), alice.rev or "")
    await world.ask(alice)
    assert await world.until_failed(alice) == "repo_incomplete"


async def test_repo_without_one_of_our_records_is_refused(world: Mending):
    alice = written(world, *(f"{number}" for number in range(30)))
    *blocks, _ = read_blocks(alice)
    world.pds.frozen[alice.did] = (write_car(blocks[0][0], blocks), cid_text(blocks[0][0]), alice.rev or "")
    await world.ask(alice)
    assert await world.until_failed(alice) == "repo_incomplete"
    assert await world.contents(alice) == []
