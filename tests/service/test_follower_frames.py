"""One source, followed: what it sends that is no event."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from indexer.consumer import Consumer
from indexer.frames import MAX_FRAME_BYTES
from indexer.messages import BEGINNING_BYTES
from indexer.store import leases
from memory.database import Database
from tests.builders import START, RepoBuilder, Sequence, encode_frame, memory
from tests.daemons import daemon, know
from tests.deadline import DEADLINE_S
from tests.fakes.relay import Bytes, Cut, Raw, Relay
from tests.feed import rkey
from tests.websocket_frames import frame

_NOW = START
TOO_LARGE = b"\xff" * (MAX_FRAME_BYTES + 1)
ENDLESS = Bytes(frame(b"\xff" * BEGINNING_BYTES, announced=2**40))


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


# Messages in pieces, and messages above the limit


async def test_frame_in_fragments_is_a_frame(database: Database, fake: Relay, alice: RepoBuilder):
    first, second = (alice.create(rkey(n), memory(f"{n}")) for n in (1, 2))
    fake.openings = [[Raw([first[:100], b"", first[100:]]), Raw([second])]]
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "1", "2")
        await running.until_cursor(fake.source, 102)


async def test_message_above_the_limit_is_read_again_twice_and_then_stepped_over(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.frames = [alice.create(rkey(1), memory("one")), TOO_LARGE, alice.create(rkey(2), memory("two"))]
    await set_cursor(database, fake, 100)
    with capture_logs() as logs:
        async with daemon(database, fake.source) as running:
            await running.until_memories(alice, "one", "two")
            await running.until_cursor(fake.source, 102)
            await running.until("select times_met from quarantine", is_=3)
            [row] = await running.rows("select * from quarantine")
            assert await running.value("select gap_at from sources") is None
    assert (row["previous_seq"], row["reason"], row["frame"]) == (101, "too_large", TOO_LARGE[:BEGINNING_BYTES])
    assert len(fake.cursors) == 3
    stepped_over = [log for log in logs if log["event"] == "frame_stepped_over"]
    assert [(log["reason"], log["seq"], log["bytes"]) for log in stepped_over] == [("too_large", 101, BEGINNING_BYTES)]


async def test_two_messages_above_the_limit_in_a_row_are_both_stepped_over(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.frames = [alice.create(rkey(1), memory("one")), TOO_LARGE, b"\xfe" + TOO_LARGE]
    fake.frames += [alice.create(rkey(2), memory("two"))]
    await set_cursor(database, fake, 100)
    async with daemon(database, fake.source) as running:
        await running.until_memories(alice, "one", "two")
        await running.until_cursor(fake.source, 102)
        assert await running.value("select gap_at from sources") is None
    assert len(fake.cursors) == 5
    assert None not in fake.cursors


async def test_source_goes_on_live_behind_a_message_that_has_no_end(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.frames = [alice.create(rkey(1), memory("lost"))]
    fake.openings = [[ENDLESS] for _ in range(4)]
    await set_cursor(database, fake, 100)
    with capture_logs() as logs:
        async with daemon(database, fake.source) as running:
            await fake.until_connected(5)
            await fake.send(alice.create(rkey(2), memory("live")))
            await running.until_memories(alice, "live")
            await running.until_cursor(fake.source, 102)
            assert await running.value("select gap_at from sources") == running.clock.now
            assert running.metric("indexer_gaps_total", source=fake.source.url, reason="too_large") == 1
            await fake.cut()
            await fake.until_connected(6)
    assert fake.cursors == [100, 100, 100, 100, None, 102]
    assert [log["reason"] for log in logs if log["event"] == "frames_lost"] == ["too_large"]


async def test_live_start_that_brings_nothing_does_not_lead_back_to_the_message_that_has_no_end(
    database: Database, fake: Relay, alice: RepoBuilder
):
    fake.openings = [*([ENDLESS] for _ in range(4)), [Cut()], [Cut()]]
    await set_cursor(database, fake, 100)
    async with daemon(database, fake.source) as running:
        await fake.until_connected(7)
        await fake.send(alice.create(rkey(1), memory("live")))
        await running.until_memories(alice, "live")
    assert fake.cursors == [100, 100, 100, 100, None, None, None]


async def test_bug_in_what_is_done_with_a_frame_ends_the_daemon(
    database: Database, fake: Relay, monkeypatch: pytest.MonkeyPatch
):
    stranger = RepoBuilder("stranger", stream=Sequence(0))
    events = [stranger.identity_frame(), stranger.identity_frame()]

    def fail_at_second(self: Consumer, repo: str) -> bool:
        if len(fake.frames) == 2:
            raise ZeroDivisionError
        return False

    monkeypatch.setattr(Consumer, "concerned", fail_at_second)
    with pytest.raises(ZeroDivisionError):
        async with daemon(database, fake.source) as running:
            await fake.until_connected()
            await fake.send(events[0])
            await running.until_cursor(fake.source, 1)
            await fake.send(events[1])
            async with asyncio.timeout(DEADLINE_S):
                await running.task


# Frames of others


async def test_frames_of_others_are_counted_and_move_the_cursor(database: Database, fake: Relay, alice: RepoBuilder):
    strangers = [RepoBuilder(f"stranger{n}", stream=Sequence(200 * n)) for n in range(1, 6)]
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("one")))
        await fake.send(*(stranger.identity_frame() for stranger in strangers))
        await fake.send(alice.create(rkey(2), memory("two"), seq=5000))
        await fake.send(strangers[0].identity_frame(seq=5001))
        await running.until_memories(alice, "one", "two")
        await running.until_cursor(fake.source, 5001)
        assert running.metric("indexer_frames_total", source=fake.source.url) == 8
