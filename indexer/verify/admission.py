"""A verified commit against what is held of its repo: the part that the lock of the repo's row decides."""

from __future__ import annotations

from dataclasses import dataclass

from indexer.verify.commit import VerifiedCommit
from indexer.verify.reasons import Fault


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of a repo: a row of `repos`."""

    rev: str | None  # the gate: only greater ones pass, by bytes; null: nothing was applied yet
    commit_cid: str | None
    data_cid: str | None  # null: the contents are unknown, as after a purge
    state: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing new."""


@dataclass(frozen=True, slots=True)
class Desynchronize:
    """Signed, and yet not to be applied: what is held can no longer be trusted to be the whole repo."""

    reason: Fault


@dataclass(frozen=True, slots=True)
class Accept:
    """Apply it. `complete`: all that the repo holds is known then."""

    complete: bool


Admission = Accept | Desynchronize | Drop


def admit(verified: VerifiedCommit, held: Held | None) -> Admission:
    """What becomes of a commit that its author signed."""
    if held is not None and _behind(verified.rev, held):
        known = held.commit_cid is None or verified.commit_cid == held.commit_cid
        return Drop() if known or verified.rev != held.rev else Desynchronize(Fault.REV_CONFLICT)
    fault = verified.fault
    if fault is Fault.REV_NOT_TID or fault is Fault.REV_IN_FUTURE:
        return Desynchronize(fault)
    if held is None or held.rev is None or held.data_cid is None:
        return Accept(complete=verified.from_empty) if fault is None else Desynchronize(fault)
    if verified.since != held.rev:
        return Desynchronize(Fault.SINCE_MISMATCH)
    if verified.prev_data is None:
        return Desynchronize(Fault.PREV_DATA_ABSENT)
    if verified.prev_data != held.data_cid:
        return Desynchronize(Fault.PREV_DATA_MISMATCH)
    if fault is not None:
        return Desynchronize(fault)
    return Accept(complete=held.state == "active")


def _behind(rev: str, held: Held) -> bool:
    return held.rev is not None and rev <= held.rev
