from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from appview.spaces.attestation import ClientAttestation
from memory.client_keys import KEYS_PATH, METADATA_PATH, SETTING
from memory.errors import Misconfigured
from memory.signatures import SignatureVerdict
from tests.credentials_recorded import EXCHANGES, decode, key_of_jwk, parts_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
URL = "https://memory.example"
NOOR = "did:plc:noor"


def pem(
    number: int,
    curve: ec.EllipticCurve | None = None,
    form: PrivateFormat = PrivateFormat.PKCS8,
    encryption: KeySerializationEncryption | None = None,
) -> str:
    key = ec.derive_private_key(number, curve or ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, form, encryption or NoEncryption()).decode()


def read(folder: Path, text: str, url: str = URL) -> ClientAttestation:
    file = folder / "client.pem"
    file.write_text(text)
    file.chmod(0o600)
    return ClientAttestation.read(file, public_url=url)


def attest(client: ClientAttestation, seed: int = 1) -> str:
    return client.attest(NOOR, now=NOW, random_bytes=random.Random(seed).randbytes)


def test_attestation_says_what_the_reference_took(tmp_path: Path):
    header, claims = parts_of(EXCHANGES["T.attested"].body["clientAttestation"])
    made_header, made = parts_of(attest(read(tmp_path, pem(5))))
    assert made_header.keys() == header.keys()
    assert (made_header["typ"], made_header["alg"]) == (header["typ"], header["alg"])
    assert made.keys() == claims.keys()
    assert made["iss"] == made["sub"] == f"{URL}/client-metadata.json"
    assert made["aud"] == f"{NOOR}#atproto_space_host"
    assert made["iat"] == int(NOW.timestamp())
    assert made["exp"] - made["iat"] == claims["exp"] - claims["iat"]


def test_attestation_is_found_by_what_is_published(tmp_path: Path):
    """The way of an authority: client_id → metadata → keys → the one that the attestation names."""
    client = read(tmp_path, pem(5))
    published = {URL + METADATA_PATH: client.metadata(), URL + KEYS_PATH: client.key_set()}
    made = attest(client)
    header, claims = parts_of(made)
    metadata = json.loads(published[claims["iss"]])
    keys = json.loads(published[metadata["jwks_uri"]])["keys"]
    (key,) = [key for key in keys if key["kid"] == header["kid"]]
    message, _, signature = made.rpartition(".")
    assert key_of_jwk(key).verify(message.encode(), decode(signature)) is SignatureVerdict.GOOD


def test_metadata_is_that_of_an_oauth_client(tmp_path: Path):
    metadata = json.loads(read(tmp_path, pem(5)).metadata())
    assert metadata["client_id"] == f"{URL}/client-metadata.json"
    assert metadata["redirect_uris"] == [f"{URL}/"]
    assert metadata["grant_types"] == ["authorization_code"]
    assert metadata["response_types"] == ["code"]
    assert metadata["scope"] == "atproto"
    assert metadata["application_type"] == "web"
    assert metadata["dpop_bound_access_tokens"] is True
    assert metadata["token_endpoint_auth_method"] == "private_key_jwt"
    assert metadata["token_endpoint_auth_signing_alg"] == "ES256"


def test_published_keys_are_public(tmp_path: Path):
    client = read(tmp_path, pem(5) + pem(6))
    for key in json.loads(client.key_set())["keys"]:
        assert key.keys() == {"kty", "crv", "x", "y", "kid", "use", "alg"}


def test_first_key_signs_and_the_others_are_still_published(tmp_path: Path):
    old, new = read(tmp_path, pem(5)), read(tmp_path, pem(6) + "\n" + pem(5))
    kids = [key["kid"] for key in json.loads(new.key_set())["keys"]]
    assert parts_of(attest(new))[0]["kid"] == kids[0]
    assert parts_of(attest(old))[0]["kid"] == kids[1]


def test_no_two_attestations_have_one_jti(tmp_path: Path):
    client, source = read(tmp_path, pem(5)), random.Random(2).randbytes
    made = [parts_of(client.attest(NOOR, now=NOW, random_bytes=source))[1]["jti"] for _ in range(20)]
    assert len(set(made)) == 20


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not one PRIVATE KEY after the other"),
        ("a key", "not one PRIVATE KEY after the other"),
        (pem(5) + "and more", "not one PRIVATE KEY after the other"),
        ("# mine\n" + pem(5), "not one PRIVATE KEY after the other"),
        (pem(5)[:-20], "not one PRIVATE KEY after the other"),
        (pem(5, form=PrivateFormat.TraditionalOpenSSL), "not one PRIVATE KEY after the other"),
        (pem(5, encryption=BestAvailableEncryption(b"x")), "not one PRIVATE KEY after the other"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key 1 is none of P-256"),
        (pem(5) + pem(6, ec.SECP256K1()), "key 2 is none of P-256"),
        (pem(5) + pem(5), "stands there twice"),
        ("".join(pem(number) for number in range(1, 12)), "more than 10 keys"),
        ("é", "no ASCII text"),
    ],
)
def test_file_that_is_none_of_keys_is_refused(tmp_path: Path, text: str, why: str):
    with pytest.raises(Misconfigured, match=why) as caught:
        read(tmp_path, text)
    assert caught.value.setting == SETTING == "SPACES_CLIENT_KEY_FILE"
    assert pem(5)[40:60] not in str(caught.value)


def test_rsa_key_is_refused(tmp_path: Path):
    key = rsa.generate_private_key(65537, 2048)
    with pytest.raises(Misconfigured, match="key 1 is none of P-256"):
        read(tmp_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


@pytest.mark.parametrize("url", ["http://127.0.0.1:8600", "http://memory.example", "memory.example"])
def test_server_that_nobody_can_fetch_from_by_https_attests_to_nothing(tmp_path: Path, url: str):
    with pytest.raises(Misconfigured, match="APPVIEW_PUBLIC_URL"):
        read(tmp_path, pem(5), url)


def test_key_is_not_shown(tmp_path: Path):
    assert pem(5)[40:60] not in repr(read(tmp_path, pem(5)))
