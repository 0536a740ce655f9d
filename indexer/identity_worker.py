"""Asks for the identities that were written down to be asked for, and lets parked commits go on with what is found."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from indexer.arrivals import IdentityResolved, Place, RequestAnswered, Source, SourceKind
from indexer.books import CAME_BACK, RequestKind
from indexer.intake import Intake, WaitingArrival, WaitingRelease
from indexer.metrics import IndexerMetrics
from indexer.patience import patiently, wait_at_most
from indexer.store import requests
from indexer.store.requests import HANDLE_UNSETTLED, Claim, SiteShares
from memory.database import Database
from memory.errors import Misconfigured, Rejected, Unavailable
from memory.resolver import LOOK_UP_INTERVAL, IdentityResolver, Resolved
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

AT_ONCE: Final = 64
STRANGERS_AT_ONCE: Final = 48  # whoever can make us ask many slow hosts does not keep the tracked waiting
# Nor may one domain keep the others waiting, however many names its owner makes up.
SITE_AT_ONCE: Final = 8
PLC_AT_ONCE: Final = 32
POLL_S: Final = 0.5
POLL_MAX_S: Final = 5.0
POLLING_SHARE: Final = 10  # looking through what waits for busy sites takes a tenth of the time at most
CHEAP_CLAIM_S: Final = 0.03  # after which the next may follow at once
CLAIM: Final = timedelta(minutes=2)  # another process takes over after that
WAIT_FIRST: Final = timedelta(minutes=1)
DIRECTORY_WAIT_MAX: Final = timedelta(minutes=10)  # its outage is not the DID's fault
HOST_WAIT_MAX: Final = timedelta(days=1)

# What is held may be out of date, however young it is.
_RENEWED: Final = ("bad_signature", "bad_key", "identity_event", CAME_BACK)

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
        self._under_way: dict[asyncio.Task[None], Claim] = {}
        self._changed = asyncio.Event()
        self._poll_s = POLL_S
        self._pause_s = 0.0

    async def run(self) -> None:
        """Works until cancelled."""
        async with TaskGroup() as tasks:
            while True:
                self._changed.clear()
                while claims := await patiently(self._claim, "claim", self._metrics.write_retries.inc):
                    for claim in claims:
                        self._start(claim, tasks)
                    await asyncio.sleep(self._pause_s)
                await asyncio.sleep(self._pause_s)
                if len(self._under_way) < AT_ONCE:
                    await wait_at_most(self._changed, self._poll_s)
                else:
                    await self._changed.wait()

    def _start(self, claim: Claim, tasks: TaskGroup) -> None:
        task = tasks.create_task(self._work_off(claim))
        self._under_way[task] = claim

        def ended(task: asyncio.Task[None]) -> None:
            del self._under_way[task]
            self._changed.set()

        task.add_done_callback(ended)

    async def _claim(self) -> list[Claim]:
        """Some that may be under way beside those that are; strangers leave room for the tracked, who come first."""
        free = AT_ONCE - len(self._under_way)
        strangers = STRANGERS_AT_ONCE - sum(not claim.tracked for claim in self._under_way.values())
        time = asyncio.get_running_loop().time
        began = time()
        claims = await self._claim_of(free, tracked=True) or await self._claim_of(min(strangers, free), tracked=False)
        # Each answer brings the next look: where one takes long, there is a flood, and others need the database too.
        took_s = time() - began
        self._poll_s = min(max(POLL_S, POLLING_SHARE * took_s), POLL_MAX_S)
        self._pause_s = min(POLLING_SHARE * took_s, POLL_MAX_S) if took_s > CHEAP_CLAIM_S else 0.0
        return claims

    async def _claim_of(self, at_most: int, *, tracked: bool) -> list[Claim]:
        if at_most <= 0:
            return []
        busy = Counter(claim.site for claim in self._under_way.values() if claim.tracked == tracked)
        async with self._database.connection() as conn:
            return await requests.claim(
                conn,
                RequestKind.IDENTITY,
                self._clock(),
                CLAIM,
                at_most=at_most,
                tracked=tracked,
                shares=SiteShares(PLC_AT_ONCE, SITE_AT_ONCE, busy),
            )

    async def _work_off(self, claim: Claim) -> None:
        """A claim that goes wrong, by a bug of ours, is left to run out: it is due again then."""
        try:
            await self._answer(claim)
        except Misconfigured:
            raise
        except Exception as failure:  # noqa: BLE001  the edge: one claim must not take the others along
            self._metrics.look_ups.labels("failed").inc()
            get_logger().error("look_up_failed", did=claim.repo, attempts=claim.attempts, exc_info=failure)

    async def _answer(self, claim: Claim) -> None:
        if claim.reason == HANDLE_UNSETTLED:
            await self._ask_for_handle(claim)
            return
        try:
            found = await self._ask(claim)
        except Unavailable:
            await self._postpone(claim, "unavailable")
            return
        except Rejected:
            # It has none that can be used: its commits are judged as those of nobody, and forgotten.
            self._metrics.look_ups.labels("unusable").inc()
            await self._release(claim, settled=True)
            return
        await self._intake.put(WaitingArrival(IdentityResolved(self._place(), found.identity)))
        # A look-up that began after the word that asked for it answers it, whoever had asked for that one.
        if not found.stale or found.identity.resolved_at >= claim.requested_at:
            self._metrics.look_ups.labels("resolved").inc()
            await self._release(claim, settled=True)
            return
        await self._postpone(claim, "stale")
        await self._release(claim, settled=False)

    async def _ask(self, claim: Claim) -> Resolved:
        if claim.reason in _RENEWED:
            return await self._resolver.refresh(claim.repo)
        return await self._resolver.resolve(claim.repo)

    async def _ask_for_handle(self, claim: Claim) -> None:
        """Answered whatever comes of it, for when to ask again is kept beside the handle; no commit waits for it."""
        try:
            found = await self._resolver.resolve(claim.repo, max_age=LOOK_UP_INTERVAL)
        except (Unavailable, Rejected):
            self._metrics.look_ups.labels("unavailable").inc()
        else:
            self._metrics.look_ups.labels("stale" if found.stale else "resolved").inc()
            await self._intake.put(WaitingArrival(IdentityResolved(self._place(), found.identity)))
        await self._intake.put(WaitingArrival(self._answer_to(claim)))

    async def _release(self, claim: Claim, *, settled: bool) -> None:
        await self._intake.put(WaitingRelease(claim.repo, settled, self._answer_to(claim) if settled else None))

    def _answer_to(self, claim: Claim) -> RequestAnswered:
        return RequestAnswered(self._place(), claim.repo, RequestKind.IDENTITY, claim.requested_at)

    async def _postpone(self, claim: Claim, outcome: str) -> None:
        self._metrics.look_ups.labels(outcome).inc()
        longest = DIRECTORY_WAIT_MAX if claim.repo.startswith("did:plc:") else HOST_WAIT_MAX
        wait = min(longest, WAIT_FIRST * 2 ** min(claim.attempts - 1, 12))
        not_before = self._clock() + wait * random.uniform(0.75, 1.25)  # noqa: S311

        async def store() -> None:
            async with self._database.connection() as conn:
                await requests.postpone(conn, claim, not_before)

        await patiently(store, "postponement", self._metrics.write_retries.inc)

    def _place(self) -> Place:
        return Place(DIRECTORY, 0, self._clock())
