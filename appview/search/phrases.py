"""Phrases: texts that must stand, or must not stand, in a memory as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from memory.folding import fold
from memory.scripts import CJK, MARKS, PICTOGRAPHS, UNSPACED
from memory.terms import OVERFLOW, Anchor, anchors, quote_lexeme

_SPACED = rf"(?![_{CJK}{UNSPACED}])[\w{MARKS}]"
_INSIDE_WORD = re.compile(_SPACED + _SPACED)
_WORD_EDGE = re.compile(rf"(?!_)[\w{MARKS}]")
_BETWEEN_WORDS = re.compile(rf"(?:[^\w{MARKS}{PICTOGRAPHS}]|_)*")
_WHITE_SPACE = re.compile(r"\s*")
_SENTENCE_ENDS = " .,;:!?。、؟،।"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A folded phrase, cut at its white space into `pieces`; `anchors` (at least one) narrow where it can be."""

    pieces: tuple[str, ...]
    anchors: tuple[Anchor, ...]

    @property
    def is_one_lexeme(self) -> bool:
        """Whether the index alone decides: the texts with this phrase are those with its one lexeme."""
        return len(self.anchors) == 1 and not self.anchors[0].is_prefix and self.pieces == (self.anchors[0].lexeme,)

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


def parse_phrase(text: str) -> Phrase | None:
    """Read a phrase, without what ends a sentence; None when there is no word in it."""
    folded = fold(text).rstrip(_SENTENCE_ENDS)
    found = anchors(folded)
    return Phrase(tuple(folded.split()), found) if found else None


def phrase_matches(folded_content: str, phrase: Phrase) -> bool:
    """Tell whether a folded text has the phrase, at the bounds of words and with its signs.

    Between the words, white space stands for white space, punctuation or both.
    """
    return next(find_phrase(folded_content, phrase), None) is not None


def find_phrase(folded_content: str, phrase: Phrase) -> Iterator[tuple[int, int]]:
    """Iterate over the places of a phrase in a folded text, from left to right."""
    start = folded_content.find(phrase.pieces[0])
    while start >= 0:
        end = _end_of(folded_content, start, phrase.pieces)
        if end is not None and not _splits_word(folded_content, start) and not _splits_word(folded_content, end):
            yield start, end
        start = folded_content.find(phrase.pieces[0], start + 1)


def _end_of(folded: str, start: int, pieces: tuple[str, ...]) -> int | None:
    end = start + len(pieces[0])
    for before, piece in pairwise(pieces):
        words_meet = _WORD_EDGE.match(before[-1]) and _WORD_EDGE.match(piece[0])
        gap = (_BETWEEN_WORDS if words_meet else _WHITE_SPACE).match(folded, end)
        after = gap.end() if gap else end
        if not folded.startswith(piece, after) or _splits_word(folded, after):
            return None
        end = after + len(piece)
    return end


def _splits_word(folded: str, place: int) -> bool:
    return place > 0 and _INSIDE_WORD.match(folded, place - 1) is not None


def _operand(anchor: Anchor) -> str:
    return quote_lexeme(anchor.lexeme) + (":*" if anchor.is_prefix else "")
