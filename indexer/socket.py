"""One connection to a source's stream: frames out, and why it ended.

A source is not asked for redirects, credentials or compression. A silent socket is dead once a ping goes unanswered; an
idle one that answers is alive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode

from indexer.frames import MAX_FRAME_BYTES
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
# About what one read of the socket brings: with fewer, reading is paused and resumed at every turn, which costs a third
# of the speed. A source that sends nothing but the largest frames fills at most 320 MiB here.
_FRAMES_BUFFERED: Final = 64


class SourceUnavailable(Unavailable):
    """A source cannot be followed at the moment."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        """`reason` is one of a few words; `retry_after_s` is what the source asked for."""
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(f"The source cannot be followed: {reason}.", reason=reason)


@dataclass(frozen=True, slots=True)
class Liveness:
    """How long a socket may say nothing."""

    ping_interval_s: float = 20.0
    ping_timeout_s: float = 20.0


class _Connect(connect):
    """A connection that follows no redirect: a source is who its operator named."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@asynccontextmanager
async def subscribe(
    source_url: str, cursor: int | None, liveness: Liveness | None = None
) -> AsyncGenerator[ClientConnection]:
    """An open stream, from after `cursor` on; null: live. Raises SourceUnavailable, also later from `receive`."""
    liveness = liveness or Liveness()
    address = source_url.replace("http", "ws", 1) + PATH + (f"?cursor={cursor}" if cursor is not None else "")
    try:
        connection = await _Connect(
            address,
            max_size=MAX_FRAME_BYTES,
            max_queue=_FRAMES_BUFFERED,
            compression=None,
            proxy=None,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=liveness.ping_interval_s,
            ping_timeout=liveness.ping_timeout_s,
            user_agent_header=USER_AGENT,
        )
    except InvalidStatus as refusal:
        raise _refused(refusal) from None
    except TimeoutError:
        raise SourceUnavailable("timeout") from None
    except InvalidHandshake:
        raise SourceUnavailable("no_websocket") from None
    except OSError:
        raise SourceUnavailable("unreachable") from None
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def closing_told() -> Generator[None]:
    """Raises SourceUnavailable, with the reason, for the end of a stream that is read inside."""
    try:
        yield
    except ConnectionClosed as ended:
        raise SourceUnavailable(_reason_of(ended)) from None


def _reason_of(ended: ConnectionClosed) -> str:
    if ended.rcvd is not None:
        return f"closed_{ended.rcvd.code}"
    return "cut" if ended.sent is None else _WHY_WE_CLOSED.get(ended.sent.code, "no_websocket")


def _refused(refusal: InvalidStatus) -> SourceUnavailable:
    status = refusal.response.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return SourceUnavailable(f"http_{status}", _retry_after(refusal.response.headers.get("Retry-After")))
    return SourceUnavailable(f"http_{status}")


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
