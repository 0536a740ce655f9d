"""Service-auth tokens, judged by themselves: what holds, and the name of what does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.jwt import CLOCK_SKEW, MAX_JTI_CHARS, MAX_TOKEN_BYTES, SignedToken, read_token
from appview.refusals import (
    AuthenticationRequired,
    BadJwt,
    BadJwtAudience,
    BadJwtIss,
    BadJwtLexiconMethod,
    BadJwtSignature,
    BadJwtType,
    JwtExpired,
)
from appview.service_auth import judge_token
from memory.signatures import parse_did_key
from tests.builders import P256_ORDER, SigningKey
from tests.service_tokens import ALGORITHMS, OWN_DID, SEARCH, Curve, base64url, claims, signed, signed_raw

NOW = datetime(2026, 12, 2, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
MARA = "did:plc:maraaaaaaaaaaaaaaaaaaaaa"
SIGNER = SigningKey("mara", "p256")
KEY = parse_did_key(SIGNER.did_key)

curves = pytest.mark.parametrize("curve", ALGORITHMS)


def judge(token: bytes) -> SignedToken:
    return judge_token(read_token(token), own_did=OWN_DID, lxm=SEARCH, now=NOW)


def token(**changes: Any) -> bytes:
    return signed(SIGNER, "ES256", claims(MARA, NOW, **changes))


def with_header(**header: Any) -> bytes:
    return signed(SIGNER, header.pop("alg", "ES256"), claims(MARA, NOW), **header)


# What holds


@curves
def test_token_of_a_pds_holds_by_either_curve(curve: Curve):
    signer = SigningKey("mara", curve)
    judged = judge(signed(signer, ALGORITHMS[curve], claims(MARA, NOW)))
    assert judged.issuer == MARA
    assert judged.expires_at == NOW + timedelta(seconds=60)
    assert judged.jti == "f00d" * 8
    assert judged.is_signed_by(parse_did_key(signer.did_key))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": f"{OWN_DID}#memory_appview"},
        {"iat": None},
        {"jti": None},
        {"exp": SECONDS + 3600},
        {"exp": SECONDS + 0.5},
        {"nbf": SECONDS - 5},
        {"iat": SECONDS + CLOCK_SKEW.total_seconds()},
        {"nbf": SECONDS + 30},
        {"iss": "did:web:mara.example"},
        {"sub": {"unknown": ["claims", "are", "nobody's business"]}},
        {"jti": "\ud800 is no text, and yet a name"},
    ],
)
def test_tokens_may_differ_in_what_does_not_matter(changes: dict[str, Any]):
    assert judge(token(**changes)).is_signed_by(KEY)


@pytest.mark.parametrize(
    "header", [{"typ": None}, {"typ": "jwt"}, {"kid": "#atproto"}, {"kid": f"{MARA}#atproto"}, {"cty": "x"}]
)
def test_headers_may_differ_in_what_does_not_matter(header: dict[str, Any]):
    assert judge(with_header(**header)).is_signed_by(KEY)


# What does not


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"exp": SECONDS}, JwtExpired),
        ({"exp": SECONDS - 86400}, JwtExpired),
        ({"exp": -(10**400)}, BadJwt),
        ({"exp": 0}, JwtExpired),
        ({"exp": SECONDS + 3601}, BadJwt),
        ({"exp": 1e300}, BadJwt),
        ({"exp": 10**400}, BadJwt),
        ({"exp": None}, BadJwt),
        ({"exp": str(SECONDS + 60)}, BadJwt),
        ({"exp": True}, BadJwt),
        ({"iat": SECONDS + 61}, BadJwt),
        ({"iat": "now"}, BadJwt),
        ({"iat": SECONDS + 10, "exp": SECONDS + 5}, BadJwt),
        ({"nbf": SECONDS + 61}, BadJwt),
        ({"nbf": SECONDS + 20, "exp": SECONDS + 10}, BadJwt),
        ({"nbf": []}, BadJwt),
        ({"aud": "did:web:other.example"}, BadJwtAudience),
        ({"aud": f"{OWN_DID}#atproto_space_syncer"}, BadJwtAudience),
        ({"aud": f"{OWN_DID}#"}, BadJwtAudience),
        ({"aud": OWN_DID.upper()}, BadJwtAudience),
        ({"aud": ""}, BadJwtAudience),
        ({"aud": [OWN_DID]}, BadJwt),
        ({"aud": None}, BadJwt),
        ({"lxm": None}, BadJwtLexiconMethod),
        ({"lxm": "dev.bastienrobert.memory.listRecords"}, BadJwtLexiconMethod),
        ({"lxm": "*"}, BadJwtLexiconMethod),
        ({"lxm": [SEARCH]}, BadJwtLexiconMethod),
        ({"lxm": SEARCH + "\0"}, BadJwtLexiconMethod),
        ({"iss": None}, BadJwt),
        ({"iss": 5}, BadJwt),
        ({"iss": ""}, BadJwtIss),
        ({"iss": "mara.example"}, BadJwtIss),
        ({"iss": f"{MARA}\n"}, BadJwtIss),
        ({"iss": f"{MARA}#atproto_labeler"}, BadJwtIss),
        ({"iss": f"{MARA}#"}, BadJwtIss),
        ({"iss": "did:plc:" + "a" * 2100}, BadJwtIss),
        ({"jti": ""}, BadJwt),
        ({"jti": 5}, BadJwt),
        ({"jti": "x" * (MAX_JTI_CHARS + 1)}, BadJwt),
    ],
)
def test_claims_that_do_not_hold_are_named(changes: dict[str, Any], refusal: type[AuthenticationRequired]):
    with pytest.raises(AuthenticationRequired) as caught:
        judge(token(**changes))
    assert type(caught.value) is refusal
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        ({"typ": "at+jwt"}, BadJwtType),
        ({"typ": "refresh+jwt"}, BadJwtType),
        ({"typ": "dpop+jwt"}, BadJwtType),
        ({"typ": "atproto-space-delegation+jwt"}, BadJwtType),
        ({"typ": ""}, BadJwtType),
        ({"typ": ["JWT"]}, BadJwtType),
        ({"alg": "none"}, BadJwtSignature),
        ({"alg": "None"}, BadJwtSignature),
        ({"alg": "HS256"}, BadJwtSignature),
        ({"alg": "RS256"}, BadJwtSignature),
        ({"alg": "ES384"}, BadJwtSignature),
        ({"alg": "es256"}, BadJwtSignature),
        ({"alg": None}, BadJwt),
        ({"alg": ["ES256"]}, BadJwt),
        ({"kid": "#atproto_label"}, BadJwt),
        ({"kid": "did:plc:nooraaaaaaaaaaaaaaaaaaaa#atproto"}, BadJwt),
        ({"kid": "../../etc/passwd"}, BadJwt),
        ({"kid": {"x": 1}}, BadJwt),
        ({"crit": ["b64"], "b64": False}, BadJwt),
    ],
)
def test_headers_that_do_not_hold_are_named(header: dict[str, Any], refusal: type[AuthenticationRequired]):
    with pytest.raises(AuthenticationRequired) as caught:
        judge(with_header(**header))
    assert type(caught.value) is refusal


PAYLOAD = json.dumps(claims(MARA, NOW)).encode()
HEADER = b'{"typ":"JWT","alg":"ES256"}'


@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        b".",
        b"..",
        b"...",
        b"a.b",
        b"\xff.\xff.\xff",
        token() + b".",
        b"." + token(),
        token() + b"=",
        token().replace(b".", b"=.", 1),
        token().replace(b".", b"\n.", 1),
        b" " + token(),
        token() + b"\x00",
        b"x" * (MAX_TOKEN_BYTES + 1),
        signed(SIGNER, "ES256", claims(MARA, NOW, padding="x" * MAX_TOKEN_BYTES)),
        signed_raw(SIGNER, b"[]", PAYLOAD),
        signed_raw(SIGNER, b"null", PAYLOAD),
        signed_raw(SIGNER, HEADER, b"5"),
        signed_raw(SIGNER, HEADER, b'"text"'),
        signed_raw(SIGNER, HEADER, b"{"),
        signed_raw(SIGNER, HEADER, PAYLOAD + PAYLOAD),
        signed_raw(SIGNER, HEADER, b"\xef\xbb\xbf" + PAYLOAD),
        signed_raw(SIGNER, HEADER, PAYLOAD.decode().encode("utf-16")),
        signed_raw(SIGNER, HEADER, b'{"exp":NaN}'),
        signed_raw(SIGNER, HEADER, b'{"exp":-Infinity}'),
        signed_raw(SIGNER, HEADER, PAYLOAD[:-1] + b', "exp": 99999999999}'),
        signed_raw(SIGNER, HEADER[:-1] + b',"alg":"ES256"}', PAYLOAD),
        signed_raw(SIGNER, HEADER, PAYLOAD[:-1] + b', "deep": {"a": 1, "a": 1}}'),
        signed_raw(SIGNER, HEADER, b'{"a":' + b"[" * 1400 + b"]" * 1400 + b"}"),
        signed_raw(SIGNER, b"[" * 1400, PAYLOAD),
        signed_raw(SIGNER, HEADER, b'{"exp":' + b"9" * 2900 + b"}"),
    ],
)
def test_what_is_no_jwt_is_named(malformed: bytes):
    with pytest.raises(BadJwt):
        judge(malformed)


@pytest.mark.parametrize("length", [1, 63, 65, 70, 72, 96])
def test_signature_has_64_bytes(length: int):
    message, _, signature = token().rpartition(b".")
    with pytest.raises(BadJwtSignature):
        judge(message + b"." + base64url((SIGNER.sign(message) * 2)[:length]))
    assert signature


def test_token_without_a_signature_is_none():
    message, _, _ = token().rpartition(b".")
    with pytest.raises(BadJwt):
        judge(message + b".")


@pytest.mark.parametrize("spoilt", ["aud", "lxm", "exp", "typ"])
def test_what_the_token_alone_tells_is_told_before_the_issuer_is_looked_at(spoilt: str):
    """Whoever floods us with such issuers makes us ask nobody."""
    header = {"typ": "at+jwt"} if spoilt == "typ" else {}
    changes = {} if spoilt == "typ" else {spoilt: {"exp": SECONDS - 1}.get(spoilt, "other")}
    with pytest.raises(AuthenticationRequired) as caught:
        judge(signed(SIGNER, "ES256", claims("nobody", NOW, **changes), **header))
    assert type(caught.value) is not BadJwtIss


# Signatures


@curves
def test_key_of_the_other_curve_signed_nothing(curve: Curve):
    other: Curve = "p256" if curve == "k256" else "k256"
    signer = SigningKey("mara", curve)
    judged = judge(signed(signer, ALGORITHMS[other], claims(MARA, NOW)))
    assert not judged.is_signed_by(parse_did_key(signer.did_key))
    assert not judged.is_signed_by(parse_did_key(SigningKey("mara", other).did_key))


@curves
def test_key_of_another_account_signed_nothing(curve: Curve):
    judged = judge(signed(SigningKey("noor", curve), ALGORITHMS[curve], claims(MARA, NOW)))
    assert not judged.is_signed_by(parse_did_key(SigningKey("mara", curve).did_key))


def test_twin_of_a_signature_signed_nothing():
    message, _, _ = token().rpartition(b".")
    signature = SIGNER.sign(message)
    twin = signature[:32] + (P256_ORDER - int.from_bytes(signature[32:])).to_bytes(32)
    assert not judge(message + b"." + base64url(twin)).is_signed_by(KEY)


def test_signature_of_zeros_signed_nothing():
    message, _, _ = token().rpartition(b".")
    assert not judge(message + b"." + base64url(bytes(64))).is_signed_by(KEY)


def holds(candidate: bytes) -> bool:
    """Whether it is taken; whatever is raised but a refusal fails the test."""
    try:
        return judge(candidate).is_signed_by(KEY)
    except AuthenticationRequired:
        return False


GOOD = token()


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_token_with_another_byte_never_holds(place: int, byte: int):
    mutated = GOOD[:place] + bytes([byte]) + GOOD[place + 1 :]
    assert holds(mutated) == (mutated == GOOD)


@given(st.data())
def test_token_with_other_bytes_never_holds(data: st.DataObject):
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, len(GOOD)))
    mutated = GOOD[:start] + data.draw(st.binary(max_size=40)) + GOOD[end:]
    assert holds(mutated) == (mutated == GOOD)


@given(st.binary(max_size=200), st.binary(max_size=400))
def test_signed_bytes_of_any_kind_do_no_harm(header: bytes, payload: bytes):
    assert not holds(signed_raw(SIGNER, header, payload))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["iss", "aud", "exp", "lxm", "iat", "nbf"]), JSON, min_size=1), JSON)
def test_signed_claims_of_any_kind_do_no_harm(changes: dict[str, Any], kid: Any):
    judged = holds(signed(SIGNER, "ES256", {**claims(MARA, NOW), **changes}, kid=kid))
    assert not judged or changes.keys() <= {"iat", "nbf", "exp"}
