"""Asks for the identities that were written down to be asked for, and lets parked commits go on with what is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from indexer.arrivals import IdentityResolved, Place, RequestAnswered, Source, SourceKind
from indexer.intake import Intake, WaitingArrival, WaitingRelease
from indexer.ledger import RequestKind
from indexer.metrics import IndexerMetrics
from indexer.patience import patiently
from indexer.store import requests
from indexer.store.requests import Claim
from memory.database import Database
from memory.errors import Rejected, Unavailable
from memory.resolver import IdentityResolver, Resolved

AT_ONCE: Final = 32
POLL_S: Final = 0.5
CLAIM: Final = timedelta(minutes=2)  # another process takes over after that
WAIT_FIRST: Final = timedelta(minutes=1)
WAIT_MAX: Final = timedelta(days=1)

# The directory is no stream; what comes from it has no seq.
DIRECTORY: Final = Source("directory:", SourceKind.RELAY)


class IdentityWorker:
    """Works off the requests for identities, tracked repos first."""

    def __init__(
        self,
        database: Database,
        resolver: IdentityResolver,
        intake: Intake,
        metrics: IndexerMetrics,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._resolver = resolver
        self._intake = intake
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            claims = await patiently(self._claim, "claim", self._metrics.write_retries.inc)
            async with asyncio.TaskGroup() as tasks:
                for claim in claims:
                    tasks.create_task(self._answer(claim))
            if len(claims) < AT_ONCE:
                await asyncio.sleep(POLL_S)

    async def _claim(self) -> list[Claim]:
        async with self._database.connection() as conn:
            return await requests.claim(conn, RequestKind.IDENTITY, self._clock(), CLAIM, AT_ONCE)

    async def _answer(self, claim: Claim) -> None:
        try:
            found = await self._ask(claim)
        except Unavailable:
            await self._postpone(claim, "unavailable")
            return
        except Rejected:
            # It has none that can be used: its commits are judged as those of nobody, and forgotten.
            self._metrics.look_ups.labels("unusable").inc()
            await self._conclude(claim)
            return
        if found.stale:
            await self._postpone(claim, "stale")
        else:
            self._metrics.look_ups.labels("resolved").inc()
        place = Place(DIRECTORY, 0, self._clock())
        await self._intake.put(WaitingArrival(IdentityResolved(place, found.identity)))
        if not found.stale:
            await self._conclude(claim)

    async def _ask(self, claim: Claim) -> Resolved:
        if claim.reason == "bad_signature":
            return await self._resolver.refresh(claim.repo)
        if claim.reason == "identity_event":
            return await self._resolver.resolve(claim.repo, max_age=timedelta(0))
        return await self._resolver.resolve(claim.repo)

    async def _conclude(self, claim: Claim) -> None:
        place = Place(DIRECTORY, 0, self._clock())
        answered = RequestAnswered(place, claim.repo, RequestKind.IDENTITY, claim.requested_at)
        await self._intake.put(WaitingArrival(answered))
        await self._intake.put(WaitingRelease(claim.repo))

    async def _postpone(self, claim: Claim, outcome: str) -> None:
        self._metrics.look_ups.labels(outcome).inc()
        wait = min(WAIT_MAX, WAIT_FIRST * 2 ** min(claim.attempts, 12)) * random.uniform(0.75, 1.25)  # noqa: S311

        async def store() -> None:
            async with self._database.connection() as conn:
                await requests.postpone(conn, claim, self._clock() + wait)

        await patiently(store, "postponement", self._metrics.write_retries.inc)
