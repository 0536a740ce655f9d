"""The Space host of our tests answers as the reference implementation did when it was recorded.

Compared is every recorded request of `com.atproto.space.*`, but for those of `NOT_COMPARED`. Not even copied from the
recordings were OAuth (PAR, tokens, and requests under such sessions: what a scope lets an app do at a user's PDS), and
what any PDS answers about public repos, blobs and app passwords.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.fakes.space_bytes import encode_cbor, from_json, hash_of, signed_commit
from tests.fakes.space_host_tokens import read_token
from tests.fakes.space_subscriber import token_of
from tests.space_replay import (
    CORE,
    SYNCERS,
    RecordedKey,
    exchanges,
    likeness,
    notifications,
    recorded_likeness,
    recorded_notifications,
    replay,
)

COMPARED = {"main": 209, "more": 48, "oauth": 2}
NOT_COMPARED = {
    # What they did is done all the same, in Python.
    "management of Spaces: no part of what is synced": 42,
    "what every PDS does": 14,  # accounts, sessions, blobs, deactivation and takedown
    "OAuth sessions at a PDS": 1,
    # Which forms of at-uris a PDS takes for one in a record whose lexicon it knows. Ours knows none.
    "records against a lexicon of another app": 18,
    # Compared below, but for four: what a writer's host told a Space host elsewhere, and a question to a managing app.
    "what was told to others: compared as notifications": 23,
    "a DID document": 2,
}


@pytest.mark.parametrize("recording", COMPARED)
async def test_every_recorded_request_is_answered_as_it_was(recording: str) -> None:
    compared, diverging = 0, list[tuple[object, ...]]()

    async with replay(recording) as again:
        for exchange in exchanges(recording):
            answer = await again.repeat(exchange)
            if answer is not None:
                compared += 1
                was, is_now = recorded_likeness(exchange), likeness(answer)
                if was != is_now:
                    diverging.append((exchange.n, exchange.step, was, is_now))

    assert diverging == []
    assert compared == COMPARED[recording]


@pytest.mark.parametrize("recording", COMPARED)
async def test_every_recorded_notification_is_sent_as_it_was_and_in_its_order(recording: str) -> None:
    async with replay(recording) as again:
        for exchange in exchanges(recording):
            await again.repeat(exchange)

        for port in SYNCERS:
            assert notifications(again.syncers[port].heard) == recorded_notifications(recording, port)


def test_nothing_else_is_left_out() -> None:
    reasons = Counter(exchange.why_not_compared for name in COMPARED for exchange in exchanges(name))

    assert reasons.pop(None) == sum(COMPARED.values())
    assert reasons == NOT_COMPARED
    assert sum(len(recorded_notifications(name, port)) for name in COMPARED for port in SYNCERS) == 23 - 4


async def test_notifications_and_credentials_are_signed_with_the_recorded_key_of_the_authority() -> None:
    authority = json.loads((CORE / "accounts.json").read_text())["alice"]["didKey"]
    credentials = list[str]()
    async with replay("main") as again:
        for exchange in exchanges("main"):
            answer = await again.repeat(exchange)
            if answer is not None and exchange.nsid.endswith("getSpaceCredential") and answer.status_code == 200:
                credentials.append(answer.json()["credential"])

        signed = [token_of(call.headers).text for call in again.syncers[26590].heard] + credentials

    assert len(signed) > len(credentials) > 0
    assert all(read_token(token).is_signed_by(authority) for token in signed)


VECTORS = json.loads((CORE / "vectors-commit.json").read_text())["commits"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_commit_has_the_bytes_that_the_reference_gives_it(vector: dict[str, Any]) -> None:
    key = RecordedKey(vector["privHex"], vector["didKey"])

    commit = signed_commit(
        key,
        vector["space"],
        vector["author"],
        vector["rev"],
        digest=bytes.fromhex(vector["hashHex"]),
        ikm=bytes.fromhex(vector["ikmHex"]),
    )

    assert encode_cbor(commit).hex() == vector["commitCborHex"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_repo_has_the_hash_that_the_reference_gives_it(vector: dict[str, Any]) -> None:
    records = dict(element.rsplit("/", 1) for element in vector["elements"])

    assert hash_of({path: from_json({"$link": cid}) for path, cid in records.items()}).hex() == vector["hashHex"]
