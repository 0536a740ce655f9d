"""What the read API answers, typed, and how it refuses. Goes with `memory_client.py`, which has all of these types."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Literal, NotRequired, TypedDict, cast

import httpx


class Supersession(TypedDict):
    """One entry of a record's `supersedes`, and what it does."""

    uri: str
    effect: str


class ArmScore(TypedDict):
    """The place in one arm of the search, from 1, and its own measure as a decimal number."""

    rank: int
    raw: str


class Scores(TypedDict):
    """How a score came about; with `explain`."""

    fused: str
    lexical: NotRequired[ArmScore]
    semantic: NotRequired[ArmScore]


class ByteSlice(TypedDict):
    """A part of `value.content`, in bytes of UTF-8; the end is exclusive."""

    byteStart: int
    byteEnd: int


class Record(TypedDict):
    """One memory; `value` is the whole record as its author wrote it, with properties that nobody here knows."""

    uri: str
    cid: str
    repo: str
    handle: NotRequired[str]
    space: NotRequired[str]
    value: dict[str, Any]
    indexedAt: str
    version: int
    superseded: bool
    supersededBy: list[str]
    supersededByCapped: NotRequired[bool]
    supersedes: list[Supersession]
    revisedAfterAsOf: NotRequired[bool]
    duplicates: NotRequired[list[str]]
    duplicatesCapped: NotRequired[bool]
    score: NotRequired[int]
    scores: NotRequired[Scores]
    highlights: NotRequired[list[ByteSlice]]


class Explanation(TypedDict):
    """Why one memory was recalled, or why not."""

    uri: str
    recalled: bool
    failedFilter: NotRequired[str]
    score: NotRequired[int]
    scores: NotRequired[Scores]
    maskedBy: list[str]
    maskedByCapped: NotRequired[bool]


class RecordPage(TypedDict):
    """A page of a list; without `cursor` it is the last."""

    records: list[Record]
    cursor: NotRequired[str]
    asOf: NotRequired[str]


class SearchPage(RecordPage):
    """A page of a search, best first."""

    mode: str
    suppressed: int
    suppressedCapped: NotRequired[bool]
    matchesCapped: NotRequired[bool]
    explanation: NotRequired[Explanation]


class Version(TypedDict):
    """One observed state of a record."""

    version: int
    operation: Literal["created", "updated", "deleted"]
    observedAt: str
    current: bool
    redactedAt: NotRequired[str]
    cid: NotRequired[str]
    scope: NotRequired[str]
    contentBytes: int
    contentSha256: str
    value: NotRequired[dict[str, Any]]


class HistoryPage(TypedDict):
    """A page of a memory's history; its entries run through `versions`, `replaced` and `replacedBy`, in this order."""

    uri: str
    record: NotRequired[Record]
    versions: list[Version]
    replaced: list[Record]
    replacedBy: list[Record]
    relatedCapped: NotRequired[bool]
    cursor: NotRequired[str]


class Count(TypedDict):
    """How many memories have this value; "" stands for none."""

    value: str
    records: int


class Tally(TypedDict):
    """The most frequent values, and how many there are."""

    values: list[Count]
    distinct: int


class RepoSync(TypedDict):
    """How far the index follows one author; `state` is "active" if it has all."""

    repo: str
    handle: NotRequired[str]
    state: str
    reason: NotRequired[str]
    rev: NotRequired[str]
    changedAt: str


class Stats(TypedDict):
    """How much there is, of everybody or of one author (then with `sync`)."""

    repos: int
    records: int  # in effect
    superseded: int
    kinds: Tally
    scopes: Tally
    agents: Tally
    indexedThrough: NotRequired[str]
    indexingLagSeconds: NotRequired[int]
    sync: NotRequired[RepoSync]


class OpenedSpace(TypedDict):
    """A Space that was opened; `accessToken` is a new one, if there was none."""

    status: Literal["syncing", "ready"]
    expiresAt: str
    accessToken: NotRequired[str]


class Grant(TypedDict):
    """A Space that the access token may read; while it is "syncing", not all of its memories are in the answers yet."""

    space: str
    status: Literal["syncing", "ready"]
    grantedAt: str
    expiresAt: str


class MemoryApiError(Exception):
    """The API refused. Act on `error`, its name for why; `message` is for people.

    `status` is HTTP's; `retry_after_s` says when to ask again, where that makes sense. `error` is "InvalidResponse" if
    something else than the API answered. That nothing answered is an `httpx.TransportError`.
    """

    def __init__(self, status: int, error: str, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(f"{error} ({status}): {message}")
        self.status, self.error, self.message, self.retry_after_s = status, error, message, retry_after_s


def read_answer(response: httpx.Response) -> Any:
    """The decoded answer; raises MemoryApiError."""
    body: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        answer: Any = response.json()
        if isinstance(answer, dict):
            body = cast("dict[str, Any]", answer)
            if response.is_success:
                return body
    waits = re.fullmatch(r"\d{1,9}", response.headers.get("Retry-After", ""))
    error, message = (
        body.get("error", "InvalidResponse"),
        body.get("message", "This is no answer of an XRPC method."),
    )
    raise MemoryApiError(response.status_code, str(error), str(message), int(waits[0]) if waits else None)
