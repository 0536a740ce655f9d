"""How far a change of one record is followed: as far as a cycle can go, however long the chain that it stands in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexer.store.masks import replaced_region
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.space import PUBLIC
from tests.builders import RepoBuilder, Write, memory
from tests.feed import LONG_AGO, Feed, rkey

CHAIN = 60
CIRCLE = range(20, 31)


def link(alice: RepoBuilder, number: int, *targets: int) -> dict[str, object]:
    """A record that is as old as its number is small."""
    created_at = (LONG_AGO + timedelta(minutes=number)).isoformat().replace("+00:00", "Z")
    return memory("tea", created_at, supersedes=[f"at://{alice.did}/{COLLECTION}/{rkey(target)}" for target in targets])


async def chain_with_a_circle(database: Database) -> tuple[Feed, RepoBuilder]:
    """Each replaces the one before it; the oldest of some in the middle also replaces the newest of them."""
    feed = Feed(database)
    alice = feed.account("alice")
    writes = [Write("create", rkey(number), link(alice, number, number - 1)) for number in range(1, CHAIN)]
    await feed.send(alice.apply(writes))
    await feed.send(alice.update(rkey(CIRCLE[0]), link(alice, CIRCLE[0], CIRCLE[-1])))
    return feed, alice


async def followed(feed: Feed, alice: RepoBuilder, number: int) -> list[int]:
    """The numbers of the records whose masks a change of that one makes us ask for."""
    async with feed.database.connection() as conn:
        _, inside = await replaced_region(conn, (alice.did, PUBLIC), [rkey(number)])
    return [other for other in range(CHAIN) if rkey(other) in inside]


async def test_circle_is_found(database: Database):
    feed, _ = await chain_with_a_circle(database)
    members = await feed.rows("select rkey from memories where component is not null order by rkey")
    assert [row["rkey"] for row in members] == [rkey(number) for number in CIRCLE]


@pytest.mark.parametrize("number", [CIRCLE[0], CIRCLE[4], CIRCLE[-1]])
async def test_change_in_a_circle_is_followed_through_all_of_it(database: Database, number: int):
    feed, alice = await chain_with_a_circle(database)
    assert set(await followed(feed, alice, number)) >= set(CIRCLE)


@pytest.mark.parametrize("number", [CHAIN - 1, CIRCLE[-1] + 1, CIRCLE[0] - 1, 1])
async def test_change_where_no_circle_can_be_is_not_followed(database: Database, number: int):
    feed, alice = await chain_with_a_circle(database)
    assert await followed(feed, alice, number) == [number]


async def test_replacers_of_what_is_followed_are_known(database: Database):
    feed, alice = await chain_with_a_circle(database)
    async with feed.database.connection() as conn:
        nodes, inside = await replaced_region(conn, (alice.did, PUBLIC), [rkey(CIRCLE[-1])])
    assert inside == {rkey(number) for number in CIRCLE}
    assert nodes.keys() - inside == {rkey(CIRCLE[-1] + 1)}
