"""Whose credentials say that they are, before anybody is asked whether that is so."""

from __future__ import annotations

import pytest

from appview.access import claimed_did
from appview.tokens import make_access_token
from tests.builders import START, SigningKey
from tests.fakes.identities import MARA, NOOR
from tests.service_tokens import claims, signed


def test_whose_a_token_says_it_is_can_be_told_before_it_is_judged():
    forged = signed(SigningKey("mara"), "ES256K", claims(MARA, START, exp=1, aud="did:web:elsewhere.test"))
    assert claimed_did(b"Bearer " + forged) == MARA
    assert claimed_did(b"Bearer " + make_access_token(NOOR).text.encode()) == NOOR


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Basic " + b"e30",
        b"Bearer a.b",
        b"Bearer e30.e30.e30",
        b"Bearer memat_AAAA",
        b"Bearer " + make_access_token("did:web:" + "x" * 300 + ".test").text.encode(),
        b"Bearer " + make_access_token("did:example:tea").text.encode(),
    ],
)
def test_what_names_nobody_who_could_be_asked_for_names_nobody(header: bytes):
    assert claimed_did(header) is None
