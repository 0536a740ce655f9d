"""The Python client opens Spaces and holds them open: at the real API, by delegation of a PDS, from a Space host."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

import memory_spaces
from memory.database import Database
from memory_client import AsyncMemoryClient, MemoryApiError, MemoryClient
from memory_spaces import OPENED_AGAIN_BEFORE, hold_open, hold_open_async, pds_delegation, pds_delegation_async
from tests.fakes.identities import INSTANT
from tests.fakes.space_host_faults import Fault
from tests.granted import HOUR, hold
from tests.memory_rows import ALICE, MemoryRows
from tests.opening import Door, doors

TWO_HOURS = timedelta(hours=2)


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with doors(database) as made:
        yield made


class App:
    """Mara's, with an access token, and a session at her PDS."""

    def __init__(self, door: Door, token: str | None) -> None:
        self.door = door
        self.delegate = pds_delegation_async(door.host.url, door.host.gate.open_session(door.mara.did))
        self.memories = AsyncMemoryClient("http://api.test", access_token=token, transport=Fresh(door))
        self.slept: list[float] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        if self.meanwhile is not None:
            await self.meanwhile()

    async def hold_open(self, **changes: Any) -> datetime:
        given: dict[str, Any] = {"now": self.door.world.clock, "sleep": self.sleep} | changes
        return await hold_open_async(self.memories, str(self.door.space), self.delegate, **given)

    async def contents(self) -> list[str]:
        page = await self.memories.list_records(space=str(self.door.space))
        return [record["value"]["content"] for record in page["records"]]

    @property
    def opened(self) -> int:
        return self.door.host.asked_for("getSpaceCredential")


class Fresh(httpx.AsyncBaseTransport):
    """To the API as it is at the time."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await httpx.ASGITransport(app=self._door.api.app).handle_async_request(request)


@pytest.fixture
async def app(door: Door) -> App:
    return App(door, await door.token())


async def put(door: Door) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "tea in the Space", space=str(door.space))
    await rows.write(door.database)


async def raised(asked: Awaitable[object]) -> MemoryApiError:
    with pytest.raises(MemoryApiError) as caught:
        await asked
    return caught.value


# Opened, listed, closed


async def test_space_is_opened_listed_and_closed(door: Door, app: App):
    space = str(door.space)
    made = await app.memories.open_space(space, await app.delegate(space))
    assert made == {"status": "syncing", "expiresAt": "2026-03-01T14:00:00.000000Z"}
    [grant] = await app.memories.list_grants()
    assert grant == {"space": space, "grantedAt": "2026-03-01T12:00:00.000000Z"} | made
    await app.memories.close_space(space)
    assert await app.memories.list_grants() == []


async def test_service_auth_is_given_an_access_token(door: Door, app: App):
    by_service_auth = App(door, door.service_auth("openSpace")).memories
    made = await by_service_auth.open_space(str(door.space), await app.delegate(str(door.space)))
    assert "accessToken" in made
    [grant] = await App(door, made["accessToken"]).memories.list_grants()
    assert grant["space"] == str(door.space)


async def test_refusals_keep_the_names_of_the_authority(door: Door, app: App):
    door.space.remove(door.mara)
    refusal = await raised(app.hold_open())
    assert (refusal.status, refusal.error) == (400, "UserNotAuthorized")


# Held open


async def test_space_is_opened_and_waited_for(door: Door, app: App):
    await put(door)

    async def synced() -> None:
        if len(app.slept) == 4:
            await hold(door.database, door.space)

    app.meanwhile = synced
    assert (await app.hold_open()).isoformat() == "2026-03-01T14:00:00+00:00"
    assert app.slept == [0.25, 0.5, 1.0, 2.0]
    assert await app.contents() == ["tea in the Space"]
    assert app.opened == 1


async def test_space_that_is_open_is_left_alone_until_it_ends_soon(door: Door, app: App):
    await hold(door.database, door.space)
    until = await app.hold_open()
    door.world.wait(TWO_HOURS - OPENED_AGAIN_BEFORE)
    assert await app.hold_open() == until
    assert app.opened == 1
    door.world.wait(INSTANT)
    assert await app.hold_open() > until
    assert app.opened == 2
    assert app.slept == []


async def test_space_that_has_ended_is_opened_again(door: Door, app: App):
    await hold(door.database, door.space)
    await app.hold_open()
    door.world.wait(3 * HOUR)
    assert await app.hold_open() > door.world.clock() + HOUR
    assert app.opened == 2


async def test_one_that_is_still_syncing_is_open_all_the_same(door: Door, app: App):
    with pytest.raises(TimeoutError):
        await app.hold_open(wait_s=9)
    assert app.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 1.25]
    with pytest.raises(TimeoutError):
        await app.hold_open(wait_s=0)
    await hold(door.database, door.space)
    await app.hold_open()
    assert app.opened == 1


async def test_one_that_is_closed_while_waited_for_is_told(door: Door, app: App):
    app.meanwhile = lambda: app.memories.close_space(str(door.space))
    assert (await raised(app.hold_open())).error == "SpaceNotReadable"


@pytest.mark.parametrize(("fault", "status"), [(Fault.OVERLOADED, 503), (Fault.BROKEN, 503), (Fault.GIBBERISH, 503)])
async def test_what_fails_for_the_moment_ends_nothing_that_is_open(door: Door, app: App, fault: Fault, status: int):
    await hold(door.database, door.space)
    until = await app.hold_open()
    door.host.misbehave(fault, "getSpaceCredential")
    door.world.wait(TWO_HOURS - timedelta(minutes=1))
    assert await app.hold_open() == until
    door.world.wait(timedelta(minutes=1))
    assert (await raised(app.hold_open())).status == status
    door.host.misbehave(None)


async def test_pds_that_is_away_ends_nothing_that_is_open(door: Door, app: App):
    await hold(door.database, door.space)
    until = await app.hold_open()
    app.delegate = pds_delegation_async("http://127.0.0.1:1", "x")
    door.world.wait(TWO_HOURS - timedelta(minutes=1))
    assert await app.hold_open() == until
    door.world.wait(timedelta(minutes=1))
    with pytest.raises(httpx.TransportError):
        await app.hold_open()


async def test_removed_member_is_told_as_soon_as_it_is_opened_again(door: Door, app: App):
    await hold(door.database, door.space)
    await app.hold_open()
    door.space.remove(door.mara)
    door.world.wait(TWO_HOURS - timedelta(minutes=1))
    assert (await raised(app.hold_open())).error == "UserNotAuthorized"


# The PDS


async def test_pds_that_does_not_delegate_is_told_by_its_name(door: Door):
    by_app_password = door.host.gate.open_session(door.mara.did, app_password=True)
    for access_jwt in (by_app_password, "nobody's"):
        refusal = await raised(pds_delegation_async(door.host.url, access_jwt)(str(door.space)))
        assert (refusal.status, refusal.error) == (400, "InvalidToken")
        assert access_jwt not in str(refusal)


@pytest.mark.parametrize("answer", [{"json": {}}, {"json": {"token": 5}}, {"text": "<html>"}])
def test_pds_that_says_something_else_gives_no_token(answer: dict[str, Any]):
    transport = httpx.MockTransport(lambda _: httpx.Response(200, **answer))
    with pytest.raises(MemoryApiError) as caught:
        pds_delegation("https://pds.test", "x", transport=transport)("at://did:plc:x/space/a.b.c/d")
    assert caught.value.error == "InvalidResponse"


def test_pds_is_asked_for_the_space_by_the_session():
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"token": "a.b.c"})

    delegate = pds_delegation("https://pds.test", "jwt", transport=httpx.MockTransport(answer))
    assert delegate("at://did:plc:x/space/a.b.c/d") == "a.b.c"
    [request] = asked
    assert request.url.path == "/xrpc/com.atproto.space.getDelegationToken"
    assert dict(request.url.params) == {"space": "at://did:plc:x/space/a.b.c/d"}
    assert request.headers["authorization"] == "Bearer jwt"


# One after the other


class Served:
    """Answers of an API that opens one Space, which is there at the second look."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.looks = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        method = request.url.path.rpartition(".")[2]
        self.asked.append(method)
        if method == "openSpace":
            return httpx.Response(200, json={"status": "syncing", "expiresAt": "2026-03-01T14:00:00Z"})
        self.looks += 1
        status = "ready" if self.looks > 2 else "syncing"
        grant = {"space": "s", "status": status, "grantedAt": "x", "expiresAt": "2026-03-01T14:00:00Z"}
        return httpx.Response(200, json={"grants": [] if self.looks == 1 else [grant]})


def test_one_after_the_other_holds_open_too():
    api, slept = Served(), list[float]()
    now = datetime.fromisoformat("2026-03-01T12:00:00Z")
    with MemoryClient("http://api.test", access_token="t", transport=httpx.MockTransport(api)) as memories:
        for _ in range(2):
            until = hold_open(memories, "s", lambda space: f"for {space}", now=lambda: now, sleep=slept.append)
            assert until == now + TWO_HOURS
    assert api.asked == ["listGrants", "openSpace", "listGrants", "listGrants", "listGrants"]
    assert slept == [0.25, 0.5]


@pytest.mark.parametrize("name", ["hold_open", "pds_delegation"])
def test_both_take_the_same(name: str):
    one, twin = (inspect.signature(getattr(memory_spaces, each)).parameters for each in (name, f"{name}_async"))
    assert list(one) == list(twin)
    assert [one[each].kind for each in one] == [twin[each].kind for each in twin]
