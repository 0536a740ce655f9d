"""One connection, against a source that says what it likes."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from websockets.frames import Opcode

from indexer import socket
from indexer.frames import MAX_FRAME_BYTES
from indexer.messages import Message, TooLarge
from indexer.socket import (
    BYTES_WAITING_MAX,
    MESSAGES_WAITING_MAX,
    SourceUnavailable,
    subscribe,
)
from tests.deadline import DEADLINE_S
from tests.fakes.internet import Authority
from tests.fakes.raw_source import UPGRADED, Behave, RawSource, Visit, raw_source, receive_all, says, until
from tests.websocket_frames import BINARY, CLOSE, CONT, PING, PONG, close, fragments, frame


def answers(*data: bytes) -> Behave:
    """A source that answers the request with that."""

    async def behave(visit: Visit) -> None:
        for each in data:
            await visit.send(each)

    return behave


async def all_of(source: RawSource) -> tuple[list[Message], str]:
    async with subscribe(source.url, None) as connection:
        return await receive_all(connection)


async def refusal_of(source: RawSource) -> str:
    with pytest.raises(SourceUnavailable) as refused:
        async with subscribe(source.url, None):
            pass
    return refused.value.reason


# The upgrade


async def test_first_messages_may_come_with_the_consent():
    async with raw_source(says(frame(b"one"), frame(b"two"), close(1000))) as source:
        assert await all_of(source) == ([b"one", b"two"], "closed_1000")


async def test_consent_may_come_byte_by_byte():
    async def behave(visit: Visit) -> None:
        for byte in visit.consent + frame(b"one") + close(1000):
            await visit.send(bytes([byte]))
            await asyncio.sleep(0)

    async with raw_source(behave) as source:
        assert await all_of(source) == ([b"one"], "closed_1000")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-Mandarin\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        UPGRADED + b"TWFuZGFyaW4=\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"X-Mandarin: 1\r\n" * 3000 + b"\r\n",
        b"HTTP/1.1 101 " + b"x" * 40_000,
        b"\x00" * 40_000,
    ],
    ids=["another protocol", "no key", "another key", "many headers", "a long line", "noughts"],
)
async def test_answer_that_is_no_consent_is_none(answer: bytes):
    async with raw_source(answers(answer, b"\x82\x01more", b"\x00" * 300_000)) as source:
        assert await refusal_of(source) == "no_websocket"


async def test_compression_that_nobody_asked_for_is_no_consent():
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")

    async with raw_source(behave) as source:
        assert await refusal_of(source) == "no_websocket"


async def test_source_that_hangs_up_before_it_answers_is_none():
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent[:30])
        visit.writer.close()

    async with raw_source(behave) as source:
        assert await refusal_of(source) == "no_websocket"


async def test_refusal_without_a_length_ends_with_the_connection():
    async def behave(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 503 Mandarin\r\nRetry-After: 7\r\n\r\n", b"We are closed.")
        visit.writer.close()

    async with raw_source(behave) as source:
        with pytest.raises(SourceUnavailable) as refused:
            async with subscribe(source.url, None):
                pass
    assert (refused.value.reason, refused.value.status, refused.value.retry_after_s) == ("http_503", 503, 7)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 503 Mandarin\r\nContent-Length: 10\r\n\r\n"], ids=["nothing", "half"])
async def test_source_that_does_not_finish_its_answer_is_waited_for_no_longer_than_that(
    said: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(socket, "OPEN_TIMEOUT_S", 0.05)
    async with raw_source(answers(said)) as source:
        assert await refusal_of(source) == "timeout"


async def test_upgrade_that_is_cancelled_leaves_no_connection_behind():
    asked = asyncio.Event()

    async def behave(visit: Visit) -> None:
        asked.set()

    async with raw_source(behave) as source:
        subscribing = asyncio.create_task(refusal_of(source))
        await asked.wait()
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        await source.gone.wait()


@pytest.mark.parametrize("host", ["a..b", "a." + "x" * 64])
async def test_name_that_is_none_is_unreachable(host: str):
    with pytest.raises(SourceUnavailable, match="unreachable"):
        async with subscribe(f"http://{host}", None):
            pass


# TLS


def trust(authority: Authority, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "authority.pem"
    file.write_bytes(authority._certificate.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(file))


async def test_certificate_of_an_unknown_authority_is_not_accepted(tmp_path: Path):
    tls = Authority(datetime.now(UTC)).server(tmp_path, "localhost")
    async with raw_source(says(), tls) as source:
        assert await refusal_of(source) == "unreachable"


async def test_certificate_of_another_host_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    authority = Authority(datetime.now(UTC))
    trust(authority, tmp_path, monkeypatch)
    async with raw_source(says(), authority.server(tmp_path, "elsewhere.example")) as source:
        assert await refusal_of(source) == "unreachable"


async def test_stream_over_tls_is_held_back_and_read_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    authority = Authority(datetime.now(UTC))
    trust(authority, tmp_path, monkeypatch)
    sent = [random.Random(n).randbytes(200_000) for n in range(100)]
    behave, tls = says(*map(frame, sent), close(1000)), authority.server(tmp_path, "localhost")
    async with raw_source(behave, tls) as source, subscribe(source.url, None) as connection:
        await until(lambda: connection._held)
        assert connection._bytes_waiting < BYTES_WAITING_MAX + len(sent[0])
        assert await receive_all(connection) == (sent, "closed_1000")


# What it says


async def test_fragments_are_one_message_and_pings_between_them_are_answered():
    async def behave(visit: Visit) -> None:
        first, second, third = fragments(b"one ", b"two ", b"three")
        await visit.send(visit.consent, first, frame(b"a", PING), second, frame(b"b", PING), frame(b"", PONG))
        assert [await visit.hear_until(Opcode.PONG) for _ in range(2)] == [b"a", b"b"]
        await visit.send(third, close(1000))

    async with raw_source(behave) as source:
        assert await all_of(source) == ([b"one two three"], "closed_1000")


async def test_message_above_the_limit_is_let_by_in_no_more_memory_than_its_beginning():
    behave = says(frame(bytes(3 * MAX_FRAME_BYTES)), frame(b"behind"), close(1000))
    async with raw_source(behave) as source, subscribe(source.url, None) as connection:
        large = await connection.receive()
        assert isinstance(large, TooLarge)
        assert await connection.receive() == b"behind"
        assert large.ended


async def test_message_without_end_is_given_up():
    async with raw_source(says(frame(bytes(100_000), announced=2**40))) as source:
        [large], reason = await all_of(source)
        assert isinstance(large, TooLarge)
        assert reason == "message_too_big"


@pytest.mark.parametrize(
    ("farewell", "reason"),
    [
        (close(1000), "closed_1000"),
        (close(1008, b"ConsumerTooSlow"), "closed_1008"),
        (close(1013), "closed_1013"),
        (close(4000, "Mandarin — ".encode()), "closed_4000"),
        (close(None), "closed_1005"),
        (close(1000, b"\xff\xfe"), "no_websocket"),
        (close(999), "no_websocket"),
        (close(1005), "no_websocket"),
        (close(0), "no_websocket"),
        (frame(b"\x03", CLOSE), "no_websocket"),
        (frame(b"x", BINARY, reserved=0x40), "no_websocket"),
        (frame(b"x", CONT), "no_websocket"),
        (b"\x82\x81mask\x00", "no_websocket"),
        (frame(bytes(126), PING), "no_websocket"),
    ],
    ids=[
        "1000", "1008", "1013", "private", "without a code", "reason is no UTF-8", "code too low", "code for nobody",
        "code 0", "half a code", "reserved bits", "continuation of nothing", "masked", "long ping",
    ],
)  # fmt: skip
async def test_end_is_told_after_all_that_came_before_it(farewell: bytes, reason: str):
    async with raw_source(says(frame(b"one"), frame(b"two"), farewell, frame(b"too late"))) as source:
        assert await all_of(source) == ([b"one", b"two"], reason)


async def test_farewell_is_returned_and_the_source_closes_the_connection():
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent, close(1008))
        assert await visit.hear() == (Opcode.CLOSE, struct.pack("!H", 1008))
        visit.writer.close()

    async with raw_source(behave) as source:
        assert await all_of(source) == ([], "closed_1008")


@pytest.mark.parametrize("rest", [b"", frame(b"half")[:3]], ids=["between messages", "within a message"])
async def test_connection_without_a_farewell_was_cut(rest: bytes):
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent, frame(b"one"), rest)
        visit.writer.transport.abort()

    async with raw_source(behave) as source:
        assert (await all_of(source))[1] == "cut"


# Farewells


async def test_farewell_is_said_and_what_comes_meanwhile_discarded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "CLOSE_TIMEOUT_S", DEADLINE_S)
    heard: list[bytes] = []

    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent, *[frame(bytes(6000))] * 3 * MESSAGES_WAITING_MAX)
        heard.append(await visit.hear_until(Opcode.CLOSE))
        await visit.send(frame(b"too late"), close(1000))
        visit.writer.close()

    async with raw_source(behave) as source:
        async with subscribe(source.url, None) as connection:
            await until(lambda: connection._held)
        assert heard == [struct.pack("!H", 1000)]
        assert not connection._waiting


async def test_source_that_does_not_return_a_farewell_is_left(monkeypatch: pytest.MonkeyPatch):
    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent)
        while await visit.reader.read(1000):
            pass

    monkeypatch.setattr(socket, "CLOSE_TIMEOUT_S", 0.05)
    async with raw_source(behave) as source:
        async with subscribe(source.url, None):
            pass
        await source.gone.wait()


async def test_what_was_sent_before_the_source_heard_the_farewell_is_received(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "CLOSE_TIMEOUT_S", DEADLINE_S)

    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent)
        await visit.hear_until(Opcode.CLOSE)
        await visit.send(frame(b"one"), frame(b"two"), close(1000))
        visit.writer.close()

    async with raw_source(behave) as source, subscribe(source.url, None) as connection:
        connection.begin_close()
        assert await receive_all(connection) == ([b"one", b"two"], "closed_1000")
