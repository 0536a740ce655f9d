"""Vectors are filled behind the writer: in turn, once, of what there is, and of nothing that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from indexer.arrivals import IdentityResolved, TakedownOrdered
from indexer.embedder import PASSAGES_FIRST
from indexer.quota import QuotaLimits
from indexer.store import embeddings
from indexer.store.embeddings import Lane, Turn
from memory.database import Database
from memory.embedding import split_passages
from tests.builders import RepoBuilder, memory
from tests.deadline import DEADLINE_S
from tests.embedding_double import (
    UNHURRIED,
    Double,
    add,
    assert_embedded,
    lapse_leases,
    value,
    work_off,
    worker_of,
    written,
)
from tests.feed import Feed, rkey

# What is embedded


async def test_what_comes_live_gets_its_vectors_in_chunks(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea", "A long one. " * 150)
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)
    assert await value(database, "select max(chunk) from embeddings") == len(split_passages("A long one. " * 150)) - 1


async def test_what_was_there_before_the_model_gets_its_vectors_too(database: Database):
    double, feed = Double(), Feed(database)
    await written(feed, "alice", "tea", "jazz")
    await add(database, double)
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


async def test_writer_says_nothing_of_vectors_while_there_is_no_model(database: Database):
    feed = Feed(database)
    alice = await written(feed, "alice", "tea")
    async with database.connection() as conn:
        await conn.execute("alter table embedding_requests rename to elsewhere")
    await feed.send(alice.update(rkey(1), memory("coffee")), alice.delete(rkey(1)))
    assert await feed.memories(alice) == {}


async def test_content_that_changes_while_it_is_embedded_is_embedded_anew(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    alice = await written(feed, "alice", "tea", "jazz", "walnuts")

    async def change() -> None:
        double.meanwhile = rest
        await feed.send(alice.update(rkey(1), memory("coffee")), alice.delete(rkey(2)))

    async def rest() -> None:
        await asyncio.sleep(0)

    double.meanwhile = change
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


async def test_request_that_nobody_made_is_found_missing(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea")
    async with database.connection() as conn:
        await conn.execute("delete from embedding_requests")
    worker = worker_of(database, double)
    while await value(database, "select count(*) from embeddings") == 0:
        await worker.step()
    await assert_embedded(database, double)


# What is gone


async def delete_record(feed: Feed, person: RepoBuilder) -> None:
    await feed.send(person.delete(rkey(1)), person.delete(rkey(2)))


async def overwrite_with_what_is_invalid(feed: Feed, person: RepoBuilder) -> None:
    await feed.send(*(person.update(rkey(number), memory("tea", kind=7)) for number in (1, 2)))


async def delete_account(feed: Feed, person: RepoBuilder) -> None:
    buried = feed.directory.bury(person, feed.clock + timedelta(seconds=1))
    await feed.write(IdentityResolved(feed.place(), buried))


async def take_down_record(feed: Feed, person: RepoBuilder) -> None:
    await feed.write(*(TakedownOrdered(feed.place(), person.did, rkey(number)) for number in (1, 2)))


async def take_down_repo(feed: Feed, person: RepoBuilder) -> None:
    await feed.write(TakedownOrdered(feed.place(), person.did, None))


@pytest.mark.parametrize("embedded", [True, False], ids=["embedded", "waiting"])
@pytest.mark.parametrize(
    "fate",
    [delete_record, overwrite_with_what_is_invalid, delete_account, take_down_record, take_down_repo],
    ids=lambda fate: fate.__name__,
)
async def test_vectors_and_requests_go_with_the_memory(
    database: Database, fate: Callable[[Feed, RepoBuilder], Awaitable[None]], *, embedded: bool
):
    double, feed = Double(), Feed(database)
    await add(database, double)
    alice, bob = await written(feed, "alice", "tea", "jazz"), await written(feed, "bob", "wine")
    if embedded:
        await work_off(database, worker_of(database, double))
    await fate(feed, alice)
    for table in ("embeddings", "embedding_requests"):
        left = await feed.rows(f"select repo from {table}")
        assert {row["repo"] for row in left} <= {bob.did}, table
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


async def test_what_the_quota_drops_keeps_no_vector(database: Database):
    double = Double()
    feed = Feed(database, limits=QuotaLimits(max_memories=2, max_bytes=10**6, max_edges=100))
    await add(database, double)
    alice = await written(feed, "alice", "one", "two")
    await work_off(database, worker_of(database, double))
    await feed.send(alice.create(rkey(0), memory("zero")))
    assert len(await feed.memories(alice)) == 2
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


# In whose turn


async def test_one_with_a_thousand_keeps_nobody_waiting(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    flooder = await written(feed, "flooder", *(f"flood {number}" for number in range(1000)))
    others = [await written(feed, f"other {number}", "tea", "jazz") for number in range(10)]
    worker = worker_of(database, double)
    mine = "select count(*) from embeddings where repo = any($1)"
    while await value(database, mine, [other.did for other in others]) != 20:
        await worker.step()
    flooded = await value(database, mine, [flooder.did])
    assert isinstance(flooded, int)
    assert flooded <= 20 + 3 * PASSAGES_FIRST


async def test_what_comes_live_goes_before_what_was_there(database: Database):
    double, feed = Double(), Feed(database)
    await written(feed, "old", *(f"old {number}" for number in range(100)))
    await add(database, double)
    worker = worker_of(database, double)
    while await value(database, "select count(*) from embedding_requests") == 0:
        await worker.step()
    double.seen.clear()
    await written(feed, "new", "fresh")
    for _ in range(2):  # every fourth step is another's turn
        await worker.step()
    assert "fresh" in double.seen


async def test_what_was_there_has_its_turn_though_live_never_ends(database: Database):
    double, feed = Double(), Feed(database)
    await written(feed, "old", *(f"old {number}" for number in range(100)))
    await add(database, double)
    worker = worker_of(database, double)
    while await value(database, "select count(*) from embedding_requests") == 0:
        await worker.step()
    await written(feed, "flooder", *(f"flood {number}" for number in range(1000)))
    double.seen.clear()
    for _ in range(40):
        await worker.step()
    assert any(text.startswith("old") for text in double.seen)
    assert any(text == "flood 1" or text.startswith("flood") for text in double.seen)


async def test_newest_of_a_repo_is_first(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", *(f"{number:03}" for number in range(30)))
    worker = worker_of(database, double)
    while len(double.seen) < 30:
        await worker.step()
    assert [int(text) // 2 for text in double.seen] == sorted((int(text) // 2 for text in double.seen), reverse=True)


async def test_two_workers_embed_nothing_twice(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    for name in ("alice", "bob", "carol"):
        await written(feed, name, *(f"{name} {number}" for number in range(40)))
    await asyncio.gather(*(work_off(database, worker_of(database, double)) for _ in range(3)))
    await assert_embedded(database, double)
    assert len(double.seen) == len(set(double.seen)) == 120


async def test_what_a_dead_worker_held_comes_free_with_its_lease(database: Database):
    double, feed = Double(fails=KeyboardInterrupt()), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea")
    with pytest.raises(KeyboardInterrupt):
        await worker_of(database, double).step()
    another = worker_of(database, double)
    for _ in range(5):
        await another.step()
    assert await value(database, "select count(*) from embeddings") == 0
    await lapse_leases(database)
    await work_off(database, another)
    await assert_embedded(database, double)


async def test_lease_is_renewed_while_a_text_is_embedded(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea")

    async def long() -> None:
        await lapse_leases(database)
        async with asyncio.timeout(DEADLINE_S):
            while not await value(database, "select not_before > clock_timestamp() from embedding_requests"):
                pass

    double.meanwhile = long
    assert await worker_of(database, double, pace=replace(UNHURRIED, lease_s=1.0)).step()


# Statements


async def test_claims_go_round_from_where_the_last_one_ended(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    people = [await written(feed, name, "tea", "jazz") for name in ("alice", "bob", "carol")]
    dids = sorted(person.did for person in people)
    turn = Turn(1, 1, ("", ""), with_spaces=True, lease_s=60)
    taken: list[str] = []
    for _ in range(3):
        async with database.transaction() as conn:
            [request] = await embeddings.claim(conn, double.model, Lane.LIVE, turn)
        taken.append(request.key[0])
        turn = replace(turn, after=request.key[:2])
    assert taken == dids
