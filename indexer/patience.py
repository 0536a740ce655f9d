"""Waiting out what is not available at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from memory.errors import Unavailable
from memory.telemetry import get_logger

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 10.0
CONFLICTS_MAX: Final = 5
_ROLLED_BACK: Final = "40"  # class of SQLSTATEs: nothing of the transaction is left, another's went before

_Result = TypeVar("_Result")


async def patiently(action: Callable[[], Awaitable[_Result]], what: str, retried: Callable[[], None]) -> _Result:
    """The result of `action`, tried again with growing waits for as long as it raises Unavailable."""
    wait_s = RETRY_FIRST_S
    while True:
        try:
            return await action()
        except Unavailable as outage:
            retried()
            wait_s = await _rest(outage, what, wait_s)


async def despite_conflicts(action: Callable[[], Awaitable[_Result]], what: str) -> _Result:
    """The result of `action`, tried again where the database rolled it back for the sake of another; a few times.

    Any other outage is raised at once: whether what met it was written cannot be told.
    """
    wait_s = RETRY_FIRST_S
    for _ in range(CONFLICTS_MAX):
        try:
            return await action()
        except Unavailable as outage:
            if not str(outage.context.get("sqlstate")).startswith(_ROLLED_BACK):
                raise
            wait_s = await _rest(outage, what, wait_s)
    return await action()


async def _rest(outage: Unavailable, what: str, wait_s: float) -> float:
    """Says what is waited for, and waits; how long to wait the next time."""
    sqlstate = outage.context.get("sqlstate")
    get_logger().warning(f"{what}_retried", seconds=wait_s, sqlstate=sqlstate, message=outage.message)
    await asyncio.sleep(wait_s)
    return min(RETRY_MAX_S, wait_s * 2)
