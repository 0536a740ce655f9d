"""Commits to verify: built ones, changed ones, and what verification says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from indexer.frames import CommitEvent, SyncEvent, decode_frame
from indexer.verify.car import Car, read_car
from indexer.verify.commit import VerifiedCommit, verify_commit
from indexer.verify.reasons import Unattributable
from memory.errors import Rejected
from memory.identifiers import COLLECTION
from memory.signatures import PublicKey, parse_did_key
from tests.builders import RepoBuilder, Write, memory, tid
from tests.recorded import export

NOTE = memory("Likes green tea.")
RKEY = "3kaaaaaaaaa2a"
PATH = f"{COLLECTION}/{RKEY}"
NOISE = "app.bsky.feed.post"


def event_of(frame: bytes) -> CommitEvent:
    event = decode_frame(frame)
    assert isinstance(event, CommitEvent)
    return event


def verified(builder: RepoBuilder, event: CommitEvent, now: datetime | None = None) -> VerifiedCommit:
    return verify_commit(event, parse_did_key(builder.did_key), now or event.time)


def refusal(builder: RepoBuilder, event: CommitEvent) -> str:
    with pytest.raises(Rejected) as caught:
        verified(builder, event)
    assert isinstance(caught.value.reason, Unattributable)
    return caught.value.reason


def key_at(event: CommitEvent | SyncEvent) -> PublicKey:
    identity = export().at(event.did, event.time)
    assert identity is not None
    return parse_did_key(identity.signing_key or "")


def grown(count: int = 40, curve: Any = "k256") -> RepoBuilder:
    """A repo of some layers."""
    builder = RepoBuilder("grown", curve)
    at = datetime(2026, 10, 1, tzinfo=UTC)
    builder.apply([Write("create", tid(at + timedelta(hours=n)), memory(f"{n}")) for n in range(count)])
    return builder


def with_car(event: CommitEvent, change: Callable[[Car], bytes]) -> CommitEvent:
    return replace(event, blocks=change(read_car(event.blocks)))
