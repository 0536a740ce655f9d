"""Look-ups share the worker: who fills it with DIDs of a site that never answers delays nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from structlog.testing import capture_logs

from indexer.arrivals import Arrival, IdentityResolved, RequestAnswered
from indexer.identity_worker import SITE_AT_ONCE, IdentityWorker
from indexer.intake import Intake, WaitingArrival, WaitingRelease
from indexer.metrics import IndexerMetrics
from indexer.store.requests import HANDLE_UNSETTLED
from memory.database import Database
from memory.identity import Identity
from memory.outbound_hosts import Hosts
from memory.resolver import LOOK_UP_INTERVAL, PLC_LIMITS, IdentityResolver, Resolved
from memory.store.identities import store_identity
from memory.tasks import TaskGroup
from tests.daemons import Clock
from tests.deadline import DEADLINE_S
from tests.fakes.directory import Mood, document
from tests.fakes.identities import KEY, PDS, Owners, did_of
from tests.fakes.internet import PUBLIC, Internet, internet_at

PLC = "plc.example"
FLOOD = 3000
HONEST = "did:web:honest.test"
NEWCOMER, KNOWN = did_of("newcomer"), did_of("known")

pytestmark = pytest.mark.usefixtures("patient_look_ups")

ASK = """
insert into requests (repo, kind, reason, requested_at, not_before, tracked)
select did, 'identity', $4, $5, $2, $3 from unnest($1::text[]) as did
"""


class Working:
    """A worker that works, and what it is asked."""

    def __init__(self, database: Database, internet: Internet, intake: Intake, clock: Clock) -> None:
        self.database = database
        self.internet = internet
        self.intake = intake
        self.clock = clock
        self.metrics = IndexerMetrics()

    async def ask(
        self,
        dids: Iterable[str],
        *,
        tracked: bool = False,
        reason: str = "key_unknown",
        heard: datetime | None = None,
    ) -> None:
        """Due from now on, behind what was asked before; `heard`: when there was word of it, if before now."""
        async with self.database.transaction() as conn:
            await conn.execute(ASK, list(dids), self.clock.now, tracked, reason, heard or self.clock.now)
            if tracked:
                await conn.execute(
                    "insert into repos (repo, state, tracked_at, changed_at)"
                    " select repo, 'active', requested_at, requested_at from requests where repo = any($1)",
                    list(dids),
                )

    async def answered(self, *dids: str) -> None:
        """Returns once these are answered."""
        waiting = set(dids)
        async with asyncio.timeout(DEADLINE_S):
            while waiting:
                load = await self.intake.take(100, 10**6)
                waiting -= {each.repo for each in load.waiting if isinstance(each, WaitingRelease) and each.settled}

    async def arrivals(self, count: int) -> list[Arrival]:
        """The next ones that release nothing."""
        arrivals: list[Arrival] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(arrivals) < count:
                load = await self.intake.take(100, 10**6)
                assert not any(isinstance(each, WaitingRelease) for each in load.waiting)
                arrivals += [each.arrival for each in load.waiting if isinstance(each, WaitingArrival)]
        return arrivals

    def asked_of_site(self, site: str) -> int:
        return sum(asked.host.endswith(site) for asked in self.internet.fake.asked)


@pytest.fixture
async def internet(tmp_path: Path) -> AsyncGenerator[Internet]:
    async with internet_at(tmp_path, PLC, "honest.test", "*.evil.example") as standing:
        for did in (NEWCOMER, KNOWN, HONEST):
            standing.fake.documents[did] = document(did, handle="nobody.example", pds=PDS, key=KEY)
        standing.fake.moods |= {PLC: Mood.HONEST, "honest.test": Mood.HONEST}
        standing.fake.mood = Mood.HELD
        for number in range(FLOOD):
            standing.names.add(f"h{number}.evil.example", [PUBLIC])
        yield standing


@asynccontextmanager
async def working(database: Database, internet: Internet) -> AsyncGenerator[Working]:
    clock = Clock()
    intake = Intake(monotonic, clock)
    plc_url = f"https://{PLC}"
    async with internet.outbound(hosts=Hosts(named={plc_url: PLC_LIMITS})) as outbound, TaskGroup() as tasks:
        resolver = IdentityResolver(outbound, Owners(), database, tasks, plc_url=plc_url, clock=clock)
        work = Working(database, internet, intake, clock)
        worker = tasks.create_task(IdentityWorker(database, resolver, intake, work.metrics, clock).run())
        yield work
        worker.cancel()
        internet.fake.release.set()


def flood() -> list[str]:
    return [f"did:web:h{number}.evil.example" for number in range(FLOOD)]


async def test_flood_of_dids_of_one_silent_site_delays_no_stranger(database: Database, internet: Internet):
    async with working(database, internet) as work:
        await work.ask(flood())
        await internet.fake.until_asked(SITE_AT_ONCE)
        await work.ask([NEWCOMER, HONEST])
        await work.answered(NEWCOMER, HONEST)
        assert work.asked_of_site(".evil.example") == SITE_AT_ONCE


async def test_flood_of_dids_of_one_silent_site_delays_no_repo_that_is_tracked(database: Database, internet: Internet):
    """Not even if they are all tracked: anybody can write under a domain of their own."""
    async with working(database, internet) as work:
        await work.ask(flood(), tracked=True)
        await internet.fake.until_asked(SITE_AT_ONCE)
        await work.ask([KNOWN], tracked=True)
        await work.ask([NEWCOMER])
        await work.answered(KNOWN, NEWCOMER)
        assert work.asked_of_site(".evil.example") == SITE_AT_ONCE


async def test_silent_directory_delays_no_did_that_it_does_not_know(database: Database, internet: Internet):
    internet.fake.moods[PLC] = Mood.HELD
    async with working(database, internet) as work:
        await work.ask(did_of(f"forged {number}") for number in range(FLOOD))
        await internet.fake.until_asked(PLC_LIMITS.concurrent)
        await work.ask([HONEST])
        await work.answered(HONEST)


async def test_site_is_asked_on_as_it_answers(database: Database, internet: Internet):
    async with working(database, internet) as work:
        await work.ask(flood()[: 3 * SITE_AT_ONCE])
        await internet.fake.until_asked(SITE_AT_ONCE)
        internet.fake.mood = Mood.HONEST  # it knows none of them
        internet.fake.release.set()
        await work.answered(*flood()[: 3 * SITE_AT_ONCE])
        assert work.asked_of_site(".evil.example") == 3 * SITE_AT_ONCE


async def test_claim_that_goes_wrong_is_counted_and_left_and_takes_no_other_along(
    database: Database, internet: Internet, monkeypatch: pytest.MonkeyPatch
):
    resolve = IdentityResolver.resolve

    async def go_wrong(resolver: IdentityResolver, did: str) -> Resolved:
        if did == KNOWN:
            raise RuntimeError("Mandarin")
        return await resolve(resolver, did)

    monkeypatch.setattr(IdentityResolver, "resolve", go_wrong)
    async with working(database, internet) as work:
        with capture_logs() as logs:
            await work.ask([KNOWN], tracked=True)  # comes first
            await work.ask([NEWCOMER, HONEST])
            await work.answered(NEWCOMER, HONEST)
        async with database.connection() as conn:
            left = await conn.fetch(
                "select repo from requests where repo = $1 and not_before > $2", KNOWN, work.clock.now
            )
        assert len(left) == 1
    assert work.metrics.look_ups.labels("failed")._value.get() == 1
    assert [(told["event"], told["did"]) for told in logs] == [("look_up_failed", KNOWN)]


@pytest.mark.parametrize("age", [LOOK_UP_INTERVAL / 2, LOOK_UP_INTERVAL * 2])
@pytest.mark.parametrize("mood", [Mood.HONEST, Mood.OUTAGE])
async def test_handle_that_is_asked_for_again_is_answered_whatever_comes_of_it_and_releases_nothing(
    database: Database, internet: Internet, mood: Mood, age: timedelta
):
    async with working(database, internet) as work:
        internet.fake.moods[PLC] = mood
        known = Identity(KNOWN, None, PDS, KEY, tombstoned=False, resolved_at=work.clock.now - age)
        async with database.connection() as conn:
            await store_identity(conn, known)
        await work.ask([KNOWN], tracked=True, reason=HANDLE_UNSETTLED)
        resolved, answered = await work.arrivals(2)
        asked = age > LOOK_UP_INTERVAL
        assert isinstance(resolved, IdentityResolved)
        assert (resolved.identity == known) == (mood is Mood.OUTAGE or not asked)
        assert isinstance(answered, RequestAnswered)
        assert (answered.repo, answered.asked_at) == (KNOWN, work.clock.now)
        assert internet.fake.asked_for(f"/{KNOWN}") == asked


async def test_word_that_was_heard_before_the_last_look_up_began_is_answered_by_that(
    database: Database, internet: Internet
):
    async with working(database, internet) as work:
        heard = work.clock.now
        for _ in range(2):
            work.clock.now += timedelta(seconds=1)
            await work.ask([KNOWN], reason="identity_event", heard=heard)
            await work.answered(KNOWN)
            async with database.connection() as conn:
                await conn.execute("delete from requests")
        assert internet.fake.asked_for(f"/{KNOWN}") == 1
