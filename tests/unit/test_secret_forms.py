"""A secret is found in whatever form it was written, and nothing else is taken for it."""

from __future__ import annotations

import json
import random
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from appview.tokens import make_access_token
from tests.builders import SigningKey
from tests.fakes.space_host_tokens import delegation_token
from tests.memory_rows import ALICE, SPACE, START
from tests.secret_forms import Sought

SECRET = random.Random(11).randbytes(32)
KEY = ec.derive_private_key(int.from_bytes(SECRET), ec.SECP256R1())
TOKEN = delegation_token(SigningKey("alice"), ALICE, SPACE, START, "f00d" * 8)


def encoded(encoding: Encoding, form: PrivateFormat) -> bytes:
    return KEY.private_bytes(encoding, form, NoEncryption())


WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda secret: secret,
    "the first half": lambda secret: secret[:16],
    "the last half": lambda secret: secret[16:],
    "hexadecimal": lambda secret: secret.hex().encode(),
    "upper hexadecimal": lambda secret: secret.hex().upper().encode(),
    "number": lambda secret: str(int.from_bytes(secret)).encode(),
    "base64": b64encode,
    "base64 behind one byte": lambda secret: b64encode(b"x" + secret),
    "base64url behind two bytes": lambda secret: urlsafe_b64encode(b"xy" + secret),
    "bytes of Python": lambda secret: repr(secret).encode(),
    "JWK": lambda secret: json.dumps({"kty": "EC", "d": urlsafe_b64encode(secret).decode().rstrip("=")}).encode(),
    "PEM, PKCS 8": lambda _: encoded(Encoding.PEM, PrivateFormat.PKCS8),
    "PEM, SEC 1": lambda _: encoded(Encoding.PEM, PrivateFormat.TraditionalOpenSSL),
    "DER": lambda _: encoded(Encoding.DER, PrivateFormat.PKCS8),
    "bytea of a dump": lambda secret: rb"\\x0105" + secret.hex().encode(),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_key_is_found_in_every_form(name: str):
    sought = Sought()
    sought.key("key", SECRET)
    assert sought.found(b"something before " + WRITTEN[name](SECRET) + b" and after it") == {"key"}


def test_public_key_is_not_taken_for_it():
    sought = Sought()
    sought.key("key", SECRET)
    for encoding in (Encoding.PEM, Encoding.DER):
        assert sought.found(KEY.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)) == set()


def test_token_is_found_by_its_end_and_not_by_its_header():
    sought = Sought()
    sought.jwt("token", TOKEN)
    for text in (
        TOKEN,
        TOKEN[-40:],
        b64encode(TOKEN.encode()).decode(),
        TOKEN.encode().hex(),
        json.dumps({"a": TOKEN}),
    ):
        assert sought.found(text.encode()) == {"token"}
    assert sought.found(TOKEN.partition(".")[0].encode()) == set()
    another = delegation_token(SigningKey("alice"), ALICE, SPACE, START, "beef" * 8)
    assert sought.found(another.encode()) == set()


def test_access_token_is_found_by_what_is_secret_in_it():
    token, sought = make_access_token(ALICE), Sought()
    sought.access_token("token", token.text)
    assert sought.found(f"Bearer {token.text}".encode()) == {"token"}
    assert sought.found(token.text[20:50].encode()) == {"token"}
    assert sought.found(f"{token.did} {token.id} {token.digest().hex()}".encode()) == set()
