from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from appview.spaces.delegation import Delegation, judge_delegation
from appview.spaces.refusals import InvalidDelegationToken
from memory.signatures import parse_did_key
from memory.space import SpaceRef
from tests.builders import SigningKey
from tests.credentials_recorded import EXCHANGES, GRANTED, authority_of, parts_of, space_ref
from tests.service_tokens import ALGORITHMS, Curve, base64url, signed, signed_raw

MARA, NOOR = "did:plc:mara", "did:plc:noor"
SPACE = space_ref(f"at://{NOOR}/space/dev.bastienrobert.memory.space/main")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
SIGNER = SigningKey("mara", "p256")
KEY = parse_did_key(SIGNER.did_key)
TYP = "atproto-space-delegation+jwt"


def claims(**changes: Any) -> dict[str, Any]:
    given = {
        "iss": MARA,
        "sub": str(SPACE),
        "aud": f"{NOOR}#atproto_space_host",
        "iat": SECONDS,
        "exp": SECONDS + 60,
        "jti": "f00d" * 8,
    }
    return {name: value for name, value in (given | changes).items() if value is not None}


def token(signer: SigningKey = SIGNER, algorithm: str = "ES256", **changes: Any) -> bytes:
    return signed(signer, algorithm, claims(**changes), typ=TYP, kid="#atproto")


def with_header(**header: Any) -> bytes:
    return signed(SIGNER, header.pop("alg", "ES256"), claims(), **{"typ": TYP, "kid": "#atproto"} | header)


def judge(text: bytes | str, *, viewer: str = MARA, space: SpaceRef = SPACE) -> Delegation:
    return judge_delegation(text if isinstance(text, str) else text.decode(), viewer=viewer, space=space, now=NOW)


def refusal(text: bytes | str, **asked: Any) -> str:
    with pytest.raises(InvalidDelegationToken) as caught:
        judge(text, **asked)
    assert caught.value.status == 400
    return caught.value.message


# What holds


@pytest.mark.parametrize("curve", ALGORITHMS)
def test_delegation_of_a_pds_holds_by_either_curve(curve: Curve):
    signer = SigningKey("mara", curve)
    text = token(signer, ALGORITHMS[curve])
    judged = judge(text)
    assert (judged.viewer, judged.space, judged.text) == (MARA, SPACE, text.decode())
    assert judged.token.expires_at == NOW + timedelta(seconds=60)
    assert judged.is_signed_by(parse_did_key(signer.did_key))


@pytest.mark.parametrize("step", sorted(GRANTED))
def test_recorded_delegation_holds(step: str):
    recorded = GRANTED[step]
    viewer = parts_of(recorded.delegation)[1]["iss"]
    judged = judge_delegation(recorded.delegation, viewer=viewer, space=recorded.space, now=recorded.at)
    assert judged.is_signed_by(authority_of(viewer).keys["#atproto"])


@pytest.mark.parametrize(
    "changes",
    [
        {"iat": None},
        {"exp": SECONDS + 1},
        {"exp": SECONDS + 0.5},
        {"exp": SECONDS + 120},  # by a clock that is a minute ahead
        {"iat": SECONDS + 60, "exp": SECONDS + 120},
        {"nbf": SECONDS},
        {"unknown": {"claims": ["are", "nobody's business"]}},
    ],
)
def test_delegations_may_differ_in_what_does_not_matter(changes: dict[str, Any]):
    assert judge(token(**changes)).is_signed_by(KEY)


def test_delegation_may_name_its_key_in_full():
    assert judge(with_header(kid=f"{MARA}#atproto")).is_signed_by(KEY)


# What does not


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": NOOR}, "iss must be the viewer"),
        ({"iss": f"{MARA}#atproto"}, "iss must be the viewer"),
        ({"iss": MARA.upper()}, "iss must be the viewer"),
        ({"iss": [MARA]}, "string iss"),
        ({"iss": None}, "string iss"),
        ({"sub": f"{SPACE}2"}, "sub must be the Space"),
        ({"sub": f"{SPACE}/"}, "sub must be the Space"),
        ({"sub": f"at://{NOOR}/space/dev.bastienrobert.memory.space"}, "sub must be the Space"),
        ({"sub": MARA}, "sub must be the Space"),
        ({"sub": ""}, "sub must be the Space"),
        ({"sub": {}}, "string sub"),
        ({"sub": None}, "string sub"),
        ({"aud": NOOR}, "aud must be the Space's host"),
        ({"aud": f"{MARA}#atproto_space_host"}, "aud must be the Space's host"),
        ({"aud": f"{NOOR}#atproto_pds"}, "aud must be the Space's host"),
        ({"aud": f"{NOOR}#"}, "aud must be the Space's host"),
        ({"aud": [f"{NOOR}#atproto_space_host"]}, "string aud"),
        ({"aud": None}, "string aud"),
        ({"exp": SECONDS}, "expired"),
        ({"exp": SECONDS - 1}, "expired"),
        ({"exp": SECONDS + 121}, "within 120 seconds"),
        ({"exp": 1e300}, "within 120 seconds"),
        ({"exp": 10**400}, "is no time"),
        ({"exp": str(SECONDS + 60)}, "must be a number"),
        ({"exp": True}, "must be a number"),
        ({"exp": None}, "when it expires"),
        ({"iat": SECONDS + 61}, "not hold yet"),
        ({"nbf": SECONDS + 61}, "not hold yet"),
        ({"iat": SECONDS + 30, "exp": SECONDS + 20}, "never holds"),
        ({"iat": "now"}, "must be a number"),
        ({"jti": None}, "must have a jti"),
        ({"jti": ""}, "1 to 256 characters"),
        ({"jti": "j" * 257}, "1 to 256 characters"),
        ({"jti": 5}, "1 to 256 characters"),
    ],
)
def test_delegation_with_such_claims_is_refused(changes: dict[str, Any], why: str):
    assert why in refusal(token(**changes))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"typ": None}, "typ must be"),
        ({"typ": "JWT"}, "typ must be"),
        ({"typ": "at+jwt"}, "typ must be"),
        ({"typ": "atproto-space-credential+jwt"}, "typ must be"),
        ({"typ": TYP.upper()}, "typ must be"),
        ({"typ": f"application/{TYP}"}, "typ must be"),
        ({"typ": [TYP]}, "typ must be"),
        ({"kid": None}, "kid must be"),
        ({"kid": ""}, "kid must be"),
        ({"kid": "#atproto_space"}, "kid must be"),
        ({"kid": f"{NOOR}#atproto"}, "kid must be"),
        ({"kid": ["#atproto"]}, "kid must be"),
        ({"alg": "none"}, "alg must be"),
        ({"alg": "HS256"}, "alg must be"),
        ({"alg": 5}, "must have an alg"),
        ({"crit": ["b64"]}, "extensions"),
    ],
)
def test_delegation_with_such_a_header_is_refused(header: dict[str, Any], why: str):
    assert why in refusal(with_header(**header))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"..",
        b"a.b",
        b"a.b.c.d",
        token() + b"=",
        token() + b"\n",
        b" " + token(),
        token().rpartition(b".")[0],
        token().rpartition(b".")[0] + b".",
        token().rpartition(b".")[0] + b"." + base64url(bytes(63)),
        token(padding="x" * 4096),
        signed_raw(SIGNER, json.dumps({"typ": TYP, "alg": "ES256", "kid": "#atproto"}).encode(), b"[]"),
        signed_raw(SIGNER, json.dumps({"typ": TYP, "alg": "ES256", "kid": "#atproto"}).encode(), b'{"exp":1,"exp":2}'),
        signed_raw(SIGNER, b'{"typ":"JWT","typ":"%s"}' % TYP.encode(), json.dumps(claims()).encode()),
        "\ud800.\u00e9.x",
        "memat_" + "x" * 60,
    ],
)
def test_what_has_another_form_is_refused(text: bytes | str):
    assert "does not hold" in refusal(text)


def test_delegation_of_another_viewer_is_refused():
    assert "iss must be the viewer" in refusal(token(), viewer=NOOR)


def test_delegation_for_another_space_is_refused():
    for uri in (f"{SPACE}2", f"at://{NOOR}/space/dev.bastienrobert.memory.other/main"):
        assert "sub must be the Space" in refusal(token(), space=space_ref(uri))


def test_delegation_that_the_viewer_did_not_sign_is_known_by_its_signature():
    assert not judge(token(SigningKey("noor", "p256"))).is_signed_by(KEY)
    message, _, _ = token().rpartition(b".")
    assert not judge(message + b"." + base64url(bytes(64))).is_signed_by(KEY)
    assert not judge(token(SigningKey("mara", "k256"), "ES256")).is_signed_by(KEY)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("E.x.expiredDelegation", "expired"),
        ("E.x.badAud(bare did)", "aud must be the Space's host"),
        ("E.x.accessJwtInsteadOfDelegation", "does not hold"),  # of which a MAC is the signature
        ("E.x.bodyOtherSpace", "sub must be the Space"),
    ],
)
def test_recorded_token_that_a_host_refused_is_not_carried_there(step: str, why: str):
    recorded = EXCHANGES[step]
    viewer = parts_of(recorded.delegation)[1].get("iss", MARA)
    with pytest.raises(InvalidDelegationToken) as caught:
        judge_delegation(recorded.delegation, viewer=viewer, space=recorded.space, now=recorded.at)
    assert why in caught.value.message or "typ must be" in caught.value.message


def test_recorded_token_that_another_member_signed_is_known_by_its_signature():
    recorded = EXCHANGES["E.x.carolSignsForBob"]
    bob = "did:plc:c7kegfegxswcjl35ui3mdovy"
    judged = judge_delegation(recorded.delegation, viewer=bob, space=recorded.space, now=recorded.at)
    assert not judged.is_signed_by(authority_of(bob).keys["#atproto"])


def test_neither_token_nor_refusal_shows_what_the_token_says():
    text = token().decode()
    assert text[:20] not in repr(judge(text))
    for shown in (refusal(token(exp=SECONDS)), refusal(token(), viewer=NOOR), refusal(token(sub=f"{SPACE}2"))):
        assert "eyJ" not in shown
        assert "/space/" not in shown
