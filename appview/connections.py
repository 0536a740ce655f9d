"""Connections that cost no more than they may: clients send their requests in time, and read what they are answered.

The server itself bounds neither. A request's head may be endless, so may be the requests that wait behind one, and who
reads nothing of an answer keeps a connection for ever, of which there are so many for all.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle, Transport
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 65_536
MAX_HEADERS: Final = 200
MAX_URL_KEPT_BYTES: Final = 40_000  # more than are answered, so that it shows that there were more
MAX_PIPELINED: Final = 16
HEAD_TIMEOUT_S: Final = 30
READ_TIMEOUT_S: Final = 30
MIN_READ_BYTES: Final = 32_768
"""What a client that has not read all that it was sent must read in `READ_TIMEOUT_S`."""

_LOOK_EVERY_S: Final = 10
_NO_HTTP: Final = "Invalid HTTP request received."  # as the server says it of others


class _TooMuch(Exception):
    """More than a client may send; the parser stops at it."""


class BoundedConnection(HttpToolsProtocol):
    """One connection. What is too large is refused as what is no HTTP; who is too slow is cut off."""

    transport: Transport
    _looking: TimerHandle | None = None
    _awaited_since = 0.0  # when the next head could have begun to come
    _is_answering = False
    _in_head = False
    _heads = 0  # that came whole
    _head_bytes = 0  # of the one that has begun, without its URL
    _url_bytes = 0  # in what was received last
    _headers_bytes = 0
    _moved_at = 0.0  # when the client was last seen to read
    _unread_bytes = 0  # the most since then

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin to look after it."""
        super().connection_made(cast("Transport", transport))
        self._awaited_since = self.loop.time()
        self._looking = self.loop.call_later(_LOOK_EVERY_S, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave it."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def look(self) -> None:
        """Cut the client off if it is too slow."""
        now = self.loop.time()
        unread_bytes = self.transport.get_write_buffer_size()
        if not unread_bytes or unread_bytes <= self._unread_bytes - MIN_READ_BYTES:
            self._move(now)
        self._unread_bytes = max(self._unread_bytes, unread_bytes)  # more was written
        is_late = not self._is_answering and now - self._awaited_since >= HEAD_TIMEOUT_S
        if is_late or (unread_bytes and now - self._moved_at >= READ_TIMEOUT_S):
            self.transport.abort()  # closing would wait until all is read
            return
        self._looking = self.loop.call_later(_LOOK_EVERY_S, self.look)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        heads, self._url_bytes = self._heads, 0
        super().data_received(data)
        if self._heads > heads or not self._in_head:
            self._head_bytes = 0
            return
        # The parser tells of a header when it has all of it.
        self._head_bytes += len(data) - self._url_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response(_NO_HTTP)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        self._headers_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the URL: of one that is refused anyway, no more is kept than shows it."""
        self._url_bytes += len(url)
        super().on_url(url[: MAX_URL_KEPT_BYTES - len(self.url)])

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._headers_bytes += len(name) + len(value)
        if len(self.headers) >= MAX_HEADERS or self._headers_bytes > MAX_HEAD_BYTES:
            raise _TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: its request is answered, or waits until those before it are."""
        if len(self.pipeline) >= MAX_PIPELINED:
            self.transport.abort()
            raise _TooMuch
        self._heads += 1
        self._in_head = False
        self._is_answering = True
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """The next head may come."""
        self._is_answering = bool(self.pipeline)
        self._awaited_since = self.loop.time()
        self._move(self._awaited_since)
        super().on_response_complete()

    def resume_writing(self) -> None:
        """The client has read most of what it was sent."""
        self._move(self.loop.time())
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, unless nobody is there to be told."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _move(self, now: float) -> None:
        self._moved_at = now
        self._unread_bytes = self.transport.get_write_buffer_size()
