"""Vectors are filled behind the writer: in turn, once, of what there is, and of nothing that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from indexer.arrivals import IdentityResolved, TakedownOrdered
from indexer.embed import ModelCare, OpenedModels
from indexer.embedder import FIRST_WALKS, PASSAGES_FIRST
from indexer.quota import QuotaLimits
from indexer.store import embedding_models, embeddings
from indexer.store.embeddings import Lane, Turn
from memory.database import Database
from memory.embedding import Absent, split_passages
from memory.errors import Misconfigured, Unavailable
from tests.builders import RepoBuilder, memory
from tests.embedding_double import (
    UNHURRIED,
    Double,
    add,
    assert_embedded,
    lapse_leases,
    work_off,
    worker_of,
)
from tests.feed import Feed, rkey
from tests.memory_rows import ALICE, SPACE, MemoryRows


async def written(feed: Feed, name: str, *contents: str) -> RepoBuilder:
    """Someone with a memory of each content, at 1, 2, …"""
    person = feed.account(name)
    frames = [person.create(rkey(number), memory(content)) for number, content in enumerate(contents, 1)]
    await feed.send(*frames)
    return person


async def value(database: Database, query: str, *arguments: object) -> object:
    async with database.connection() as conn:
        return await conn.fetchval(query, *arguments)


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
        async with asyncio.timeout(30):
            while not await value(database, "select not_before > clock_timestamp() from embedding_requests"):
                pass

    double.meanwhile = long
    assert await worker_of(database, double, pace=replace(UNHURRIED, lease_s=1.0)).step()


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
    async with asyncio.timeout(30):
        await worker_of(database, double).step()
    assert await value(database, "select count(*) from embeddings") == 0


async def test_memory_that_is_being_changed_is_not_waited_for(database: Database):
    double, feed = Double(), Feed(database)
    await add(database, double)
    await written(feed, "alice", "tea", "jazz")
    async with database.transaction() as writing:
        await writing.execute("update memories set masked_from = null where rkey = $1", rkey(1))
        async with asyncio.timeout(30):
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


# Models


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


def models_of(*doubles: Double) -> OpenedModels:
    there = {double.model: double for double in doubles}

    async def opened(model: str | None) -> Double | Absent:
        return there.get(model or "") or Absent("it is another")

    return OpenedModels(opened)


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
