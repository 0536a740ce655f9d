from __future__ import annotations

import random
from datetime import UTC, datetime
from hashlib import sha256

import pytest

from memory.dpop import ProofKey
from memory.es256 import base64url
from memory.sealed import NotSealedHere, SealingKeys
from memory.space_credential import SpaceCredential, open_credential, reseal_credential
from tests.credentials_recorded import GRANTED, PROOF_SECRET, parts_of

SPACE, MARA = "at://did:plc:noor/space/dev.bastienrobert.memory.space/main", "did:plc:mara"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
TEXT = GRANTED["D.getSpaceCredential.bob"].answer["credential"]
CREDENTIAL = SpaceCredential(TEXT, ProofKey.from_bytes(PROOF_SECRET))


def keys(*ids: str) -> SealingKeys:
    return SealingKeys({each: sha256(each.encode()).digest() for each in ids}, random_bytes=random.Random(7).randbytes)


def test_request_shows_the_credential_with_a_proof_for_it():
    url = "https://pds.example/xrpc/com.atproto.space.getRepo"
    headers = CREDENTIAL.headers("GET", f"{url}?repo=x", now=NOW, random_bytes=random.Random(1).randbytes)
    (authorization, shown), (dpop, proof) = headers
    assert (authorization, shown) == ("Authorization", f"DPoP {TEXT}")
    assert dpop == "DPoP"
    claims = parts_of(proof)[1]
    assert (claims["htm"], claims["htu"]) == ("GET", url)
    assert claims["ath"] == base64url(sha256(TEXT.encode()).digest())


def test_credential_is_kept_sealed_and_opens_for_its_space_and_viewer():
    sealed = CREDENTIAL.seal(keys("new"), space=SPACE, viewer=MARA)
    assert TEXT.encode()[:20] not in sealed
    assert PROOF_SECRET not in sealed
    opened = open_credential(keys("new"), sealed, space=SPACE, viewer=MARA)
    assert opened.text == TEXT
    assert opened.key.to_bytes() == PROOF_SECRET


@pytest.mark.parametrize(("space", "viewer"), [(SPACE + "2", MARA), (SPACE, "did:plc:noor"), (MARA, SPACE)])
def test_credential_opens_for_no_other_space_or_viewer(space: str, viewer: str):
    sealed = CREDENTIAL.seal(keys("new"), space=SPACE, viewer=MARA)
    with pytest.raises(NotSealedHere):
        open_credential(keys("new"), sealed, space=space, viewer=viewer)


def test_another_secret_of_the_same_space_and_viewer_is_no_credential():
    with pytest.raises(NotSealedHere):
        open_credential(keys("new"), keys("new").seal(PROOF_SECRET, SPACE, MARA), space=SPACE, viewer=MARA)


@pytest.mark.parametrize("secret", [b"", PROOF_SECRET[:31], bytes(32) + TEXT.encode(), PROOF_SECRET + b"\xff"])
def test_sealed_bytes_that_hold_no_credential_are_refused(secret: bytes):
    sealed = keys("new").seal(secret, "space credential", SPACE, MARA)
    with pytest.raises(NotSealedHere):
        open_credential(keys("new"), sealed, space=SPACE, viewer=MARA)


def test_credential_is_sealed_anew_by_the_new_key():
    sealed = CREDENTIAL.seal(keys("old"), space=SPACE, viewer=MARA)
    resealed = reseal_credential(keys("new", "old"), sealed, space=SPACE, viewer=MARA)
    assert resealed is not None
    assert open_credential(keys("new"), resealed, space=SPACE, viewer=MARA).text == TEXT
    assert reseal_credential(keys("new", "old"), resealed, space=SPACE, viewer=MARA) is None


def test_credential_is_not_shown():
    assert TEXT[:20] not in repr(CREDENTIAL)
