"""Claims that are worked off at once: what goes wrong with one is no matter of the others."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from indexer.books import RequestKind
from indexer.resync.claims import ClaimQueue
from indexer.store.fetches import HostClaim
from memory.errors import Misconfigured
from memory.queries import StatementFailed
from memory.tasks import TaskGroup
from tests.deadline import DEADLINE_S

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "Mandarin"
BROKEN = "did:web:broken.example"


def claim_of(repo: str) -> HostClaim:
    return HostClaim(repo, RequestKind.FETCH, "gap", 1, NOW, None, NOW)


class Work:
    """Claims that are due, each once, and what became of them."""

    def __init__(self, failure: Exception, *repos: str, at_once: int = 1) -> None:
        self.answered: list[str] = []
        self.stopped: list[str] = []
        self.all_asked = asyncio.Event()
        self.logs: Sequence[MutableMapping[str, Any]] = []
        self._failure = failure
        self._due = list(repos)
        self.queue = ClaimQueue(self._claim, self._answer, at_once=at_once, poll_s=0.001)

    async def _claim(self, at_most: int) -> Sequence[HostClaim]:
        taken, self._due = self._due[:at_most], self._due[at_most:]
        return [claim_of(repo) for repo in taken]

    async def _answer(self, claim: HostClaim) -> None:
        if claim.repo == BROKEN:
            raise self._failure
        self.answered.append(claim.repo)
        if not self._due:
            self.all_asked.set()
        if claim.repo.endswith(".silent.example"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.stopped.append(claim.repo)
                raise

    async def until_all_are_asked(self) -> None:
        """Works until every claim was taken up, and is then told to stop."""
        with capture_logs() as self.logs:
            async with asyncio.timeout(DEADLINE_S), TaskGroup() as tasks:
                running = tasks.create_task(self.queue.run())
                await self.all_asked.wait()
                running.cancel()


@pytest.mark.parametrize("failure", [RuntimeError(SECRET), OSError(SECRET), ExceptionGroup(SECRET, [ValueError()])])
async def test_claim_that_goes_wrong_takes_no_other_along(failure: Exception):
    work = Work(failure, "did:web:a.example", BROKEN, "did:web:b.example", BROKEN, "did:web:c.example")
    await work.until_all_are_asked()
    assert work.answered == ["did:web:a.example", "did:web:b.example", "did:web:c.example"]
    assert work.queue.failed == 2


async def test_claim_that_goes_wrong_gives_its_place_to_the_next():
    work = Work(RuntimeError(), *[BROKEN] * 20, "did:web:a.example", at_once=2)
    await work.until_all_are_asked()
    assert work.queue.failed == 20
    assert work.queue.under_way == 0


async def test_claim_that_goes_wrong_is_told_with_its_repo():
    work = Work(RuntimeError(SECRET), BROKEN, "did:web:a.example")
    await work.until_all_are_asked()
    [told] = work.logs
    assert (told["event"], told["log_level"], told["did"]) == ("claim_failed", "error", BROKEN)
    assert isinstance(told["exc_info"], RuntimeError)  # told by class and place: memory.telemetry sees to that
    assert SECRET not in str({**told, "exc_info": None})


async def test_claim_that_is_cancelled_ends_and_has_not_failed():
    work = Work(RuntimeError(), "did:web:a.silent.example")
    await work.until_all_are_asked()
    assert work.stopped == ["did:web:a.silent.example"]
    assert (work.queue.failed, work.logs) == (0, [])


class Refusing(Work):
    """The first times that it is to claim, the database refuses."""

    def __init__(self, *refusals: Exception) -> None:
        super().__init__(RuntimeError(), "did:web:a.example")
        self._refusals = list(refusals)

    async def _claim(self, at_most: int) -> Sequence[HostClaim]:
        if self._refusals:
            raise self._refusals.pop(0)
        return await super()._claim(at_most)


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.resync.claims.RETRY_FIRST_S", 0.001)


@pytest.mark.parametrize(
    "refusal", [StatementFailed("42501", "claim_of_hosts"), RuntimeError(SECRET), KeyError(SECRET)]
)
async def test_statement_that_claims_and_fails_is_told_and_tried_again(refusal: Exception, no_waits: None):
    work = Refusing(refusal, refusal)
    await work.until_all_are_asked()
    assert work.answered == ["did:web:a.example"]
    assert work.queue.refused == 2
    assert [(told["event"], told["times"]) for told in work.logs] == [("claiming_failed", 1), ("claiming_failed", 2)]
    assert SECRET not in str([{**told, "exc_info": None} for told in work.logs])


async def test_claiming_that_only_an_operator_can_mend_ends_the_work():
    with pytest.raises(Misconfigured):
        await Refusing(Misconfigured("no such folder", setting="INDEXER_FOLDER")).until_all_are_asked()


async def test_what_the_operator_has_to_mend_ends_the_work():
    work = Work(Misconfigured("no such folder", setting="INDEXER_FOLDER"), BROKEN, "did:web:a.example")
    with pytest.raises(Misconfigured):
        await work.until_all_are_asked()


async def test_place_that_becomes_free_while_claims_are_taken_is_taken_at_once():
    ends = {repo: asyncio.Event() for repo in ("did:web:a.example", "did:web:b.example", "did:web:c.example")}
    first, second, third = ends
    ends[second].set()
    claims = iter([[first, second], [], [third]])
    third_is_asked = asyncio.Event()

    async def claim(_: int) -> Sequence[HostClaim]:
        taken = next(claims, [])
        if not taken:  # the first ends just now
            ends[first].set()
            for _ in range(5):
                await asyncio.sleep(0)
            assert queue.under_way == 0
        return [claim_of(repo) for repo in taken]

    async def answer(claim: HostClaim) -> None:
        if claim.repo == third:
            third_is_asked.set()
        await ends[claim.repo].wait()

    queue = ClaimQueue(claim, answer, at_once=3, poll_s=3600)
    async with asyncio.timeout(DEADLINE_S), TaskGroup() as tasks:
        running = tasks.create_task(queue.run())
        await third_is_asked.wait()
        running.cancel()
