"""Phrases: texts that must stand, or must not stand, in a memory.

A phrase of words alone finds them in a row, whatever signs and white space stand between them. A phrase with signs
(`C++`, `a.b`, `user_id`) finds exactly these signs. Both begin and end where words do.

A folded text is searched in one of two readings, so that searching is one pass: hostile texts cannot make it slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter

from memory.folding import fold
from memory.scripts import CJK, MARKS, PICTOGRAPHS, UNSPACED
from memory.terms import OVERFLOW, Anchor, anchors, quote_lexeme

_SPACED = rf"(?![_{CJK}{UNSPACED}])[\w{MARKS}]"
_INSIDE_WORD = re.compile(_SPACED + _SPACED)
_BETWEEN_WORDS = re.compile(rf"(?:[^\w{MARKS}{PICTOGRAPHS}]|_)+")
_WHITE_SPACE = re.compile(r"\s+")
_has_signs = attrgetter("has_signs")
_SENTENCE_ENDS = " .,;:!?。、؟،।"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase as its reading has it. `anchors`, at least one, narrow where it can be."""

    text: str
    has_signs: bool
    anchors: tuple[Anchor, ...]

    @property
    def is_one_lexeme(self) -> bool:
        """Whether the index alone decides: the texts with this phrase are those with its one lexeme."""
        return len(self.anchors) == 1 and not self.anchors[0].is_prefix and self.text == self.anchors[0].lexeme

    @property
    def tsquery(self) -> str:
        """Text for `::tsquery` that no text with the phrase fails; others may pass it."""
        first, *others = self.anchors
        adjacent, present = _operand(first), _operand(first)
        if not others:
            return adjacent
        before = first.position
        for anchor in others:
            adjacent += f" <{anchor.position - before}> {_operand(anchor)}"
            present += f" & {_operand(anchor)}"
            before = anchor.position
        return f"{adjacent} | {present} & {quote_lexeme(OVERFLOW)}"


@dataclass(frozen=True, slots=True)
class Readings:
    """A folded text as phrases read it: `words` apart by one space, or `signs` with one space for white space."""

    words: str
    signs: str


def parse_phrase(text: str) -> Phrase | None:
    """Read a phrase, without what ends a sentence; None when there is no word in it."""
    folded = fold(text).strip().rstrip(_SENTENCE_ENDS)
    found = anchors(folded)
    if not found:
        return None
    readings = read(folded)
    has_signs = readings.words != readings.signs
    return Phrase(readings.signs if has_signs else readings.words, has_signs, found)


def read(folded: str) -> Readings:
    """Read a folded text in both ways."""
    return Readings(_BETWEEN_WORDS.sub(" ", folded), _WHITE_SPACE.sub(" ", folded))


def phrase_matches(content: Readings, phrase: Phrase) -> bool:
    """Tell whether a content has a phrase."""
    return next(_places_in(content.signs if phrase.has_signs else content.words, phrase.text), None) is not None


def find_phrases(folded: str, phrases: Iterable[Phrase], limit: int) -> Iterator[tuple[int, int]]:
    """Iterate over the places of phrases in a folded text, the first `limit` of each."""
    for has_signs, alike in groupby(sorted(phrases, key=_has_signs), key=_has_signs):
        text, origins = _read_with_origins(folded, _WHITE_SPACE if has_signs else _BETWEEN_WORDS)
        for phrase in alike:
            for start, end in islice(_places_in(text, phrase.text), limit):
                yield origins[start], origins[end - 1] + 1


def _places_in(text: str, phrase: str) -> Iterator[tuple[int, int]]:
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not _splits_word(text, start) and not _splits_word(text, end):
            yield start, end
        start = text.find(phrase, start + 1)


def _read_with_origins(folded: str, gap: re.Pattern[str]) -> tuple[str, Sequence[int]]:
    """Read a text in one way, and keep where each of its characters was."""
    pieces: list[str] = []
    origins: list[int] = []
    end = 0
    for found in gap.finditer(folded):
        pieces += (folded[end : found.start()], " ")
        origins += range(end, found.start() + 1)
        end = found.end()
    pieces.append(folded[end:])
    origins += range(end, len(folded))
    return "".join(pieces), origins


def _splits_word(text: str, place: int) -> bool:
    return place > 0 and _INSIDE_WORD.match(text, place - 1) is not None


def _operand(anchor: Anchor) -> str:
    return quote_lexeme(anchor.lexeme) + (":*" if anchor.is_prefix else "")
