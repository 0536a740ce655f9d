"""Waiting for what shows in the database, with a deadline and no more patience than that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 180.0  # of what comes within a second, unless the machine has much else to do
POLL_S = 0.02

_Result = TypeVar("_Result")


async def until(ask: Callable[[], Awaitable[_Result]], holds: Callable[[_Result], bool] = bool) -> _Result:
    """The first answer of `ask` for which `holds`; TimeoutError tells the last that did not."""
    answer: _Result | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not holds(answer := await ask()):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)  # the database tells nobody of a change
    except TimeoutError:
        raise TimeoutError(f"the last answer was {answer!r}") from None
    return answer
