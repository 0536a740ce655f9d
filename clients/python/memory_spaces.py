"""Keeps permissioned Spaces open for the client of the read API. Goes with `memory_client.py`.

    delegate = pds_delegation("https://pds.example", access_jwt)
    with MemoryClient("https://memory.example", access_token=token) as memories:
        hold_open(memories, space, delegate)  # before each piece of work: asks only for what is missing
        page = memories.search_records("green tea", space=space)

`hold_open_async` and `pds_delegation_async` are the same for `AsyncMemoryClient`. Whoever signs in by OAuth asks the
PDS by a client of its own, and gives a function of that instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from memory_answers import Grant, MemoryApiError, OpenedSpace, read_answer
from memory_client import AsyncMemoryClient, MemoryClient

Delegate = Callable[[str], str]
"""Gives a new delegation token for a Space, which is good once and for a minute; raises what speaks against it."""

AsyncDelegate = Callable[[str], Awaitable[str]]

OPENED_AGAIN_BEFORE: Final = timedelta(minutes=10)
WAIT_S: Final = 60.0

_FOR_NOW: Final = (429, 503)
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0


def hold_open(
    memories: MemoryClient,
    space: str,
    delegate: Delegate,
    *,
    wait_s: float = WAIT_S,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], object] = time.sleep,
) -> datetime:
    """Open a Space unless it stays open for ten minutes, and wait until its memories are there. Until when it is open.

    `delegate` is called where it has to be opened, once. While it is open still, what fails for the moment only (429,
    503, no connection) is left for the next call. Raises MemoryApiError by the name of why the Space is not opened, or
    why the PDS does not delegate, and TimeoutError if it is open but still syncing after `wait_s`: just call again.
    """
    grant = _of(space, memories.list_grants())
    if grant is None or _ends_soon(grant, now()):
        try:
            grant = memories.open_space(space, delegate(space))
        except (MemoryApiError, httpx.TransportError) as failure:
            grant = _goes_on(grant, failure)
    for pause_s in _pauses(wait_s):
        if grant["status"] == "ready":
            return _end(grant)
        sleep(pause_s)
        grant = _still(_of(space, memories.list_grants()))
    return _end_if_ready(grant, wait_s)


async def hold_open_async(
    memories: AsyncMemoryClient,
    space: str,
    delegate: AsyncDelegate,
    *,
    wait_s: float = WAIT_S,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> datetime:
    """The same for asyncio. Others may be held open meanwhile."""
    grant = _of(space, await memories.list_grants())
    if grant is None or _ends_soon(grant, now()):
        try:
            grant = await memories.open_space(space, await delegate(space))
        except (MemoryApiError, httpx.TransportError) as failure:
            grant = _goes_on(grant, failure)
    for pause_s in _pauses(wait_s):
        if grant["status"] == "ready":
            return _end(grant)
        await sleep(pause_s)
        grant = _still(_of(space, await memories.list_grants()))
    return _end_if_ready(grant, wait_s)


def pds_delegation(url: str, access_jwt: str, *, transport: httpx.BaseTransport | None = None) -> Delegate:
    """Has the viewer's PDS delegate, with the `accessJwt` of a session by their main password."""

    def delegate(space: str) -> str:
        with httpx.Client(transport=transport, timeout=30) as pds:
            return _token(pds.get(**_asked(url, access_jwt, space)))

    return delegate


def pds_delegation_async(
    url: str, access_jwt: str, *, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncDelegate:
    """The same for asyncio."""

    async def delegate(space: str) -> str:
        async with httpx.AsyncClient(transport=transport, timeout=30) as pds:
            return _token(await pds.get(**_asked(url, access_jwt, space)))

    return delegate


def _asked(url: str, access_jwt: str, space: str) -> dict[str, Any]:
    return {
        "url": f"{url}/xrpc/com.atproto.space.getDelegationToken",
        "params": {"space": space},
        "headers": {"Authorization": f"Bearer {access_jwt}"},
    }


def _token(response: httpx.Response) -> str:
    token = read_answer(response).get("token")
    if not isinstance(token, str):
        raise MemoryApiError(response.status_code, "InvalidResponse", "The PDS answers without a token.")
    return token


def _of(space: str, grants: list[Grant]) -> Grant | None:
    return next((grant for grant in grants if grant["space"] == space), None)


def _end(grant: Grant | OpenedSpace) -> datetime:
    return datetime.fromisoformat(grant["expiresAt"])


def _ends_soon(grant: Grant, now: datetime) -> bool:
    return _end(grant) - now < OPENED_AGAIN_BEFORE


def _goes_on(grant: Grant | None, failure: MemoryApiError | httpx.TransportError) -> Grant:
    """The grant that there still is, if what failed may go well the next time; raises the failure."""
    if grant is None or (isinstance(failure, MemoryApiError) and failure.status not in _FOR_NOW):
        raise failure
    return grant


def _still(grant: Grant | None) -> Grant:
    if grant is None:
        raise MemoryApiError(400, "SpaceNotReadable", "The Space was closed meanwhile.")
    return grant


def _pauses(wait_s: float) -> Iterator[float]:
    pause_s = _FIRST_PAUSE_S
    while wait_s > 0:
        yield min(pause_s, wait_s)
        wait_s -= pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _end_if_ready(grant: Grant | OpenedSpace, wait_s: float) -> datetime:
    if grant["status"] != "ready":
        raise TimeoutError(f"The Space is open, but not there after {wait_s:g} seconds.")
    return _end(grant)
