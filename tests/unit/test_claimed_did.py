"""Whose credentials say that they are, before anybody is asked whether that is so."""

from __future__ import annotations

import pytest

from appview.access import Credential, read_credential
from appview.jwt import UnjudgedToken
from appview.refusals import AuthenticationRequired, BadJwt, InvalidRequest, InvalidToken
from appview.tokens import AccessToken, make_access_token
from tests.builders import START, SigningKey
from tests.fakes.identities import MARA, NOOR
from tests.service_tokens import claims, signed


def read(*authorizations: bytes) -> Credential:
    credential = read_credential(tuple((b"authorization", each) for each in authorizations))
    assert credential is not None
    return credential


def claimed_did(authorization: bytes) -> str | None:
    return read(authorization).claimed_did


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


def test_without_a_header_there_is_no_credential():
    assert read_credential(()) is None
    assert read_credential(((b"x-authorization", b"Bearer x"), (b"cookie", b"authorization"))) is None


@pytest.mark.parametrize(
    ("header", "kind", "message"),
    [
        (b"", AuthenticationRequired, "The Authorization is empty."),
        (b" \t", AuthenticationRequired, "The Authorization is empty."),
        (b"Basic e30", AuthenticationRequired, "The Authorization must be Bearer"),
        (b"Bearer " + b"x" * 10_000, AuthenticationRequired, "The Authorization must be Bearer"),
        (b"Bearer memat_AAAA", InvalidToken, ""),
    ],
)
def test_what_is_no_token_says_why(header: bytes, kind: type[AuthenticationRequired], message: str):
    shown = read(header).shown
    assert isinstance(shown, kind)
    assert type(shown) is kind
    assert shown.message.startswith(message)


def test_each_kind_of_token_is_told_by_its_form():
    assert isinstance(read(b"Bearer " + make_access_token(NOOR).text.encode()).shown, AccessToken)
    shown = read(b"Bearer a.b").shown
    assert isinstance(shown, UnjudgedToken)
    assert isinstance(shown.claims, BadJwt)


def test_of_two_headers_neither_holds_and_the_first_says_whose_refusal_it_is():
    first, second = (b"Bearer " + make_access_token(did).text.encode() for did in (NOOR, MARA))
    credential = read(first, second)
    assert isinstance(credential.shown, InvalidRequest)
    assert credential.claimed_did == NOOR
    assert read(b"", second).claimed_did is None


def test_no_credential_shows_what_it_holds():
    assert make_access_token(NOOR).text not in repr(read(b"Bearer " + make_access_token(NOOR).text.encode()))
    assert "ABBA" not in repr(read(b"Bearer ABBA.ABBA.ABBA"))
