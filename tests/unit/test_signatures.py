"""Keys of both curves, and what they say of signatures."""

from __future__ import annotations

from typing import Literal

import libipld
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.signatures import BadKey, SignatureVerdict, parse_did_key, parse_verification_method
from tests.builders import P256_ORDER, SigningKey

K256_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141

Curve = Literal["k256", "p256"]
ORDERS: dict[Curve, int] = {"k256": K256_ORDER, "p256": P256_ORDER}
MESSAGE = b"what was said"

curves = pytest.mark.parametrize("curve", ORDERS)


@curves
def test_a_key_knows_its_own_signature(curve: Curve) -> None:
    signer = SigningKey("a", curve)
    key = parse_did_key(signer.did_key)
    assert key.did_key == signer.did_key
    assert key.verify(MESSAGE, signer.sign(MESSAGE)) is SignatureVerdict.GOOD


@curves
def test_a_key_refuses_others_and_other_words(curve: Curve) -> None:
    key = parse_did_key(SigningKey("a", curve).did_key)
    assert key.verify(MESSAGE, SigningKey("b", curve).sign(MESSAGE)) is SignatureVerdict.BAD
    assert key.verify(MESSAGE + b"!", SigningKey("a", curve).sign(MESSAGE)) is SignatureVerdict.BAD


@curves
def test_a_signature_in_the_upper_half_is_told_apart_from_a_bad_one(curve: Curve) -> None:
    signer = SigningKey("a", curve)
    key = parse_did_key(signer.did_key)
    signature = signer.sign(MESSAGE)
    twin = signature[:32] + (ORDERS[curve] - int.from_bytes(signature[32:])).to_bytes(32)
    assert key.verify(MESSAGE, twin) is SignatureVerdict.NOT_LOW_S
    assert key.verify(MESSAGE + b"!", twin) is SignatureVerdict.BAD


@curves
@pytest.mark.parametrize("length", [0, 1, 63, 65, 70, 72])
def test_a_signature_has_64_bytes(curve: Curve, length: int) -> None:
    signer = SigningKey("a", curve)
    signature = (signer.sign(MESSAGE) * 2)[:length]
    assert parse_did_key(signer.did_key).verify(MESSAGE, signature) is SignatureVerdict.BAD


@curves
@pytest.mark.parametrize("part", [0, 1, "order", "order + 1", 2**256 - 1])
@pytest.mark.parametrize("place", ["r", "s"])
def test_numbers_outside_the_curves_order_are_bad(curve: Curve, part: int | str, place: str) -> None:
    signer = SigningKey("a", curve)
    number = eval(part, {"order": ORDERS[curve]}) if isinstance(part, str) else part
    good = signer.sign(MESSAGE)
    signature = number.to_bytes(32) + good[32:] if place == "r" else good[:32] + number.to_bytes(32)
    assert parse_did_key(signer.did_key).verify(MESSAGE, signature) is SignatureVerdict.BAD


@curves
@given(signature=st.binary(min_size=64, max_size=64))
def test_chance_signs_nothing(curve: Curve, signature: bytes) -> None:
    assert parse_did_key(SigningKey("a", curve).did_key).verify(MESSAGE, signature) is SignatureVerdict.BAD


def test_keys_are_equal_when_their_did_keys_are() -> None:
    first, again, other = (parse_did_key(SigningKey(seed).did_key) for seed in ("a", "a", "b"))
    assert first == again
    assert len({first, again, other}) == 2
    assert first != first.did_key
    assert first.did_key in repr(first)


def multibase(data: bytes) -> str:
    return libipld.encode_multibase("z", data)


POINT = libipld.decode_multibase(SigningKey("a").did_key.removeprefix("did:key:"))[1][2:]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:key:",
        "did:web:example.com",
        SigningKey("a").did_key.removeprefix("did:key:"),
        SigningKey("a").did_key[:-1],
        SigningKey("a").did_key + "0",  # no base58
        SigningKey("a").did_key + "\n",
        "did:key:u" + SigningKey("a").did_key[9:],
        "did:key:" + multibase(b"\xed\x01" + POINT),  # another algorithm
        "did:key:" + multibase(b"\x80\x24\x02" + b"\xff" * 32),  # off the curve
        "did:key:" + multibase(b"\xe7\x01" + POINT[1:]),
        "did:key:" + multibase(b"\xe7\x01\x05" + POINT[1:]),
        "did:key:" + multibase(b"\xe7\x01\x02" + b"\xff" * 32),
        "did:key:z" + "1" * 100_000,
        "did:key:zé",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadKey) as caught:
        parse_did_key(text)
    assert caught.value.reason == "bad_key"


@curves
def test_documents_name_keys_in_new_and_old_ways(curve: Curve) -> None:
    did_key = SigningKey("a", curve).did_key
    new = did_key.removeprefix("did:key:")
    point = libipld.decode_multibase(new)[1][2:]
    old_type = {"k256": "EcdsaSecp256k1VerificationKey2019", "p256": "EcdsaSecp256r1VerificationKey2019"}[curve]
    assert parse_verification_method("Multikey", new).did_key == did_key
    assert parse_verification_method(old_type, multibase(point)).did_key == did_key


@pytest.mark.parametrize("method_type", ["Multikey", "EcdsaSecp256k1VerificationKey2019", "JsonWebKey2020", ""])
@pytest.mark.parametrize("text", ["", "z", "z1", multibase(b"\x02" * 34), multibase(b"\x04" * 65), "z" + "2" * 129])
def test_documents_with_other_keys_are_refused(method_type: str, text: str) -> None:
    with pytest.raises(BadKey):
        parse_verification_method(method_type, text)
