from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.folding import fold, fold_with_offsets

any_text = st.text(st.characters())
tricky_text = st.text(
    "aE\u00e9\u0301\u0327\u200d\u00ad\u0640\u0653\u0627\u304b\u3099\uff76\uff9e\u1100\u1161\u11a8\u3131\u314f\u0e33\u09c7\u09be\ufdfa\u00bd\u0130\u00df\0\ud800"
)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Green TEA", "green tea"),
        ("Élodie, Ångström, Größe", "elodie, angstrom, grosse"),
        ("Ελλάδα ΟΔΟΣ οδός", "ελλαδα οδοσ οδοσ"),
        ("зелёный Й", "зеленыи и"),
        ("Łódź Øre æon Þór İstanbul ılık", "lodz ore aeon thor istanbul ilik"),
        ("ＡＢＣ １２ ｶﾞ ①½", "abc 12 ガ 11⁄2"),
        ("٢٠٢٤ २०२४ ๒๐", "2024 2024 20"),
        ("كِتَابٌ كتـــاب", "كتاب كتاب"),
        ("co\u00adop\u200bera\u200dte\ufeff", "cooperate"),
        ("don’t “say” 2019–2021", 'don\'t "say" 2019-2021'),
        ("हिन्दी がぎ 한국어 ไทย", "हिन्दी がぎ 한국어 ไทย"),
    ],
)
def test_what_readers_take_as_the_same_is_spelled_the_same(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_what_a_database_cannot_hold_is_replaced() -> None:
    assert fold("a\0b\ud800c\udfffd") == "a\ufffdb\ufffdc\ufffdd"
    assert fold("\0") == "\ufffd"


@given(any_text | tricky_text)
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_folding_any_character_twice_changes_nothing() -> None:
    folded = [fold(chr(code)) for code in range(0, sys.maxunicode + 1, 7)]
    assert [fold(text) for text in folded] == folded


@given(any_text | tricky_text)
def test_offsets_lead_back_into_the_text(text: str) -> None:
    folded = fold_with_offsets(text)
    assert folded.text == fold(text)
    assert len(folded.starts) == len(folded.ends) == len(folded.text)
    assert all(0 <= start < end <= len(text) for start, end in zip(folded.starts, folded.ends, strict=True))
    assert list(folded.starts) == sorted(folded.starts)
    assert list(folded.ends) == sorted(folded.ends)


def test_offsets_of_a_changed_character_span_all_that_it_comes_from() -> None:
    folded = fold_with_offsets("e\u0301ﷺß")
    assert (folded.starts[0], folded.ends[0]) == (0, 2)
    assert folded.text.endswith("ss")
    assert (folded.starts[-1], folded.ends[-1]) == (3, 4)
    assert (folded.starts[1], folded.ends[1]) == (2, 3)
