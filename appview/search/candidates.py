"""What a search has to rank: memories as far as ranking sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from appview.keys import Key
from appview.search.ranking import Corpus, Occurrences
from memory.terms import QueryTerm


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    """A readable memory that an arm found and that passes the filters, except perhaps being in effect.

    `occurrences`: how often it has each of the query's lexemes, empty of what the semantic arm brings. `term_count`:
    its length in words. `masked`: replaced, while replaced ones are not wanted. `needs_recheck`: phrases or exclusions
    must be looked for in its content, which has `content_bytes`.
    """

    key: Key
    term_count: int
    occurrences: Occurrences
    effective_at: datetime
    indexed_at: datetime
    masked: bool
    content_hash: int
    content_bytes: int
    needs_recheck: bool


@dataclass(frozen=True, slots=True, repr=False)
class Candidates:
    """What the lexical arm brings, in no order.

    `capped`: there are more matches, earlier in effect. `any_of`: the query's words of which each has at least one.
    `indexed_at`: when the latest was indexed of all that was counted or found; None if there was nothing.
    """

    memories: Sequence[Candidate]
    corpus: Corpus
    capped: bool
    any_of: Sequence[QueryTerm]
    indexed_at: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Explained:
    """One readable memory as the filters see it; `failed` names those that it does not pass, in their order."""

    candidate: Candidate
    content: str
    failed: Sequence[str]
