"""Finds repos that may hold memories: by asking who lists them, and by what an operator names.

Relays and collection directories know who has records of a collection. A PDS does not: there every repo is asked for
its collections. What cannot be told is found too, so that no fault of a host hides anybody: the fetch will tell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from indexer.resync.answers import AccountStatus, Refused, RefusedReason, RepoPage
from indexer.resync.hosts import RepoHosts
from indexer.resync.sweeps import SweepLimits, sweep
from indexer.resync.waits import host_wait_s
from memory.errors import Misconfigured, Rejected, Unavailable
from memory.handles import Handles
from memory.identifiers import COLLECTION, is_did, is_handle, normalise_source
from memory.outbound_errors import HostUnavailable
from memory.tasks import TaskGroup

OPERATOR: Final = "operator"

DESCRIBED_A_PAGE: Final = 100  # so that a sweep that is killed repeats few questions
DESCRIBED_AT_ONCE: Final = 8
RESOLVED_AT_ONCE: Final = 16
ROUNDS_WITHOUT_ANSWER: Final = 4
REFUSALS_TO_TELL: Final = 10  # that a server does not describe repos: single ones are refused for reasons of their own

_Outcome = TypeVar("_Outcome")


class ListMethod(StrEnum):
    """How the repos of a server are listed."""

    BY_COLLECTION = "collection"
    ALL = "repos"


@dataclass(frozen=True, slots=True)
class Found:
    """A repo that may hold memories."""

    did: str
    host: str | None  # where it was seen to be; null: the DID document tells
    source: str  # the URL of who listed it, or `OPERATOR`


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A handle that leads to no repo."""

    handle: str
    reason: str  # `unknown_handle`; `unavailable`: not to be told now


@dataclass(frozen=True, slots=True)
class DiscoveryPage:
    """What one page of a list brought. Once it is stored, `position` is where to go on; null: this was the last."""

    found: Sequence[Found]
    position: str | None
    listed: int  # repos on the page


class NotListing(Rejected):
    """A server lists no repos, neither by collection nor with what is needed to tell."""

    reason = "not_listing"


class Discovery:
    """Reads the list of one server. `host_of` tells where a DID's repo is, for servers that are no hosts: relays.

    It raises as the outbound requests do, and is asked only where the server lists repos, but cannot describe them.
    """

    def __init__(
        self,
        hosts: RepoHosts,
        url: str,
        *,
        randomness: random.Random,
        host_of: Callable[[str], Awaitable[str | None]] | None = None,
        collection: str = COLLECTION,
        limits: SweepLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._hosts = hosts
        self._url = normalise_source(url)
        self._randomness = randomness
        self._host_of = host_of
        self._collection = collection
        self._limits = limits
        self._sleep = sleep
        self._describes: bool | None = None  # null: it cannot be told yet
        self._slots = asyncio.Semaphore(DESCRIBED_AT_ONCE)

    async def pages(self, position: str | None = None) -> AsyncGenerator[DiscoveryPage]:
        """The pages from `position` on, as one of them gave it; null: from the beginning.

        Raises HostUnavailable, after which one goes on from the last position; CursorRefused, after which one begins
        anew; NotListing, EndlessList, and Rejected of other reasons, after which nothing helps.
        """
        method, _, cursor = (position or ListMethod.BY_COLLECTION).partition(":")
        if ListMethod(method) is ListMethod.BY_COLLECTION:
            known = bool(cursor)  # whether the server has answered this before
            try:
                async with aclosing(sweep(self._by_collection, cursor or None, self._limits)) as pages:
                    async for page in pages:
                        known = True
                        yield self._listed(page)
                return
            except Refused as refused:
                if known or refused.reason is not RefusedReason.HOST_REFUSED:
                    raise
        async with aclosing(sweep(self._all, cursor or None, self._limits)) as pages:
            async for page in pages:
                yield await self._described(page)

    async def _by_collection(self, cursor: str | None) -> RepoPage:
        return await self._hosts.list_repos_by_collection(self._url, self._collection, cursor)

    async def _all(self, cursor: str | None) -> RepoPage:
        try:
            return await self._hosts.list_repos(self._url, cursor, DESCRIBED_A_PAGE)
        except Refused as refused:
            if cursor is None and refused.reason is RefusedReason.HOST_REFUSED:
                raise self._not_listing("has neither listReposByCollection nor listRepos") from refused
            raise

    def _listed(self, page: RepoPage) -> DiscoveryPage:
        found = [Found(repo.did, None, self._url) for repo in page.repos]
        return _page_of(found, ListMethod.BY_COLLECTION, page)

    async def _described(self, page: RepoPage) -> DiscoveryPage:
        """The page with every active repo asked for its collections."""
        active = [repo.did for repo in page.repos if repo.active]
        found: list[Found] = []
        refused = await self._describe_here(active, found) if self._describes is not False else active
        if refused and self._describes is not True:
            if len(refused) >= REFUSALS_TO_TELL:
                self._describes = False
            found += await self._describe_elsewhere(refused)
        else:
            found += [self._uncertain(did) for did in refused]
        return _page_of(found, ListMethod.ALL, page)

    async def _describe_here(self, dids: Sequence[str], found: list[Found]) -> list[str]:
        """Asks the server itself, for as long as it goes on to answer; the repos that it refuses to describe."""
        refused: list[str] = []
        pending = dids
        rounds_without_answer = 0
        while pending:
            outcomes = await self._in_parallel(self._ask_server, pending)
            failures = [outcome for outcome in outcomes if isinstance(outcome, HostUnavailable)]
            rounds_without_answer = rounds_without_answer + 1 if len(failures) == len(outcomes) else 0
            if rounds_without_answer == ROUNDS_WITHOUT_ANSWER:
                raise failures[0]
            again: list[str] = []
            wait_s = 0.0
            for did, outcome in zip(pending, outcomes, strict=True):
                match outcome:
                    case HostUnavailable():
                        host_s = host_wait_s(outcome, self._randomness)
                        if host_s is None:
                            found.append(self._uncertain(did))
                        else:
                            again.append(did)
                            wait_s = max(wait_s, host_s)
                    case Refused():
                        refused.append(did)
                    case Found():
                        found.append(outcome)
                    case None:
                        pass
            if again:
                await self._sleep(wait_s)
            pending = again
        return refused

    async def _describe_elsewhere(self, dids: Sequence[str]) -> list[Found]:
        """Asks the repos' own hosts, where there is a way to tell them."""
        if self._host_of is None:
            if self._describes is False:
                raise self._not_listing("has neither listReposByCollection nor describeRepo")
            return [self._uncertain(did) for did in dids]
        return [found for found in await self._in_parallel(self._ask_own_host, dids) if found is not None]

    async def _in_parallel(self, ask: Callable[[str], Awaitable[_Outcome]], dids: Sequence[str]) -> list[_Outcome]:
        async def one(did: str) -> _Outcome:
            async with self._slots:
                return await ask(did)

        async with TaskGroup() as tasks:
            asked = [tasks.create_task(one(did)) for did in dids]
        return [task.result() for task in asked]

    async def _ask_server(self, did: str) -> Found | HostUnavailable | Refused | None:
        try:
            found = await self._ask(did, self._url)
        except HostUnavailable as failure:
            return failure
        except Refused as refused:
            # One repo that cannot be described (its DID is not to be resolved) is refused like an unknown method.
            return refused if refused.reason is RefusedReason.HOST_REFUSED else self._uncertain(did)
        except Rejected:
            return self._uncertain(did)
        self._describes = True
        return found

    async def _ask_own_host(self, did: str) -> Found | None:
        assert self._host_of is not None
        try:
            host = await self._host_of(did)
            return None if host is None else await self._ask(did, host)
        except (Rejected, Unavailable):
            return self._uncertain(did)

    async def _ask(self, did: str, host: str) -> Found | None:
        collections = await self._hosts.collections(host, did)
        holds = not isinstance(collections, AccountStatus) and self._collection in collections
        return Found(did, host, self._url) if holds else None

    def _uncertain(self, did: str) -> Found:
        return Found(did, None, self._url)

    def _not_listing(self, lack: str) -> NotListing:
        return NotListing(f"{self._url} {lack}: it cannot tell who has memories.", host=self._url)


def parse_subject(text: str) -> str:
    """A DID, or a handle in lower case, with or without an `@`; raises ValueError for anything else."""
    subject = text.strip().removeprefix("@")
    if is_did(subject):
        return subject
    if is_handle(subject):
        return subject.lower()
    raise ValueError("neither a DID nor a handle")


def read_subjects(path: Path) -> list[str]:
    """The DIDs and handles in a file, one a line, `#` starts a comment; each once, in their order.

    Raises Misconfigured, naming file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: no readable file of DIDs and handles.") from error
    subjects: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            subjects[parse_subject(text)] = None
        except ValueError as error:
            raise Misconfigured(f"{path}, line {number}: {error}.") from error
    return list(subjects)


async def resolve_subjects(subjects: Iterable[str], handles: Handles) -> AsyncGenerator[Found | Unresolved]:
    """The repos of DIDs and handles, in their order."""
    waiting = iter(subjects)
    while chunk := list(islice(waiting, RESOLVED_AT_ONCE)):
        async with TaskGroup() as tasks:
            resolved = [tasks.create_task(_resolve(subject, handles)) for subject in chunk]
        for task in resolved:
            yield task.result()


async def _resolve(subject: str, handles: Handles) -> Found | Unresolved:
    if is_did(subject):
        return Found(subject, None, OPERATOR)
    try:
        did = await handles.owner(subject)
    except Unavailable:
        return Unresolved(subject, "unavailable")
    return Unresolved(subject, "unknown_handle") if did is None else Found(did, None, OPERATOR)


def _page_of(found: Sequence[Found], method: ListMethod, page: RepoPage) -> DiscoveryPage:
    position = None if page.cursor is None else f"{method}:{page.cursor}"
    return DiscoveryPage(found, position, len(page.repos))
