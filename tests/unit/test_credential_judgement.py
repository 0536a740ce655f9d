from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from appview.refusals import (
    AuthenticationRequired,
    BadJwt,
    BadJwtIss,
    BadJwtSignature,
    BadJwtType,
    JwtExpired,
)
from appview.spaces.credential import UnsignedCredential, judge_credential
from memory.signatures import parse_did_key
from memory.space_authority import SpaceAuthority
from memory.space_protocol import CREDENTIAL_LIFETIME
from tests.builders import SigningKey
from tests.credentials_recorded import GRANTED, SHOWN, authority_of, parts_of, space_ref
from tests.service_tokens import ALGORITHMS, Curve, signed

NOOR = "did:plc:noor"
SPACE = space_ref(f"at://{NOOR}/space/dev.bastienrobert.memory.space/main")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
JKT = "KKmauCyu4NBr0kXwsxSK7xTxI76QgJSAqC5YR6Y6ZMY"
TYP = "atproto-space-credential+jwt"
SIGNER = SigningKey("space", "p256")
AUTHORITY = SpaceAuthority(NOOR, "https://spaces.example", {"#atproto_space": parse_did_key(SIGNER.did_key)})


def credential(signer: SigningKey = SIGNER, header: dict[str, Any] | None = None, **changes: Any) -> str:
    given = {
        "iss": NOOR,
        "sub": str(SPACE),
        "cnf": {"jkt": JKT},
        "iat": SECONDS,
        "exp": SECONDS + 7200,
        "jti": "f00d" * 8,
    }
    said = {name: value for name, value in (given | changes).items() if value is not None}
    fields = {"alg": "ES256", "typ": TYP, "kid": "#atproto_space"} | (header or {})
    return signed(signer, fields.pop("alg"), said, **fields).decode()


def judge(text: str, jkt: str = JKT) -> UnsignedCredential:
    return judge_credential(text, space=SPACE, jkt=jkt, now=NOW)


# What is taken


@pytest.mark.parametrize("fragment", ["#atproto_space", "#atproto"])
@pytest.mark.parametrize("curve", ALGORITHMS)
def test_credential_holds_by_either_key_of_the_authority_and_either_curve(curve: Curve, fragment: str):
    signer = SigningKey("space", curve)
    authority = SpaceAuthority(NOOR, None, {fragment: parse_did_key(signer.did_key)})
    for kid in (fragment, NOOR + fragment):
        judged = judge(credential(signer, {"alg": ALGORITHMS[curve], "kid": kid}))
        assert judged.is_signed_by(authority)
        assert judged.expires_at == NOW + CREDENTIAL_LIFETIME


@pytest.mark.parametrize("step", sorted(GRANTED))
def test_recorded_credential_holds_for_two_hours(step: str):
    recorded = GRANTED[step]
    text = recorded.answer["credential"]
    jkt = parts_of(text)[1]["cnf"]["jkt"]
    judged = judge_credential(text, space=recorded.space, jkt=jkt, now=recorded.at)
    assert judged.is_signed_by(authority_of(recorded.space.authority))
    assert abs(judged.expires_at - recorded.at - timedelta(hours=2)) <= timedelta(seconds=1)


@pytest.mark.parametrize("step", sorted(step for step in SHOWN if step.startswith("X.")))
def test_recorded_credential_of_an_authority_of_its_own_holds_for_two_hours_at_most(step: str):
    judged, authority = judged_as_shown(step)
    assert judged.is_signed_by(authority)
    assert judged.expires_at - SHOWN[step].at <= CREDENTIAL_LIFETIME


@pytest.mark.parametrize(
    ("exp", "seconds"), [(SECONDS + 1, 1), (SECONDS + 7201, 7200), (SECONDS + 10**9, 7200), (1e300, 7200)]
)
def test_credential_counts_until_it_expires_and_for_two_hours_at_most(exp: float, seconds: int):
    assert judge(credential(exp=exp)).expires_at == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("changes", [{"jti": None}, {"iat": None}, {"cnf": {"jkt": JKT, "more": 1}}, {"more": []}])
def test_credentials_may_differ_in_what_does_not_matter(changes: dict[str, Any]):
    assert judge(credential(**changes)).is_signed_by(AUTHORITY)


# What is not


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"iss": "did:plc:mara"}, BadJwtIss),
        ({"iss": f"{NOOR}#atproto_space"}, BadJwtIss),
        ({"iss": None}, BadJwt),
        ({"sub": f"{SPACE}2"}, BadJwt),
        ({"sub": NOOR}, BadJwt),
        ({"sub": None}, BadJwt),
        ({"cnf": {"jkt": JKT[:-1] + "Z"}}, BadJwt),
        ({"cnf": {"jkt": ""}}, BadJwt),
        ({"cnf": {"jkt": [JKT]}}, BadJwt),
        ({"cnf": {}}, BadJwt),
        ({"cnf": JKT}, BadJwt),
        ({"cnf": None}, BadJwt),
        ({"exp": SECONDS}, JwtExpired),
        ({"exp": SECONDS - 3}, JwtExpired),
        ({"exp": None}, BadJwt),
        ({"exp": "soon"}, BadJwt),
        ({"exp": 10**400}, BadJwt),
        ({"iat": SECONDS + 61}, BadJwt),
        ({"nbf": SECONDS + 61}, BadJwt),
        ({"jti": 5}, BadJwt),
    ],
)
def test_credential_with_such_claims_is_refused(changes: dict[str, Any], refusal: type[AuthenticationRequired]):
    with pytest.raises(refusal):
        judge(credential(**changes))


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        ({"typ": None}, BadJwtType),
        ({"typ": "JWT"}, BadJwtType),
        ({"typ": "atproto-space-delegation+jwt"}, BadJwtType),
        ({"kid": None}, BadJwt),
        ({"kid": "#atproto_label"}, BadJwt),
        ({"kid": "did:plc:mara#atproto_space"}, BadJwt),
        ({"kid": {}}, BadJwt),
        ({"alg": "none"}, BadJwtSignature),
        ({"alg": "RS256"}, BadJwtSignature),
        ({"crit": ["exp"]}, BadJwt),
    ],
)
def test_credential_with_such_a_header_is_refused(header: dict[str, Any], refusal: type[AuthenticationRequired]):
    with pytest.raises(refusal):
        judge(credential(header=header))


@pytest.mark.parametrize("text", ["", "..", "a.b.c", "x" * 5000, "\ud800", credential() + "=", credential()[:-4]])
def test_what_is_no_credential_is_refused(text: str):
    with pytest.raises(AuthenticationRequired):
        judge(text)


def test_credential_is_signed_by_the_key_that_it_names_and_no_other():
    account = SigningKey("account", "p256")
    both = SpaceAuthority(NOOR, None, dict(AUTHORITY.keys) | {"#atproto": parse_did_key(account.did_key)})
    assert judge(credential(account, {"kid": "#atproto"})).is_signed_by(both)
    assert not judge(credential(account)).is_signed_by(both)
    assert not judge(credential(header={"kid": "#atproto"})).is_signed_by(both)
    assert not judge(credential(header={"kid": "#atproto"})).is_signed_by(AUTHORITY)
    assert not judge(credential(SigningKey("mara", "p256"))).is_signed_by(both)
    assert not judge(credential(header={"alg": "ES256K"})).is_signed_by(both)


@pytest.mark.parametrize(
    ("step", "refusal"),
    [
        ("E.expiredCredential", JwtExpired),
        ("E.expired4s(within skew)", JwtExpired),  # hosts allow five seconds; what has expired is not kept here
        ("E.forged.issBob.subAliceSpace", BadJwtIss),
        ("E.noCnf", BadJwt),
        ("E.noKid", BadJwt),
        ("E.delegationTokenAsCredential", BadJwtType),
    ],
)
def test_recorded_credential_that_a_host_refused_is_refused(step: str, refusal: type[AuthenticationRequired]):
    with pytest.raises(refusal):
        judged_as_shown(step)


@pytest.mark.parametrize(
    "step", ["E.forged.signedByBob.issAlice", "E.kid.atproto_space(absent in doc)", "E.tamperedSig"]
)
def test_recorded_credential_that_the_authority_did_not_sign_is_known_by_its_signature(step: str):
    judged, authority = judged_as_shown(step)
    assert not judged.is_signed_by(authority)


def test_recorded_credential_of_another_space_is_refused():
    other, shown = GRANTED["D.never.getSpaceCredential"].space, SHOWN["E.otherSpace"]
    with pytest.raises(BadJwt, match="sub must be the Space"):
        judge_credential(shown.credential, space=other, jkt=JKT, now=shown.at)


def test_credential_is_not_shown():
    assert "eyJ" not in repr(judge(credential()))
    with pytest.raises(BadJwt) as caught:
        judge(credential(), jkt="other")
    assert JKT not in str(caught.value)


def judged_as_shown(step: str) -> tuple[UnsignedCredential, SpaceAuthority]:
    shown = SHOWN[step]
    said = parts_of(shown.credential)[1]
    space = space_ref(said["sub"])
    jkt = said.get("cnf", {"jkt": JKT})["jkt"]
    return judge_credential(shown.credential, space=space, jkt=jkt, now=shown.at), authority_of(space.authority)
