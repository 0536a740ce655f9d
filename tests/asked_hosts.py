"""What hosts are asked, in every way that there is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from indexer.resync.answers import AccountStatus
from indexer.resync.hosts import HostBudget, RepoHosts, open_repo_hosts
from memory.errors import Rejected
from memory.outbound import StreamLimits
from memory.outbound_errors import (
    HostUnavailable,
)
from tests.builders import RepoBuilder, memory, tid
from tests.fakes.internet import LOOPBACK, Names
from tests.fakes.pds import Pds

Question = Callable[[RepoHosts, str, str], Awaitable[Any]]

BUDGET = HostBudget(requests_per_s=1e6, burst=1000, repo=StreamLimits(max_bytes=10_000_000))
IMPATIENT = StreamLimits(max_bytes=1_000_000, grace_s=0.1)


def opened(*, monotonic: Callable[[], float] = time.monotonic, **budget: Any) -> AbstractAsyncContextManager[RepoHosts]:
    return open_repo_hosts(Names(), replace(BUDGET, **budget), allowed=LOOPBACK, monotonic=monotonic)


def written(seed: str) -> RepoBuilder:
    builder = RepoBuilder(seed)
    builder.create(tid(builder.stream.time), memory("Likes green tea."))
    return builder


def did_of(fake: Pds) -> str:
    return next(iter(fake.repos))


async def fetch(hosts: RepoHosts, host: str, did: str) -> bytes | AccountStatus:
    async with hosts.repo(host, did) as answer:
        return answer if isinstance(answer, AccountStatus) else b"".join([chunk async for chunk in answer])


async def car(hosts: RepoHosts, fake: Pds, did: str = "") -> bytes:
    answer = await fetch(hosts, fake.url, did or did_of(fake))
    assert isinstance(answer, bytes)
    return answer


async def list_repos(hosts: RepoHosts, host: str, did: str) -> object:
    return await hosts.list_repos(host)


QUESTIONS: list[Question] = [
    RepoHosts.latest_commit,
    RepoHosts.repo_status,
    RepoHosts.collections,
]
EVERYTHING = [*QUESTIONS, fetch, list_repos]
every_question = pytest.mark.parametrize("question", [*QUESTIONS, list_repos])
every_request = pytest.mark.parametrize("question", EVERYTHING)


async def refusal_of(question: Question, hosts: RepoHosts, fake: Pds) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await question(hosts, fake.url, did_of(fake))
    assert "Mandarin" not in str(caught.value)
    return caught.value


async def failure_of(question: Question, hosts: RepoHosts, fake: Pds) -> HostUnavailable:
    with pytest.raises(HostUnavailable) as caught:
        await question(hosts, fake.url, did_of(fake))
    return caught.value
