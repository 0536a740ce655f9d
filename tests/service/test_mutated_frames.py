"""Damaged frames among good ones: nothing crashes or stalls, and no good frame is passed over unapplied."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

from indexer.consumer import Consumer, frame_clock
from indexer.interpret import interpret_block
from indexer.recording import frame_seq
from indexer.verify.car import encode_block
from memory.database import Database
from memory.queries import Connection
from memory.space import PUBLIC
from tests.builders import RepoBuilder, Sequence, memory
from tests.mutations import mutate
from tests.recorded import PDS1, did, directory, export, frames_of, replay

FRAMES = int(os.environ.get("TEST_MUTATED_FRAMES", "20000"))
STREAMS = int(os.environ.get("TEST_MUTATED_STREAMS", "30"))
SMALL = 12_000  # bytes; the few larger frames would take all the time


def test_damaged_frames_are_judged_not_raised(seed: int) -> None:
    draw = random.Random(seed)
    frames = [frame for frame in frames_of("pds1-live.bin", "pds1-bulk.bin", "tampered.bin") if len(frame) < SMALL]
    consumer = Consumer(
        identities=export(),
        clock=frame_clock(datetime(2026, 11, 29, tzinfo=UTC)),
        tracked={did(account) for account in ("alice", "bob", "carol", "dave", "erin", "grace", "heidi")},
        admits=lambda _: True,
        cursors={},
    )
    for _ in range(FRAMES):
        consumer.take(PDS1, mutate(draw.choice(frames), draw))


async def test_damaged_frames_leave_every_repo_true_or_waiting(database: Database, seed: int) -> None:
    draw = random.Random(seed)
    good = frames_of("pds1-live.bin", "pds1-bulk.bin")
    await replay(database, good)
    async with database.connection() as conn:
        whole = await memories(conn)
    for _ in range(STREAMS):
        async with database.connection() as conn:
            await conn.execute("truncate memories, memory_edges, memory_versions, invalid_records, repos, identities")
            await conn.execute("truncate account_status, requests, sources, rejections, parked_commits")
        stream: list[bytes] = []
        for frame in good:
            damaged = mutate(frame, draw)
            # A sender that raises a seq passes over its own good frames; that is its word, not damage.
            if draw.random() < 0.5 and (frame_seq(damaged) or 0) <= (frame_seq(frame) or 0):
                stream.append(damaged)
            stream.append(frame)
        await replay(database, stream)
        async with database.connection() as conn:
            waiting = {
                row["repo"]
                for row in await conn.fetch(
                    """select repo from repos join requests using (repo, space)
                       where state = 'desynchronized' and kind = 'fetch'
                       -- damaged in its time, a frame may be from before the author's key was known
                       union select repo from parked_commits"""
                )
            }
            held = await memories(conn)
            cursor = await conn.fetchval("select seq from sources")
        assert {row for row in held if row[0] not in waiting} == {row for row in whole if row[0] not in waiting}
        assert cursor == 119


async def memories(conn: Connection) -> set[tuple[object, ...]]:
    """What is held, with its masks."""
    rows = await conn.fetch("select repo, rkey, cid, masked_from from memories")
    return {tuple(row) for row in rows}


async def test_damaged_records_never_take_their_batch_along(database: Database, seed: int) -> None:
    draw = random.Random(seed)
    stream = Sequence()
    authors = [RepoBuilder(f"damaged{number}", stream=stream) for number in range(30)]
    witness = RepoBuilder("witness", stream=stream)
    frames = [frame for author in [*authors, witness] for frame in author.genesis()]
    record = memory("It's 'quoted' \x00 日本語 ไทย عربى", kind="fact", scope="work", tags=["a", {"b": [1, None]}])
    block = encode_block(record)
    for number, author in enumerate(authors):
        damaged = mutate(block, draw) or b"\xa0"
        interpret_block(author.did, PUBLIC, "3kaaaaaaaaa2a", "cid", damaged)
        frames.append(author.create("3kaaaaaaaaa2a", damaged))
        frames.append(witness.create(f"3k{'abcdefghij'[number % 10]}{'abc'[number // 10]}aaaaaaa2a", memory("Good.")))
    await replay(database, frames, plc=directory([*authors, witness]), use_cursor=False)
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from memories where repo = $1", witness.did) == 30
        assert await conn.fetchval("select count(*) from repos where state <> 'active'") == 0
