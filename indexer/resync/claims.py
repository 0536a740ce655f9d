"""Works off claims: so many at a time, asked for again as soon as there is room, when woken, or after a while.

A claim whose answer goes wrong, by a bug of ours, is left to run out: it is due again then, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from indexer.back_off import back_off_s
from indexer.patience import RETRY_FIRST_S, RETRY_MAX_S, patiently, wait_at_most
from memory.errors import Misconfigured
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

POLL_S: Final = 0.5
# Each claim is a statement or more, so what ends within a moment is replaced together.
TOGETHER_S: Final = 0.05


class Claim(Protocol):
    """Something that nobody else does for a while."""

    @property
    def told(self) -> Mapping[str, object]:
        """What a log may say of it."""
        ...


_Claim = TypeVar("_Claim", bound=Claim)


class ClaimQueue(Generic[_Claim]):
    """One kind of work; `claim` takes up to so many."""

    def __init__(
        self,
        claim: Callable[[int], Awaitable[Sequence[_Claim]]],
        answer: Callable[[_Claim], Coroutine[Any, Any, None]],
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
        self.refused = 0  # times that there was no claiming
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()

    @property
    def under_way(self) -> int:
        """How many are worked on."""
        return len(self._under_way)

    def wake(self) -> None:
        """Has it look at once whether there is something to do."""
        self._woken.set()
        self._changed.set()

    async def run(self) -> None:
        """Works until cancelled."""
        async with TaskGroup() as tasks:
            while True:
                # Before it is looked: who ends, or what comes, while claims are taken counts.
                self._changed.clear()
                self._woken.clear()
                rested = asyncio.get_running_loop().time() + TOGETHER_S
                free = self._at_once - len(self._under_way)
                for claim in await self._take(free):
                    task = tasks.create_task(self._work_off(claim))
                    self._under_way.add(task)
                    task.add_done_callback(self._ended)
                if len(self._under_way) < self._at_once:
                    await wait_at_most(self._changed, self._poll_s)
                else:
                    await self._until_free()
                await wait_at_most(self._woken, rested - asyncio.get_running_loop().time())

    async def _until_free(self) -> None:
        while len(self._under_way) >= self._at_once:
            self._changed.clear()
            await self._changed.wait()

    async def _take(self, free: int) -> Sequence[_Claim]:
        """Claims, tried again after a while whatever goes wrong: what is under way goes on meanwhile."""
        failures = 0
        while True:
            try:
                return await patiently(lambda: self._claim(free), "claim", lambda: None)
            except Misconfigured:
                raise
            except Exception as failure:  # noqa: BLE001  the edge: one statement must not end what is under way
                failures += 1
                self.refused += 1
                wait_s = back_off_s(failures, RETRY_FIRST_S, RETRY_MAX_S)
                get_logger().error("claiming_failed", times=self.refused, seconds=wait_s, exc_info=failure)
            await asyncio.sleep(wait_s)

    async def _work_off(self, claim: _Claim) -> None:
        try:
            await self._answer(claim)
        except Misconfigured:
            raise
        except Exception as failure:  # noqa: BLE001  the edge: one claim must not take the others along
            self.failed += 1
            get_logger().error("claim_failed", **claim.told, exc_info=failure)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._changed.set()
