"""How an answer travels: compressed if the client takes it, and not at all if the client has it already."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, TypeAlias

from zstandard import ZstdCompressor

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

MIN_COMPRESSED_BYTES: Final = 1_400
"""What fits into one packet anyway is sent as it is."""

VARY: Final = (b"vary", b"Accept, Accept-Encoding, Authorization")

_MAX_INLINE_BYTES: Final = 65_536  # compressing more would hold up other answers: a thread does it
_OF_THE_BODY: Final = (b"content-type", b"x-content-type-options")
_ZSTD_LEVEL: Final = 3
_GZIP: Final = 31  # zlib's name for the gzip container with the largest window


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """An HTTP answer: whole, or with what is `following` its body in pieces."""

    status: int
    body: bytes
    headers: Headers = ()
    following: AsyncIterator[bytes] | None = None


async def represent(reply: Reply, request_headers: Iterable[tuple[bytes, bytes]], *, compressible: bool) -> Reply:
    """The answer to a GET as this client wants it: with an ETag, 304 if that is known, and compressed if that is taken.

    What is not `compressible` never is: lengths would tell of secrets beside what others can have put there.

    The ETag is a hash of the whole body, made when access has been checked; weak, as it is the same for all encodings.
    """
    if reply.status != 200:
        return reply
    tag = b'W/"' + blake2b(reply.body, digest_size=12).hexdigest().encode() + b'"'
    headers = (*reply.headers, (b"etag", tag), VARY)
    coding: str | None = None
    for name, value in request_headers:
        if name == b"if-none-match" and tag in (known.strip() for known in value.split(b",")):
            kept = tuple(header for header in headers if header[0] not in _OF_THE_BODY)
            return Reply(304, b"", kept)
        if name == b"accept-encoding":
            coding = _taken(value)
    if coding is None or not compressible or len(reply.body) < MIN_COMPRESSED_BYTES:
        return replace(reply, headers=headers)
    compress = _COMPRESS[coding]
    if len(reply.body) <= _MAX_INLINE_BYTES:
        body = compress(reply.body)
    else:
        body = await asyncio.to_thread(compress, reply.body)
    return Reply(200, body, (*headers, (b"content-encoding", coding.encode())))


def _taken(accepted: bytes) -> str | None:
    """The best coding that an `Accept-Encoding` takes; None: no compression."""
    taken: dict[bytes, bool] = {}
    for coding in accepted.lower().split(b","):
        name, _, weight = coding.partition(b";")
        taken[name.strip()] = weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    for name in _COMPRESS:
        if taken.get(name.encode(), name == "gzip" and taken.get(b"*", False)):
            return name
    return None


def _zstd(body: bytes) -> bytes:
    return ZstdCompressor(level=_ZSTD_LEVEL).compress(body)


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, level=1, wbits=_GZIP)


_COMPRESS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"zstd": _zstd, "gzip": _gzip}
