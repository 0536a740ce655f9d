from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.terms import (
    MAX_LEXEME_LENGTH,
    MAX_POSITION,
    MAX_POSITIONS,
    OVERFLOW,
    Kind,
    Match,
    index_terms,
    query_terms,
    quote_lexeme,
    words,
)
from tests.text_search import matches, parse_vector

MIXED = (
    "abcXYZ éßłİ_.-+#@/:'\"\\ &|!()<>*~= \n\0\ud800\u0301\u200b"
    "Жёйщ اكتبل हिन्दी ไทยกขำ ខ្មែរ 北京大学々 ひらカナー 한국어ㅎㅏ 🍵👩\u200d🍳 ½ﷺ㌀①٣"
)
texts = st.text(st.characters()) | st.text(MIXED) | st.text("ab _-.+#'é")


def lexemes(content: str) -> set[str]:
    return set(parse_vector(index_terms(content).tsvector))


def finds(query: str, content: str) -> bool:
    vector = parse_vector(index_terms(content).tsvector)
    return any(
        any(lexeme == wanted or (form.match is Match.PREFIX and lexeme.startswith(wanted)) for lexeme in vector)
        for term in query_terms(query)
        for form in term.forms
        for wanted in form.lexemes
    )


def test_a_sentence_is_stored_as_words_and_differing_roots_with_positions_from_one() -> None:
    terms = index_terms("She likes tea, likes it hot.")
    assert parse_vector(terms.tsvector) == {
        "she": (1,),
        "likes": (2, 4),
        "~like": (2, 4),
        "tea": (3,),
        "it": (5,),
        "hot": (6,),
    }
    assert terms.count == 6


@pytest.mark.parametrize("content", ["", " ", "…!?", "\0", "\ud800", "___", "-.-", "'\\", "\u200b\ufeff"])
def test_a_text_without_words_has_no_terms(content: str) -> None:
    assert index_terms(content).tsvector == ""
    assert index_terms(content).count == 0


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("She was running", "runs"),
        ("One hobby", "hobbies"),
        ("Élodie aime le thé", "ELODIE the"),
        ("любит зелёный чай", "зеленого"),
        ("Η οδός", "ΟΔΟΣ"),
        ("والكتاب هنا", "كتاب"),
        ("للكتاب", "الكتاب"),
        ("कितने अंक", "अंकों कितना"),
        ("我在北京大学学习", "北京"),
        ("我在北京大学学习", "学"),
        ("东京大学", "大学生"),
        ("コーヒーを飲む", "コーヒー"),
        ("ｺｰﾋｰ", "コーヒー"),
        ("한국어를 배운다", "한국어"),
        ("ฉันชอบดื่มชาเขียว", "ชาเขียว"),
        ("ฉันชอบดื่มชาเขียว", "ชา"),
        ("ខ្ញុំចូលចិត្តតែ", "តែ"),
        ("iPhone手机", "iphone"),
        ("iPhone手机", "手机"),
        ("born in ٢٠٢٤", "2024"),
        ("likes 🍵", "🍵"),
        ("ends at once.Then starts", "then"),
    ],
)
def test_a_word_is_found_in_any_language(content: str, query: str) -> None:
    assert finds(query, content)


@pytest.mark.parametrize(
    ("content", "whole", "parts"),
    [
        ("needs v2.1 now", "v2.1", ["v2", "1"]),
        ("the user_id column", "user_id", ["user", "id"]),
        ("a foo-bar thing", "foo-bar", ["foo", "bar"]),
        ("ask alice@example.org please", "alice@example.org", ["alice", "example", "org"]),
        (
            "(https://example.org/a/b?c=d)",
            "https://example.org/a/b?c=d",
            ["https", "example", "org", "a", "b", "c", "d"],
        ),
        ("see at://did:plc:abc/x.y/3k", "at://did:plc:abc/x.y/3k", ["at", "did", "plc", "abc", "x", "y", "3k"]),
        ("in __init__.py", "init__.py", ["init", "py"]),
        ("müsli-bowl", "musli-bowl", ["musli", "bowl"]),
        ("writes C++, not C#", "c++", ["c"]),
        ("writes C++, not C#", "c#", ["c"]),
    ],
)
def test_what_signs_join_is_found_whole_and_in_parts(content: str, whole: str, parts: list[str]) -> None:
    assert f"={whole}" in lexemes(content)
    assert set(parts) <= lexemes(content)
    asked = [term.exact for term in query_terms(whole)]
    assert f"={whole}" in asked
    assert set(parts) <= set(asked)


def test_roots_and_wholes_share_the_position_and_do_not_count() -> None:
    terms = index_terms("user_names liked")
    vector = parse_vector(terms.tsvector)
    assert vector == {"=user_names": (1,), "user": (1,), "names": (2,), "~name": (2,), "liked": (3,), "~like": (3,)}
    assert terms.count == 3


def test_pairs_share_the_position_of_their_first_character() -> None:
    terms = index_terms("北京大")
    assert parse_vector(terms.tsvector) == {"北京": (1,), "北": (1,), "京大": (2,), "京": (2,), "大": (3,)}
    assert terms.count == 3


def test_unspaced_scripts_are_stored_as_trigrams_and_their_ends() -> None:
    assert parse_vector(index_terms("กขคง").tsvector) == {"กขค": (1,), "ขคง": (2,), "คง": (3,), "ง": (4,)}


def test_a_root_never_meets_a_word_of_the_same_letters() -> None:
    assert "run" not in lexemes("running")
    assert "~run" not in lexemes("run")
    assert finds("run", "running")
    assert finds("running", "run")


def test_a_word_and_its_root_are_one_term_of_a_query() -> None:
    (term,) = query_terms("running")
    assert [(form.match, form.lexemes) for form in term.forms] == [
        (Match.EXACT, ("running",)),
        (Match.ROOT, ("~run", "run")),
    ]


def test_one_character_of_a_pair_is_asked_for_as_less_than_the_pair() -> None:
    first, second = query_terms("绿茶")
    assert [(form.match, form.lexemes) for form in first.forms] == [
        (Match.EXACT, ("绿茶",)),
        (Match.CHARACTER, ("绿",)),
    ]
    assert [(form.match, form.lexemes) for form in second.forms] == [(Match.CHARACTER, ("茶",))]


def test_kana_and_hangul_are_asked_for_by_pairs_only() -> None:
    assert [term.exact for term in query_terms("ひらが 한국어")] == ["ひら", "らが", "한국", "국어"]


def test_a_prefix_finds_longer_words_but_changes_nothing_where_words_have_no_spaces() -> None:
    (term,) = query_terms("Runn")
    assert term.as_prefix().forms[-1].lexemes == ("runn",)
    assert term.as_prefix().forms[-1].match is Match.PREFIX
    for unspaced in query_terms("北京 ชาเขียว"):
        assert unspaced.as_prefix() == unspaced


def test_a_long_token_is_stored_as_its_beginning_and_a_hash() -> None:
    long, other = "x" * 3000, "x" * 2999
    (lexeme,) = lexemes(long)
    assert len(lexeme) == MAX_LEXEME_LENGTH
    assert lexeme.startswith("x" * 40)
    assert lexemes(long) != lexemes(other)
    assert finds(long.upper(), long)
    assert not finds(other, long)
    (term,) = query_terms("x" * 60)
    assert lexeme.startswith(term.as_prefix().forms[-1].lexemes)


@pytest.mark.parametrize(
    "unit", ["a ", "ﷺ", "㌀", "ж", "a.", "é ", "北", "ก", "a", "\0", "🍵", "' \\ ", "x_", "don't "]
)
def test_the_worst_content_stays_far_below_what_postgres_takes(unit: str) -> None:
    content = unit * (10_000 // len(unit.encode()))
    terms = index_terms(content)
    assert len(terms.tsvector.encode()) < 500_000
    assert terms.count <= MAX_POSITION
    assert all(len(places) <= MAX_POSITIONS for places in parse_vector(terms.tsvector).values())


def test_more_positions_than_postgres_keeps_are_cut_and_said() -> None:
    assert OVERFLOW not in parse_vector(index_terms("a " * MAX_POSITIONS).tsvector)
    vector = parse_vector(index_terms("a " * (MAX_POSITIONS + 1)).tsvector)
    assert vector["a"] == tuple(range(1, MAX_POSITIONS + 1))
    assert OVERFLOW in vector


def test_positions_past_the_last_one_stay_at_it() -> None:
    vector = parse_vector(index_terms(" ".join(f"w{number}" for number in range(MAX_POSITION + 5))).tsvector)
    assert vector[f"w{MAX_POSITION + 4}"] == (MAX_POSITION,)
    assert OVERFLOW in vector


def test_quotes_and_backslashes_of_lexemes_are_doubled() -> None:
    assert quote_lexeme("a'b\\c") == "'a''b\\\\c'"
    assert parse_vector(index_terms(r"C:\temp\x").tsvector)[r"=c:\temp\x"] == (1,)


def test_words_tell_where_they_stand_in_the_text_as_given() -> None:
    text = "Ça, e\u0301t\u00e9 v2.1!"
    assert [(word.start, word.end, word.surface, word.exact) for word in words(text)] == [
        (0, 2, "Ça", "ca"),
        (4, 8, "e\u0301té", "ete"),
        (9, 13, "v2.1", "=v2.1"),
        (9, 11, "v2", "v2"),
        (12, 13, "1", "1"),
    ]
    assert [(word.surface, word.kind) for word in words("北京")] == [
        ("北京", Kind.PAIR),
        ("北", Kind.CHARACTER),
        ("京", Kind.CHARACTER),
    ]


@given(texts)
def test_terms_are_well_formed_whatever_the_text(content: str) -> None:
    terms = index_terms(content)
    vector = parse_vector(terms.tsvector)
    for lexeme, places in vector.items():
        assert 1 <= len(lexeme) <= MAX_LEXEME_LENGTH
        assert len(lexeme.encode()) <= 2046
        assert list(places) == sorted(set(places))
    assert terms.count == max((places[-1] for places in vector.values()), default=0)


@given(texts)
def test_words_and_index_tell_the_same(content: str) -> None:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for word in words(content):
        assert word.surface == content[word.start : word.end] != ""
        for lexeme in word.lexemes:
            places[lexeme].append(word.position)
    vector = parse_vector(index_terms(content).tsvector)
    assert vector == {lexeme: tuple(found) for lexeme, found in places.items()}


@given(texts)
def test_a_text_is_found_by_each_of_its_own_words(content: str) -> None:
    vector = parse_vector(index_terms(content).tsvector)
    for word in words(content):
        wanted = [
            quote_lexeme(lexeme) + ":*" * (form.match is Match.PREFIX)
            for term in query_terms(word.surface)
            for form in term.forms
            for lexeme in form.lexemes
        ]
        assert matches(vector, " | ".join(wanted))
