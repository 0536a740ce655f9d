"""Waiting out what is not available at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from memory.errors import Unavailable
from memory.telemetry import get_logger

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 10.0

_Result = TypeVar("_Result")


async def patiently(action: Callable[[], Awaitable[_Result]], what: str, retried: Callable[[], None]) -> _Result:
    """The result of `action`, tried again with growing waits for as long as it raises Unavailable."""
    wait_s = RETRY_FIRST_S
    while True:
        try:
            return await action()
        except Unavailable as outage:
            retried()
            get_logger().warning(f"{what}_retried", seconds=wait_s, sqlstate=outage.context.get("sqlstate"))
            await asyncio.sleep(wait_s)
            wait_s = min(RETRY_MAX_S, wait_s * 2)
