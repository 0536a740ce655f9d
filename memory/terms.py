"""Words of any language: what the index stores of a text, and what a query looks for.

Both sides take their lexemes from one scanner over folded text, so a query for a document's own word finds it. Words
that spaces divide are letters, marks and digits; a word's root is its English stem (ASCII) or its beginning (others).
Chinese, Japanese and Korean are indexed by characters and pairs; Thai, Lao, Khmer and Myanmar by trigrams. What signs
join (`user_id`, `v2.1`, `a@b.org`) is found whole and in parts.

Lexemes of different nature never meet, because words hold no signs: `~` begins a root, `=` a joined whole. A root is
stored only where it differs from its word, so a query for the root asks for both. Roots and wholes share a word's
position, and do not count in the length.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, pairwise
from typing import NamedTuple

import Stemmer

from memory.folding import fold, fold_with_offsets
from memory.scripts import CJK, HAN, MARKS, PICTOGRAPHS, UNSPACED

MAX_LEXEME_LENGTH = 64
"""Characters; a longer lexeme becomes its beginning and a hash. Postgres refuses more than 2,046 bytes."""

KEPT_BEGINNING = 47
"""Characters that a longer lexeme keeps: the longest prefix that can be asked for."""

MAX_POSITIONS = 256
"""Positions that Postgres keeps of one lexeme."""

MAX_POSITION = 16383
"""The greatest position that Postgres tells from the next."""

OVERFLOW = "!"
"""Lexeme of a text with more positions than Postgres keeps: there, adjacency proves nothing."""

ROOT_LENGTH = 4
"""Characters of a root outside ASCII."""

_WHOLE, _ROOT = "=", "~"
_JOINERS = r".\-@/:\\#&=?%+~$"
_RUN = re.compile(rf"[\w{MARKS}]+(?:[{_JOINERS}]{{1,3}}[\w{MARKS}]+)*(?:\+\+|#)?|[{PICTOGRAPHS}]")
_ASCII_RUN = re.compile(rf"\w+(?:[{_JOINERS}]{{1,3}}\w+)*(?:\+\+|#)?", re.ASCII)
_PART = re.compile(rf"[^_{_JOINERS}]+")
_DENSE = re.compile(f"[{CJK}{UNSPACED}]")
_SEGMENT = re.compile(f"(?P<cjk>[{CJK}]+)|(?P<unspaced>[{UNSPACED}]+)|(?P<spaced>[^{CJK}{UNSPACED}]+)")
_HAN = re.compile(f"[{HAN}]")
# "the", with "and", "with", "like" or "for" before it: all written as one with the noun.
_ARABIC_ARTICLE = re.compile("^[\u0648\u0641]?(?:[\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=..)")
_LONGEST_STEMMED = 32
_LONGEST_CACHED_RUN = 24
_CACHED = 1 << 14


class Kind(Enum):
    """What a lexeme is of the text, and so whether a query asks for it."""

    WORD = auto()
    WHOLE = auto()
    """Several words that signs join, or a word with its signs (`c++`)."""
    PAIR = auto()
    """Two neighbours of a CJK run."""
    CHARACTER = auto()
    """One Han character of a longer run: it may be a word by itself, so queries ask for it, with less weight."""
    TRIGRAM = auto()
    STUB = auto()
    """An unspaced run too short for a trigram: queries ask for whatever begins with it."""
    REST = auto()
    """Indexed for the sake of short queries only; within a longer query, its neighbours cover it."""


@dataclass(frozen=True, slots=True)
class IndexTerms:
    """The lexemes of one text: `tsvector` casts with `::tsvector`, `count` is the text's length in words."""

    tsvector: str
    count: int


@dataclass(frozen=True, slots=True)
class Word:
    """One indexed word of a text; `start` and `end` count the characters of the text as it was given.

    Words of one `position` overlap: a whole and its first part, a pair and its first character.
    """

    position: int
    start: int
    end: int
    surface: str
    kind: Kind
    exact: str
    variants: tuple[str, ...]

    @property
    def lexemes(self) -> tuple[str, ...]:
        """All that the index stores of it, the exact one first."""
        return (self.exact, *self.variants)


class Match(Enum):
    """How near to the query's word a document comes by one form."""

    EXACT = auto()
    ROOT = auto()
    CHARACTER = auto()
    """One character of a pair."""
    PREFIX = auto()


@dataclass(frozen=True, slots=True)
class Form:
    """Lexemes that are the same to a query; with `Match.PREFIX`, every lexeme that begins with one of them."""

    match: Match
    lexemes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One word that a query asks for, in any of its forms, the nearest first."""

    kind: Kind
    exact: str
    forms: tuple[Form, ...]

    def as_prefix(self) -> QueryTerm:
        """Ask for longer words too, where words are divided by spaces."""
        return replace(self, forms=(*self.forms, _prefix_form(self.exact))) if self.kind is Kind.WORD else self

    def widest_forms(self) -> tuple[Form, ...]:
        """The forms of which a text has one wherever it has any of `forms`.

        A word's root is stored with it, and so is a pair's character: whoever has the word has them.
        """
        implied = any(map(self._holds, self.forms))
        return tuple(form for form in self.forms if not implied or form.match is not Match.EXACT)

    def _holds(self, form: Form) -> bool:
        """Whether every text that has the very word has that form."""
        match form.match:
            case Match.EXACT:
                return False
            case Match.ROOT:
                return form.lexemes[0] != _ROOT + self.exact
            case Match.CHARACTER | Match.PREFIX:
                return self.exact.startswith(form.lexemes)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A lexeme that every text with a phrase has, at this position of the phrase; perhaps only its beginning."""

    position: int
    lexeme: str
    is_prefix: bool


class _Token(NamedTuple):
    """A word in a folded text. A named tuple, as the writer makes thousands a second."""

    position: int
    start: int
    end: int
    kind: Kind
    exact: str
    variants: tuple[str, ...] = ()


def index_terms(content: str) -> IndexTerms:
    """Give what the index stores of a text; any `str` will do.

    Positions start at 1; at most `MAX_POSITIONS` of a lexeme are kept.
    """
    folded = fold(content)
    places: defaultdict[str, list[int]] = defaultdict(list)
    position = 0
    for run in (_ASCII_RUN if folded.isascii() else _RUN).findall(folded):
        for lexemes in _run_lexemes(run):
            position += 1
            for lexeme in lexemes:
                places[lexeme].append(position)
    if position > MAX_POSITIONS:
        if position > MAX_POSITION or any(len(found) > MAX_POSITIONS for found in places.values()):
            places[quote_lexeme(OVERFLOW)].append(1)
        for lexeme, found in places.items():
            if len(found) > MAX_POSITIONS or found[-1] > MAX_POSITION:
                places[lexeme] = _keepable(found)
    # Most lexemes have one position, and a text without spaces has thousands of lexemes.
    listed = [
        f"{lexeme}:{','.join(map(str, found)) if len(found) > 1 else found[0]}" for lexeme, found in places.items()
    ]
    return IndexTerms(" ".join(listed), position)


def words(text: str) -> Iterator[Word]:
    """Iterate over the indexed words of a text, in order, with their places in it."""
    folded = fold_with_offsets(text)
    for token in _tokens(folded.text):
        start, end = folded.starts[token.start], folded.ends[token.end - 1]
        yield Word(token.position, start, end, text[start:end], token.kind, token.exact, token.variants)


def query_terms(text: str) -> Iterator[QueryTerm]:
    """Iterate over what a query that consists of this text asks for, in order, repetitions included."""
    tokens = list(_tokens(fold(text)))
    pairs = {token.position for token in tokens if token.kind is Kind.PAIR}
    characters = {at: Form(Match.CHARACTER, (exact,)) for at, _, _, kind, exact, _ in tokens if kind is Kind.CHARACTER}
    for token in tokens:
        exact = Form(Match.EXACT, (token.exact,))
        match token.kind:
            case Kind.WORD:
                yield QueryTerm(token.kind, token.exact, (exact, *_root_forms(token.exact)))
            case Kind.WHOLE | Kind.TRIGRAM:
                yield QueryTerm(token.kind, token.exact, (exact,))
            case Kind.PAIR:
                character = characters.get(token.position)
                yield QueryTerm(token.kind, token.exact, (exact, character) if character else (exact,))
            case Kind.CHARACTER:
                if token.position not in pairs:
                    yield QueryTerm(token.kind, token.exact, (characters[token.position],))
            case Kind.STUB:
                yield QueryTerm(token.kind, token.exact, (_prefix_form(token.exact),))
            case Kind.REST:
                pass


def anchors(phrase: str) -> tuple[Anchor, ...]:
    """Give the lexemes, by rising position, that a text has at the same distances wherever it has the phrase."""
    return tuple(
        Anchor(token.position, token.exact, is_prefix=token.kind is Kind.STUB)
        for token in _tokens(fold(phrase))
        if token.kind in (Kind.WORD, Kind.PAIR, Kind.TRIGRAM, Kind.STUB)
    )


def quote_lexeme(lexeme: str) -> str:
    """Quote a lexeme for the text forms of tsvector and tsquery."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def _tokens(folded: str) -> Iterator[_Token]:
    position = 0
    for run in _RUN.finditer(folded):
        written, begin = run.group(), run.start()
        tokens = _known_run_tokens(written) if len(written) <= _LONGEST_CACHED_RUN else _run_tokens(written)
        for at, start, end, kind, exact, variants in tokens:
            yield _Token(position + at, begin + start, begin + end, kind, exact, variants)
        position += tokens[-1].position if tokens else 0


def _run_lexemes(run: str) -> Iterable[Sequence[str]]:
    """Give the quoted lexemes of each position of a run."""
    if run.isascii() or _DENSE.search(run) is None:
        # Words come again; what is written without spaces seldom does.
        return _known_spaced_lexemes(run) if len(run) <= _LONGEST_CACHED_RUN else _spaced_lexemes(run)
    return chain.from_iterable(map(_segment_lexemes, _SEGMENT.finditer(run)))


def _segment_lexemes(segment: re.Match[str]) -> Iterable[Sequence[str]]:
    match segment.lastgroup:
        case "cjk":
            return ([f"'{gram}'" for gram in grams] for grams in _cjk_grams(segment.group()))
        case "unspaced":
            return ([f"'{gram}'"] for gram in _unspaced_grams(segment.group()))
        case _:
            return chain.from_iterable(map(_spaced_lexemes, _RUN.findall(segment.group())))


def _spaced_lexemes(run: str) -> list[list[str]]:
    groups: list[list[str]] = []
    for token in _spaced_tokens(run, 0, 0):
        if token.position > len(groups):
            groups.append([])
        groups[-1] += map(quote_lexeme, (token.exact, *token.variants))
    return groups


_known_spaced_lexemes = lru_cache(maxsize=_CACHED)(_spaced_lexemes)


def _run_tokens(run: str) -> Sequence[_Token]:
    """Split what stands together without a space; positions from 1, places in the run."""
    if run.isascii() or _DENSE.search(run) is None:
        return _spaced_tokens(run, 0, 0)
    tokens: list[_Token] = []
    for segment in _SEGMENT.finditer(run):
        position = tokens[-1].position if tokens else 0
        match segment.lastgroup:
            case "cjk":
                tokens += _cjk_tokens(segment.group(), position, segment.start())
            case "unspaced":
                tokens += _unspaced_tokens(segment.group(), position, segment.start())
            case _:
                for inner in _RUN.finditer(segment.group()):
                    tokens += _spaced_tokens(inner.group(), position, segment.start() + inner.start())
                    position = tokens[-1].position if tokens else 0
    return tokens


_known_run_tokens = lru_cache(maxsize=_CACHED)(_run_tokens)


def _spaced_tokens(run: str, position: int, start: int) -> list[_Token]:
    parts = list(_PART.finditer(run))
    if not parts:
        return []
    tokens: list[_Token] = []
    whole = run.strip("_")
    if whole != parts[0].group():
        begin = start + run.index(whole)
        tokens.append(_Token(position + 1, begin, begin + len(whole), Kind.WHOLE, _bound(_WHOLE + whole)))
    for part in parts:
        position += 1
        word = part.group()
        root = _root(word)
        variants = () if root == word else (_ROOT + root,)
        tokens.append(_Token(position, start + part.start(), start + part.end(), Kind.WORD, _bound(word), variants))
    return tokens


def _cjk_tokens(run: str, position: int, start: int) -> list[_Token]:
    tokens: list[_Token] = []
    for at, grams in enumerate(_cjk_grams(run)):
        for gram in grams:
            kind = _cjk_kind(gram) if len(run) > 1 else Kind.WORD
            tokens.append(_Token(position + at + 1, start + at, start + at + len(gram), kind, gram))
    return tokens


def _cjk_grams(run: str) -> Iterable[Sequence[str]]:
    """Give each character, after the pair that it begins."""
    pairs = map("".join, pairwise(run))
    return chain(zip(pairs, run, strict=False), [(run[-1],)])


def _cjk_kind(gram: str) -> Kind:
    if len(gram) > 1:
        return Kind.PAIR
    return Kind.CHARACTER if _HAN.match(gram) else Kind.REST


def _unspaced_tokens(run: str, position: int, start: int) -> list[_Token]:
    tokens: list[_Token] = []
    for at, gram in enumerate(_unspaced_grams(run)):
        kind = Kind.TRIGRAM if len(gram) == 3 else Kind.REST if at else Kind.STUB
        tokens.append(_Token(position + at + 1, start + at, start + at + len(gram), kind, gram))
    return tokens


def _unspaced_grams(run: str) -> list[str]:
    """Give the trigrams, and at the end what is left of them."""
    return [run[at : at + 3] for at in range(len(run))]


@lru_cache(maxsize=_CACHED)
def _root(word: str) -> str:
    """Give what the inflections of a word share; the word itself where nothing is known."""
    if not word.isascii():
        return _ARABIC_ARTICLE.sub("", word)[:ROOT_LENGTH]
    if not word.isalpha() or len(word) > _LONGEST_STEMMED:
        return word
    # A stemmer works inside itself, so threads cannot share one; to make one costs little.
    return str(Stemmer.Stemmer("english").stemWord(word))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _root_forms(word: str) -> tuple[Form, ...]:
    root = _root(word)
    if len(word) == 1 or (word.isascii() and not word.isalpha()):
        return ()
    # A text's word that is its own root is stored without one.
    return (Form(Match.ROOT, (_ROOT + root, root) if _root(root) == root else (_ROOT + root,)),)


def _prefix_form(beginning: str) -> Form:
    return Form(Match.PREFIX, (beginning[:KEPT_BEGINNING],))


def _bound(lexeme: str) -> str:
    if len(lexeme) <= MAX_LEXEME_LENGTH:
        return lexeme
    digest = blake2b(lexeme.encode("utf-8"), digest_size=8).hexdigest()
    return f"{lexeme[:KEPT_BEGINNING]}#{digest}"


def _keepable(places: list[int]) -> list[int]:
    return [place for place in places[:MAX_POSITIONS] if place <= MAX_POSITION] or [MAX_POSITION]
