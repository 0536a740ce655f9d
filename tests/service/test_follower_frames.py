"""One source, followed: what it sends that is no event."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from structlog.testing import capture_logs

from indexer.store import leases
from memory.database import Database
from tests.builders import START, RepoBuilder, Sequence, encode_frame, memory
from tests.daemons import daemon, know
from tests.fakes.relay import Raw, Relay, relay
from tests.feed import rkey

_NOW = START
WATCH_CURSORS = (
    "create table seen (seq bigint)",
    """create function see() returns trigger language plpgsql
        as 'begin insert into seen values (new.seq); return null; end'""",
    "create trigger see after insert or update on sources for each row execute function see()",
)


@pytest.fixture
async def fake() -> AsyncGenerator[Relay]:
    async with relay() as listening:
        yield listening


@pytest.fixture
async def alice(database: Database) -> RepoBuilder:
    """Someone whose identity is known; her stream starts at seq 101."""
    builder = RepoBuilder("alice", stream=Sequence(100))
    await know(database, builder)
    return builder


async def set_cursor(database: Database, fake: Relay, seq: int) -> None:
    async with database.transaction() as conn:
        await leases.set_cursor(conn, fake.source.url, seq, _NOW)


# What is no event


async def test_broken_frame_is_read_again_twice_and_then_stepped_over(
    database: Database, fake: Relay, alice: RepoBuilder
):
    first = alice.create(rkey(1), memory("one"))
    fake.frames = [first, b"\xff no frame", alice.create(rkey(2), memory("two"))]
    await set_cursor(database, fake, 100)
    with capture_logs() as logs:
        async with daemon(database, fake.source) as running:
            await running.until_memories(alice, "one", "two")
            await running.until_cursor(fake.source, 102)
            await running.until("select times_met from quarantine", is_=3)
            [row] = await running.rows("select * from quarantine")
    assert (row["source"], row["previous_seq"], row["frame"]) == (fake.source.url, 101, b"\xff no frame")
    assert len(fake.cursors) == 3
    assert [log["seq"] for log in logs if log["event"] == "frame_stepped_over"] == [101]


async def test_text_message_is_no_frame(database: Database, fake: Relay, alice: RepoBuilder):
    fake.openings = [[Raw("Mandarin")]]
    async with daemon(database, fake.source) as running:
        await running.until("select frame from quarantine", is_=b"Mandarin")
        await fake.until_connected(2)
        await fake.send(alice.create(rkey(1), memory("one")))
        await running.until_memories(alice, "one")


async def test_event_that_lacks_something_is_put_aside_and_passed(database: Database, fake: Relay, alice: RepoBuilder):
    malformed = encode_frame({"op": 1, "t": "#account"}, {"seq": 101, "did": alice.did})
    unnumbered = encode_frame({"op": 1, "t": "#account"}, {"did": alice.did})
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("one"), seq=100), malformed)
        await fake.send_raw(unnumbered)
        await running.until_cursor(fake.source, 101)
        await running.until("select count(*) from quarantine where reason = 'malformed_event'", is_=2)
    assert fake.cursors == [None]


async def test_kinds_that_are_unknown_are_counted_and_passed(database: Database, fake: Relay):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(encode_frame({"op": 1, "t": "#mandarin"}, {"seq": 7}), encode_frame({"op": 7}, {"seq": 8}))
        await running.until_cursor(fake.source, 8)
        rows = await running.rows("select reason, times from rejections order by reason")
        assert [tuple(row) for row in rows] == [("unknown_op", 1), ("unknown_type", 1)]
    assert fake.cursors == [None]


@pytest.mark.parametrize("named", ["did:plc:\x00", "x" * 100_000, "", 7, None, ["did"]], ids=repr)
async def test_frame_that_names_no_did_harms_nobody(database: Database, fake: Relay, alice: RepoBuilder, named: object):
    op = {"action": "create", "path": f"dev.bastienrobert.memory.record/{rkey(1)}", "cid": None}
    hostile = encode_frame({"op": 1, "t": "#commit"}, {"seq": 50, "repo": named, "ops": [op]})
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(hostile, alice.create(rkey(1), memory("one")))
        await running.until_memories(alice, "one")
        assert await running.value("select reason from quarantine") == "malformed_event"
