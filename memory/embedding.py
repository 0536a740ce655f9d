"""Vectors of texts: what gives them, how a long text is cut for it, and which texts it may see."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, Protocol, TypeAlias

import regex

from memory.errors import Rejected, Unavailable
from memory.space import PUBLIC

Vector: TypeAlias = Sequence[float]
"""Of unit length: the cosine of two is the sum of their products."""

MAX_PASSAGES: Final = 24
MAX_DIMENSIONS: Final = 4_000
"""What an index over half-precision vectors can hold."""

# In half tokens. No text that people write takes more tokens than this counts: of eight languages measured with the
# embedded model, an alphabet takes 0.23 to 0.38 a character, Thai 0.28 to 0.44, Chinese 0.67 to 0.77. Gibberish in
# small letters takes up to 0.75: what is over 512 tokens then is for the model to cut or to average.
_BUDGET: Final = 980
_QUERY_BUDGET: Final = 600  # a question is short, and whoever asks waits while others do
_SHORTEST: Final = 0.6  # of its share, so that a text of n budgets is cut into fewer than 2n
_CHEAP_BELOW: Final = 0x0E00  # alphabets with spaces between words, up to those of India
_CHEAP_RANGES: Final = (range(0x10D0, 0x1100), range(0x1E00, 0x2000))  # Georgian; more of Latin and Greek

_UNENCODABLE: Final = re.compile("[\0\ud800-\udfff]")
# Where a text is cut, the best first; a cut comes after the match.
_BORDERS: Final = (
    re.compile(r"\n\s*"),
    re.compile(r"[.!?…।؟۔]+[\"'”’»)\]]*\s+|[。！？｡]+[」』”’）]*"),
    re.compile(r"\s+|[、，；]"),
)
_GRAPHEME: Final = regex.compile(r"\X")
_LONG_GRAPHEME: Final = 64


class EmbedderUnavailable(Unavailable):
    """The embedder gives no vectors at the moment."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s  # when it may be asked again; None: nobody said
        super().__init__(message, retry_after_s=retry_after_s)


class TextRefused(Rejected):
    """The embedder takes other texts, but not this one, nor its beginning."""

    reason = "embedding_refused"


class Embedder(Protocol):
    """Gives vectors of one model; texts that are searched and texts that are asked with are told apart."""

    @property
    def model(self) -> str:
        """The name that its vectors are stored under."""
        ...

    @property
    def dimensions(self) -> int | None:
        """How long its vectors are; None: not known before the first."""
        ...

    @property
    def leaves_machine(self) -> bool:
        """Whether texts go to another machine."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """The vector of what is asked. Raises what `embed_passages` raises."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of texts that are searched, in their order.

        Raises EmbedderUnavailable (retry), TextRefused (a text is at fault: ask with each alone to find it), and
        Misconfigured.
        """
        ...

    async def aclose(self) -> None:
        """End; what waits is cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no embedder, and why: a clause that follows "because"."""

    reason: str


def may_embed(space: str, embedder: Embedder, *, allow_private: bool) -> bool:
    """Whether text of that Space (its at-uri, or `PUBLIC`) may go to that embedder."""
    return space == PUBLIC or allow_private or not embedder.leaves_machine


def unit_vector(numbers: Sequence[float]) -> Vector:
    """These numbers at unit length; ValueError if one is not finite or none is other than zero."""
    length = math.sqrt(sum(number * number for number in numbers))
    if not math.isfinite(length) or length == 0:
        raise ValueError("these numbers have no direction")
    return [number / length for number in numbers]


def vector_text(vector: Vector) -> str:
    """As pgvector reads it."""
    return "[" + ",".join([f"{number:.6g}" for number in vector]) + "]"


def clean_text(text: str) -> str:
    """The text without what engines stumble over: NULs and lone surrogates become spaces."""
    return _UNENCODABLE.sub(" ", text)


def clean_query(text: str) -> str:
    """What of a query is embedded: cleaned, stripped, and of that the first part (600 letters, 300 of Chinese).

    It bounds how long the model is busy with one query: about a quarter of a second.
    """
    begin = clean_text(text[: 2 * _QUERY_BUDGET]).strip()
    return begin[: bisect_right([*accumulate(map(_cost, begin))], _QUERY_BUDGET)].rstrip()


def split_passages(content: str) -> list[str]:
    """The texts to embed for one memory, in order: the whole, or pieces of much the same size.

    A piece has up to 980 characters of an alphabet (500 of Chinese, Japanese, Korean, Thai, of capitals, digits or
    signs), and ends with a paragraph, a sentence or a word where it can. Together they hold every character of the
    cleaned content but spaces, unless it takes more than 24. Never empty.
    """
    text = clean_text(content)
    costs = [0, *accumulate(map(_cost, text))]
    pieces: list[str] = []
    start = 0
    while start < len(text) and len(pieces) < MAX_PASSAGES:
        end = _end_of_piece(text, costs, start)
        piece = text[start:end].strip()
        if piece:
            pieces.append(piece)
        start = end
    return pieces or [" "]


def _end_of_piece(text: str, costs: Sequence[int], start: int) -> int:
    left = costs[-1] - costs[start]
    if left <= _BUDGET:
        return len(text)
    share = left / math.ceil(left / _BUDGET)
    earliest = max(bisect_right(costs, costs[start] + share * _SHORTEST), start + 1)
    wanted = bisect_right(costs, costs[start] + share) - 1
    latest = max(bisect_right(costs, costs[start] + _BUDGET) - 1, start + 1)
    for border in _BORDERS:
        ends = [match.end() for match in border.finditer(text, earliest - 1, latest)]
        near = [end for end in ends if earliest <= end <= latest]
        if near:
            return min(near, key=lambda end: abs(end - wanted))
    starts = [match.start() for match in _GRAPHEME.finditer(text, start, latest + _LONG_GRAPHEME)]
    return max((begin for begin in starts if earliest <= begin <= latest), default=latest)


@lru_cache(maxsize=4096)
def _cost(character: str) -> int:
    """Half tokens. What is one character to us may be many to a model: they spell compatibility forms out."""
    if character.isascii():
        return 1 if character.islower() or character.isspace() else 2
    spelled = unicodedata.normalize("NFKC", character)
    if spelled != character:
        return sum(map(_cost, spelled))
    code = ord(character)
    if code >= _CHEAP_BELOW and not any(code in cheap for cheap in _CHEAP_RANGES):
        return 2
    return 2 if unicodedata.category(character) not in ("Ll", "Lo", "Lm", "Mn", "Mc", "Zs") else 1
