"""The form of access tokens, and what is kept of them."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.tokens import PREFIX, make_access_token, parse_access_token

MARA = "did:plc:maraaaaaaaaaaaaaaaaaaaaa"
GOOD = make_access_token(MARA, lambda count: bytes(range(count)))


@pytest.mark.parametrize("did", [MARA, "did:web:mara.example", "did:web:" + "a" * 240 + ".example"])
def test_token_names_its_viewer_and_itself(did: str):
    token = make_access_token(did)
    parsed = parse_access_token(token.text)
    assert parsed is not None
    assert (parsed.did, parsed.id, parsed.text) == (did, token.id, token.text)
    assert token.text.startswith(PREFIX)


def test_every_token_is_another():
    tokens = [make_access_token(MARA) for _ in range(100)]
    assert len({token.text for token in tokens}) == len({token.id for token in tokens}) == 100


def test_token_has_256_random_bits_beside_its_id():
    asked: list[int] = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    token = make_access_token(MARA, random_bytes)
    assert asked == [12, 32]
    assert token.id == "00" * 12


def test_hash_of_the_whole_is_what_is_kept():
    assert GOOD.digest() == sha256(GOOD.text.encode()).digest()
    assert GOOD.matches(GOOD.digest())
    assert not GOOD.matches(make_access_token(MARA).digest())
    assert not GOOD.matches(b"")


def test_token_shows_itself_in_no_log():
    assert GOOD.text not in repr(GOOD)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PREFIX,
        PREFIX + "x",
        GOOD.text.removeprefix(PREFIX),
        PREFIX.upper() + GOOD.text.removeprefix(PREFIX),
        GOOD.text + "=",
        GOOD.text + "\n",
        GOOD.text + "A",
        GOOD.text[:-1],
        " " + GOOD.text,
        PREFIX + GOOD.text,
        make_access_token("mara.example").text,
        make_access_token("").text,
        make_access_token("did:plc:ümlaut").text,
        make_access_token("did:web:" + "a" * 4000).text,
        PREFIX + "A" * 1_000_000,
    ],
)
def test_other_texts_are_no_tokens(text: str):
    assert parse_access_token(text) is None


@given(st.integers(0, len(GOOD.text)), st.integers(0, len(GOOD.text)), st.text(max_size=9))
def test_token_has_one_spelling(start: int, end: int, between: str):
    text = GOOD.text[:start] + between + GOOD.text[max(start, end) :]
    parsed = parse_access_token(text)
    assert parsed is None or parsed.matches(GOOD.digest()) == (text == GOOD.text)
