from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count

import pytest

from indexer.resync.answers import AccountStatus, Refused
from indexer.resync.hosts import RepoHosts, open_repo_hosts
from indexer.resync.waits import host_wait_s
from memory.outbound import StreamLimits
from memory.outbound_errors import (
    AnswerTooLarge,
    ForbiddenAddress,
    ForbiddenUrl,
    HostNotAsked,
    UnreadableAnswer,
)
from tests.asked_hosts import (
    BUDGET,
    EVERYTHING,
    IMPATIENT,
    Question,
    did_of,
    every_question,
    every_request,
    failure_of,
    fetch,
    list_repos,
    opened,
    refusal_of,
    written,
)
from tests.commits import grown
from tests.fakes.internet import LOOPBACK, Names
from tests.fakes.pds import Fault, Pds, pds


@pytest.fixture
async def fake() -> AsyncGenerator[Pds]:
    async with pds() as listening:
        listening.add(grown())
        yield listening
        listening.release.set()


@pytest.fixture
async def other() -> AsyncGenerator[Pds]:
    async with pds() as listening:
        listening.add(written("other"))
        yield listening


@pytest.fixture
async def hosts() -> AsyncGenerator[RepoHosts]:
    async with opened() as hosts:
        yield hosts


# What may pass


@every_request
async def test_host_that_never_answers_is_given_up(fake: Pds, question: Question):
    fake.misbehave(Fault.DEAD)
    async with opened(answer_s=0.1, page_s=0.1, repo=IMPATIENT) as hosts:
        failure = await failure_of(question, hosts, fake)
        assert "in time" in failure.message
        assert host_wait_s(failure, random.Random(7)) is None


@every_request
async def test_host_that_stalls_in_the_middle_is_given_up(fake: Pds, question: Question):
    fake.misbehave(Fault.STALLED)
    async with opened(answer_s=0.1, page_s=0.1, repo=IMPATIENT) as hosts:
        assert "in time" in (await failure_of(question, hosts, fake)).message


@every_request
async def test_connection_that_is_torn_in_the_middle_is_an_outage_and_no_end(
    fake: Pds, hosts: RepoHosts, question: Question
):
    fake.misbehave(Fault.CUT)
    assert "cannot be reached" in (await failure_of(question, hosts, fake)).message


@every_request
async def test_server_error_is_an_outage(fake: Pds, hosts: RepoHosts, question: Question):
    fake.misbehave(Fault.BROKEN)
    failure = await failure_of(question, hosts, fake)
    assert "answered 500" in failure.message
    assert host_wait_s(failure, random.Random(7)) is None


@every_request
@pytest.mark.parametrize(
    ("fault", "retry_after_s"), [(Fault.BUSY, 7), (Fault.BUSY_WITHOUT_A_WORD, 30), (Fault.OVERLOADED, 7)]
)
async def test_busy_host_is_left_alone_by_all_requests_and_no_repo_is_to_blame(
    fake: Pds, question: Question, fault: Fault, retry_after_s: int
):
    fake.misbehave(fault)
    async with opened(monotonic=lambda: 100.0) as hosts:
        failure = await failure_of(question, hosts, fake)
        assert failure.retry_after_s == retry_after_s
        assert host_wait_s(failure, random.Random(7)) is not None
        for again in EVERYTHING:
            assert isinstance(await failure_of(again, hosts, fake), HostNotAsked)
        for turns in (hosts, hosts.question_turns):
            assert turns.unavailable() == {fake.url: retry_after_s}
    assert len(fake.asked) == 1


async def test_word_on_when_to_come_back_that_is_no_number_counts_as_none(fake: Pds, hosts: RepoHosts):
    fake.misbehave(Fault.BUSY)
    fake.retry_after_s = "Mon, 30 Nov 2026 12:00:00 GMT"
    assert (await failure_of(fetch, hosts, fake)).retry_after_s == 30


async def test_stream_that_trickles_is_given_up_after_its_time(fake: Pds):
    """By this clock every wait for the host takes a second."""
    fake.chunk_bytes = 50
    limits = StreamLimits(max_bytes=10_000_000, min_bytes_per_s=1, grace_s=60.0, total_s=5.0)
    ticks = count()
    async with open_repo_hosts(
        Names(), replace(BUDGET, repo=limits), allowed=LOOPBACK, monotonic=lambda: float(next(ticks))
    ) as hosts:
        assert "in time" in (await failure_of(fetch, hosts, fake)).message


# What will not pass


@every_request
async def test_redirect_is_refused_and_nobody_else_is_asked(
    fake: Pds, other: Pds, hosts: RepoHosts, question: Question
):
    fake.misbehave(Fault.MOVED)
    for location in ("http://10.0.0.1/", f"{other.url}/xrpc/x", "/xrpc/x"):
        fake.location = location
        refusal = await refusal_of(question, hosts, fake)
        assert isinstance(refusal, Refused)
        assert refusal.reason == "redirected"
    assert other.asked == []
    assert len(fake.asked) == 3


@every_request
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":"InvalidRequest","message":"Mandarin"}'),
        (401, b'{"error":"AuthMissing","message":"Mandarin"}'),
        (404, b"<html>Mandarin</html>"),
        (404, b'{"error":"NotFound"}'),
        (501, b'{"error":"MethodNotImplemented","message":"Mandarin"}'),
    ],
)
async def test_refusal_of_the_question_is_no_word_on_the_account(
    fake: Pds, hosts: RepoHosts, question: Question, status: int, body: bytes
):
    fake.misbehave(Fault.REFUSING)
    fake.refusal = (status, body)
    refusal = await refusal_of(question, hosts, fake)
    assert refusal.reason == "host_refused"


async def test_list_that_is_refused_like_an_account_is_refused(fake: Pds, hosts: RepoHosts):
    fake.misbehave(Fault.REFUSING)
    fake.refusal = (400, b'{"error":"RepoNotFound"}')
    assert (await refusal_of(list_repos, hosts, fake)).reason == "host_refused"


@every_question
async def test_page_for_people_is_no_answer(fake: Pds, hosts: RepoHosts, question: Question):
    fake.misbehave(Fault.GIBBERISH)
    assert (await refusal_of(question, hosts, fake)).reason == "unreadable_answer"


@pytest.mark.parametrize("question", [RepoHosts.repo_status, RepoHosts.collections])
async def test_answer_about_another_account_is_no_answer(fake: Pds, hosts: RepoHosts, question: Question):
    fake.add(written("stranger"))
    fake.misbehave(Fault.FOREIGN)
    assert (await refusal_of(question, hosts, fake)).reason == "unreadable_answer"


@every_question
async def test_half_an_answer_is_none(fake: Pds, hosts: RepoHosts, question: Question):
    fake.misbehave(Fault.TRUNCATED)
    assert (await refusal_of(question, hosts, fake)).reason == "unreadable_answer"


@every_request
async def test_compressed_answer_is_refused_unread(fake: Pds, hosts: RepoHosts, question: Question):
    fake.misbehave(Fault.BOMB)
    assert isinstance(await refusal_of(question, hosts, fake), UnreadableAnswer)


@every_request
@pytest.mark.parametrize("fault", [Fault.ENDLESS, Fault.BOASTING])
async def test_answer_without_an_end_is_cut_off(fake: Pds, question: Question, fault: Fault):
    fake.misbehave(fault)
    async with opened(repo=StreamLimits(max_bytes=1_000_000)) as hosts:
        assert isinstance(await refusal_of(question, hosts, fake), AnswerTooLarge)


async def test_repo_may_be_as_large_as_its_bound(fake: Pds, hosts: RepoHosts):
    size = len(fake.repos[did_of(fake)].car())
    for max_bytes, fits in ((size, True), (size - 1, False)):
        async with hosts.repo(fake.url, did_of(fake), StreamLimits(max_bytes=max_bytes)) as answer:
            assert not isinstance(answer, AccountStatus)
            if fits:
                assert sum([len(chunk) async for chunk in answer]) == size
            else:
                with pytest.raises(AnswerTooLarge):
                    [chunk async for chunk in answer]


@every_request
async def test_host_at_a_private_address_is_not_asked(fake: Pds, question: Question):
    async with open_repo_hosts(Names(), BUDGET) as hosts:
        refusal = await refusal_of(question, hosts, fake)
    assert isinstance(refusal, ForbiddenAddress)
    assert refusal.reason == "forbidden_address"
    assert fake.asked == []


@every_request
@pytest.mark.parametrize(
    "host", ["", "https://", "ftp://pds.example", "https://pds.example/path", "https://a@pds.example", "https://x?y="]
)
async def test_what_is_no_host_is_not_asked(hosts: RepoHosts, question: Question, host: str):
    with pytest.raises(ForbiddenUrl) as caught:
        await question(hosts, host, "did:web:a.example")
    assert caught.value.reason == "forbidden_url"
