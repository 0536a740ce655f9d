"""How an answer travels: compressed if the client takes it, and not at all if the client has it already."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, TypeAlias

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

MIN_COMPRESSED_BYTES: Final = 1_400
"""What fits into one packet anyway is sent as it is."""

_MAX_INLINE_BYTES: Final = 65_536  # compressing more would hold up other answers: a thread does it
_GZIP: Final = 31  # zlib's name for the gzip container with the largest window


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """An HTTP answer: whole, or with what is `following` its body in pieces."""

    status: int
    body: bytes
    headers: Headers = ()
    following: AsyncIterator[bytes] | None = None


async def represent(reply: Reply, request_headers: Iterable[tuple[bytes, bytes]]) -> Reply:
    """The answer to a GET as this client wants it: with an ETag, 304 if that is known, and gzipped if that is taken.

    The ETag is a hash of the whole body, made when access has been checked; weak, as it is the same for all encodings.
    """
    if reply.status != 200:
        return reply
    tag = b'W/"' + blake2b(reply.body, digest_size=12).hexdigest().encode() + b'"'
    headers = (*reply.headers, (b"etag", tag), (b"vary", b"Accept, Accept-Encoding"))
    accepts_gzip = False
    for name, value in request_headers:
        if name == b"if-none-match" and tag in (known.strip() for known in value.split(b",")):
            return Reply(304, b"", ((b"etag", tag), (b"vary", b"Accept, Accept-Encoding")))
        if name == b"accept-encoding":
            accepts_gzip = _takes_gzip(value)
    if not accepts_gzip or len(reply.body) < MIN_COMPRESSED_BYTES:
        return replace(reply, headers=headers)
    if len(reply.body) <= _MAX_INLINE_BYTES:
        body = _gzip(reply.body)
    else:
        body = await asyncio.to_thread(_gzip, reply.body)
    return Reply(200, body, (*headers, (b"content-encoding", b"gzip")))


def _takes_gzip(accepted: bytes) -> bool:
    for coding in accepted.lower().split(b","):
        name, _, weight = coding.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, level=1, wbits=_GZIP)
