"""Ledgers of one repo and the arrivals that they take, made by hand: a chain of commits that no one signed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from indexer.arrivals import CommitArrived, Place, Source, SourceKind, SyncArrived
from indexer.interpret import InvalidMemory, MemoryOp, StoredMemory, interpret_block
from indexer.ledger import Ledger
from indexer.repo_state import RepoRow, RepoState
from indexer.verify.car import encode_block
from indexer.verify.commit import VerifiedCommit
from memory.identifiers import cid_text
from memory.identity import Identity
from memory.space import PUBLIC
from tests.builders import block_cid, memory, tid

DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
STRANGER = "did:plc:zzzzzzzzzzzzzzzzzzzzzzzz"
RELAY = Source("https://relay.test", SourceKind.RELAY)
PDS = Source("https://pds.test", SourceKind.PDS)
AT = datetime(2026, 11, 1, tzinfo=UTC)
RKEY = "3kaaaaaaaaa2a"


def rev(number: int) -> str:
    return tid(AT + timedelta(seconds=number))


def place(seq: int = 1, source: Source = RELAY) -> Place:
    return Place(source, seq, AT + timedelta(seconds=seq))


def tracked_row(**changes: Any) -> RepoRow:
    """A repo that is whole after commit 1, unless `changes` say otherwise."""
    row = RepoRow(
        repo=DID,
        space=PUBLIC,
        state=RepoState.ACTIVE,
        reason=None,
        rev=rev(1),
        commit_cid="commit1",
        data_cid="data1",
        visible=True,
        status=None,
        memory_count=0,
        memory_bytes=0,
        edge_count=0,
        over_quota_count=0,
        quota_edge=None,
        host=None,
        signing_key=None,
        tracked_at=AT,
        changed_at=AT,
    )
    return replace(row, **changes)


def new_row() -> RepoRow:
    return tracked_row(state=RepoState.PENDING, rev=None, commit_cid=None, data_cid=None)


def ledger_of(row: RepoRow | None, identity: Identity | None = None) -> Ledger:
    return Ledger(
        rows={row.key: row} if row else {},
        held={},
        statuses={},
        identities={identity.did: identity} if identity else {},
    )


def commit(number: int, *ops: MemoryOp, seq: int | None = None, **changes: Any) -> CommitArrived:
    """The `number`th commit of the chain, unless `changes` say otherwise."""
    first = number == 1
    verified = VerifiedCommit(
        repo=DID,
        rev=rev(number),
        since=None if first else rev(number - 1),
        commit_cid=f"commit{number}",
        data_cid=f"data{number}",
        prev_data=None if first else f"data{number - 1}",
        from_empty=first,
        fault=None,
        touches_collection=True,
        ops=(),
    )
    return CommitArrived(place(seq or number), replace(verified, **changes), ops, first_sight=first)


def put(rkey: str, content: str = "tea") -> MemoryOp:
    return MemoryOp(rkey, interpret(rkey, memory(content)), created=True)


def interpret(rkey: str, record: dict[str, object]) -> StoredMemory | InvalidMemory:
    block = encode_block(record)
    return interpret_block(DID, PUBLIC, rkey, cid_text(block_cid(block)), block)


def sync(number: int, **changes: Any) -> SyncArrived:
    arrived = SyncArrived(place(number), DID, rev(number), f"commit{number}", f"data{number}", None)
    return replace(arrived, **changes)


def identity(number: int, **changes: Any) -> Identity:
    known = Identity(DID, "alice.test", PDS.url, "did:key:z1", False, AT + timedelta(seconds=number))
    return replace(known, **changes)


def counted(ledger: Ledger) -> dict[str, str]:
    """Reason → effect."""
    return {reason: effect.value for _, reason, effect in ledger.tally}


def asked(ledger: Ledger) -> dict[str, str]:
    """Kind → reason."""
    return {kind.value: request.reason for (_, kind), request in ledger.requests.items()}
