"""Highlights: where a memory has what a query asks for."""

from __future__ import annotations

from collections.abc import Iterator

from appview.search.phrases import find_phrases
from appview.search.query import ParsedQuery
from memory.folding import fold_with_offsets
from memory.terms import Kind, Word, words

MAX_HIGHLIGHTS = 50


def highlights(content: str, query: ParsedQuery) -> tuple[tuple[int, int], ...]:
    """Give the places of a query's words and phrases as (byteStart, byteEnd) in the content's UTF-8.

    In order, apart from each other, the first `MAX_HIGHLIGHTS`. What matches by its root or beginning is lit whole.
    """
    spans = sorted([*_word_spans(content, query), *_phrase_spans(content, query)])
    return tuple(_in_bytes(content, _merge(spans)[:MAX_HIGHLIGHTS]))


def _word_spans(content: str, query: ParsedQuery) -> Iterator[tuple[int, int]]:
    wanted, prefixes = frozenset(query.lexemes), query.prefixes
    found: list[Word] = []
    for word in words(content):
        if not wanted.isdisjoint(word.lexemes):
            found.append(word)
        elif word.exact.startswith(prefixes):
            yield word.start, _end_of_beginning(word, prefixes)
    in_pairs = "".join(word.exact for word in found if word.kind is Kind.PAIR)
    for word in found:
        # Where its pair is lit, a character elsewhere says nothing.
        if word.kind is not Kind.CHARACTER or word.exact not in in_pairs:
            yield word.start, word.end


def _end_of_beginning(word: Word, prefixes: tuple[str, ...]) -> int:
    """A word is lit whole, but of a trigram or pair only what was asked for."""
    if word.kind is Kind.WORD:
        return word.end
    return min(word.end, word.start + max(len(prefix) for prefix in prefixes if word.exact.startswith(prefix)))


def _phrase_spans(content: str, query: ParsedQuery) -> Iterator[tuple[int, int]]:
    if query.phrases:
        folded = fold_with_offsets(content)
        for start, end in find_phrases(folded.text, query.phrases, MAX_HIGHLIGHTS):
            yield folded.starts[start], folded.ends[end - 1]


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _in_bytes(content: str, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    at_character, at_byte = 0, 0
    for span in spans:
        places: list[int] = []
        for character in span:
            # A lone surrogate takes the three bytes of its replacement.
            at_byte += len(content[at_character:character].encode("utf-8", "surrogatepass"))
            at_character = character
            places.append(at_byte)
        yield places[0], places[1]
