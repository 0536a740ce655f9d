"""A new model fills beside the old one, serves once it is ready, and leaves nothing when it is dropped."""

from __future__ import annotations

from indexer.embed import ModelCare
from indexer.store import embedding_models
from memory.database import Database
from tests.builders import memory
from tests.embedding_double import (
    Double,
    add,
    assert_embedded,
    models_of,
    value,
    work_off,
    worker_of,
    written,
)
from tests.feed import Feed, rkey


async def test_new_model_fills_beside_the_old_one_and_serves_once_it_is_whole(database: Database):
    old, new, feed = Double("old"), Double("new", gives=5), Feed(database)
    await add(database, old)
    await written(feed, "alice", "tea", "jazz")
    await work_off(database, worker_of(database, old))
    await add(database, new)
    worker = worker_of(database, old, new)
    await work_off(database, worker)
    await assert_embedded(database, old, new)
    states = "select state from embedding_models where model = $1"
    assert await value(database, states, "new") == "filling"  # there is no index yet
    await ModelCare(database, models_of(old, new)).look()
    for _ in range(40):
        await worker.step()
    assert (await value(database, states, "new"), await value(database, states, "old")) == ("serving", "standby")


async def test_model_serves_at_its_share(database: Database):
    old, new, feed = Double("old"), Double("new", refuses=lambda text: text == "bad"), Feed(database)
    await add(database, old)
    await written(feed, "alice", *(f"{number}" for number in range(9)), "bad")
    await add(database, new, share=0.9)
    await ModelCare(database, models_of(old, new)).look()
    worker = worker_of(database, old, new)
    for _ in range(60):
        await worker.step()
    assert await value(database, "select state from embedding_models where model = 'new'") == "serving"


async def test_model_that_is_dropped_leaves_nothing_and_may_come_back(database: Database):
    old, new, feed = Double("old"), Double("new"), Feed(database)
    await add(database, old)
    await add(database, new)
    alice = await written(feed, "alice", "tea", "jazz")
    care = ModelCare(database, models_of(old, new))
    await care.look()
    await work_off(database, worker_of(database, old, new))
    async with database.connection() as conn:
        assert not await embedding_models.leave_model(conn, "new" if await serves(database, "new") else "old")
        leaving = "old" if await serves(database, "new") else "new"
        assert await embedding_models.leave_model(conn, leaving)
    await feed.send(alice.update(rkey(1), memory("coffee")))
    assert await value(database, "select count(*) from embeddings where model = $1", leaving) == 1
    assert await value(database, "select count(*) from embedding_requests where model = $1", leaving) == 0
    worker = worker_of(database, old, new)
    for _ in range(200):
        await worker.step()
        await care.look()
    assert await value(database, "select count(*) from embeddings where model = $1", leaving) == 0
    assert await value(database, "select count(*) from embedding_models") == 1
    assert await value(database, "select count(*) from pg_indexes where indexname like 'embeddings_nearest%'") == 1
    await add(database, old if leaving == "old" else new)
    await work_off(database, worker_of(database, old, new))
    await assert_embedded(database, old, new)


async def serves(database: Database, model: str) -> bool:
    return await value(database, "select state from embedding_models where model = $1", model) == "serving"


async def test_vectors_of_a_model_that_is_leaving_are_not_stored(database: Database):
    old, new, feed = Double("old"), Double("new"), Feed(database)
    await add(database, old)
    await add(database, new)
    await written(feed, "alice", "tea")

    async def leave() -> None:
        async with database.connection() as conn:
            await embedding_models.leave_model(conn, "new")

    new.meanwhile = leave
    worker = worker_of(database, old, new)
    for _ in range(20):
        await worker.step()
    assert await value(database, "select array_agg(model) from embeddings") == ["old"]


async def test_each_model_gets_its_index_and_its_calibration(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea")
    await work_off(database, worker_of(database, double))
    await ModelCare(database, models_of(double)).look()
    async with database.connection() as conn:
        assert await embedding_models.index_is_valid(conn, double.model, 8)
        [model] = await embedding_models.load_models(conn)
    assert model.calibration is not None
    assert model.calibration.keys() == {"low", "high", "mean"}


async def test_index_that_was_broken_off_is_built_anew(database: Database):
    double = Double()
    await add(database, double)
    care = ModelCare(database, models_of(double))
    await care.look()
    async with database.connection() as conn:
        await conn.execute(
            "update pg_index set indisvalid = false where indexrelid::regclass::text like 'embeddings_nearest%'"
        )
        assert not await embedding_models.index_is_valid(conn, double.model, 8)
    await care.look()
    async with database.connection() as conn:
        assert await embedding_models.index_is_valid(conn, double.model, 8)


async def test_two_processes_never_build_indexes_at_once(database: Database):
    double = Double()
    await add(database, double)
    care = ModelCare(database, models_of(double))
    async with database.connection() as conn:
        assert await embedding_models.try_lock_indexes(conn)
        await care.look()
        assert await embedding_models.index_is_valid(conn, double.model, 8) is None
        await embedding_models.unlock_indexes(conn)
    await care.look()
    async with database.connection() as conn:
        assert await embedding_models.index_is_valid(conn, double.model, 8)
