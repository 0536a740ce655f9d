"""Waiting out what is not available at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from indexer.back_off import back_off_s
from memory.database import Database
from memory.errors import Unavailable
from memory.telemetry import get_logger

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 10.0
CONFLICTS_MAX: Final = 5
_ROLLED_BACK: Final = "40"  # class of SQLSTATEs: nothing of the transaction is left, another's went before

Connect = Callable[[], AbstractAsyncContextManager[Database]]
"""A way to the database; raises Unavailable while it is not there."""

_Result = TypeVar("_Result")


@asynccontextmanager
async def connected(connect: Connect) -> AsyncGenerator[Database]:
    """The database, once it is there."""
    async with AsyncExitStack() as stack:
        yield await patiently(lambda: stack.enter_async_context(connect()), "connection", lambda: None)


async def patiently(action: Callable[[], Awaitable[_Result]], what: str, retried: Callable[[], None]) -> _Result:
    """The result of `action`, tried again with growing waits for as long as it raises Unavailable."""
    failures = 0
    while True:
        try:
            return await action()
        except Unavailable as outage:
            retried()
            failures += 1
            await _rest(outage, what, failures)


async def despite_conflicts(action: Callable[[], Awaitable[_Result]], what: str) -> _Result:
    """The result of `action`, tried again where the database rolled it back for the sake of another; a few times.

    Any other outage is raised at once: whether what met it was written cannot be told.
    """
    for failures in range(1, CONFLICTS_MAX + 1):
        try:
            return await action()
        except Unavailable as outage:
            if not str(outage.context.get("sqlstate")).startswith(_ROLLED_BACK):
                raise
            await _rest(outage, what, failures)
    return await action()


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Until the event is set, or so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def _rest(outage: Unavailable, what: str, failures: int) -> None:
    """Says what is waited for, and waits."""
    wait_s = back_off_s(failures, RETRY_FIRST_S, RETRY_MAX_S)
    sqlstate = outage.context.get("sqlstate")
    get_logger().warning(f"{what}_retried", seconds=wait_s, sqlstate=sqlstate, message=outage.message)
    await asyncio.sleep(wait_s)
