"""Works off claims: so many at a time, asked for again as soon as there is room, or after a while.

A claim whose answer goes wrong, by a bug of ours, is left to run out: it is due again then, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from indexer.patience import patiently
from indexer.store.fetches import HostClaim
from memory.errors import Misconfigured
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

POLL_S: Final = 0.5

Claim = Callable[[int], Awaitable[Sequence[HostClaim]]]
"""Takes up to so many claims."""


class ClaimQueue:
    """One kind of work."""

    def __init__(
        self,
        claim: Claim,
        answer: Callable[[HostClaim], Coroutine[Any, Any, None]],
        *,
        at_once: int,
        poll_s: float = POLL_S,
    ) -> None:
        self._claim = claim
        self._answer = answer
        self._at_once = at_once
        self._poll_s = poll_s
        self._under_way: set[asyncio.Task[None]] = set()
        self.failed = 0  # claims whose answer went wrong
        self._changed = asyncio.Event()

    @property
    def under_way(self) -> int:
        """How many are worked on."""
        return len(self._under_way)

    async def run(self) -> None:
        """Works until cancelled."""
        async with TaskGroup() as tasks:
            while True:
                free = self._at_once - len(self._under_way)
                for claim in await patiently(lambda free=free: self._claim(free), "claim", lambda: None):
                    task = tasks.create_task(self._work_off(claim))
                    self._under_way.add(task)
                    task.add_done_callback(self._ended)
                self._changed.clear()
                if len(self._under_way) < self._at_once:
                    await self._changed_or_polled()
                else:
                    await self._changed.wait()

    async def _work_off(self, claim: HostClaim) -> None:
        try:
            await self._answer(claim)
        except Misconfigured:
            raise
        except Exception as failure:  # noqa: BLE001  the edge: one claim must not take the others along
            self.failed += 1
            get_logger().error(
                "claim_failed", did=claim.repo, kind=claim.kind, attempts=claim.attempts, exc_info=failure
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._changed.set()

    async def _changed_or_polled(self) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await self._changed.wait()
        except TimeoutError:
            pass
