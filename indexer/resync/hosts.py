"""Asks the hosts of repos, and those that list repos: small questions apart from whole repos.

Both kinds have slots of their own, so that no question waits behind a repo of a gigabyte, and one pace: whatever asks a
host to be left alone, leaves it alone for both. Hosts are URLs, as `normalise_source` spells them.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, urlencode

from httpcore2 import AsyncNetworkBackend, default_ssl_context

from indexer.resync.answers import (
    AccountStatus,
    LatestCommit,
    Refused,
    RefusedReason,
    RepoPage,
    judge_refusal,
    read_collections,
    read_latest_commit,
    read_page,
    read_status,
)
from memory.identifiers import normalise_source
from memory.outbound import MAX_KEPT_ALIVE, Limits, Outbound, StreamLimits
from memory.outbound_addresses import Network
from memory.outbound_dns import Names
from memory.outbound_errors import ForbiddenUrl, HostRefused
from memory.outbound_hosts import HostLimits, Hosts, Shares

GIB: Final = 1024**3
LONGEST_PAUSE_S: Final = 24 * 3600.0

# The largest pages that the lexicons allow.
LIST_REPOS_LIMIT: Final = 1000
LIST_REPOS_BY_COLLECTION_LIMIT: Final = 2000

REPO_LIMITS: Final = StreamLimits(max_bytes=4 * GIB, min_bytes_per_s=128 * 1024, grace_s=60.0, total_s=3600.0)
# One site's part of all fetches: names below a domain cost nothing, and each of its hosts may be as slow as it can.
SITE_PART: Final = 4

# Enough for the next repo of a host that was just asked: all of them are looked at for every repo.
_KEPT_ALIVE_FOR_REPOS: Final = 16
_MAX_ANSWER_BYTES: Final = 64 * 1024
_MAX_DESCRIPTION_BYTES: Final = 1024 * 1024  # a DID document is in it, and every collection
_MAX_PAGE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HostBudget:
    """What hosts are asked at most, and how long a repo may be."""

    requests_per_s: float = 5.0  # of each host, questions and repos together
    burst: int = 10
    questions_at_once: int = 4  # of each host
    repos_at_once: int = 4  # of each host
    repos_per_site: int = 2  # a domain with all below it
    repos_in_all: int = 64
    waiting: int = 256  # for each of these
    answer_s: float = 10.0  # that an answer may take
    page_s: float = 60.0  # that a page of a list may take
    repo: StreamLimits = REPO_LIMITS

    def for_fetches(self, at_once: int) -> HostBudget:
        """The same, with one site's share of so many fetches at a time."""
        return replace(self, repos_per_site=max(1, at_once // SITE_PART))

    def shared(self, processes: int) -> HostBudget:
        """What each of so many processes may ask, so that all together ask no more than this."""
        return replace(
            self,
            requests_per_s=self.requests_per_s / processes,
            burst=max(1, self.burst // processes),
            questions_at_once=max(1, self.questions_at_once // processes),
            repos_at_once=max(1, self.repos_at_once // processes),
            repos_per_site=max(1, self.repos_per_site // processes),
            repos_in_all=max(1, self.repos_in_all // processes),
        )


class RepoHosts:
    """What can be asked of hosts. `question_turns` tells which of them can be asked a question now.

    Every question raises HostUnavailable for what may pass, and Rejected with a reason for what is no answer. Of those,
    HostNotAsked and a HostUnavailable that says when to come back are the host's matter, not the repo's.
    """

    def __init__(
        self, questions: Outbound, repos: Outbound, question_turns: Hosts, repo_turns: Hosts, budget: HostBudget
    ) -> None:
        self.question_turns = question_turns
        self._repo_turns = repo_turns
        self._questions = questions
        self._repos = repos
        self._repo_limits = budget.repo
        self._answer_limits = Limits(max_bytes=_MAX_ANSWER_BYTES, total_s=budget.answer_s)
        self._description_limits = Limits(max_bytes=_MAX_DESCRIPTION_BYTES, total_s=budget.answer_s)
        self._page_limits = Limits(max_bytes=_MAX_PAGE_BYTES, total_s=budget.page_s)

    def available_in_s(self, host: str) -> float:
        """How long until a repo can be fetched from `host` without waiting; 0: now."""
        return self._repo_turns.available_in_s(host)

    def unavailable(self, beyond_s: float = 0.0) -> dict[str, float]:
        """The hosts from which no repo can be fetched within `beyond_s`, each with its `available_in_s`."""
        return self._repo_turns.unavailable(beyond_s)

    def busy_with_questions(self, beyond_s: float = 1.0) -> dict[str, float]:
        """The same of small questions."""
        return self.question_turns.unavailable(beyond_s)

    @asynccontextmanager
    async def repo(
        self, host: str, did: str, limits: StreamLimits | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes] | AccountStatus]:
        """A whole repo as a CAR that nobody checked yet, in chunks as they come, which raise as questions do.

        Leave the block to stop; while it is open, it holds a slot of the host.
        """
        async with AsyncExitStack() as stack:
            try:
                answer = await stack.enter_async_context(
                    self._repos.stream(_url(host, "com.atproto.sync.getRepo", did=did), limits or self._repo_limits)
                )
            except HostRefused as refused:
                answer = _judged(refused)
            yield answer

    async def latest_commit(self, host: str, did: str) -> LatestCommit | AccountStatus:
        """Where a repo stands."""
        url = _url(host, "com.atproto.sync.getLatestCommit", did=did)
        try:
            return read_latest_commit(host, await self._questions.get(url, self._answer_limits))
        except HostRefused as refused:
            return _judged(refused)

    async def repo_status(self, host: str, did: str) -> AccountStatus:
        """Whether an account is served."""
        url = _url(host, "com.atproto.sync.getRepoStatus", did=did)
        try:
            return read_status(host, did, await self._questions.get(url, self._answer_limits))
        except HostRefused as refused:
            return _judged(refused)

    async def collections(self, host: str, did: str) -> frozenset[str] | AccountStatus:
        """The collections in a repo."""
        url = _url(host, "com.atproto.repo.describeRepo", repo=did)
        try:
            return read_collections(host, did, await self._questions.get(url, self._description_limits))
        except HostRefused as refused:
            return _judged(refused)

    async def list_repos(self, host: str, cursor: str | None = None, limit: int = LIST_REPOS_LIMIT) -> RepoPage:
        """A page of all repos of a host, or of all that a relay knows, with where they stand."""
        return await self._page(host, "com.atproto.sync.listRepos", limit=limit, cursor=cursor)

    async def list_repos_by_collection(
        self, host: str, collection: str, cursor: str | None = None, limit: int = LIST_REPOS_BY_COLLECTION_LIMIT
    ) -> RepoPage:
        """A page of the repos that have records of a collection; relays and collection directories know."""
        method = "com.atproto.sync.listReposByCollection"
        return await self._page(host, method, collection=collection, limit=limit, cursor=cursor)

    async def _page(self, host: str, method: str, **parameters: str | int | None) -> RepoPage:
        try:
            answer = await self._questions.get(_url(host, method, **parameters), self._page_limits)
        except HostRefused as refused:
            _judged(refused)
            raise Refused(refused.host, RefusedReason.HOST_REFUSED) from refused  # of no account was asked
        return read_page(host, answer)


@asynccontextmanager
async def open_repo_hosts(
    names: Names,
    budget: HostBudget | None = None,
    *,
    named: Iterable[str] = (),
    allowed: Sequence[Network] = (),
    network: AsyncNetworkBackend | None = None,
    ssl_context: ssl.SSLContext | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[RepoHosts]:
    """Opens the way to all hosts. `named`: the operator's own, whose slots nobody else can fill."""
    budget = budget or HostBudget()
    questions, repos = _limits(budget, budget.questions_at_once), _limits(budget, budget.repos_at_once)
    named = list(named)
    question_turns = Hosts(
        named=dict.fromkeys(named, questions),
        strangers=questions,
        shares=Shares(waiting=budget.waiting),
        monotonic=monotonic,
        sleep=sleep,
    )
    repo_turns = Hosts(
        named=dict.fromkeys(named, repos),
        strangers=repos,
        shares=Shares(budget.repos_in_all, budget.waiting, budget.repos_per_site, budget.waiting),
        paced_with=question_turns,
        monotonic=monotonic,
        sleep=sleep,
    )

    ssl_context = ssl_context or default_ssl_context()

    def way_out(turns: Hosts, kept_alive: int) -> Outbound:
        return Outbound(
            names,
            turns,
            allowed=allowed,
            network=network,
            ssl_context=ssl_context,
            kept_alive=kept_alive,
            monotonic=monotonic,
        )

    async with (
        way_out(question_turns, MAX_KEPT_ALIVE) as asking,
        way_out(repo_turns, _KEPT_ALIVE_FOR_REPOS) as fetching,
    ):
        yield RepoHosts(asking, fetching, question_turns, repo_turns, budget)


def _limits(budget: HostBudget, at_once: int) -> HostLimits:
    return HostLimits(budget.requests_per_s, budget.burst, at_once, budget.waiting, LONGEST_PAUSE_S)


def _url(host: str, method: str, **parameters: str | int | None) -> str:
    """Raises ForbiddenUrl for a host that is none."""
    try:
        source = normalise_source(host)
    except ValueError as error:
        raise ForbiddenUrl from error
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{source}/xrpc/{method}?{urlencode(given, safe=':', quote_via=quote)}"


def _judged(refused: HostRefused) -> AccountStatus:
    judged = judge_refusal(refused)
    if isinstance(judged, Refused):
        raise judged from refused
    return judged
