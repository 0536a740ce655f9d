"""WebSocket frames as a server sends them (RFC 6455 §5.2), right ones and wrong ones."""

from __future__ import annotations

import struct

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FIN = 0x80


def frame(
    payload: bytes, opcode: int = BINARY, *, fin: bool = True, reserved: int = 0, announced: int | None = None
) -> bytes:
    """`announced` is the length that it claims, if not its own."""
    length = len(payload) if announced is None else announced
    first = (FIN if fin else 0) | reserved | opcode
    if length < 126:
        return struct.pack("!BB", first, length) + payload
    if length < 1 << 16:
        return struct.pack("!BBH", first, 126, length) + payload
    return struct.pack("!BBQ", first, 127, length) + payload


def fragments(*payloads: bytes, opcode: int = BINARY) -> list[bytes]:
    """One message, a frame for each part of it."""
    last = len(payloads) - 1
    return [frame(each, CONT if n else opcode, fin=n == last) for n, each in enumerate(payloads)]


def close(code: int | None, reason: bytes = b"") -> bytes:
    """A farewell."""
    return frame(b"" if code is None else struct.pack("!H", code) + reason, CLOSE)
