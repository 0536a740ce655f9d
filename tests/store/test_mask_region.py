"""How far a change of one record is followed: as far as a cycle can go, however long the chain that it stands in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexer.store.masks import replaced_region
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.masking import evaluate
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
        inside = (await replaced_region(conn, (alice.did, PUBLIC), [rkey(number)])).inside
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
        region = await replaced_region(conn, (alice.did, PUBLIC), [rkey(CIRCLE[-1])])
    assert region.inside == {rkey(number) for number in CIRCLE}
    assert region.nodes.keys() - region.inside == {rkey(CIRCLE[-1] + 1)}


async def test_circles_in_reach_that_a_change_does_not_touch_are_not_judged_again(database: Database):
    """Circles of three, each replacing the one before: one change must not cost all of them."""
    feed = Feed(database)
    alice = feed.account("alice")
    circles = 12
    writes: list[Write] = []
    for circle in range(circles):
        first = 3 * circle
        targets = {first: [first + 2], first + 1: [first], first + 2: [first + 1]}
        if circle:
            targets[first].append(first - 1)
        writes += [Write("create", rkey(number), link(alice, number, *to)) for number, to in targets.items()]
    await feed.send(alice.apply(writes))
    last = 3 * circles - 1
    async with feed.database.connection() as conn:
        region = await replaced_region(conn, (alice.did, PUBLIC), [rkey(last)])
    assert len(region.inside) == 3 * circles
    judged = evaluate(region.nodes, only={rkey(last)})
    assert set(judged) == {rkey(number) for number in range(last - 2, last + 1)}
    assert {key: evaluate(region.nodes)[key] for key in judged} == judged


async def test_edges_of_a_large_web_are_turned_by_their_keys(database: Database):
    """A web whose edges are all in one circle, as large as a few commits make it."""
    feed = Feed(database)
    alice = feed.account("alice")
    members = 400
    for start in range(0, members, 200):
        numbers = range(start, start + 200)
        writes = [
            Write("create", rkey(number), link(alice, number, *((number + step) % members for step in range(1, 20))))
            for number in numbers
        ]
        await feed.send(alice.apply(writes))
    visible = await feed.rows("select rkey from memories where masked_from is null")
    ignored = await feed.rows("select count(*) as edges from memory_edges where ignored")
    upward = await feed.rows("select count(*) as edges from memory_edges where upward")
    assert len(visible) >= 1
    assert ignored[0]["edges"] == upward[0]["edges"] > 0  # more than COMPONENT_MEMBERS_MAX are in it
