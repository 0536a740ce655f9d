"""One connection: what is read, by whom, and what is not read yet."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import NoReturn

import pytest
from websockets.frames import Opcode

from indexer.frames import MAX_FRAME_BYTES
from indexer.messages import BUFFER_BYTES, CONTROLS_MAX
from indexer.socket import (
    BYTES_WAITING_MAX,
    EVERY_MESSAGE,
    MESSAGES_WAITING_MAX,
    Interest,
    Liveness,
    subscribe,
)
from tests.fakes.raw_source import Visit, raw_source, receive_all, says, until
from tests.websocket_frames import PING, close, frame

# Who hears of it first


class Hearer:
    """Passes over what is not wanted, and counts."""

    def __init__(self, wanted: bytes) -> None:
        self.wanted = wanted
        self.passed: list[bytes] = []
        self.read = 0

    def pass_over(self, message: bytes) -> bool:
        if message.startswith(self.wanted):
            return False
        self.passed.append(message)
        return True

    def count(self, messages: int) -> None:
        self.read += messages

    @property
    def interest(self) -> Interest:
        return Interest(self.pass_over, self.count)


async def test_messages_that_are_passed_over_are_not_received():
    hearer = Hearer(b"ours")
    go_on = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent)
        await go_on.wait()
        await visit.send(frame(b"1"), frame(b"2"), frame(b"ours 3"), frame(b"4"), close(1000))

    async with raw_source(behave) as source, subscribe(source.url, None, interest=hearer.interest) as connection:
        receiving = asyncio.create_task(receive_all(connection))
        await until(lambda: connection._idle)
        go_on.set()
        # What comes behind one that is received has to be received, too: it might be about the same.
        assert await receiving == ([b"ours 3", b"4"], "closed_1000")
        assert hearer.passed == [b"1", b"2"]
        assert hearer.read == 4


async def test_nothing_is_passed_over_while_a_message_is_dealt_with():
    hearer = Hearer(b"ours")
    received, dealt_with = asyncio.Event(), asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent, frame(b"ours 1"))
        await received.wait()
        await visit.send(frame(b"2"), frame(b"3"))
        dealt_with.set()
        await visit.hear_until(Opcode.PONG)
        await visit.send(frame(b"4"), frame(b"ours 5"))

    async with raw_source(behave) as source, subscribe(source.url, None, interest=hearer.interest) as connection:
        assert await connection.receive() == b"ours 1"
        received.set()
        await dealt_with.wait()
        await until(lambda: hearer.read == 3)
        assert hearer.passed == []
        assert [await connection.receive() for _ in range(2)] == [b"2", b"3"]
        receiving = asyncio.create_task(connection.receive())
        await until(lambda: connection._idle)
        connection._protocol.send_pong(b"")
        connection._send()
        assert await receiving == b"ours 5"
        assert hearer.passed == [b"4"]


@pytest.mark.parametrize("which", ["pass_over", "read"])
async def test_bug_of_those_who_hear_first_ends_the_stream_with_that_bug(which: str):
    def fail(given: bytes | int) -> NoReturn:
        raise ZeroDivisionError(given)

    interest = replace(EVERY_MESSAGE, **{which: fail})
    go_on = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent)
        await go_on.wait()
        await visit.send(frame(b"1"), frame(b"2"))

    async with raw_source(behave) as source:
        with pytest.raises(ZeroDivisionError):
            async with subscribe(source.url, None, interest=interest) as connection:
                receiving = asyncio.create_task(receive_all(connection))
                await until(lambda: connection._idle)
                go_on.set()
                await receiving


# Back-pressure


@pytest.mark.parametrize("size", [0, 100, 6000, 1_000_000, MAX_FRAME_BYTES])
async def test_source_is_held_back_while_nobody_receives_and_nothing_is_lost(size: int):
    count = max(3 * BYTES_WAITING_MAX // max(size, 1), 4) if size > 6000 else 3 * MESSAGES_WAITING_MAX
    sent = [random.Random(n).randbytes(size) for n in range(count)]
    behave = says(*map(frame, sent), close(1000))
    async with raw_source(behave) as source, subscribe(source.url, None) as connection:
        await until(lambda: connection._held)
        assert not connection._transport.is_reading()  # pyright: ignore[reportOptionalMemberAccess]
        waiting, waiting_bytes = len(connection._waiting), connection._bytes_waiting
        assert waiting == MESSAGES_WAITING_MAX or waiting_bytes >= BYTES_WAITING_MAX
        assert waiting_bytes < BYTES_WAITING_MAX + max(size, 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (len(connection._waiting), connection._bytes_waiting) == (waiting, waiting_bytes)
        assert await receive_all(connection) == (sent, "closed_1000")


async def test_connection_that_is_lost_while_it_is_held_back_gives_what_it_has():
    sent = [b"%d" % n for n in range(3 * MESSAGES_WAITING_MAX)]
    assert sum(map(len, map(frame, sent))) < BUFFER_BYTES

    async with raw_source(says(*map(frame, sent))) as source, subscribe(source.url, None) as connection:
        await until(lambda: connection._held)
        connection.abort()
        assert await receive_all(connection) == (sent, "cut")


async def test_source_that_sends_nothing_but_pings_is_given_up():
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent, frame(b"before"))
        while True:
            await visit.send(frame(b"", PING) * 1000)

    async with raw_source(behave) as source, subscribe(source.url, None) as connection:
        assert await receive_all(connection) == ([b"before"], "no_websocket")


async def test_source_may_ping_for_ever_in_its_time():
    async with raw_source(says()) as source, subscribe(source.url, None, Liveness(0.01, 20.0)) as connection:
        connection._cutter._controls = CONTROLS_MAX
        await until(lambda: connection._cutter._controls == 0)


async def test_source_that_reads_no_pongs_is_not_read_either(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("indexer.messages.CONTROLS_MAX", 10**9)  # as if no flood of pings were one

    async def behave(visit: Visit) -> None:
        visit.listen_no_more()
        await visit.send(visit.consent)
        while True:
            await visit.send(frame(bytes(125), PING) * 1000)

    async with raw_source(behave) as source, subscribe(source.url, None, Liveness(0.2, 0.1)) as connection:
        _, reason = await receive_all(connection)
        assert reason == "silent"  # as it is to us
        assert not connection._held


# Life


async def test_source_that_is_held_back_is_not_thought_dead():
    sent = [frame(b"x" * 100)] * 3 * MESSAGES_WAITING_MAX

    async def behave(visit: Visit) -> None:
        visit.listen_no_more()
        await visit.send(visit.consent, *sent, close(1000))

    async with raw_source(behave) as source, subscribe(source.url, None, Liveness(0.01, 0.01)) as connection:
        await until(lambda: connection._held)
        watched = connection._life_timer
        await until(lambda: connection._life_timer is not watched)
        watched = connection._life_timer
        await until(lambda: connection._life_timer is not watched)
        connection._liveness = Liveness()  # from here on it is read, and who reads may be slow
        received, reason = await receive_all(connection)
        assert (len(received), reason) == (len(sent), "closed_1000")


async def test_source_whose_messages_come_needs_no_pong():
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent)
        for n in range(2):
            await visit.hear_until(Opcode.PING)
            await visit.send(frame(b"%d" % n))
        await visit.send(close(1000))

    async with raw_source(behave) as source, subscribe(source.url, None, Liveness(0.01, 3.0)) as connection:
        assert (await receive_all(connection))[1] == "closed_1000"
