"""Ranking looks at no more contents than its page needs, and finds the same as if it looked at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.keys import Key
from appview.search import hits
from appview.search.candidates import Candidate, Candidates
from appview.search.hits import MAX_SUPPRESSED, Ranking, rank_candidates
from appview.search.marks import Judge
from appview.search.query import parse_query
from appview.search.ranking import Corpus, prepare_scorer
from memory.terms import index_terms
from tests.text_search import parse_vector

START = datetime(2026, 1, 1, tzinfo=UTC)


def candidates_of(contents: Sequence[str], masked: Sequence[bool] = ()) -> tuple[Candidates, dict[Key, str]]:
    """Candidates with these contents, each a second older than the one before, all of which need a recheck."""
    memories = [
        Candidate(
            key=Key("did:plc:alice", "", f"{number:05}"),
            term_count=index_terms(content).count,
            occurrences=tuple((word, len(at)) for word, at in parse_vector(index_terms(content).tsvector).items()),
            effective_at=START - timedelta(seconds=number),
            indexed_at=START,
            masked=bool(masked) and masked[number],
            content_hash=hash(content),
            content_bytes=len(content),
            needs_recheck=True,
        )
        for number, content in enumerate(contents)
    ]
    found = Candidates(memories, Corpus(len(memories), 3.0, {"tea": 2, "green": 2}), capped=False, any_of=())
    return found, {memory.key: content for memory, content in zip(memories, contents, strict=True)}


def rank(q: str, candidates: Candidates, *, wanted: int, through: Candidate | None = None) -> Ranking:
    query = parse_query(q)
    judge = Judge(prepare_scorer(query.terms, candidates.corpus))
    return rank_candidates(query, candidates.memories, judge, min_score=0, wanted=wanted, through=through)


def ranked(
    q: str, contents: Sequence[str], *, wanted: int, masked: Sequence[bool] = (), through: int | None = None
) -> Ranking:
    """The settled ranking, which asked for few contents at a time."""
    candidates, texts = candidates_of(contents, masked)
    explained = None if through is None else candidates.memories[through]
    ranking = rank(q, candidates, wanted=wanted, through=explained)
    while ranking.undecided:
        assert len(ranking.undecided) <= 50
        ranking.decide({key: texts[key] for key in ranking.undecided})
    return ranking


def test_a_page_of_a_common_phrase_looks_at_little_more_than_a_page() -> None:
    ranking = ranked('"green tea"', [f"green tea {number}" for number in range(1_000)], wanted=26)
    assert [hit.key.rkey for hit in ranking.hits] == [f"{number:05}" for number in range(26)]
    assert ranking.rechecks <= 50
    assert not ranking.capped


def test_what_is_explained_is_reached_however_far_down_it_stands() -> None:
    ranking = ranked('"green tea"', [f"green tea {number}" for number in range(300)], wanted=26, through=222)
    assert "00222" in {hit.key.rkey for hit in ranking.hits}
    assert ranking.rechecks < 300


@pytest.mark.parametrize(("name", "bound"), [("MAX_RECHECKS", 70), ("MAX_RECHECKED_BYTES", 70 * 13)])
def test_a_phrase_that_nobody_has_ends_at_the_bound(monkeypatch: pytest.MonkeyPatch, name: str, bound: int) -> None:
    monkeypatch.setattr(hits, name, bound)
    ranking = ranked('"green tea"', [f"tea green {number:03}" for number in range(200)], wanted=26)
    assert ranking.rechecks == 70
    assert ranking.capped
    assert list(ranking.hits) == []


def test_equal_contents_are_looked_at_once() -> None:
    ranking = ranked('"green tea"', ["green tea"] * 200, wanted=26)
    [hit] = ranking.hits
    assert len(hit.duplicates) == 199
    assert ranking.rechecks == 1


def test_duplicates_below_the_page_are_told() -> None:
    contents = ["green tea 0", *(f"green tea {number}" for number in range(1, 100)), "green tea 0"]
    ranking = ranked('"green tea"', contents, wanted=3)
    assert ranking.hits[0].duplicates == [Key("did:plc:alice", "", "00100")]


def test_of_replaced_memories_one_more_than_is_told_is_looked_at() -> None:
    contents = [f"green tea {number}" for number in range(1_000)]
    ranking = ranked('"green tea"', [*contents, "green tea"], wanted=5, masked=[True] * 1_000 + [False])
    assert len(ranking.suppressed) == MAX_SUPPRESSED + 1
    assert len(ranking.hits) == 1
    assert ranking.rechecks <= MAX_SUPPRESSED + 52


def test_what_is_gone_meanwhile_is_no_hit() -> None:
    candidates, texts = candidates_of(["green tea", "green tea too"])
    ranking = rank('"green tea"', candidates, wanted=5)
    gone, *others = ranking.undecided
    ranking.decide({key: texts[key] for key in others})
    assert [hit.key for hit in ranking.hits] == others
    assert gone not in others


def test_what_needs_no_recheck_is_not_asked_for() -> None:
    candidates, _ = candidates_of(["green tea", "tea"])
    certain = replace(candidates, memories=[replace(memory, needs_recheck=False) for memory in candidates.memories])
    ranking = rank("green tea", certain, wanted=5)
    assert ranking.undecided == []
    assert len(ranking.hits) == 2


words = st.sampled_from(["green tea", "tea green", "green", "tea", "green tea tea"])
memories = st.lists(st.tuples(words, st.booleans()), max_size=30)


@given(memories, st.integers(1, 5), st.sampled_from(['"green tea"', 'tea -"green tea"', '"tea tea" green']))
def test_the_hits_of_a_page_are_those_of_looking_at_all(described: list[tuple[str, bool]], wanted: int, q: str) -> None:
    contents = [content for content, _ in described]
    masked = [is_masked for _, is_masked in described]
    page, everything = (ranked(q, contents, wanted=wanted_then, masked=masked) for wanted_then in (wanted, 1_000))
    assert page.hits == everything.hits[: len(page.hits)]
    assert len(page.hits) == min(wanted, len(everything.hits))
    for hit in [*page.hits, None] if len(everything.hits) < wanted else page.hits:
        assert page.count_suppressed_above(hit) == everything.count_suppressed_above(hit)
