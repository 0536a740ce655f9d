"""Authorities tell what happens in their Spaces: it is put down and answered at once, whoever else may say it not."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from appview.access import Access
from appview.faces.xrpc import PREFIX
from appview.issuers import Issuers, LookUpBudget
from memory.database import Database
from tests.api_client import Api, Refused, refused
from tests.builders import memory
from tests.fakes.identities import INSTANT, did_of, world_at
from tests.fakes.space_host_spaces import DELETED, WRITE
from tests.fakes.space_host_tokens import made_token, read_token, service_token
from tests.fakes.space_host_world import Account
from tests.granted import hold
from tests.opening import Door, doors
from tests.service.test_doctor_serving import served
from tests.service_tokens import OWN_DID
from tests.space_replay import CORE, exchanges

SYNCER = f"{OWN_DID}#atproto_space_syncer"
REV = "3kaaaaaaaaa2a"
HASH = {"$bytes": "L7pjnnnZt5TUuxHRlWbH/D+sYDlpT5dSciEZG3turJA"}


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with doors(database) as made:
        await hold(database, made.space)
        yield made


async def inbox(database: Database) -> list[tuple[object, ...]]:
    async with database.connection() as conn:
        rows = await conn.fetch("select space, kind, author, rev, hash from space_inbox order by kind, author")
    return [tuple(row) for row in rows]


def notice(door: Door, **changes: Any) -> dict[str, Any]:
    body = {"space": str(door.space), "repo": door.mara.did, "rev": REV, "hash": HASH}
    return {name: value for name, value in (body | changes).items() if value is not None}


def auth(door: Door, by: Account | None = None, *, method: str = WRITE, aud: str = SYNCER) -> str:
    by = by or door.noor
    return service_token(by.key, by.did, aud, method, door.world.clock(), door.spaces.jti())


async def tell(
    door: Door, body: Any, *, token: str | None = None, method: str = WRITE, api: Api | None = None
) -> httpx.Response:
    token = token or auth(door, method=method)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await (api or door.api).send("POST", PREFIX + method, headers=headers, content=content)


async def is_refused(door: Door, status: int, error: str, body: Any = None, **told: Any) -> Refused:
    answer = refused(await tell(door, notice(door) if body is None else body, **told))
    assert (answer.status, answer.error) == (status, error), answer
    assert await inbox(door.database) == []
    return answer


# From a Space's host, over the network


@asynccontextmanager
async def listening(door: Door) -> AsyncGenerator[None]:
    """The API where the host calls it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door.spaces.services[SYNCER] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with served(door.api.app, listener):
            door.space.subscribers[SYNCER] = door.world.clock() + timedelta(days=1)
            yield


async def test_host_tells_of_writes_and_of_the_end(door: Door, database: Database):
    async with listening(door):
        first = door.mara.create(door.space, REV, memory("Likes green tea."))
        rev = door.mara.update(door.space, REV, memory("Likes black tea."))
        door.noor.create(door.space, REV, memory("Likes coffee."))
        await door.host.told()
        told = await inbox(database)
        assert first < rev
        assert [(kind, author) for _, kind, author, _, _ in told] == [
            ("written", author) for author in sorted((door.mara.did, door.noor.did))
        ]
        repo = door.mara.repo(door.space)
        assert (str(door.space), "written", door.mara.did, rev, repo.digest) in told
        door.space.delete()
        await door.host.told()
        assert (str(door.space), "deleted", "", None, None) in await inbox(database)
    assert [delivery.status for delivery in door.host.bell.deliveries] == [200] * 4


async def test_false_word_is_a_hint_like_any(door: Door, database: Database):
    async with listening(door):
        door.space.say(door.mara, "3aaaaaaaaaaaa", bytes(32))
        await door.host.told()
    assert await inbox(database) == [(str(door.space), "written", door.mara.did, "3aaaaaaaaaaaa", bytes(32))]


async def test_answer_is_empty_and_nobodys_to_keep(door: Door):
    response = await tell(door, notice(door))
    assert (response.status_code, response.content) == (200, b"{}")
    assert response.headers["cache-control"] == "private, no-store"
    assert "atproto-repo-rev" not in response.headers


async def test_what_was_recorded_of_the_reference_is_taken(database: Database):
    """Every call that it made, by the keys that it had, when it did."""
    accounts = {each["did"]: each for each in json.loads((CORE / "accounts.json").read_text()).values()}
    calls = [
        exchange
        for recording in ("main", "more")
        for exchange in exchanges(recording)
        if exchange.raw.get("inbound") and exchange.nsid.startswith("com.atproto.space.")
    ]
    assert {call.nsid for call in calls} == {WRITE, DELETED}
    taken = 0
    async with world_at(database) as world:
        world.fake.documents |= {did: account["didDoc"] for did, account in accounts.items()}
        for call in calls:
            token = read_token(call.request["headers"]["authorization"].partition(" ")[2])
            if token.says("iss") not in accounts:
                continue
            taken += 1
            await hold(database, call.body["space"])
            world.clock.now = datetime.fromtimestamp(token.seconds("iat"), UTC)
            own_did, _, fragment = token.says("aud").partition("#")
            assert fragment == "atproto_space_syncer"
            access = Access(
                database, Issuers(world.resolver, LookUpBudget(lambda: 0.0)), own_did=own_did, clock=world.clock
            )
            api = Api(database, now=world.clock(), access=access)
            response = await api.send(
                "POST", PREFIX + call.nsid, headers=dict(call.request["headers"]), content=json.dumps(call.body)
            )
            assert (response.status_code, response.content) == (200, b"{}"), call.n
    assert taken > 5
    assert {kind for _, kind, *_ in await inbox(database)} == {"written", "deleted"}


# Who may not


async def test_nobody_tells(door: Door):
    response = await door.api.send("POST", PREFIX + WRITE, json=notice(door))
    assert refused(response) == Refused(401, "AuthenticationRequired", refused(response).message)
    assert (await door.api.send("GET", PREFIX + WRITE)).status_code == 405
    assert await inbox(door.database) == []


async def test_access_token_is_no_authoritys(door: Door):
    await is_refused(door, 403, "ServiceAuthRequired", token=await door.token(door.noor))


@pytest.mark.parametrize("aud", [OWN_DID, f"{OWN_DID}#memory_appview", f"{OWN_DID}#", "did:web:other.example"])
async def test_call_for_another_is_refused(door: Door, aud: str):
    await is_refused(door, 401, "BadJwtAudience", token=auth(door, aud=aud))


async def test_call_for_another_method_is_refused(door: Door):
    await is_refused(door, 401, "BadJwtLexiconMethod", token=auth(door, method=DELETED))
    await is_refused(door, 401, "BadJwtLexiconMethod", token=auth(door), method=DELETED)


async def test_call_that_has_expired_is_refused(door: Door):
    token = auth(door)
    door.world.wait(timedelta(minutes=1))
    await is_refused(door, 401, "JwtExpired", token=token)


async def test_call_lasts_as_long_as_service_auth_does(door: Door):
    """The reference gives them a minute; an authority of its own may give an hour, and no more."""
    for lasts, status in ((60, 200), (3600, 200), (3601, 401)):
        told = read_token(auth(door))
        token = made_token(door.noor.key, told.header, {**told.claims, "exp": told.seconds("iat") + lasts})
        assert (await tell(door, notice(door), token=token)).status_code == status


async def test_call_of_a_stranger_is_refused_unasked_and_as_a_forged_one(door: Door):
    """Which Spaces are opened here is no stranger's matter, and nobody is looked up for them."""
    stranger = await is_refused(door, 401, "BadJwtSignature", token=auth(door, door.lukas))
    asked = len(door.world.fake.asked)
    assert asked == 0
    forged = service_token(door.lukas.key, door.noor.did, SYNCER, WRITE, door.world.clock(), "f00d")
    assert await is_refused(door, 401, "BadJwtSignature", token=forged) == stranger
    assert len(door.world.fake.asked) > asked


async def test_authority_that_cannot_be_found_is_refused_alike(door: Door):
    stranger = await is_refused(door, 401, "BadJwtSignature", token=auth(door, door.lukas))
    del door.world.fake.documents[door.noor.did]
    assert await is_refused(door, 401, "BadJwtSignature") == stranger


async def test_authority_tells_of_its_own_spaces_only(door: Door):
    other = door.host.create_space(door.lukas, "main", door.mara)
    await hold(door.database, other)
    await is_refused(door, 403, "Forbidden", notice(door, space=str(other)))
    await is_refused(door, 403, "Forbidden", {"space": str(other)}, method=DELETED)


async def test_of_a_space_that_nobody_opened_nothing_is_kept(door: Door):
    response = await tell(door, notice(door, space=f"{door.space}x"))
    assert (response.status_code, response.content) == (200, b"{}")
    assert await inbox(door.database) == []


@pytest.mark.parametrize("method", [WRITE, DELETED])
async def test_call_is_good_once(door: Door, method: str):
    token = auth(door, method=method)
    assert (await tell(door, notice(door), token=token, method=method)).status_code == 200
    async with door.database.connection() as conn:
        await conn.execute("delete from space_inbox")
    await is_refused(door, 401, "JwtReplayed", token=token, method=method)


async def test_call_without_a_name_is_refused(door: Door):
    noor = door.noor
    token = service_token(noor.key, noor.did, SYNCER, WRITE, door.world.clock(), None)  # type: ignore[arg-type]
    await is_refused(door, 401, "BadJwt", token=token)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"space": None}, "space"),
        ({"space": 5}, "space"),
        ({"space": "x"}, "space"),
        ({"space": "at://noor.example/space/com.example.group/main"}, "space"),
        ({"space": "at://" + "x" * 2000}, "space"),
        ({"repo": None}, "repo"),
        ({"repo": "mara.example"}, "repo"),
        ({"repo": "did:example:x"}, "repo"),
        ({"repo": "did:web:" + "x" * 300}, "repo"),
        ({"repo": [did_of("mara")]}, "repo"),
        ({"rev": None}, "rev"),
        ({"rev": 5}, "rev"),
        ({"rev": "later"}, "rev"),
        ({"hash": None}, "hash"),
        ({"hash": HASH["$bytes"]}, "hash"),
        ({"hash": {"$bytes": 5}}, "hash"),
        ({"hash": {"$bytes": "AAAA"}}, "hash"),
        ({"hash": {"$bytes": HASH["$bytes"] + "AA"}}, "hash"),
        ({"hash": {"$bytes": "🫖" * 11}}, "hash"),
        ({"hash": {}}, "hash"),
    ],
)
async def test_field_that_is_wrong_is_refused_by_name(door: Door, changes: dict[str, Any], named: str):
    answer = await is_refused(door, 400, "InvalidRequest", notice(door, **changes))
    assert f"field {named} " in answer.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"null", b"\xff", b"[" * 100_000])
async def test_body_that_is_no_object_is_refused(door: Door, body: bytes):
    await is_refused(door, 400, "InvalidRequest", body)


async def test_body_is_bounded(door: Door):
    await is_refused(door, 413, "PayloadTooLarge", notice(door, more="x" * 200_000))


async def test_what_the_draft_may_gain_is_passed_over(door: Door):
    padded = {"$bytes": HASH["$bytes"] + "="}
    assert (await tell(door, notice(door, hash=padded, since="x"))).status_code == 200
    assert len(await inbox(door.database)) == 1


async def test_key_that_was_changed_is_noticed(door: Door):
    assert (await tell(door, notice(door))).status_code == 200
    door.noor.rotate_key("another")
    door.world.wait(timedelta(minutes=10) + INSTANT)
    assert (await tell(door, notice(door))).status_code == 200


async def test_viewers_and_authorities_have_no_use_for_each_others_tokens(door: Door):
    """The same account may be both."""
    await door.open(door.noor)
    body = {"space": str(door.space), "delegationToken": door.noor.delegation(door.space)}
    answer = refused(await door.send("openSpace", auth(door, method="dev.bastienrobert.memory.openSpace"), body))
    assert answer.error == "BadJwtAudience"
