"""Which repos and records arrivals are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from indexer.arrivals import (
    AccountAsked,
    AccountChanged,
    Arrival,
    CommitArrived,
    CommitParked,
    CommitRefused,
    CommitUnparked,
    ContentsFetched,
    DeletionConfirmed,
    FetchApplied,
    FetchBegun,
    FetchFailed,
    FetchLifted,
    FetchOrdered,
    FrameBroken,
    FrameIgnored,
    HeadCompared,
    IdentityAnnounced,
    IdentityResolved,
    RepoCutOff,
    RequestAnswered,
    RestoreOrdered,
    SpaceChanged,
    SyncArrived,
    TakedownOrdered,
)
from indexer.books import RecordKey
from indexer.repo_state import RepoKey
from memory.space import PUBLIC


def repo_of(arrival: Arrival) -> str | None:
    """The repo that an arrival is about; None: none."""
    match arrival:
        case CommitArrived():
            return arrival.commit.repo
        case CommitRefused() | CommitParked() | CommitUnparked() | SyncArrived() | AccountChanged():
            return arrival.repo
        case IdentityAnnounced() | RequestAnswered() | RepoCutOff() | TakedownOrdered() | RestoreOrdered():
            return arrival.repo
        case FetchOrdered() | FetchBegun() | ContentsFetched() | FetchApplied() | FetchFailed() | FetchLifted():
            return arrival.repo
        case HeadCompared() | AccountAsked() | DeletionConfirmed() | SpaceChanged():
            return arrival.repo
        case IdentityResolved():
            return arrival.identity.did
        case FrameIgnored() | FrameBroken():
            return None


def key_of(arrival: Arrival) -> RepoKey | None:
    """The row in `repos` that an arrival is about."""
    repo = repo_of(arrival)
    return None if repo is None else (repo, arrival.space if isinstance(arrival, SpaceChanged) else PUBLIC)


def touched(arrivals: Iterable[Arrival]) -> Iterator[RecordKey]:
    """The record keys that arrivals are about, some of them more than once."""
    for arrival in arrivals:
        match arrival:
            case CommitArrived():
                for op in arrival.ops:
                    yield arrival.commit.repo, PUBLIC, op.rkey
            case ContentsFetched():
                for op in arrival.ops:
                    yield arrival.repo, PUBLIC, op.rkey
            case SpaceChanged():
                for op in arrival.ops:
                    yield arrival.repo, arrival.space, op.rkey
            case TakedownOrdered(rkey=str() as rkey):
                yield arrival.repo, PUBLIC, rkey
            case _:
                pass


def account_of(arrival: Arrival) -> str | None:
    """The repo whose visibility may change."""
    return (
        repo_of(arrival)
        if isinstance(arrival, AccountChanged | AccountAsked | DeletionConfirmed | IdentityResolved)
        else None
    )
