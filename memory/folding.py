"""One spelling for what readers take as the same: case, width, accents, digits, invisible characters fold away.

The steps are NFKD, case folding, dropping, swapping and NFC, so that folding twice changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from memory.scripts import MARKS

# Accents of Latin, Greek and Cyrillic, and the vowel points that Hebrew and Arabic may leave out. Marks that a script
# cannot do without (Indic vowel signs) stay.
_ACCENTS = (
    "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
)
# Default_Ignorable_Code_Point (joiners, directions, soft hyphens, variation selectors, fillers), and Arabic's tatweel.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_DROPPED = re.compile(f"[{_ACCENTS}{_IGNORABLE}]+")
# Letters whose stroke or ligature Unicode does not decompose, and typographic punctuation that keyboards lack.
_SWAPS = {
    "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d",
    "‘": "'", "’": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "‐": "-", "‒": "-", "–": "-", "−": "-",
}  # fmt: skip
# Databases refuse NUL, and UTF-8 refuses lone surrogates.
_UNSTORABLE = "\0\ud800-\udfff"
_SWAPPED = re.compile(f"[{''.join(_SWAPS)}{_UNSTORABLE}]|(?![0-9])\\d")

# Beside marks, what NFKC may join to the character before it: Hangul vowels and finals, halfwidth sound marks.
_JOINING = "\u1161-\u11ff\u3131-\u318e\uff9e\uff9f\uffa1-\uffdc"
_CLUSTER = re.compile(f".[{MARKS}{_IGNORABLE}{_JOINING}]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text with the way back: its character `i` comes from `original[starts[i]:ends[i]]`."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


def fold(text: str) -> str:
    """Fold case, compatibility forms, accents, digits and invisible characters; any `str` will do."""
    if text.isascii() and "\0" not in text:
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFC", _SWAPPED.sub(_swap, _DROPPED.sub("", decomposed)))


def fold_with_offsets(text: str) -> Folded:
    """Fold as `fold` does, and keep for each folded character the span of characters that it comes from."""
    if text.isascii():
        return Folded(fold(text), range(len(text)), range(1, len(text) + 1))
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        piece = _fold_cluster(cluster.group())
        pieces.append(piece)
        starts += [cluster.start()] * len(piece)
        ends += [cluster.end()] * len(piece)
    return Folded("".join(pieces), starts, ends)


def _swap(match: re.Match[str]) -> str:
    character = match.group()
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return _SWAPS.get(character, "\ufffd")


_fold_cluster = lru_cache(maxsize=4096)(fold)
