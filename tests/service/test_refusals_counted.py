"""The API counts its errors by method and name: so notifications that were refused, and Spaces that were not opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from appview.faces.xrpc import PREFIX
from appview.service import App
from memory.database import Database
from tests.api_client import NAMESPACE, Api
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_spaces import DELETED, WRITE
from tests.fakes.space_host_tokens import service_token
from tests.fakes.space_host_world import Account
from tests.granted import hold
from tests.opening import Door, doors
from tests.service_tokens import OWN_DID

OPEN = NAMESPACE + "openSpace"
HASH = {"$bytes": "L7pjnnnZt5TUuxHRlWbH/D+sYDlpT5dSciEZG3turJA"}


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with doors(database) as made:
        yield made


def registry_of(api: Api) -> CollectorRegistry:
    return cast("App", api.app).metrics.registry


def refused_by(api: Api, method: str) -> dict[str, float]:
    """Error → how often."""
    return {
        sample.labels["error"]: sample.value
        for family in registry_of(api).collect()
        for sample in family.samples
        if sample.name == "appview_refusals_total" and sample.labels["method"] == method
    }


def answered(api: Api, method: str, status: int) -> float | None:
    labels = {"method": method, "status": str(status)}
    return registry_of(api).get_sample_value("appview_answers_total", labels)


async def post(api: Api, method: str, token: str, body: Any) -> None:
    await api.send("POST", PREFIX + method, headers={"authorization": f"Bearer {token}"}, json=body)


async def test_spaces_that_are_not_opened_are_counted_by_why(door: Door):
    api = door.api

    async def ask(account: Account) -> None:
        given = {"space": str(door.space), "delegationToken": account.delegation(door.space)}
        await post(api, OPEN, door.service_auth("openSpace", account), given)

    await ask(door.mara)
    for _ in range(2):
        await ask(door.lukas)
    door.host.misbehave(Fault.BROKEN)
    await ask(door.mara)
    assert refused_by(api, OPEN) == {"UserNotAuthorized": 2, "SpaceHostUnavailable": 1}
    assert [answered(api, OPEN, status) for status in (200, 400, 503)] == [1, 2, 1]


async def test_notifications_are_counted_and_those_that_are_refused_by_why(door: Door):
    await hold(door.database, door.space)
    api = door.api

    async def tell(by: Account, method: str = WRITE, **changes: object) -> None:
        aud = f"{OWN_DID}#atproto_space_syncer"
        token = service_token(by.key, by.did, aud, WRITE, door.world.clock(), door.spaces.jti())
        told = {"space": str(door.space), "repo": door.mara.did, "rev": "3kaaaaaaaaa2a", "hash": HASH} | changes
        await post(api, method, token, told)

    await tell(door.noor)
    await tell(door.noor, rev="yesterday")
    await tell(door.lukas)
    await tell(door.noor, DELETED)
    assert answered(api, WRITE, 200) == 1
    assert refused_by(api, WRITE) == {
        "InvalidRequest": 1,
        "BadJwtSignature": 1,
    }  # who governs no Space is not looked up
    assert refused_by(api, DELETED) == {"BadJwtLexiconMethod": 1}


async def test_answer_that_is_no_error_is_no_refusal(door: Door):
    api = door.api
    await api.send("GET", PREFIX + "_health")
    assert refused_by(api, "_health") == {}
    await api.send("GET", PREFIX + "com.example.unheardOf")
    assert refused_by(api, "unknown") == {"MethodNotImplemented": 1}
