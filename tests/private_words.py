"""What a test said that no log may repeat, the forms in which one might, and the search for them.

A text is cut into overlapping pieces, so that a part of it is found too: every part of 23 characters or more holds a
whole piece. What is public in a text (DIDs, URLs, datetimes, names of collections) is no piece of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote

PIECE: Final = 16
STEP: Final = 8
SHORTEST: Final = 12  # of a text
SHORTEST_ASKED: Final = 8  # of a query, and of each word in it
TEXTS_MAX: Final = 5_000  # of one test, the first ones: a property test makes texts without end
CHARS_MAX: Final = 4_096  # of one text
SHOWN_CHARS: Final = 300
MASK: Final = "█"

# Private whatever it says, and registered nowhere: URIs of Spaces and of what is in them, both kinds of tokens.
ALWAYS: Final = re.compile(
    r"did(?::|%3A)[a-z]+(?::|%3A)[^\s\"'/]+(?:/|%2F)space(?:/|%2F)[^\s\"']*|eyJ[\w-]{8,}\.[\w-]{8,}[\w.-]*|memat_[\w-]{20,}",
    re.IGNORECASE,
)
_PUBLIC: Final = re.compile(
    r"did:[a-z]+:[\w.:%-]+|\w+://[^\s\"']+|dev\.bastienrober[\w.]*|\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|[+-]\d\d:\d\d)?"
)
_WORD: Final = re.compile(r"[^\W\d_]{8,}")
_DISTINCT: Final = 5  # fewer different characters make no piece: "aaaaaaaaaaaaaaaa" stands in DIDs of tests
_PUBLIC_FIELDS: Final = re.compile(r"\$.*|.*At|precision|uri|cid|did|repo|collection|handle")


@dataclass
class Pieces:
    """What is looked for."""

    long: set[str] = field(default_factory=set[str])  # of PIECE characters each
    short: set[str] = field(default_factory=set[str])
    words: set[str] = field(default_factory=set[str])  # in lower case

    def leaks(self, lines: Iterable[str]) -> list[str]:
        """The lines that hold something of it, or of what is always private: masked, shortened, each once."""
        lines = list(lines)
        together = "\n".join(lines)
        short = [text for text in self.short if text in together]
        return list(dict.fromkeys(_masked(line, spans) for line in lines if (spans := self._spans(line, short))))

    def _spans(self, line: str, shorts: Sequence[str]) -> list[tuple[int, int]]:
        spans = [match.span() for match in ALWAYS.finditer(line)]
        if self.long and not self.long.isdisjoint([line[at : at + PIECE] for at in range(len(line) - PIECE + 1)]):
            # What is beside a piece is of the text too, as far as the next piece would be.
            spans += [
                (at - STEP, at + PIECE + STEP)
                for at in range(len(line) - PIECE + 1)
                if line[at : at + PIECE] in self.long
            ]
        for short in shorts:
            spans += [match.span() for match in re.finditer(re.escape(short), line)]
        if self.words:
            spans += [match.span() for match in _WORD.finditer(line) if match[0].lower() in self.words]
        return spans


class PrivateWords:
    """The private texts of one test, as they come."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._asked: dict[str, None] = {}

    def forget(self) -> None:
        """The next test begins."""
        self._texts.clear()
        self._asked.clear()

    def say(self, text: str | None) -> None:
        """A text of a record, a token, a cursor; short ones are not told from what logs say."""
        if text is not None and len(text) >= SHORTEST and len(self._texts) < TEXTS_MAX:
            self._texts[text[:CHARS_MAX]] = None

    def say_all(self, value: object) -> None:
        """All texts in a record or a body of JSON, but for what is public of it."""
        match value:
            case str():
                self.say(value)
            case Mapping():
                for name, item in cast("Mapping[Any, object]", value).items():
                    if not _PUBLIC_FIELDS.fullmatch(str(name)):
                        self.say_all(item)
            case list() | tuple():
                for item in cast("Sequence[object]", value):
                    self.say_all(item)
            case _:
                pass

    def ask(self, query: str) -> None:
        """A query, of which each word is private too."""
        if len(query) >= SHORTEST_ASKED and len(self._asked) < TEXTS_MAX:
            self._asked[query[:CHARS_MAX]] = None

    def pieces(self) -> Pieces:
        """To look for in what this test had written."""
        found = Pieces()
        for texts, shortest in ((self._texts, SHORTEST), (self._asked, SHORTEST_ASKED)):
            for text in texts:
                for form in _forms(text, shortest):
                    if len(form) < PIECE:
                        found.short.add(form)
                    else:
                        starts = (*range(0, len(form) - PIECE, STEP), len(form) - PIECE)
                        found.long.update(piece for at in starts if _tells(piece := form[at : at + PIECE]))
        for query in self._asked:
            found.words.update(word.lower() for word in _WORD.findall(_PUBLIC.sub(" ", query)))
        return found

    def beginnings(self, known: set[str]) -> None:
        """Adds one piece of each text that is long enough, to look for when the tests are over."""
        for texts in (self._texts, self._asked):
            for text in texts:
                if text[:PIECE] not in known:  # most texts stand in many tests
                    known.update(form[:PIECE] for form in _forms(text[: 2 * PIECE], PIECE) if _tells(form[:PIECE]))


def _forms(text: str, shortest: int) -> set[str]:
    """The parts of a text that are private: as they are, in JSON, in a URL."""
    forms: set[str] = set()
    for part in _PUBLIC.split(text):
        part = part.strip()
        if len(part) >= shortest and _tells(part):
            forms |= {part, json.dumps(part)[1:-1], quote(part.encode(errors="replace"), safe="")}
    return forms


def _tells(piece: str) -> bool:
    return len(set(piece)) >= _DISTINCT


def _masked(line: str, spans: Sequence[tuple[int, int]]) -> str:
    shown = list(line)
    for start, end in spans:
        for at in range(max(start, 0), min(end, len(line))):
            shown[at] = MASK
    text = re.sub(f"{MASK}+", MASK * 3, "".join(shown))
    around = max(text.index(MASK) - SHOWN_CHARS // 2, 0)
    return text[around : around + SHOWN_CHARS]
