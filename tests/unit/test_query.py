from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.search.phrases import find_phrases, parse_phrase, phrase_matches, read
from appview.search.query import ParsedQuery, parse_query
from appview.search.stop_words import STOP_WORDS, stop_words_for
from memory.folding import fold
from memory.terms import MAX_POSITIONS, Match, index_terms
from tests.text_search import matches, parse_tsquery, parse_vector

MIXED = (
    'abc ABC the é ßł_.-+#@/:\'"" --\\&|!()<>*~= \n\0\ud800\u0301\u200b“”'
    "Жё في اكتب हिन्दी ไทยกขำ 北京的大学 ひらカナー 한국어 🍵👩 ½ﷺ㌀①٣"
)
queries = st.text(st.characters(), max_size=60) | st.text(MIXED, max_size=60)
contents = st.text(MIXED, max_size=60)


def asked(query: ParsedQuery) -> list[str]:
    return [term.exact for term in query.terms]


def passes(content: str, tsquery: str) -> bool:
    return matches(parse_vector(index_terms(content).tsvector), tsquery)


def answers(q: str, content: str) -> bool:
    """Whether a memory is a hit, judged as a database and then `admits` would."""
    query = parse_query(q)
    return (
        passes(content, query.tsquery_any)
        and (not query.phrases or passes(content, query.tsquery_required))
        and not passes(content, query.tsquery_excluded)
        and (not passes(content, query.tsquery_recheck) or query.admits(content))
    )


def test_words_are_alternatives_in_order_each_once() -> None:
    query = parse_query("Green tea, green TEA cup")
    assert asked(query) == ["green", "tea", "cup"]
    assert query.tsquery_any == "'green' | '~green' | 'tea' | '~tea' | 'cup' | '~cup'"
    assert query.tsquery_required == query.tsquery_excluded == query.tsquery_recheck == ""


@pytest.mark.parametrize(
    ("q", "content", "expected"),
    [
        ('"green tea"', "likes Green\n TÉA", True),
        ('"green tea"', "green, tea", True),
        ('"green tea"', "tea green", False),
        ('"green tea"', "green teapot", False),
        ('"green tea"', "evergreen tea", False),
        ('"green tea"', "green mint tea", False),
        ('"green tea."', "green tea with milk", True),
        ('"likes tea"', "like tea", False),
        ('"to be"', "to be or not", True),
        ('"C++"', "writes C++ daily", True),
        ('"C++"', "writes C daily", False),
        ('"foo-bar"', "a foo-bar", True),
        ('"foo-bar"', "a foo bar", False),
        ('"foo bar"', "a foo-bar", True),
        ('"foo, bar"', "Foo,\nbar", True),
        ('"foo, bar"', "foo bar", False),
        ('"id"', "user_id", True),
        ('"don\'t"', "I don’t know", True),
        ('"京大"', "北京大学", True),
        ('"北京 大学"', "北京，大学", True),
        ('"北京 大学"', "北京大学", False),
        ('"北京大学"', "北京 大学", False),
        ('"ชา"', "ชอบชาเขียว", True),
        ('"iphone"', "新iPhone手机", True),
        ("“green tea”", "green tea", True),
        ("tea -milk", "tea with lemon", True),
        ("tea -milk", "tea with MILK", False),
        ("tea -milk", "tea, milky", True),
        ("tea -milks", "tea with milk", True),
        ("tea -milk.", "tea with milk", False),
        ('tea -"with milk"', "tea with milk", False),
        ('tea -"with milk"', "tea without milk", True),
        ("tea -foo-bar", "tea foo-bar", False),
        ("tea -foo-bar", "tea bar", True),
        ("tea -牛奶", "tea 加牛奶", False),
        ("茶 -奶", "茶加牛奶", False),
        ('tea "green"', "green things", True),
    ],
)
def test_phrases_and_exclusions_filter(q: str, content: str, expected: bool) -> None:
    assert answers(q, content) is expected


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ("post-war", ["=post-war", "post", "war"]),
        ("tea -5", ["tea", "5"]),
        ("tea - milk", ["tea", "milk"]),
        ("tea --milk", ["tea", "milk"]),
        ('tea -"milk', ["tea", "milk"]),
        ('5" pipe', ["5", "pipe"]),
        ('"green tea', ["green", "tea"]),
        ('"', []),
    ],
)
def test_a_minus_or_quote_elsewhere_is_literal(q: str, words: list[str]) -> None:
    query = parse_query(q)
    assert asked(query) == words
    assert query.phrases == query.exclusions == ()


def test_an_unbalanced_quote_after_a_phrase_is_literal() -> None:
    query = parse_query('"green tea" and "cake')
    assert [phrase.text for phrase in query.phrases] == ["green tea"]
    assert asked(query) == ["green", "tea", "cake"]


@pytest.mark.parametrize("q", ["", " ", "…!?", '""', '"…"', '-"..."', "\0", "\ud800", "&|!:*<->", "-milk", '-"a b"'])
def test_without_words_a_query_is_valid_and_empty(q: str) -> None:
    query = parse_query(q, prefix=True)
    assert query.is_empty
    assert query.tsquery_any == ""


def test_the_last_word_is_a_prefix_only_when_told() -> None:
    assert parse_query("green te", prefix=True).prefixes == ("te",)
    assert parse_query("green te").prefixes == ()
    assert parse_query("green te", prefix=True).tsquery_any.endswith("'te':*")
    assert passes("green tea", parse_query("te", prefix=True).tsquery_any)


@pytest.mark.parametrize("q", ['te "green tea"', "te -milk"])
def test_a_filter_at_the_end_leaves_no_prefix(q: str) -> None:
    assert parse_query(q, prefix=True).prefixes == ()


def test_a_prefix_is_no_stop_word() -> None:
    assert asked(parse_query("green the", prefix=True)) == ["green", "the"]


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ("what does the cat like", ["cat", "like"]),
        ("Wo ist die Katze und der Hund", ["die", "katze", "hund"]),
        ("où est le chat de Zoé", ["chat", "zoe"]),
        ("dónde está la casa de Ana", ["casa", "ana"]),
        ("где живёт Алиса", ["живет", "алиса"]),
        ("أين تعيش أليس", ["تعيش", "اليس"]),
        ("पैंथर्स ने कितने अंक दिए", ["पैंथर्स", "अंक", "दिए"]),
    ],
)
def test_stop_words_of_the_querys_own_language_are_dropped(q: str, words: list[str]) -> None:
    assert asked(parse_query(q)) == words


@pytest.mark.parametrize(
    "q", ["dog want war sea", "cold war", "die hard", "mit degree", "son of car", "hay den", "big sur", "os men"]
)
def test_stop_words_of_other_languages_delete_nothing(q: str) -> None:
    assert set(q.split()) - {"of"} == set(asked(parse_query(q)))


def test_stop_words_are_kept_in_filters_and_where_nothing_else_is_left() -> None:
    assert asked(parse_query('"the who" the')) == ["the", "who"]
    assert [exclusion.text for exclusion in parse_query("tea -the").exclusions] == ["the"]
    assert asked(parse_query("to be or not to be")) == ["not"]
    assert asked(parse_query("what is the")) == ["what", "is", "the"]


def test_a_han_pair_that_holds_a_stop_word_is_asked_for_only_as_a_pair() -> None:
    query = parse_query("我的猫")
    assert asked(query) == ["我的", "的猫", "猫"]
    assert query.lexemes == ("我的", "的猫", "猫")


def test_unsure_means_english() -> None:
    assert stop_words_for([]) == STOP_WORDS["en"]
    assert stop_words_for(["la"]) == STOP_WORDS["en"]
    assert stop_words_for(["un", "la", "que"]) == STOP_WORDS["en"]


def test_stop_word_lists_hold_no_english_word_of_substance() -> None:
    substance = "dog want war sea die hat son car pour comment come door men till man per ton fur art bad den big sur"
    for language, stop_words in STOP_WORDS.items():
        assert stop_words.isdisjoint(substance.split()), language


def test_a_phrase_is_found_beyond_the_positions_that_postgres_keeps() -> None:
    content = "a b " * (MAX_POSITIONS + 1) + "a c"
    assert answers('"a c"', content)


def test_a_phrase_is_found_where_it_stands() -> None:
    phrase = parse_phrase("tea time")
    assert phrase is not None
    assert list(find_phrases(fold("Tea time, steatime, TEA-TIME!"), [phrase], 9)) == [(0, 8), (20, 28)]
    assert list(find_phrases("tea time " * 3, [phrase], 2)) == [(0, 8), (9, 17)]


def test_one_word_is_decided_by_the_index_alone() -> None:
    assert parse_query("tea -milk").tsquery_recheck == ""
    assert parse_query('"milk"').tsquery_recheck == ""
    assert parse_query('tea -"oat milk"').tsquery_excluded == ""


@pytest.mark.parametrize(
    "q",
    [
        "a & b | !c <-> d:* (e)",
        "it's \\ 'quoted' \\'",
        "tea':* | 'x",
        "🍵" * 1000,
        "\u202eאבג \u202dabc",
        '"' + "a b " * 249 + '"',
        "北" * 1000,
        "ﷺ" * 1000,
        "x" * 1000,
        '"' * 1000,
        "-a " * 333,
    ],
)
def test_hostile_queries_are_well_formed(q: str) -> None:
    check_well_formed(q)


def check_well_formed(q: str) -> None:
    for prefix in (False, True):
        query = parse_query(q, prefix=prefix)
        assert query.is_empty == (query.tsquery_any == "")
        assert bool(query.phrases) == bool(query.tsquery_required)
        for text in (query.tsquery_any, query.tsquery_required, query.tsquery_excluded, query.tsquery_recheck):
            if text:
                parse_tsquery(text)


@given(queries)
def test_any_query_is_well_formed(q: str) -> None:
    check_well_formed(q)


@given(queries, contents, st.booleans())
def test_what_is_left_out_of_a_query_for_any_word_is_found_by_the_rest(q: str, content: str, prefix: bool) -> None:
    query = parse_query(q, prefix=prefix)
    stored = parse_vector(index_terms(content).tsvector)
    has_any = any(lexeme in query.lexemes or lexeme.startswith(query.prefixes) for lexeme in stored)
    assert (not query.is_empty and matches(stored, query.tsquery_any)) == has_any


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("teas", "'~tea' | 'tea'"),
        ("tea", "'tea' | '~tea'"),
        ("cheeses", "'~chees'"),
        ("любит", "'~люби' | 'люби'"),
        ("北京大", "'北' | '京' | '大'"),
        ("ชาเขียว", "'ชาเ' | 'าเข' | 'เขี' | 'ขีย' | 'ียว'"),
        ("v2.1", "'=v2.1' | 'v2' | '1'"),
    ],
)
def test_a_word_is_not_asked_for_where_its_root_or_character_is(q: str, expected: str) -> None:
    assert parse_query(q).tsquery_any == expected


@given(queries)
def test_a_text_with_words_answers_the_query_of_itself(text: str) -> None:
    q = text.replace('"', " ").replace("-", " ")
    query = parse_query(q)
    assert query.is_empty or passes(q, query.tsquery_any)


@given(contents, st.data())
def test_the_index_never_loses_a_phrase(content: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    phrase = parse_phrase(content[start:end])
    if phrase is None:
        return
    found = phrase_matches(read(fold(content)), phrase)
    in_index = passes(content, phrase.tsquery)
    assert in_index or not found
    if phrase.is_one_lexeme:
        assert in_index == found


@given(
    st.lists(
        st.sampled_from("green tea Élodie любит the 北京大学 ชาเขียว foo-bar v2.1 C++ 🍵 don't".split()), min_size=1
    )
)
def test_neighbouring_words_are_a_phrase(words: list[str]) -> None:
    content = "\n ".join(words)
    for start in range(len(words)):
        q = '"' + " ".join(words[start : start + 3]) + '"'
        assert answers(q, content)


@given(queries, contents)
def test_filters_agree_with_admits(q: str, content: str) -> None:
    query = parse_query(q)
    if query.is_empty or not passes(content, query.tsquery_any):
        return
    assert answers(q, content) == query.admits(content)


def test_a_word_of_a_phrase_ranks_as_well() -> None:
    query = parse_query('"green tea" cup')
    assert query.terms[0].forms[0].match is Match.EXACT
    assert asked(query) == ["green", "tea", "cup"]
