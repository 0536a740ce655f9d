"""Highlights: where a memory has what a query asks for."""

from __future__ import annotations

from collections.abc import Iterator

from appview.search.phrases import find_phrase
from appview.search.query import ParsedQuery
from memory.folding import fold_with_offsets
from memory.terms import Kind, words

MAX_HIGHLIGHTS = 50


def highlights(content: str, query: ParsedQuery) -> tuple[tuple[int, int], ...]:
    """Give the places of a query's words and phrases as (byteStart, byteEnd) in the content's UTF-8.

    In order, apart from each other, the first `MAX_HIGHLIGHTS`. What matches by its root or beginning is lit whole.
    """
    spans = sorted([*_word_spans(content, query), *_phrase_spans(content, query)])
    return tuple(_in_bytes(content, _merge(spans)[:MAX_HIGHLIGHTS]))


def _word_spans(content: str, query: ParsedQuery) -> Iterator[tuple[int, int]]:
    wanted = frozenset(query.lexemes)
    prefixes = query.prefixes
    for word in words(content):
        if not wanted.isdisjoint(word.lexemes) or (word.kind is Kind.WORD and word.exact.startswith(prefixes)):
            yield word.start, word.end
        elif word.exact.startswith(prefixes):
            # Of a trigram or pair, only its own beginning was asked for.
            length = max(len(prefix) for prefix in prefixes if word.exact.startswith(prefix))
            yield word.start, min(word.end, word.start + length)


def _phrase_spans(content: str, query: ParsedQuery) -> Iterator[tuple[int, int]]:
    if not query.phrases:
        return
    folded = fold_with_offsets(content)
    for phrase in query.phrases:
        for start, end in find_phrase(folded.text, phrase):
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
