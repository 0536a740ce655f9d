"""The way to the hosts of Spaces and of their authors: every request with a credential and a proof of its own.

Small answers have slots apart from whole repos, and one pace with them, as in `resync/hosts.py`. How long they take
counts for the turn that asks (`lanes.py`). Redirects are not followed, for a proof is good for one URL, and what a host
says of a repo is good only from the one in the author's DID document.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlencode

from httpcore2 import AsyncNetworkBackend, default_ssl_context

from indexer.resync.hosts import HostBudget
from indexer.spaces.lanes import Turn
from memory.es256 import compact
from memory.outbound import Limits, Outbound
from memory.outbound_addresses import Network
from memory.outbound_dns import Names
from memory.outbound_errors import HostNotAsked
from memory.outbound_hosts import LOOK_AGAIN_S, HostLimits, Hosts, Shares
from memory.space_credential import SpaceCredential
from memory.space_protocol import SpaceMethod

# A page of ops with their records; of a longer one the whole repo is asked for, which comes as a stream.
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
# A proof is good for a minute from when it was made, so nobody waits long for a host's turn with one.
PATIENCE_S: Final = LOOK_AGAIN_S / 2

# Of what is asked at a time, one site's part: names below a domain cost nothing, and each may be slow.
QUESTIONS_PER_SITE: Final = 8
# As long as nothing is confirmed nothing is served, so nobody is left alone for long.
PAUSE_MAX_S: Final = 300.0
# Enough for the next page, or the next repo, of a host that was just asked: all are looked at for every request.
_KEPT_ALIVE: Final = 4


@dataclass(frozen=True, slots=True, repr=False)
class Proofs:
    """What makes each request provably that of whoever the credential was given to."""

    clock: Callable[[], datetime]
    random_bytes: Callable[[int], bytes]

    def headers(self, credential: SpaceCredential, method: str, url: str) -> tuple[tuple[str, str], ...]:
        """For one request."""
        return credential.headers(method, url, now=self.clock(), random_bytes=self.random_bytes)


class SpaceHosts:
    """Asks. Raises what Outbound does; HostNotAsked for a host that is busy, which is the host's matter."""

    def __init__(
        self,
        questions: Outbound,
        repos: Outbound,
        turns: tuple[Hosts, Hosts],
        proofs: Proofs,
        budget: HostBudget,
        turn: Turn | None = None,
    ) -> None:
        """`turns`: of questions, and of whole repos. `turn`: what the waiting for answers counts for."""
        self._questions = questions
        self._repos = repos
        self._question_turns, self._repo_turns = turns
        self._proofs = proofs
        self._limits = Limits(max_bytes=MAX_PAGE_BYTES, total_s=budget.page_s)
        self._repo_limits = budget.repo
        self.at_once = budget.repos_at_once  # of each host
        self._budget = budget
        self._turn = turn

    def in_turn(self, turn: Turn) -> SpaceHosts:
        """The same hosts, for one piece of work."""
        turns = self._question_turns, self._repo_turns
        return SpaceHosts(self._questions, self._repos, turns, self._proofs, self._budget, turn)

    def busy(self) -> dict[str, float]:
        """The hosts that cannot be asked now, each with the seconds until it can."""
        return self._question_turns.unavailable(PATIENCE_S) | self._repo_turns.unavailable(PATIENCE_S)

    async def get(
        self, host: str, method: SpaceMethod, credential: SpaceCredential, parameters: Mapping[str, str | int]
    ) -> bytes:
        """The answer to a query."""
        _require_free(self._question_turns, host)
        url = _url(host, method)
        headers = self._proofs.headers(credential, "GET", url)
        with self._asking(host):
            return self._received(await self._questions.get(_with(url, parameters), self._limits, headers=headers))

    async def post(
        self, host: str, method: SpaceMethod, credential: SpaceCredential, body: Mapping[str, object]
    ) -> bytes:
        """The answer to a procedure."""
        _require_free(self._question_turns, host)
        url = _url(host, method)
        headers = self._proofs.headers(credential, "POST", url)
        with self._asking(host):
            return self._received(await self._questions.post(url, compact(body), self._limits, headers=headers))

    @asynccontextmanager
    async def stream(
        self, host: str, method: SpaceMethod, credential: SpaceCredential, parameters: Mapping[str, str | int]
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """A whole repo, in chunks as they come; while it is open, it holds a slot of the host."""
        _require_free(self._repo_turns, host)
        url = _url(host, method)
        headers = self._proofs.headers(credential, "GET", url)
        stream = self._repos.stream(_with(url, parameters), self._repo_limits, headers=headers)
        async with AsyncExitStack() as opened:
            with self._asking(host):
                chunks = await opened.enter_async_context(stream)
                self._received(b"")
            yield await opened.enter_async_context(aclosing(self._chunks(host, chunks)))

    async def _chunks(self, host: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        while True:
            with self._asking(host):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield self._received(chunk, begins=False)

    def _asking(self, host: str) -> AbstractContextManager[None]:
        return nullcontext() if self._turn is None else self._turn.asking(host)

    def _received(self, body: bytes, *, begins: bool = True) -> bytes:
        if self._turn is not None:
            self._turn.received(len(body), begins=begins)
        return body


def _require_free(turns: Hosts, host: str) -> None:
    if (wait_s := turns.available_in_s(host)) > PATIENCE_S:
        raise HostNotAsked(f"{host} is busy", host=host, retry_after_s=wait_s)


def _url(host: str, method: SpaceMethod) -> str:
    return f"{host}/xrpc/{method}"


def _with(url: str, parameters: Mapping[str, str | int]) -> str:
    return f"{url}?{urlencode(parameters, safe=':', quote_via=quote)}"


@asynccontextmanager
async def open_space_hosts(
    names: Names,
    budget: HostBudget,
    proofs: Proofs,
    *,
    allowed: Sequence[Network] = (),
    network: AsyncNetworkBackend | None = None,
    ssl_context: ssl.SSLContext | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[SpaceHosts]:
    """Opens the way to all of them."""
    questions = Hosts(
        strangers=_limits(budget, budget.questions_at_once),
        shares=Shares(waiting=budget.waiting, site_concurrent=QUESTIONS_PER_SITE),
        monotonic=monotonic,
        sleep=sleep,
    )
    repos = Hosts(
        strangers=_limits(budget, budget.repos_at_once),
        shares=Shares(budget.repos_in_all, budget.waiting, budget.repos_per_site, budget.waiting),
        paced_with=questions,
        monotonic=monotonic,
        sleep=sleep,
    )
    ssl_context = ssl_context or default_ssl_context()

    async with (
        Outbound(
            names,
            questions,
            allowed=allowed,
            network=network,
            ssl_context=ssl_context,
            kept_alive=_KEPT_ALIVE,
            monotonic=monotonic,
        ) as asking,
        Outbound(
            names,
            repos,
            allowed=allowed,
            network=network,
            ssl_context=ssl_context,
            kept_alive=_KEPT_ALIVE,
            monotonic=monotonic,
        ) as fetching,
    ):
        yield SpaceHosts(asking, fetching, (questions, repos), proofs, budget)


def _limits(budget: HostBudget, at_once: int) -> HostLimits:
    return HostLimits(budget.requests_per_s, budget.burst, at_once, budget.waiting, PAUSE_MAX_S)
