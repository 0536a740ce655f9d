"""What the answers of hosts mean. No I/O.

An account that is not served is no failure: whatever a host is asked, it may answer with that account's status. What
is no answer at all is a `Rejected` with one of the reasons of `Refused`, or with those of `memory.outbound_errors`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StringConstraints,
    ValidationError,
)

from memory.errors import Rejected
from memory.identifiers import is_cid, is_did, is_tid
from memory.outbound_errors import HostRefused

MAX_PAGE_REPOS: Final = 10_000  # more than any host is asked for
MAX_CURSOR_CHARS: Final = 1024
MAX_COLLECTIONS: Final = 10_000

DELETED: Final = "deleted"

_STATUS_OF_ERROR: Final = {
    "RepoNotFound": DELETED,
    "RepoTakendown": "takendown",
    "RepoSuspended": "suspended",
    "RepoDeactivated": "deactivated",
}
_STATUS: Final = re.compile("[a-z-]{1,64}")
_NO_TEXT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BAD_REQUEST: Final = 400


class RefusedReason(StrEnum):
    """Why a host's answer is of no use; joins the reasons of `memory.outbound_errors`."""

    REDIRECTED = "redirected"  # a host is where the DID document says, not where it points to
    HOST_REFUSED = "host_refused"
    UNREADABLE_ANSWER = "unreadable_answer"


class Refused(Rejected):
    """A host answers, but not what it was asked."""

    reason: RefusedReason

    def __init__(self, host: str, reason: RefusedReason, *, bad_request: bool = False) -> None:
        self.host = host
        self.bad_request = bad_request  # a parameter is wrong for it, or the whole method: hosts do not tell them apart
        super().__init__(f"{host} gives no usable answer: {reason}", reason=reason, host=host)


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """What a host says of an account. `active` decides, `status` explains.

    `deleted` is also said where the host has no such repo: of an account that moved away, its old host says so too.
    """

    active: bool
    status: str | None = None  # any word of lower-case letters and hyphens; null: none, or none that can be read


@dataclass(frozen=True, slots=True)
class LatestCommit:
    """Where a repo stands."""

    cid: str
    rev: str  # a TID


@dataclass(frozen=True, slots=True)
class ListedRepo:
    """One repo as a list has it. A list of those with one collection tells nothing but the DID."""

    did: str
    active: bool = True


@dataclass(frozen=True, slots=True)
class RepoPage:
    """One page of a list."""

    repos: Sequence[ListedRepo]
    cursor: str | None  # opaque; null: this was the last page


def judge_refusal(refused: HostRefused) -> AccountStatus | Refused:
    """What a host means that answers with neither a 200 nor something that may pass."""
    if 300 <= refused.status < 400:
        return Refused(refused.host, RefusedReason.REDIRECTED)
    status = _STATUS_OF_ERROR.get(refused.error or "")
    if status is not None and refused.status < 500:
        return AccountStatus(active=False, status=status)
    return Refused(refused.host, RefusedReason.HOST_REFUSED, bad_request=refused.status == _BAD_REQUEST)


def read_status(host: str, did: str, answer: bytes) -> AccountStatus:
    """`com.atproto.sync.getRepoStatus`; raises Refused for anything else, and for the status of another account."""
    said = _parse(_Status, host, answer)
    if said.did != did:
        raise Refused(host, RefusedReason.UNREADABLE_ANSWER)
    return AccountStatus(said.active, _word(said.status))


def read_latest_commit(host: str, answer: bytes) -> LatestCommit:
    """`com.atproto.sync.getLatestCommit`; raises Refused for anything else."""
    said = _parse(_LatestCommit, host, answer)
    if not is_cid(said.cid) or not is_tid(said.rev):
        raise Refused(host, RefusedReason.UNREADABLE_ANSWER)
    return LatestCommit(said.cid, said.rev)


def read_collections(host: str, did: str, answer: bytes) -> frozenset[str]:
    """`com.atproto.repo.describeRepo`: the collections of a repo; raises Refused for anything else."""
    said = _parse(_Description, host, answer)
    if said.did != did:
        raise Refused(host, RefusedReason.UNREADABLE_ANSWER)
    return frozenset(said.collections)


def read_page(host: str, answer: bytes) -> RepoPage:
    """`com.atproto.sync.listRepos` or `listReposByCollection`; raises Refused for anything else.

    What is unreadable of one entry spoils no other: a list must not end early because of one repo.
    """
    said = _parse(_Page, host, answer)
    repos = [repo for entry in said.repos if (repo := _listed(entry)) is not None]
    return RepoPage(repos, said.cursor or None)


def _plain(text: str) -> str:
    """What a database can store; raises ValueError."""
    if _NO_TEXT.search(text):
        raise ValueError("a control character, or half a character")
    return text


class _Edge(BaseModel):
    """The form of JSON from outside: what we do not read may be anything."""

    model_config = ConfigDict(frozen=True)


class _Status(_Edge):
    did: str
    active: StrictBool
    status: JsonValue = None


class _LatestCommit(_Edge):
    cid: str
    rev: str


class _Description(_Edge):
    did: str
    collections: Annotated[list[Annotated[str, AfterValidator(_plain)]], Field(max_length=MAX_COLLECTIONS)]


class _Page(_Edge):
    repos: Annotated[list[JsonValue], Field(max_length=MAX_PAGE_REPOS)]
    cursor: Annotated[str, StringConstraints(max_length=MAX_CURSOR_CHARS), AfterValidator(_plain)] | None = None


_Answer = TypeVar("_Answer", bound=_Edge)


def _parse(form: type[_Answer], host: str, answer: bytes) -> _Answer:
    try:
        return form.model_validate_json(answer)
    except ValidationError:  # it quotes the answer, so nothing of it goes on
        raise Refused(host, RefusedReason.UNREADABLE_ANSWER) from None


def _listed(entry: JsonValue) -> ListedRepo | None:
    if not isinstance(entry, dict):
        return None
    did = entry.get("did")
    if not isinstance(did, str) or not is_did(did):
        return None
    return ListedRepo(did, active=entry.get("active", True) is True)


def _word(status: Any) -> str | None:
    return status if isinstance(status, str) and _STATUS.fullmatch(status) else None
