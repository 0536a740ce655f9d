"""One connection to a source's stream: messages out, and why it ended.

A source is not asked for redirects, credentials or compression. A socket that brings nothing is dead once a ping brings
nothing either; an idle one that answers is alive. What is rare in the protocol (the upgrade, pings, farewells) is left
to `websockets`; what is done for every message of the network is done in the callback that brings the bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import CloseCode
from websockets.protocol import State
from websockets.uri import parse_uri

from indexer.messages import BrokenTraffic, Message, MessageCutter
from memory.errors import Unavailable

PATH: Final = "/xrpc/com.atproto.sync.subscribeRepos"
USER_AGENT: Final = "memory-appview"
_WHY_WE_CLOSED: Final[dict[int, str]] = {
    CloseCode.MESSAGE_TOO_BIG: "message_too_big",
    CloseCode.INTERNAL_ERROR: "silent",
}
OPEN_TIMEOUT_S: Final = 10
CLOSE_TIMEOUT_S: Final = 1
RETRY_AFTER_DEFAULT_S: Final = 30.0
RETRY_AFTER_MAX_S: Final = 600.0
# What may wait here before reading is paused: beside it there is one read, and one message of the largest.
MESSAGES_WAITING_MAX: Final = 1024
BYTES_WAITING_MAX: Final = 8 * 1024 * 1024
_ANSWER_HEAD_BYTES_MAX: Final = 32 * 1024
_HEAD_END: Final = b"\r\n\r\n"


class SourceUnavailable(Unavailable):
    """A source cannot be followed at the moment."""

    def __init__(self, reason: str, retry_after_s: float | None = None, status: int | None = None) -> None:
        """`reason` is one of a few words; `retry_after_s` is what the source asked for, `status` its refusal's."""
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.status = status
        super().__init__(f"The source cannot be followed: {reason}.", reason=reason)


@dataclass(frozen=True, slots=True)
class Liveness:
    """How long a socket may say nothing."""

    ping_interval_s: float = 20.0
    ping_timeout_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Interest:
    """What is done with a stream's messages before anybody waits for them. An exception of either ends the stream."""

    pass_over: Callable[[bytes], bool]  # whether a message is done with; asked in order, with none before it waiting
    read: Callable[[int], None]  # told after each read how many messages it brought, waiting or not


EVERY_MESSAGE: Final = Interest(pass_over=lambda _: False, read=lambda _: None)


class Stream(asyncio.BufferedProtocol):
    """A WebSocket client that is told what it reads; `subscribe` makes it."""

    def __init__(self, address: str, liveness: Liveness, interest: Interest) -> None:
        self._loop = asyncio.get_running_loop()
        self._liveness = liveness
        self._interest = interest
        # Is given the answer to the upgrade and control frames, never a message.
        self._protocol = ClientProtocol(parse_uri(address))
        self._transport: asyncio.Transport | None = None
        self._answer = bytearray()  # to the upgrade: its head, until that is whole
        self._answer_begun = False
        self._upgraded = asyncio.Event()  # or refused, or lost before
        self._consented = False
        self._cutter = MessageCutter(self._take, self._control)
        self._cutting = True
        self._counted = 0  # messages that were told to `read`
        self._scrap = memoryview(bytearray(4096))  # for what comes after the end
        self._waiting: deque[Message] = deque()
        self._bytes_waiting = 0
        self._held = False  # too much waits: no more is read
        self._stalled = False  # the source does not read our pongs: no more is read
        self._idle = False  # whoever receives has dealt with all there was
        self._discarding = False
        self._news = asyncio.Event()
        self._end: Exception | None = None  # why no more comes
        self._lost = asyncio.Event()
        self._heard_at = self._asked_at = self._loop.time()
        self._life_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None

    # What its user does

    async def upgraded(self) -> None:
        """Waits for the answer to the upgrade; raises SourceUnavailable for a refusal."""
        await self._upgraded.wait()
        refusal = self._protocol.handshake_exc
        if isinstance(refusal, InvalidStatus):
            raise _refused(refusal)
        if not self._consented:
            raise SourceUnavailable("no_websocket")

    async def receive(self) -> Message:
        """The next message; raises SourceUnavailable once all that came has been received."""
        while not self._waiting:
            if self._held:
                self._let_go()
                continue
            if self._end is not None:
                raise self._end
            self._idle = True
            self._news.clear()
            try:
                await self._news.wait()
            finally:
                self._idle = False
        message = self._waiting.popleft()
        self._bytes_waiting -= len(message)
        return message

    def begin_close(self) -> None:
        """Says farewell. What the source sends before it has heard that can be received, for CLOSE_TIMEOUT_S."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._send()

    async def close(self) -> None:
        """Says farewell and discards what comes and what waits, for CLOSE_TIMEOUT_S."""
        self._discarding = True
        self._waiting.clear()
        try:
            if self._held:
                self._let_go()
            self.begin_close()
            await self._lost.wait()
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for the upgrade."""
        self._transport = cast(asyncio.Transport, transport)
        request = self._protocol.connect()
        request.headers["User-Agent"] = USER_AGENT
        self._protocol.send_request(request)
        self._send()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the next bytes go."""
        return self._cutter.room() if self._cutting else self._scrap

    def buffer_updated(self, nbytes: int) -> None:
        """Deals with the next bytes."""
        self._heard_at = self._loop.time()
        if not self._cutting:
            return
        try:
            if self._upgraded.is_set():
                self._cut(nbytes)
            else:
                self._read_answer(bytes(self._cutter.room()[:nbytes]))
        except Exception as bug:  # noqa: BLE001  of ours: it ends who receives, as it would if raised there
            self._finish(bug)

    def pause_writing(self) -> None:
        """Reads nothing that would have to be answered, too."""
        self._stalled = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        """Goes on."""
        self._stalled = False
        self._pause_or_resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Nothing comes any more."""
        if self._close_timer is not None:
            self._close_timer.cancel()
        if not self._upgraded.is_set():
            self._protocol.receive_eof()
            self._upgraded.set()
        self._lost.set()
        self._tell_end()

    # From bytes to messages

    def _read_answer(self, chunk: bytes) -> None:
        """What follows the head belongs to a refusal, or else to the stream already."""
        if not self._answer_begun:
            self._answer += chunk
            end = self._answer.find(_HEAD_END) + len(_HEAD_END)
            if end < len(_HEAD_END):
                if len(self._answer) > _ANSWER_HEAD_BYTES_MAX:
                    self._give_up_answer()
                return
            self._answer_begun = True
            head, chunk = bytes(self._answer[:end]), bytes(self._answer[end:])
            self._protocol.receive_data(head)
        if self._protocol.state is State.OPEN:
            self._consented = True
            self._upgraded.set()
            self._watch_life()
            self._cutter.room()[: len(chunk)] = chunk
            self._cut(len(chunk))
            return
        self._protocol.receive_data(chunk)
        if self._protocol.handshake_exc is not None:
            self._give_up_answer()

    def _give_up_answer(self) -> None:
        self._cutting = False
        self._upgraded.set()

    def _cut(self, count: int) -> None:
        try:
            self._cutter.cut(count)
        except BrokenTraffic as broken:
            self._protocol.fail(broken.close_code, broken.message)
            self._send()
            self._finish()
        if self._cutter.messages > self._counted:
            self._interest.read(self._cutter.messages - self._counted)
            self._counted = self._cutter.messages

    def _take(self, message: Message) -> bool:
        if self._idle:
            if type(message) is bytes and self._interest.pass_over(message):
                return True
            self._idle = False
            self._news.set()
        if self._discarding:
            return True
        self._waiting.append(message)
        self._bytes_waiting += len(message)
        if len(self._waiting) < MESSAGES_WAITING_MAX and self._bytes_waiting < BYTES_WAITING_MAX:
            return True
        self._held = True
        self._pause_or_resume()
        return False

    def _control(self, frame: bytes) -> bool:
        """A ping is answered, a farewell returned; after that, or a farewell that is none, no more comes."""
        self._protocol.receive_data(frame)
        self._protocol.events_received()
        self._send()
        if self._protocol.close_rcvd is None and self._protocol.parser_exc is None:
            return True
        self._finish()
        return False

    def _let_go(self) -> None:
        self._held = False
        if self._cutting:
            self._cut(0)
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        assert self._transport is not None
        if self._held or self._stalled:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Life and death

    def _watch_life(self) -> None:
        """A silence is asked whether it is one; it is not, as long as it is we who do not listen."""
        now = self._loop.time()
        self._cutter.allow_controls()
        if self._held:
            self._heard_at = now
        interval_s, timeout_s = self._liveness.ping_interval_s, self._liveness.ping_timeout_s
        asked = self._asked_at > self._heard_at
        due = self._asked_at + timeout_s if asked else self._heard_at + interval_s
        if now >= due and asked:
            self._protocol.fail(CloseCode.INTERNAL_ERROR, "no answer")
            self._send()
            self._finish()
            self.abort()
            return
        if now >= due:
            self._asked_at, due = now, now + timeout_s
            self._protocol.send_ping(b"")
            self._send()
        self._life_timer = self._loop.call_at(due, self._watch_life)

    def _send(self) -> None:
        """Writes what the protocol has to say, and sees to the end that it expects."""
        assert self._transport is not None
        for data in self._protocol.data_to_send():
            if data:  # without: the wish to close, which is the source's to do first
                self._transport.write(data)
        if self._protocol.close_expected() and self._close_timer is None:
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def _finish(self, bug: Exception | None = None) -> None:
        """Takes nothing more."""
        self._cutting = False
        self._tell_end(bug)

    def _tell_end(self, bug: Exception | None = None) -> None:
        if self._life_timer is not None:
            self._life_timer.cancel()
        if self._end is None:
            self._end = bug or SourceUnavailable(self._reason())
            self._news.set()

    def _reason(self) -> str:
        received, sent = self._protocol.close_rcvd, self._protocol.close_sent
        if received is not None:
            return f"closed_{int(received.code)}"
        return "cut" if sent is None else _WHY_WE_CLOSED.get(sent.code, "no_websocket")


@asynccontextmanager
async def subscribe(
    source_url: str, cursor: int | None, liveness: Liveness | None = None, interest: Interest = EVERY_MESSAGE
) -> AsyncGenerator[Stream]:
    """An open stream, from after `cursor` on; null: live. Raises SourceUnavailable, also later from `receive`."""
    address = source_url.replace("http", "ws", 1) + PATH + (f"?cursor={cursor}" if cursor is not None else "")
    connection = Stream(address, liveness or Liveness(), interest)
    try:
        await _open(connection, address)
    except BaseException:
        connection.abort()
        raise
    try:
        yield connection
    finally:
        await connection.close()


async def _open(connection: Stream, address: str) -> None:
    to, loop = parse_uri(address), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await loop.create_connection(
                lambda: connection,
                to.host,
                to.port,
                ssl=to.secure or None,
                ssl_handshake_timeout=OPEN_TIMEOUT_S if to.secure else None,
                ssl_shutdown_timeout=CLOSE_TIMEOUT_S if to.secure else None,
            )
            await connection.upgraded()
    except TimeoutError:
        raise SourceUnavailable("timeout") from None
    except (OSError, UnicodeError):  # the latter: a host name that no resolver would take
        raise SourceUnavailable("unreachable") from None


def _refused(refusal: InvalidStatus) -> SourceUnavailable:
    status = refusal.response.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        retry_after_s = _retry_after(refusal.response.headers.get("Retry-After"))
        return SourceUnavailable(f"http_{status}", retry_after_s, status)
    return SourceUnavailable(f"http_{status}", status=status)


def _retry_after(header: str | None) -> float:
    """Seconds to wait: what the source says, within reason, else a default."""
    if header is None:
        return RETRY_AFTER_DEFAULT_S
    try:
        seconds = float(header) if header.isdigit() else _until(header)
    except (ValueError, TypeError):
        return RETRY_AFTER_DEFAULT_S
    return min(max(seconds, 1.0), RETRY_AFTER_MAX_S)


def _until(date: str) -> float:
    return (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()
