"""The draft's names, against what its reference implementation was recorded to say."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from memory.identifiers import is_nsid
from memory.space_protocol import (
    ACCOUNT_KEY_FRAGMENT,
    ATTESTATION_LIFETIME,
    COMMIT_FIELDS,
    CONTEXT_TAG,
    CREDENTIAL_LIFETIME,
    DELEGATION_LIFETIME,
    SET_STATE_BYTES,
    SIGNED_COMMIT_TYPE,
    SYNCER_FRAGMENT,
    SYNCER_TYPE,
    SpaceError,
    SpaceMethod,
    TokenType,
    space_host_audience,
)
from tests.credentials_recorded import GRANTED, parts_of
from tests.space_repos import recorded


@pytest.mark.parametrize("method", SpaceMethod)
def test_every_method_is_a_valid_nsid_of_one_family(method: SpaceMethod) -> None:
    assert is_nsid(method)
    family, name = method.rsplit(".", 1)
    assert family == "com.atproto.space"
    assert re.sub("(?<!^)(?=[A-Z])", "_", name).upper() == method.name


def test_token_types_differ_so_that_none_passes_as_another() -> None:
    assert len(set(TokenType)) == len(TokenType) == 4


@pytest.mark.parametrize("error", SpaceError)
def test_every_error_is_spelt_as_its_name_says(error: SpaceError) -> None:
    spelt = re.sub("(?<!^)(?=[A-Z])", "_", error.removesuffix("Error")).upper()
    assert spelt == error.name or error == "use_dpop_nonce"


def test_our_syncer_is_named_as_the_recorded_one_was() -> None:
    (service,) = recorded("context.json")["syncer"]["service"]
    assert (service["id"], service["type"]) == (SYNCER_FRAGMENT, SYNCER_TYPE)


def test_accounts_sign_with_the_key_of_this_name() -> None:
    for account in recorded("accounts.json").values():
        assert [method["id"] for method in account["didDoc"]["verificationMethod"]] == [ACCOUNT_KEY_FRAGMENT]


def test_commits_are_made_as_the_vectors_are() -> None:
    assert all(
        bytes.fromhex(commit["ctxHex"]).startswith(CONTEXT_TAG) for commit in recorded("vectors-commit.json")["commits"]
    )
    assert len(bytes.fromhex(recorded("vectors-lthash.json")["xof"]["blake3Xof2048Hex"])) == SET_STATE_BYTES
    assert {"ver", "rev"} < COMMIT_FIELDS
    assert SIGNED_COMMIT_TYPE in recorded("oplog.json")["D.getLatestCommit.bob"]


def test_an_audience_names_the_host() -> None:
    assert space_host_audience("did:web:x.test") == "did:web:x.test#atproto_space_host"


def test_tokens_last_as_long_as_the_recorded_ones() -> None:
    for granted in GRANTED.values():
        assert lifetime(granted.delegation) == DELEGATION_LIFETIME
        assert lifetime(granted.answer["credential"]) == CREDENTIAL_LIFETIME
    attested = [
        granted.body["clientAttestation"] for granted in GRANTED.values() if "clientAttestation" in granted.body
    ]
    assert {lifetime(attestation) for attestation in attested} == {ATTESTATION_LIFETIME}


def lifetime(token: str) -> timedelta:
    claims = parts_of(token)[1]
    return timedelta(seconds=claims["exp"] - claims["iat"])
