"""What servers answer to `/v1/embeddings`: read with no trust in it."""

from __future__ import annotations

import re
import sys
from array import array
from base64 import b64decode
from typing import Annotated, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory.embedding import MAX_DIMENSIONS, EmbedderUnavailable, Vector, unit_vector
from memory.errors import Misconfigured, Rejected

MAX_BYTES_OF_ONE: Final = 32 * MAX_DIMENSIONS
"""A vector as JSON: longer numbers than these say nothing more."""

_REFUSES_TEXT: Final = (400, 413, 422)
_REFUSES_KEY: Final = (401, 403)
_UNKNOWN: Final = (404, 405)
_PASSES: Final = (402, 408, 409, 424, 425, 429)
_MAX_RETRY_AFTER: Final = re.compile("[0-9]{1,6}")
_FLOAT_BYTES: Final = 4


class TextsRefused(Rejected):
    """One of the texts, or the question as a whole, is not to the server's liking."""

    reason = "embedding_refused"


class _Item(BaseModel):
    model_config = ConfigDict(strict=True)
    index: int
    embedding: list[float] | str


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)
    data: Annotated[list[_Item], Field(max_length=10_000)]


def read_vectors(body: bytes, count: int) -> list[Vector]:
    """So many vectors, ordered as the texts were, at unit length, all equally long.

    Raises EmbedderUnavailable for anything else.
    """
    try:
        items = _Answer.model_validate(orjson.loads(body)).data
        ordered = {item.index: item.embedding for item in items}
        if len(items) != count or ordered.keys() != set(range(count)):
            raise ValueError("not one vector for each text")
        vectors = [unit_vector(_numbers(ordered[index])) for index in range(count)]
        if len({len(vector) for vector in vectors}) > 1 or len(vectors[0]) > MAX_DIMENSIONS:
            raise ValueError("vectors of different lengths, or too long")
    except (ValidationError, ValueError, OverflowError):  # what they say quotes the answer
        raise EmbedderUnavailable("The embedding server's answer is not what was asked for.") from None
    return vectors


def judge_status(status: int, body: bytes, retry_after: str | None) -> None:
    """Return for a 200; the error says which setting is at fault, as far as a status can tell."""
    if status == 200:
        return
    if status in _REFUSES_TEXT:
        raise TextsRefused
    if status in _REFUSES_KEY:
        raise Misconfigured(
            f"The embedding server answers {status}: it does not take EMBEDDING_API_KEY.", setting="EMBEDDING_API_KEY"
        )
    if status in _UNKNOWN and b"model" in body.lower():
        raise Misconfigured(
            f"The embedding server answers {status}: it has no model of the name in EMBEDDING_MODEL.",
            setting="EMBEDDING_MODEL",
        )
    if status >= 500 or status in _PASSES:
        raise EmbedderUnavailable(f"The embedding server answers {status}.", retry_after_s=_seconds(retry_after))
    why = "a redirect is not followed" if 300 <= status < 400 else "no embeddings are there"
    raise Misconfigured(f"The embedding server answers {status}: at EMBEDDING_URL {why}.", setting="EMBEDDING_URL")


def judge_dimensions(given: int, *, asked: int | None, before: int | None) -> None:
    """Raise Misconfigured for vectors that are not as long as was asked for, or as the first one was."""
    if asked is not None and given != asked:
        raise Misconfigured(
            f"The embedding server gives {given} dimensions, EMBEDDING_DIMENSIONS is {asked}.",
            setting="EMBEDDING_DIMENSIONS",
        )
    if before is not None and given != before:
        raise Misconfigured(
            f"The embedding server gives {given} dimensions, {before} before: the model behind EMBEDDING_MODEL is"
            " another.",
            setting="EMBEDDING_MODEL",
        )


def _numbers(embedding: list[float] | str) -> list[float]:
    if isinstance(embedding, list):
        return embedding
    raw = b64decode(embedding, validate=True)
    if len(raw) % _FLOAT_BYTES:
        raise ValueError("not a row of floats")
    floats = array("f", raw)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None or _MAX_RETRY_AFTER.fullmatch(retry_after) is None:
        return None
    return float(retry_after)
