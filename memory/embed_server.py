"""A server with OpenAI's `/v1/embeddings`: Text Embeddings Inference, vLLM, Ollama, OpenAI and others.

The operator names it, so any address will do, loopback and private ones too. What it answers is trusted no further than
anybody's: bounded in size and time, no redirects followed, nothing of it in messages.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import orjson
from httpcore2 import AsyncConnectionPool, NetworkError, ProtocolError, Request, Response, TimeoutException
from httpcore2 import default_ssl_context as system_ssl_context
from pydantic import SecretStr

from memory.embed_answers import MAX_BYTES_OF_ONE, TextsRefused, judge_dimensions, judge_status, read_vectors
from memory.embedding import EmbedderUnavailable, TextRefused, Vector, clean_query, clean_text
from memory.errors import Misconfigured

MAX_WAIT_S: Final = 30.0
"""Of a server that names a longer time, whoever asked hears it instead of waiting."""

_WAITS_S: Final = (0.5, 1.0, 2.0)
_MAX_ERROR_BYTES: Final = 8 * 1024
_MAX_FRAME_BYTES: Final = 64 * 1024  # of an answer, around its vectors
_CONNECTIONS: Final = 8
_KEEP_ALIVE_S: Final = 4.0  # many servers hang up after five
_PLAIN_TEXT: Final = "memory"
_SHORTENED_BY: Final = (2, 4)
_TOO_LARGE: Final = "The embedding server's answer is larger than vectors can be."


@dataclass(frozen=True, slots=True)
class Server:
    """How a server is asked. A prefix is put before each text, with a space between."""

    url: str  # of the endpoint itself
    model: str
    key: SecretStr | None = None
    dimensions: int | None = None  # asked for, and expected
    query_prefix: str = ""
    passage_prefix: str = ""
    passage_type: str | None = None  # `input_type` of passages, for servers that take one; that of queries is `query`
    batch_size: int = 32
    timeout_s: float = 30.0


class ServerEmbedder:
    """Asks one server. Passages are asked again, a few times, when it fails; a query is not worth the wait."""

    def __init__(
        self,
        server: Server,
        *,
        ssl_context: ssl.SSLContext | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._server = server
        self._sleep = sleep
        self._jitter = jitter
        self._dimensions = server.dimensions
        self._pool = AsyncConnectionPool(
            ssl_context=ssl_context or system_ssl_context(),
            max_connections=_CONNECTIONS,
            keepalive_expiry=_KEEP_ALIVE_S,
        )

    @property
    def model(self) -> str:
        """The name that the server knows it by."""
        return self._server.model

    @property
    def dimensions(self) -> int | None:
        """How long its vectors are; None: not known before the first."""
        return self._dimensions

    @property
    def leaves_machine(self) -> bool:
        """Whether the server is anywhere but on loopback. A name other than localhost may be anywhere."""
        host = urlsplit(self._server.url).hostname or ""
        try:
            return not ip_address(host).is_loopback
        except ValueError:
            return host != "localhost"

    async def embed_query(self, text: str) -> Vector:
        """The vector of what is asked, of which as much counts as `clean_query` leaves."""
        try:
            (vector,) = await self._ask([clean_query(text) or " "], is_query=True)
        except TextsRefused:
            raise TextRefused from None
        return vector

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of texts that are searched, in their order. A text that is too long is cut until it is not."""
        vectors: list[Vector] = []
        for first in range(0, len(texts), self._server.batch_size):
            batch = [clean_text(text) for text in texts[first : first + self._server.batch_size]]
            try:
                vectors += await self._persist(batch)
            except TextsRefused:
                await self._judge_refusal()
                vectors += await self._embed_apart(batch)
        return vectors

    async def aclose(self) -> None:
        """Hang up."""
        await self._pool.aclose()

    async def _judge_refusal(self) -> None:
        """Return if it is for the texts that the server refuses: it takes a plain one."""
        try:
            await self._persist([_PLAIN_TEXT])
        except TextsRefused:
            raise Misconfigured(
                "The embedding server refuses even a plain word: EMBEDDING_MODEL, or another EMBEDDING_ setting, is"
                " not to its liking.",
                setting="EMBEDDING_MODEL",
            ) from None

    async def _embed_apart(self, texts: list[str]) -> list[Vector]:
        """Halve until whom the server refuses stands alone."""
        if len(texts) == 1:
            return [await self._embed_shortened(texts[0])]
        vectors: list[Vector] = []
        for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
            try:
                vectors += await self._persist(half)
            except TextsRefused:
                vectors += await self._embed_apart(half)
        return vectors

    async def _embed_shortened(self, text: str) -> Vector:
        for divisor in _SHORTENED_BY:
            try:
                (vector,) = await self._persist([text[: len(text) // divisor] or " "])
            except TextsRefused:
                continue
            return vector
        raise TextRefused

    async def _persist(self, texts: list[str]) -> list[Vector]:
        for wait_s in _WAITS_S:
            try:
                return await self._ask(texts, is_query=False)
            except EmbedderUnavailable as failure:
                wait_s = wait_s * (0.5 + self._jitter()) if failure.retry_after_s is None else failure.retry_after_s
                if wait_s > MAX_WAIT_S:
                    raise
                await self._sleep(wait_s)
        return await self._ask(texts, is_query=False)

    async def _ask(self, texts: list[str], *, is_query: bool) -> list[Vector]:
        try:
            async with asyncio.timeout(self._server.timeout_s):
                response = await self._pool.handle_async_request(self._request(texts, is_query=is_query))
                async with aclosing(response):
                    limit = _MAX_FRAME_BYTES + len(texts) * MAX_BYTES_OF_ONE
                    body = await _read(response, limit if response.status == 200 else _MAX_ERROR_BYTES)
        except (TimeoutError, TimeoutException):
            raise EmbedderUnavailable("The embedding server does not answer in time.") from None
        except (NetworkError, ProtocolError, OSError) as failure:
            raise EmbedderUnavailable(f"The embedding server cannot be reached ({type(failure).__name__}).") from None
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        judge_status(response.status, body, headers.get(b"retry-after"))
        vectors = read_vectors(body, len(texts))
        judge_dimensions(len(vectors[0]), asked=self._server.dimensions, before=self._dimensions)
        self._dimensions = len(vectors[0])
        return vectors

    def _request(self, texts: list[str], *, is_query: bool) -> Request:
        server = self._server
        prefix = server.query_prefix if is_query else server.passage_prefix
        question: dict[str, object] = {
            "model": server.model,
            "input": [f"{prefix} {text}" if prefix else text for text in texts],
            "encoding_format": "float",
        }
        if server.dimensions is not None:
            question["dimensions"] = server.dimensions
        if server.passage_type is not None:
            question["input_type"] = "query" if is_query else server.passage_type
        headers = [
            ("Host", urlsplit(server.url).netloc),
            ("User-Agent", "memory-appview"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
        ]
        if server.key is not None:
            headers.append(("Authorization", f"Bearer {server.key.get_secret_value()}"))
        body = orjson.dumps(question)
        headers.append(("Content-Length", str(len(body))))
        timeouts = {"connect": server.timeout_s, "read": server.timeout_s, "write": server.timeout_s}
        return Request("POST", server.url, headers=headers, content=body, extensions={"timeout": timeouts})


async def _read(response: Response, limit: int) -> bytes:
    """The body, up to so many bytes: of an error the rest does not matter, vectors cannot be longer."""
    told = next((int(value) for name, value in response.headers if name.lower() == b"content-length"), 0)
    if told > limit and response.status == 200:
        raise EmbedderUnavailable(_TOO_LARGE)
    body = bytearray()
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > limit:
                if response.status != 200:
                    return bytes(body[:limit])
                raise EmbedderUnavailable(_TOO_LARGE)
    return bytes(body)
