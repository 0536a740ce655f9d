"""Whatever fails or is in the way of embedding, nothing is lost, and nobody waits who need not."""

from __future__ import annotations

import asyncio

import pytest

from indexer.embed import OpenedModels
from indexer.embedder import FIRST_WALKS
from indexer.store import embedding_models
from indexer.store.embeddings import Lane
from memory.database import Database
from memory.embedding import Absent
from memory.errors import Misconfigured, Unavailable
from tests.builders import memory
from tests.deadline import DEADLINE_S
from tests.embedding_double import (
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
from tests.memory_rows import ALICE, SPACE, MemoryRows

# What fails


async def test_text_that_kills_workers_is_taken_alone_and_less_and_less_often(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", *(f"{number}" for number in range(6)), "poison")

    class Dead(Exception):
        pass

    async def work() -> None:
        await asyncio.sleep(0)
        if double.seen[-1] == "poison" or "poison" in double.seen:
            double.seen.clear()
            raise Dead

    double.meanwhile = work
    deaths = 0
    for _ in range(60):
        double.seen.clear()
        try:
            await worker_of(database, double).step()
        except Dead:
            deaths += 1
            if deaths < 5:
                await lapse_leases(database)
    assert await value(database, "select count(*) from embeddings") == 6
    assert await value(database, "select lane from embedding_requests") == Lane.DOUBTFUL
    assert await value(database, "select not_before > now() + interval '3 minutes' from embedding_requests")


async def test_refused_text_delays_no_other_and_is_tried_again(database: Database):
    double, feed = Double(refuses=lambda text: text == "bad"), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea", "bad", "jazz", "walnuts")
    worker = worker_of(database, double)
    for _ in range(30):
        await worker.step()
    assert await value(database, "select count(*) from embeddings") == 3
    async with database.connection() as conn:
        [coverage] = await embedding_models.load_coverage(conn)
    assert (coverage.waiting, coverage.failing, coverage.walks >= FIRST_WALKS) == (1, 1, True)
    assert coverage.ready(with_spaces=True)
    double.refuses = lambda text: False
    await lapse_leases(database)
    await work_off(database, worker)
    await assert_embedded(database, double)


async def test_embedder_that_is_down_loses_nothing_and_counts_against_no_text(database: Database):
    double, feed = Double(down=True), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea", "jazz")
    for _ in range(5):
        await worker_of(database, double).step()
    assert await value(database, "select max(attempts) from embedding_requests") == 0
    double.down = False
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


async def test_model_that_is_down_keeps_no_other_waiting(database: Database):
    here, away, feed = Double("here"), Double("away", down=True), Feed(database)
    await add(database, away)
    await add(database, here)
    await written(feed, "alice", "tea", "jazz")
    worker = worker_of(database, here, away)
    for _ in range(10):
        await worker.step()
    assert await value(database, "select count(*) from embeddings where model = 'here'") == 2


async def test_model_whose_vectors_are_of_another_length_by_now_is_refused(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea")
    double.gives = 9
    with pytest.raises(Misconfigured, match="gives 9 dimensions now") as refusal:
        for _ in range(5):
            await worker_of(database, double).step()
    assert refusal.value.setting == "EMBEDDING_MODEL"
    with pytest.raises(Misconfigured, match="another model under the same name"):
        await add(database, double)
    assert await value(database, "select count(*) from embeddings") == 0


async def test_worker_without_a_way_to_the_model_idles(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea")
    assert not await worker_of(database).step()
    assert await value(database, "select max(attempts) from embedding_requests") == 0


async def test_absence_of_a_model_is_said_once(database: Database, capsys: pytest.CaptureFixture[str]):
    asked: list[str | None] = []

    async def absent(model: str | None) -> Absent:
        asked.append(model)
        return Absent("it is not here")

    models = OpenedModels(absent)
    assert [await models.find("x") for _ in range(3)] == [None] * 3
    assert asked == ["x"]


# Beside the writer


async def test_writer_waits_for_no_worker_that_holds_a_claim(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    alice = await written(feed, "alice", "tea", "jazz")

    async def write() -> None:
        await feed.send(alice.update(rkey(1), memory("coffee")), alice.delete(rkey(2)))

    double.meanwhile = write
    async with asyncio.timeout(DEADLINE_S):
        await worker_of(database, double).step()
    assert await value(database, "select count(*) from embeddings") == 0


async def test_memory_that_is_being_changed_is_not_waited_for(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea", "jazz")
    async with database.transaction() as writing:
        await writing.execute("update memories set masked_from = null where rkey = $1", rkey(1))
        async with asyncio.timeout(DEADLINE_S):
            await worker_of(database, double).step()
        assert await value(database, "select array_agg(rkey) from embeddings") == [rkey(2)]
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


async def test_lost_connection_in_the_middle_loses_nothing(database: Database, database_url: str):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea", "jazz")

    async def cut() -> None:
        double.meanwhile = rest
        async with database.connection() as conn:
            await conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )

    async def rest() -> None:
        await asyncio.sleep(0)

    double.meanwhile = cut
    worker = worker_of(database, double)
    for _ in range(20):
        try:
            await worker.step()
        except Unavailable:
            continue
    await lapse_leases(database)
    await work_off(database, worker_of(database, double))
    await assert_embedded(database, double)


# Spaces


async def private_rows(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "public")
    rows.put(ALICE, "secret", space=SPACE)
    await rows.write(database)


@pytest.mark.parametrize(
    ("leaves", "allowed", "seen"),
    [(True, False, {"public"}), (True, True, {"public", "secret"}), (False, False, {"public", "secret"})],
)
async def test_text_of_a_space_leaves_the_machine_only_where_that_is_allowed(
    database: Database, seen: set[str], *, leaves: bool, allowed: bool
):
    double = Double(leaves_machine=leaves)
    await private_rows(database)
    await add(database, double)
    worker = worker_of(database, double, allow_private=allowed)
    for _ in range(20):
        await worker.step()
    assert set(double.seen) == seen
    async with database.connection() as conn:
        [coverage] = await embedding_models.load_coverage(conn)
    assert coverage.ready(with_spaces=allowed or not leaves)


async def test_long_texts_let_short_live_ones_go_first(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    long = ["walnuts and jazz " * 400 for _ in range(3)]
    for number, text in enumerate(long):
        await written(feed, f"loud{number}", f"{number} {text}")
    await written(feed, "zoe", "tea")
    worker = worker_of(database, double)
    while "tea" not in double.seen:
        assert await worker.step()
    assert len(double.seen) == 1
    await work_off(database, worker)
    await assert_embedded(database, double)
