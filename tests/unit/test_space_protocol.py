"""The draft's names, against what its reference implementation was recorded to say."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from memory import space_protocol
from memory.identifiers import is_nsid
from memory.space_protocol import (
    ACCOUNT_KEY_FRAGMENT,
    COMMIT_FIELDS,
    CONTEXT_TAG,
    SET_STATE_BYTES,
    SIGNED_COMMIT_TYPE,
    SYNCER_FRAGMENT,
    SYNCER_TYPE,
    SpaceError,
    SpaceMethod,
    TokenType,
    delegation_scope,
    space_host_audience,
)
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


def test_a_scope_asks_for_all_spaces_of_a_type_and_an_audience_names_the_host() -> None:
    assert delegation_scope("a.b.c") == "space:a.b.c?authority=*&action=read"
    assert space_host_audience("did:web:x.test") == "did:web:x.test#atproto_space_host"


def test_a_proof_is_short_lived_and_a_credential_is_not() -> None:
    lifetimes = {name: value for name, value in vars(space_protocol).items() if isinstance(value, timedelta)}
    assert min(lifetimes, key=lifetimes.__getitem__) == "CLOCK_SKEW"
    assert space_protocol.PROOF_AGE_MAX < space_protocol.CREDENTIAL_LIFETIME < space_protocol.REGISTRATION_LIFETIME
