from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.embedding import (
    MAX_PASSAGES,
    Vector,
    clean_query,
    clean_text,
    may_embed,
    split_passages,
    unit_vector,
)
from memory.space import PUBLIC

SPACE = "at://did:plc:abc/space/com.example.group/a"
# What a passage may have: no more tokens than characters once it is spelled out, whatever the script.
ALPHABET_CHARACTERS = 980
OTHER_CHARACTERS = 490

_ALL = st.characters(codec=None)
_CONTENTS = st.one_of(
    st.text(_ALL, max_size=3_000),
    st.text(st.sampled_from("ab .\n。，字กั\u0301\u200d👩🏽\0\ud800"), max_size=2_500),
    st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=12), max_size=400).map(" ".join),
)


class _Model:
    model = "m"
    dimensions = 3

    def __init__(self, *, leaves_machine: bool) -> None:
        self.leaves_machine = leaves_machine

    async def embed_query(self, text: str) -> Vector:
        raise NotImplementedError

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        raise NotImplementedError

    async def aclose(self) -> None: ...


def _visible(text: str) -> str:
    return "".join(text.split())


@given(_CONTENTS)
def test_pieces_hold_all_that_is_visible_in_its_order(content: str):
    pieces = split_passages(content)
    if len(pieces) < MAX_PASSAGES:
        assert _visible("".join(pieces)) == _visible(clean_text(content))
    else:
        assert _visible(clean_text(content)).startswith(_visible("".join(pieces)))


@given(_CONTENTS)
def test_pieces_are_bounded_and_never_empty(content: str):
    pieces = split_passages(content)
    assert 1 <= len(pieces) <= MAX_PASSAGES
    for piece in pieces:
        assert 1 <= len(piece) <= ALPHABET_CHARACTERS
        assert piece == piece.strip() or pieces == [" "]
        assert clean_text(piece) == piece
        spelled = unicodedata.normalize("NFKC", piece)
        assert len(spelled) <= 2 * OTHER_CHARACTERS + len(piece) // OTHER_CHARACTERS


@given(st.text(st.characters(categories=["Lu", "Nd", "So", "P"]), min_size=1, max_size=3_000))
def test_what_takes_a_token_for_each_character_is_cut_shorter(content: str):
    assert all(len(piece) <= OTHER_CHARACTERS for piece in split_passages(content))


def test_short_content_is_one_piece():
    assert split_passages("Alice likes tea.\n\nBob does not.") == ["Alice likes tea.\n\nBob does not."]


@pytest.mark.parametrize("content", ["", " ", "\n\t ", "\0\0", "\ud800"])
def test_content_without_anything_visible_is_one_blank_piece(content: str):
    assert split_passages(content) == [" "]


def test_longest_content_of_an_alphabet_is_three_pieces_of_much_the_same_size():
    content = "The quick brown fox jumps over the lazy dog. " * 55
    pieces = split_passages(content[:2_500])
    assert len(pieces) == 3
    assert max(map(len, pieces)) - min(map(len, pieces)) < 100


def test_piece_ends_with_a_paragraph_before_a_sentence():
    first = "It was so. " * 50
    pieces = split_passages(first.strip() + "\n\n" + "And then it was not. " * 25)
    assert pieces[0] == first.strip()


def test_piece_ends_with_a_sentence_before_a_word():
    pieces = split_passages("He said that it was so, and she said that it was not. " * 25)
    assert all(piece.endswith("not.") for piece in pieces)


def test_chinese_sentences_end_without_spaces():
    pieces = split_passages("他说他喜欢喝茶，不喜欢喝咖啡。" * 80)
    assert len(pieces) == 3
    assert all(piece.endswith("。") for piece in pieces)


def test_piece_ends_with_a_word_where_no_sentence_ends():
    words = "butter" + " butter" * 300
    assert all(set(piece.split()) == {"butter"} for piece in split_passages(words))


@pytest.mark.parametrize("cluster", ["e\u0301\u0323", "👩🏽\u200d🚀", "กำ้", "❤\ufe0f"])
def test_no_character_is_torn_from_its_marks(cluster: str):
    pieces = split_passages(cluster * 600)
    assert len(pieces) > 1
    assert all(len(piece) % len(cluster) == 0 for piece in pieces)


def test_what_spells_out_to_more_is_counted_so():
    pieces = split_passages("\ufdfa" * 200)  # eighteen characters each
    assert len(pieces) > 3
    assert all(len(unicodedata.normalize("NFKC", piece)) <= ALPHABET_CHARACTERS for piece in pieces)


def test_query_is_cut_to_its_beginning():
    assert clean_query("  a\0b ") == "a b"
    assert clean_query("x" * 5_000) == "x" * 600
    assert clean_query("茶" * 5_000) == "茶" * 300
    assert len(clean_query("\ufdfa" * 5_000)) < 60  # which are 18 letters each, spelled out


def test_direction_is_kept_and_length_is_one():
    assert unit_vector([3.0, 4.0]) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("numbers", [[], [0.0, 0.0], [1.0, math.nan], [1.0, math.inf], [1e200, 1e200]])
def test_numbers_without_a_direction_are_no_vector(numbers: list[float]):
    with pytest.raises(ValueError, match="no direction"):
        unit_vector(numbers)


@pytest.mark.parametrize(
    ("space", "leaves_machine", "allow_private", "may"),
    [
        (PUBLIC, True, False, True),
        (PUBLIC, False, False, True),
        (SPACE, False, False, True),
        (SPACE, True, False, False),
        (SPACE, True, True, True),
    ],
)
def test_private_text_leaves_the_machine_only_if_allowed(
    space: str, leaves_machine: bool, allow_private: bool, may: bool
):
    assert may_embed(space, _Model(leaves_machine=leaves_machine), allow_private=allow_private) is may
