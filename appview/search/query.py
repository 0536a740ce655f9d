"""Queries: `words`, `"phrases"`, `-exclusions`, and what each asks of the index.

Words are alternatives that rank; phrases and exclusions are filters. Whatever is written, there is a query, perhaps an
empty one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from appview.search.phrases import Phrase, parse_phrase, phrase_matches, read
from appview.search.stop_words import stop_words_for
from memory.folding import fold
from memory.terms import Form, Match, QueryTerm, query_terms, quote_lexeme

# A quotation, or an exclusion. A quote without its partner, and a minus elsewhere, are text like any other.
_FILTER = re.compile(
    r"""
    (?P<minus> (?<!\S) - (?= [^\W\d_] | "[^"]*" ) )?
    (?: "(?P<phrase>[^"]*)" | (?(minus) (?P<word>[^\s"]+) | (?!) ) )
    """,
    re.VERBOSE,
)
_QUOTES = str.maketrans("“”„‟＂", '"""""')


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query: `terms` rank what has any of them, every phrase must be there, no exclusion may be.

    `wording` is what it says, without what it excludes.
    """

    terms: tuple[QueryTerm, ...]
    phrases: tuple[Phrase, ...]
    exclusions: tuple[Phrase, ...]
    wording: str = ""

    @property
    def lexemes(self) -> tuple[str, ...]:
        """The lexemes that the terms ask for, each once."""
        return tuple(dict.fromkeys(lexeme for lexeme, is_prefix in _lexemes(self._forms()) if not is_prefix))

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Beginnings: the terms ask for every lexeme that begins with one of them."""
        return tuple(dict.fromkeys(lexeme for lexeme, is_prefix in _lexemes(self._forms()) if is_prefix))

    @property
    def tsquery_any(self) -> str:
        """Text for `::tsquery`: what a memory needs to be ranked at all. Empty when the query has no words.

        It is as short as it can be, for in a repo every memory is held against it.
        """
        forms = [form for term in self.terms for form in term.widest_forms()]
        wanted = [quote_lexeme(lexeme) for lexeme, is_prefix in _lexemes(forms) if not is_prefix]
        beginnings = [f"{quote_lexeme(lexeme)}:*" for lexeme, is_prefix in _lexemes(forms) if is_prefix]
        return " | ".join(dict.fromkeys(wanted + beginnings))

    @property
    def tsquery_required(self) -> str:
        """Text for `::tsquery` that every memory with the phrases passes, and some others. Empty without phrases."""
        return " & ".join(f"({phrase.tsquery})" for phrase in self.phrases)

    @property
    def tsquery_excluded(self) -> str:
        """Text for `::tsquery` that no answer passes: the exclusions that the index alone decides. May be empty."""
        return " | ".join(exclusion.tsquery for exclusion in self.exclusions if exclusion.is_one_lexeme)

    @property
    def tsquery_recheck(self) -> str:
        """Text for `::tsquery`: the memories that pass it need `admits`, the others do not. Empty when none does."""
        return " | ".join(f"({phrase.tsquery})" for phrase in self._undecided())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to rank by."""
        return not self.terms

    def admits(self, content: str) -> bool:
        """Tell whether a memory with this content passes all phrases and exclusions."""
        if not self.phrases and not self.exclusions:
            return True
        readings = read(fold(content))
        return all(phrase_matches(readings, phrase) for phrase in self.phrases) and not any(
            phrase_matches(readings, exclusion) for exclusion in self.exclusions
        )

    def _forms(self) -> Iterator[Form]:
        for term in self.terms:
            yield from term.forms

    def _undecided(self) -> Iterator[Phrase]:
        for phrase in (*self.phrases, *self.exclusions):
            if not phrase.is_one_lexeme:
                yield phrase


def parse_query(q: str, *, prefix: bool = False) -> ParsedQuery:
    """Read a query; any `str` will do. With `prefix`, its last word finds longer words too, unless a filter ends it."""
    text = q.translate(_QUOTES)
    phrases: list[Phrase] = []
    exclusions: list[Phrase] = []
    quoted: list[QueryTerm] = []
    plain: list[QueryTerm] = []
    wording: list[str] = []
    end = 0
    for found in _FILTER.finditer(text):
        plain += query_terms(text[end : found.start()])
        wording.append(text[end : found.start()])
        end = found.end()
        if not found["minus"]:
            wording.append(found["phrase"])
        written = found["word"] if found["phrase"] is None else found["phrase"]
        phrase = parse_phrase(written)
        if phrase is None:
            continue
        if found["minus"]:
            exclusions.append(phrase)
        else:
            phrases.append(phrase)
            quoted += query_terms(written)
    last = list(query_terms(text[end:]))
    if prefix and last:
        last[-1] = last[-1].as_prefix()
    terms = _without_stop_words([*plain, *last], quoted)
    said = " ".join("".join([*wording, text[end:]]).split())
    return ParsedQuery(_once(terms), tuple(dict.fromkeys(phrases)), tuple(dict.fromkeys(exclusions)), said)


def _lexemes(forms: Iterable[Form]) -> Iterator[tuple[str, bool]]:
    """What the forms ask for, in order, and whether it is a beginning."""
    for form in forms:
        for lexeme in form.lexemes:
            yield lexeme, form.match is Match.PREFIX


def _without_stop_words(plain: list[QueryTerm], quoted: list[QueryTerm]) -> list[QueryTerm]:
    """Drop the stop words outside quotations, unless nothing else would be left."""
    stop_words = stop_words_for(word for term in (*quoted, *plain) for word in _written_words(term))
    kept = [shorter for term in plain if (shorter := _without(term, stop_words)) is not None]
    return [*quoted, *kept] if quoted or kept else plain


def _without(term: QueryTerm, stop_words: frozenset[str]) -> QueryTerm | None:
    if any(form.match is Match.PREFIX for form in term.forms):
        return term
    if term.exact in stop_words:
        return None
    # Of a word that has one for its root, or a pair that holds one, only the whole says something.
    return replace(term, forms=tuple(form for form in term.forms if stop_words.isdisjoint(form.lexemes)))


def _written_words(term: QueryTerm) -> Iterator[str]:
    for form in term.forms:
        if form.match in (Match.EXACT, Match.CHARACTER):
            yield form.lexemes[0]


def _once(terms: Iterable[QueryTerm]) -> tuple[QueryTerm, ...]:
    """Ask for each word once; of a word and the same as a prefix, the later one stays."""
    return tuple({term.exact: term for term in terms}.values())
