from __future__ import annotations

import random
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from memory.dpop import ProofKey
from memory.es256 import KEY_BYTES, Es256Key, NotAnEs256Key, base64url
from memory.signatures import SignatureVerdict
from tests.credentials_recorded import EXCHANGES, PROOF_SECRET, VECTOR, decode, key_of_jwk, parts_of

NOW = datetime(2025, 2, 1, tzinfo=UTC)
URL = "https://pds.example.com/xrpc/com.atproto.space.getRepo"
ORDER = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551


def key() -> ProofKey:
    return ProofKey.from_bytes(bytes.fromhex(VECTOR["privHex"]))


def proof(method: str = "GET", url: str = URL, credential: str | None = None, *, seed: int = 1) -> str:
    return key().prove(method, url, now=NOW, random_bytes=random.Random(seed).randbytes, credential=credential)


def test_thumbprint_is_that_of_the_vector():
    assert key().jkt == VECTOR["jkt"]
    assert ProofKey.from_bytes(PROOF_SECRET).jkt == "KKmauCyu4NBr0kXwsxSK7xTxI76QgJSAqC5YR6Y6ZMY"


def test_proof_is_that_of_the_vector_byte_for_byte_but_for_what_is_random():
    header, claims = VECTOR["decoded"]
    made_header, made_claims, signature = proof(credential=VECTOR["token"]).split(".")
    given_header, _, given_signature = VECTOR["proof"].split(".")
    assert made_header == given_header
    jti = parts_of(f"{made_header}.{made_claims}.")[1]["jti"]
    assert decode(made_claims) == decode(VECTOR["proof"].split(".")[1]).replace(b'"fixed"', f'"{jti}"'.encode())
    assert claims["ath"] == VECTOR["ath"]
    public = key_of_jwk(header["jwk"])
    assert public.verify(f"{made_header}.{made_claims}".encode(), decode(signature)) is SignatureVerdict.GOOD
    # The vector's own signature has its s in the upper half, or in the lower, as it came.
    assert (
        public.verify(VECTOR["proof"].rpartition(".")[0].encode(), decode(given_signature)) is not SignatureVerdict.BAD
    )


def test_proof_of_a_request_for_a_credential_is_what_the_reference_took():
    recorded = EXCHANGES["D.getSpaceCredential.bob"]
    assert recorded.proof is not None
    made = ProofKey.from_bytes(PROOF_SECRET).prove(
        "POST", recorded.url, now=recorded.at, random_bytes=random.Random(1).randbytes
    )
    (made_header, made_claims), (header, claims) = parts_of(made), parts_of(recorded.proof)
    assert made_header == header
    assert made_claims == claims | {"jti": made_claims["jti"]}
    assert len(made_claims["jti"]) == len(claims["jti"])


@pytest.mark.parametrize("credential", [None, VECTOR["token"]])
def test_proof_is_signed_in_the_lower_half(credential: str | None):
    for seed in range(20):
        made = proof(credential=credential, seed=seed)
        message, _, signature = made.rpartition(".")
        public = key_of_jwk(parts_of(made)[0]["jwk"])
        assert public.verify(message.encode(), decode(signature)) is SignatureVerdict.GOOD


def test_proof_names_the_url_without_its_query():
    claims = parts_of(proof(url=f"{URL}?space=at%3A%2F%2Fdid%3Aplc%3Amara&repo=x#there"))[1]
    assert claims["htu"] == URL


def test_proof_names_the_method():
    assert parts_of(proof("POST"))[1]["htm"] == "POST"


def test_proof_of_a_read_is_for_one_credential_and_that_of_an_exchange_for_none():
    assert parts_of(proof(credential="a.b.c"))[1]["ath"] == base64url(sha256(b"a.b.c").digest())
    assert "ath" not in parts_of(proof())[1]


def test_no_two_proofs_have_one_jti():
    source = random.Random(3).randbytes
    made = [key().prove("GET", URL, now=NOW, random_bytes=source) for _ in range(50)]
    assert len({parts_of(each)[1]["jti"] for each in made}) == 50


def test_key_comes_back_from_its_bytes():
    made = ProofKey.generate(random.Random(4).randbytes)
    assert len(made.to_bytes()) == KEY_BYTES
    assert ProofKey.from_bytes(made.to_bytes()).jkt == made.jkt


def test_no_two_keys_are_the_same():
    source = random.Random(5).randbytes
    assert len({ProofKey.generate(source).jkt for _ in range(20)}) == 20


def test_key_is_made_of_the_first_random_number_that_is_one():
    numbers = iter([bytes(KEY_BYTES), ORDER.to_bytes(KEY_BYTES), b"\xff" * KEY_BYTES, bytes([3]) * KEY_BYTES])
    assert ProofKey.generate(lambda _: next(numbers)).to_bytes() == bytes([3]) * KEY_BYTES


@pytest.mark.parametrize(
    "secret", [b"", bytes(KEY_BYTES), ORDER.to_bytes(KEY_BYTES), b"\1" * 31, b"\1" * 33, b"\xff" * KEY_BYTES]
)
def test_bytes_that_are_no_key_are_refused(secret: bytes):
    with pytest.raises(NotAnEs256Key):
        ProofKey.from_bytes(secret)


def test_key_of_another_curve_is_refused():
    with pytest.raises(NotAnEs256Key):
        Es256Key(ec.derive_private_key(5, ec.SECP256K1()))


def test_coordinates_keep_their_leading_zeros():
    # y of this key begins with a zero byte.
    found = next(
        made
        for number in range(1, 2000)
        if (made := Es256Key.from_bytes(number.to_bytes(KEY_BYTES))).jwk["y"].startswith("A")
        and decode(made.jwk["y"])[0] == 0
    )
    assert len(decode(found.jwk["x"])) == len(decode(found.jwk["y"])) == KEY_BYTES


def test_key_is_not_shown():
    for shown in (repr(key()), str(key()), repr(Es256Key.from_bytes(key().to_bytes()))):
        assert VECTOR["privHex"] not in shown
        assert str(int(VECTOR["privHex"], 16)) not in shown
