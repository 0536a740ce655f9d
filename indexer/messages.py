"""Cuts what a socket brings into messages (RFC 6455 §5), and never holds more than one of the largest.

Nearly all that a firehose sends is whole messages, one frame each: they are cut out by as little code as will do.
Control frames are handed on as they are. A message above the limit is not kept: whoever listens gets its beginning, and
the rest is let by.

Frames that bring nothing, or next to nothing, cost as much as others, and an empty one never adds to a message's size:
so short parts of a message and control frames are counted, and too many of them are a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from websockets.frames import CloseCode, Opcode

from indexer.frames import MAX_FRAME_BYTES
from memory.errors import Rejected

BUFFER_BYTES: Final = 256 * 1024  # one read of the socket brings so much at most
BEGINNING_BYTES: Final = 64 * 1024  # what is kept of a message above the limit
LET_BY_BYTES_MAX: Final = 256 * 1024 * 1024  # nobody waits for the end of a longer one
SHORT_PART_BYTES: Final = 64
SHORT_PARTS_MAX: Final = 1000  # of one message
CONTROLS_MAX: Final = 1000  # between two calls of `allow_controls`

_FIN, _RESERVED, _CONTROL, _OPCODE = 0x80, 0x70, 0x08, 0x0F
_MASKED: Final = 0x80
_WHOLE_BINARY: Final = _FIN | Opcode.BINARY
_CONTROL_FRAMES: Final = (_FIN | Opcode.CLOSE, _FIN | Opcode.PING, _FIN | Opcode.PONG)
_CONTROL_PAYLOAD_BYTES_MAX: Final = 125


@dataclass(frozen=True, slots=True)
class Text:
    """A message that says of itself that it is text; whether it is UTF-8 is not looked at."""

    data: bytes

    def __len__(self) -> int:
        return len(self.data)


@dataclass(slots=True, eq=False)
class TooLarge:
    """A message above the limit."""

    beginning: bytes
    ended: bool = False  # whether all of it was let by

    def __len__(self) -> int:
        return len(self.beginning)


Message: TypeAlias = bytes | Text | TooLarge


class BrokenTraffic(Rejected):
    """What came is not what a WebSocket peer may send, or more of it than is waited for."""

    reason = "broken_traffic"

    def __init__(self, message: str, close_code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
        self.close_code = close_code
        super().__init__(message)


class MessageCutter:
    """Bytes in, messages and control frames out, in their order; nothing is asked of a socket or a clock."""

    def __init__(self, take: Callable[[Message], bool], control: Callable[[bytes], bool]) -> None:
        """`take` gets each message, `control` each whole control frame; both say whether more is wanted now."""
        self._take = take
        self._control = control
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0  # of what waits in the buffer
        # The message that came in part: one of several frames, or too long for the buffer.
        self._opcode = 0  # 0: there is none
        self._parts = bytearray()
        self._bytes = 0  # of its frames so far, as they announce it
        self._short_parts = 0  # how many of them are shorter than SHORT_PART_BYTES
        self._missing = 0  # of its last frame so far
        self._complete = False  # after that frame
        self._too_large: TooLarge | None = None
        self._controls = 0
        self.messages = 0  # cut so far

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._end :]

    def allow_controls(self) -> None:
        """Allows CONTROLS_MAX control frames from now on. Call it now and then: this counts, and knows no time."""
        self._controls = 0

    def cut(self, count: int) -> None:
        """Goes on with `count` more bytes in the buffer, until they are used up or no more is wanted.

        What is not wanted yet stays for the next call. Raises BrokenTraffic: then nothing more can be made of it.
        """
        at, end, wanted = 0, self._end + count, True
        if self._missing:
            at, wanted = self._gather(at, end)
        while wanted:
            if not self._opcode:
                at, wanted = self._cut_whole(at, end)
            step = self._cut_one(at, end) if wanted else None
            if step is None:
                break
            at, wanted = step
        self._end = end - at
        if at and self._end:
            self._buffer[: self._end] = self._buffer[at:end]

    def _cut_whole(self, at: int, end: int) -> tuple[int, bool]:
        """The run of whole binary messages that begins here: where it stops, and whether more is wanted."""
        buffer, view, take, messages, wanted = self._buffer, self._view, self._take, 0, True
        while wanted and end - at > 3 and buffer[at] == _WHOLE_BINARY:
            length = buffer[at + 1]
            if length < 126:
                start = at + 2
            elif length == 126:
                start = at + 4
                length = buffer[at + 2] << 8 | buffer[at + 3]
            else:
                break
            stop = start + length
            if stop > end:
                break
            at = stop
            messages += 1
            wanted = take(bytes(view[start:stop]))
        self.messages += messages
        return at, wanted

    def _cut_one(self, at: int, end: int) -> tuple[int, bool] | None:
        """The frame that begins here, whatever it is; null: too little of it is there."""
        header = self._read_header(at, end)
        if header is None:
            return None
        first, length, start = header
        stop = start + length
        if first & (_CONTROL | _RESERVED):
            _check_control(first, length)
            if stop > end:
                return None
            self._controls += 1
            if self._controls > CONTROLS_MAX:
                raise BrokenTraffic("a flood of control frames")
            return stop, self._control(bytes(self._view[at:stop]))
        if first == _WHOLE_BINARY and not self._opcode and end < stop <= at + BUFFER_BYTES:
            return None
        self._begin_frame(first, length)
        return self._gather(start, end)

    def _read_header(self, at: int, end: int) -> tuple[int, int, int] | None:
        """First byte, length and beginning of a payload."""
        if end - at < 2:
            return None
        first, length = self._buffer[at], self._buffer[at + 1]
        if length & _MASKED:
            raise BrokenTraffic("a masked frame")
        start = at + {126: 4, 127: 10}.get(length, 2)
        if start > end:
            return None
        return first, int.from_bytes(self._view[at + 2 : start], "big") if length > 125 else length, start

    def _begin_frame(self, first: int, length: int) -> None:
        opcode = first & _OPCODE
        if opcode > Opcode.BINARY:
            raise BrokenTraffic("a frame of an unknown kind")
        if opcode == Opcode.CONT and not self._opcode:
            raise BrokenTraffic("a continuation of nothing")
        if opcode != Opcode.CONT and self._opcode:
            raise BrokenTraffic("a message within a message")
        self._opcode = self._opcode or opcode
        self._missing, self._complete = length, bool(first & _FIN)
        self._bytes += length
        if length < SHORT_PART_BYTES:
            self._short_parts += 1
            if self._short_parts > SHORT_PARTS_MAX:
                raise BrokenTraffic("a message in too many short parts")
        if self._bytes > MAX_FRAME_BYTES:
            del self._parts[BEGINNING_BYTES:]

    def _gather(self, at: int, end: int) -> tuple[int, bool]:
        """Takes what is there of the frame that came in part: where that stops, and whether more is wanted."""
        stop = min(at + self._missing, end)
        self._missing -= stop - at
        wanted = True
        if self._bytes <= MAX_FRAME_BYTES:
            self._parts += self._view[at:stop]
        elif self._too_large is None:
            self._parts += self._view[at : min(stop, at + BEGINNING_BYTES - len(self._parts))]
            if len(self._parts) == BEGINNING_BYTES:
                self._too_large = TooLarge(bytes(self._parts))
                self.messages += 1
                wanted = self._take(self._too_large)
        if self._too_large is not None and self._bytes > LET_BY_BYTES_MAX:
            raise BrokenTraffic("a message without end", CloseCode.MESSAGE_TOO_BIG)
        if self._complete and not self._missing:
            wanted = self._finish() and wanted
        return stop, wanted

    def _finish(self) -> bool:
        opcode, parts, too_large = self._opcode, bytes(self._parts), self._too_large
        self._opcode, self._parts, self._bytes, self._too_large = 0, bytearray(), 0, None
        self._short_parts = 0
        if too_large is not None:
            too_large.ended = True
            return True
        self.messages += 1
        return self._take(parts if opcode == Opcode.BINARY else Text(parts))


def _check_control(first: int, length: int) -> None:
    if first not in _CONTROL_FRAMES:
        raise BrokenTraffic("a frame of an unknown kind, with reserved bits, or a control frame in pieces")
    if length > _CONTROL_PAYLOAD_BYTES_MAX:
        raise BrokenTraffic("a control frame that is too long")
