from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.search.query import parse_query
from appview.search.ranking import FORM_WEIGHTS, TOP_SCORE, Corpus, LexicalScorer, order_key, prepare_scorer
from memory.terms import Match, index_terms
from tests.text_search import parse_vector


def occurrences(content: str) -> dict[str, int]:
    return {lexeme: len(places) for lexeme, places in parse_vector(index_terms(content).tsvector).items()}


def corpus_of(contents: Sequence[str]) -> Corpus:
    lengths = [index_terms(content).count for content in contents]
    frequencies = Counter(lexeme for content in contents for lexeme in occurrences(content))
    return Corpus(len(contents), sum(lengths) / len(lengths) if lengths else 0.0, frequencies)


def score_with(scorer: LexicalScorer, content: str) -> float:
    return scorer.score(index_terms(content).count, tuple(occurrences(content).items()))


def scores(q: str, contents: Sequence[str], *, prefix: bool = False) -> list[float]:
    scorer = prepare_scorer(parse_query(q, prefix=prefix).terms, corpus_of(contents))
    return [score_with(scorer, content) for content in contents]


def test_more_of_the_query_scores_more_and_none_of_it_nothing() -> None:
    both, one, none = scores("green tea", ["green tea here", "green salad here", "black coffee here"])
    assert both > one > none == 0


def test_a_rare_word_scores_more_than_a_common_one() -> None:
    contents = ["green salad", "green soup", "green sauce", "jasmine rice"]
    assert scores("green jasmine", contents)[3] > scores("green jasmine", contents)[0]


def test_a_short_memory_scores_more_than_a_long_one() -> None:
    short, long, _ = scores("tea", ["likes tea", "likes tea and a great many other drinks", "water"])
    assert short > long


def test_repetition_scores_more_but_never_as_much_as_twice() -> None:
    once, twice, _ = scores("tea", ["tea with milk now", "tea with tea now", "water with ice now"])
    assert once < twice < 2 * once


def test_the_very_word_scores_more_than_its_root() -> None:
    contents = ["she runs far", "she ran far", "they sleep late", "running is far"]
    exact, _, _, inflected = scores("runs", contents)
    assert exact > inflected > 0


def test_a_word_in_several_forms_counts_once() -> None:
    contents = ["running", "green", "water", "juice"]
    one_word = scores("running", contents)[0]
    assert one_word == pytest.approx(scores("green", contents)[1])


def test_a_pair_scores_more_than_its_characters_apart() -> None:
    contents = ["喝绿茶水", "绿水喝茶", "牛奶很好", "咖啡很好"]
    pair, apart, *_ = scores("绿茶", contents)
    assert pair > apart > 0


def test_a_longer_word_scores_by_its_beginning_only_as_prefix_and_less() -> None:
    contents = ["teapot here", "tea here", "milk here"]
    assert scores("tea", contents)[0] == 0
    longer, exact, _ = scores("tea", contents, prefix=True)
    assert exact > longer > 0


def test_every_form_but_the_exact_one_weighs_less() -> None:
    assert FORM_WEIGHTS.keys() == set(Match)
    assert all(weight < FORM_WEIGHTS[Match.EXACT] for match, weight in FORM_WEIGHTS.items() if match is not Match.EXACT)


@pytest.mark.parametrize("content", ["green tea", "user_id", "北京大学", "зелёный чай", "the who"])
def test_a_memory_that_is_the_query_scores_the_maximum_even_alone(content: str) -> None:
    for contents in ([content], [content, "something else", "and more"]):
        scorer = prepare_scorer(parse_query(content).terms, corpus_of(contents))
        assert scorer.calibrate(score_with(scorer, content)) == TOP_SCORE


def test_what_is_not_there_lowers_the_score() -> None:
    contents = ["green tea", "black coffee"]
    scorer = prepare_scorer(parse_query("green tea zebra").terms, corpus_of(contents))
    assert 0 < scorer.calibrate(score_with(scorer, "green tea")) < TOP_SCORE


def test_another_spelling_is_not_held_against_a_memory_where_nobody_uses_the_querys() -> None:
    contents = ["one hobby", "two cats", "three dogs"]
    scorer = prepare_scorer(parse_query("hobbies").terms, corpus_of(contents))
    assert scorer.calibrate(score_with(scorer, contents[0])) > TOP_SCORE * 3 // 4
    prefix = prepare_scorer(parse_query("hobb", prefix=True).terms, corpus_of(contents))
    assert prefix.calibrate(score_with(prefix, contents[0])) > TOP_SCORE * 3 // 4


def test_nothing_divides_by_zero() -> None:
    nobody = Corpus(0, 0.0, {})
    assert prepare_scorer((), nobody).calibrate(0.0) == 0
    scorer = prepare_scorer(parse_query("tea").terms, nobody)
    assert scorer.calibrate(scorer.score(0, ())) == 0
    assert scorer.calibrate(scorer.score(1, (("tea", 1),))) == TOP_SCORE


def test_statistics_that_lag_behind_never_make_a_score_negative() -> None:
    scorer = prepare_scorer(parse_query("tea").terms, Corpus(1, 2.0, {"tea": 5, "~tea": 3}))
    assert scorer.score(2, (("tea", 1),)) > 0


def test_lexemes_of_others_change_nothing() -> None:
    scorer = prepare_scorer(parse_query("tea").terms, corpus_of(["tea", "milk"]))
    assert scorer.score(3, (("tea", 1), ("milk", 4))) == scorer.score(3, (("tea", 1),))


words = st.sampled_from("green tea teas running run 北京 京 ชาเขียว любит любовь user_id v2.1 the".split())
memories = st.lists(st.lists(words, min_size=1, max_size=8).map(" ".join), min_size=1, max_size=6)


@given(st.lists(words, min_size=1, max_size=6).map(" ".join), memories, st.booleans(), st.randoms())
def test_scores_are_bounded_and_do_not_depend_on_order(
    q: str, contents: list[str], prefix: bool, random: object
) -> None:
    scorer = prepare_scorer(parse_query(q, prefix=prefix).terms, corpus_of(contents))
    for content in contents:
        found = occurrences(content)
        score = scorer.score(index_terms(content).count, tuple(found.items()))
        backwards = dict(reversed(found.items()))
        assert scorer.score(index_terms(content).count, tuple(backwards.items())) == score >= 0
        assert 0 <= scorer.calibrate(score) <= TOP_SCORE


def test_hits_are_ordered_by_score_then_newest_then_identity() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    hits = [
        (2.0, now - tick, "did:plc:z", "", "3b"),
        (1.0, datetime.max.replace(tzinfo=UTC), "did:plc:z", "", "3b"),
        (1.0, datetime.max.replace(tzinfo=UTC) - tick, "did:plc:a", "", "3a"),
        (1.0, now, "did:plc:a", "", "3a"),
        (1.0, now, "did:plc:a", "", "3b"),
        (1.0, now, "did:plc:a", "at://x", "3a"),
        (1.0, now, "did:plc:b", "", "3a"),
        (1.0, datetime.min.replace(tzinfo=UTC), "did:plc:a", "", "3a"),
    ]
    assert sorted([*hits[4:], *hits[:4]], key=lambda hit: order_key(*hit)) == hits
