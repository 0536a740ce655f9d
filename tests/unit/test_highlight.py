from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.search.highlight import MAX_HIGHLIGHTS, highlights
from appview.search.query import parse_query

MIXED = "abc the é ßł_.-+#@'\"\n\0\ud800\u0301\u200bЖё اكتب हिन्दी ไทยกขำ 北京的大学 ひらカナー 한국어 🍵👩 ½ﷺ㌀①"
texts = st.text(st.characters(), max_size=60) | st.text(MIXED, max_size=60)


def lit(content: str, q: str, *, prefix: bool = False) -> list[str]:
    data = content.encode()
    return [data[start:end].decode() for start, end in highlights(content, parse_query(q, prefix=prefix))]


@pytest.mark.parametrize(
    ("content", "q", "expected"),
    [
        ("Alice likes green tea.", "tea", ["tea"]),
        ("She was running; he runs", "run", ["running", "runs"]),
        ("Crème brûlée, CAFE\u0301", "creme café", ["Crème", "CAFE\u0301"]),
        ("любит зелёный чай", "зеленого чая", ["зелёный"]),
        ("a green, green tea", '"green tea"', ["green", "green tea"]),
        ("Größe: ﬁne", "grosse fine", ["Größe", "ﬁne"]),
        ("the user_id, an id", "user_id", ["user_id", "id"]),
        ("writes C++ now", "c++", ["C++"]),
        ("我在北京大学学习", "北京大学", ["北京大学"]),
        ("我在学校学习", "学习", ["学习"]),
        ("我在学校学习", "学", ["学", "学"]),
        ("大和学", "大学", ["大", "学"]),
        ("新iPhone手机", "iphone", ["iPhone"]),
        ("ชอบชาเขียว", "ชาเขียว", ["ชาเขียว"]),
        ("ชอบชาเขียว", "ชา", ["ชา"]),
        ("drinks 🍵 daily", "🍵", ["🍵"]),
        ("nothing here", "tea", []),
        ("tea with milk", "tea -milk", ["tea"]),
        ("tea", "", []),
    ],
)
def test_what_was_asked_for_is_lit(content: str, q: str, expected: list[str]) -> None:
    assert lit(content, q) == expected


def test_a_prefix_lights_the_whole_word() -> None:
    assert lit("runner and teapot", "tea", prefix=True) == ["teapot"]
    assert lit("runner and teapot", "tea") == []


def test_a_phrase_is_one_highlight() -> None:
    assert lit("Green\n\u200bTEA!", '"green tea"') == ["Green\n\u200bTEA"]


def test_the_number_of_highlights_is_bounded_and_the_first_stay() -> None:
    spans = highlights("tea, " * (MAX_HIGHLIGHTS + 20), parse_query("tea"))
    assert len(spans) == MAX_HIGHLIGHTS
    assert spans[:2] == ((0, 3), (5, 8))


def test_bytes_of_a_lone_surrogate_are_those_of_its_replacement() -> None:
    assert highlights("\ud800 tea", parse_query("tea")) == ((4, 7),)


@given(texts, texts, st.booleans())
def test_highlights_lie_on_bounds_of_characters_in_order_and_apart(content: str, q: str, prefix: bool) -> None:
    data = content.encode("utf-8", "surrogatepass")
    before = -1
    for start, end in highlights(content, parse_query(q, prefix=prefix)):
        assert before < start < end <= len(data)
        for place in (start, end):
            data[:place].decode("utf-8", "surrogatepass")
        before = end


@given(texts)
def test_a_text_lights_up_under_the_query_of_itself(content: str) -> None:
    query = parse_query(content.replace('"', " ").replace("-", " "))
    assert bool(highlights(content, query)) or query.is_empty
