"""Why a Space is not opened: each reason by its name, and nothing left behind."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from memory.database import Database
from tests.api_client import Refused, refused
from tests.builders import SigningKey
from tests.exchanging import CLIENT_URL, attesting, published
from tests.fakes.identities import did_of
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_tokens import delegation_token
from tests.granted import HOUR, grant, hold, texts
from tests.opening import Door, doors
from tests.service_tokens import ALGORITHMS, claims, signed

TABLES = ("grants", "credentials", "access_tokens", "space_inbox")


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with doors(database) as made:
        yield made


async def left(door: Door) -> list[str]:
    """The tables in which something is left."""
    async with door.database.connection() as conn:
        return [table for table in TABLES if await conn.fetchval(f"select count(*) from {table}")]


async def is_refused(door: Door, error: str, *account: Any, status: int = 400, **asked: Any) -> Refused:
    answer = await door.refuse(*account, **asked)
    assert (answer.status, answer.error) == (status, error), answer
    assert await left(door) == []
    return answer


# Before anybody is asked


async def test_server_without_keys_opens_none(door: Door):
    door.configured = False
    await is_refused(door, "SpacesNotConfigured")
    assert door.host.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {"space": "at://did:plc:x/space/com.example.group"},
        {"space": "at://noor.example/space/com.example.group/main"},
        {"space": "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/main/"},
        {"space": "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/nonsense/main"},
        {"space": "ats://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/main"},
        {"space": ""},
        {"space": 5},
        {"space": None},
        {"space": ["at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/main"]},
        {"space": "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/" + "m" * 1200},
        {"delegationToken": ""},
        {"delegationToken": None},
        {"delegationToken": "x" * 4097},
        {"accessToken": "x"},
    ],
)
async def test_what_is_asked_wrongly_is_refused(door: Door, body: dict[str, Any]):
    given = {"space": str(door.space), "delegationToken": "x.y.z"} | body
    answer = refused(await door.send("openSpace", door.service_auth("openSpace"), given))
    assert (answer.status, answer.error) == (400, "InvalidRequest")
    assert next(iter(body)) in answer.message
    assert door.host.asked == []
    assert await left(door) == []


async def test_nobody_opens_a_space(door: Door):
    body = {"space": str(door.space), "delegationToken": door.mara.delegation(door.space)}
    answer = refused(await door.send("openSpace", None, body))
    assert (answer.status, answer.error) == (401, "AuthenticationRequired")
    forged = refused(await door.send("openSpace", "memat_x", body))
    assert (forged.status, forged.error) == (401, "InvalidToken")
    for credential in (
        door.service_auth("createAccessToken"),
        door.service_auth("openSpace", aud="did:web:other.example"),
        door.service_auth("openSpace", exp=int(door.world.clock().timestamp()) - 1),
        signed(
            SigningKey("lukas"), ALGORITHMS["k256"], claims(door.mara.did, door.world.clock(), lxm="openSpace")
        ).decode(),
    ):
        assert (await door.send("openSpace", credential, body)).status_code == 401
    assert door.host.asked == []
    assert await left(door) == []


async def test_service_auth_opens_once(door: Door):
    credential = door.service_auth("openSpace")
    body = {"space": str(door.space), "delegationToken": door.mara.delegation(door.space)}
    assert (await door.send("openSpace", credential, body)).status_code == 200
    again = {"space": str(door.space), "delegationToken": door.mara.delegation(door.space)}
    assert refused(await door.send("openSpace", credential, again)).error == "JwtReplayed"
    assert door.host.asked_for("getSpaceCredential") == 1


async def test_delegation_of_another_opens_nothing(door: Door):
    """Neither a member's in the hands of a stranger, nor a stranger's own for somebody else."""
    stolen = door.mara.delegation(door.space)
    await is_refused(door, "InvalidDelegationToken", door.lukas, delegationToken=stolen)
    assert door.host.asked == []
    await door.open(delegationToken=stolen)  # it was not used up


async def test_token_of_another_does_not_open_for_a_member(door: Door):
    token = await door.token(door.lukas)
    stolen = door.mara.delegation(door.space)
    answer = await door.refuse(token=token, delegationToken=stolen)
    assert answer.error == "InvalidDelegationToken"
    assert await left(door) == ["access_tokens"]


@pytest.mark.parametrize(
    "changes",
    [
        {"typ": "JWT"},
        {"typ": "atproto-space-credential+jwt"},
        {"typ": None},
        {"aud": "did:plc:other#atproto_space_host"},
        {"aud": None},
        {"sub": "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/other"},
        {"iss": did_of("lukas")},
        {"exp": 0},
        {"exp": None},
        {"exp": 2**40},
        {"jti": None},
    ],
)
async def test_delegation_that_is_another_is_refused_unasked(door: Door, changes: dict[str, Any]):
    await is_refused(door, "InvalidDelegationToken", delegationToken=door.mara.delegation(door.space, **changes))
    assert door.host.asked == []


async def test_delegation_for_another_space_opens_none(door: Door):
    second = door.host.create_space(door.noor, "second", door.mara)
    await is_refused(door, "InvalidDelegationToken", delegationToken=door.mara.delegation(second))
    assert door.host.asked == []


@pytest.mark.parametrize("text", ["x", "x.y.z", "e30.e30.AAAA", "🫖.🫖.🫖"])
async def test_what_is_no_token_is_refused_unasked(door: Door, text: str):
    await is_refused(door, "InvalidDelegationToken", delegationToken=text)
    assert door.host.asked == []


async def test_delegation_that_another_signed_is_refused_unasked(door: Door):
    forged = delegation_token(door.lukas.key, door.mara.did, str(door.space), door.world.clock(), "f00d")
    answer = await is_refused(door, "InvalidDelegationToken", delegationToken=forged)
    assert "not signed by the key" in answer.message
    assert door.host.asked == []


async def test_delegation_of_who_cannot_be_found_is_refused_unasked(door: Door):
    """Whoever signs in by an access token may have been given up meanwhile."""
    token = await grant(door.database, did_of("nobody"), now=door.world.clock())
    nobody = delegation_token(SigningKey("nobody"), did_of("nobody"), str(door.space), door.world.clock(), "f00d")
    body = {"space": str(door.space), "delegationToken": nobody}
    answer = refused(await door.send("openSpace", token.text, body))
    assert (answer.status, answer.error) == (400, "InvalidDelegationToken")
    assert door.host.asked == []


async def test_delegation_is_good_once(door: Door):
    used = door.mara.delegation(door.space)
    token = await door.token()
    await door.open(token=token, delegationToken=used)
    answer = await door.refuse(token=token, delegationToken=used)
    assert (answer.error, "JwtReplayed" in answer.message) == ("InvalidDelegationToken", True)


# What the authority says


async def test_stranger_is_not_let_in(door: Door):
    await is_refused(door, "UserNotAuthorized", door.lukas)


async def test_removed_member_is_let_in_no_more(door: Door):
    await hold(door.database, door.space)
    token = (await door.open())["accessToken"]
    door.space.remove(door.mara)
    assert (await door.refuse(token=token)).error == "UserNotAuthorized"
    assert await door.reads(token) is None  # for what is left of two hours
    door.world.wait(2 * HOUR)
    assert await door.reads(token) == "InvalidToken"


async def test_space_that_is_not_there_is_told(door: Door):
    await is_refused(door, "SpaceNotFound", space=str(door.space) + "x")


async def test_space_of_nobody_is_told(door: Door):
    did = did_of("nobody")
    await is_refused(door, "SpaceNotFound", space=f"at://{did}/space/com.example.group/main")
    assert door.host.asked == []


async def test_space_that_nobody_opened_and_is_deleted_leaves_nothing(door: Door):
    door.space.delete()
    await is_refused(door, "SpaceDeleted")


async def test_deleted_space_is_read_no_more_and_handed_over_to_be_purged(door: Door):
    await hold(door.database, door.space)
    token = (await door.open())["accessToken"]
    door.space.delete()
    assert (await door.refuse()).error == "SpaceDeleted"
    assert await door.reads(token) == "SpaceNotReadable"
    told = await texts(door.database, "select space || ' ' || kind from space_inbox")
    assert told == [f"{door.space} deleted", f"{door.space} opened"]


async def test_recreated_space_is_not_read_until_the_old_one_is_purged(door: Door):
    await hold(door.database, door.space)
    await door.open()
    door.space.delete()
    assert (await door.refuse()).error == "SpaceDeleted"
    door.host.governed.deleted.clear()
    door.host.create_space(door.noor, "main", door.lukas)
    made = await door.open(door.lukas)
    assert made["status"] == "syncing"
    assert await door.reads(made["accessToken"]) == "SpaceNotReadable"


async def test_app_that_is_not_let_in_is_told(door: Door):
    space = door.host.create_space(door.noor, "apps", door.mara, apps=["https://other.example/client-metadata.json"])
    await is_refused(door, "AppNotAuthorized", space=space)


async def test_authority_that_does_not_believe_us_is_told(door: Door, tmp_path: Path):
    door.client = attesting(tmp_path)
    door.spaces.clients[f"{CLIENT_URL}/client-metadata.json"] = published(6)
    space = door.host.create_space(door.noor, "apps", door.mara, apps=[f"{CLIENT_URL}/client-metadata.json"])
    answer = await door.refuse(space=space)
    assert answer.error in ("InvalidClientAttestation", "InvalidDelegationToken")


async def test_what_the_authority_calls_otherwise_is_told_by_that(door: Door):
    door.host.faults.refusal = (400, "TeaTime")
    door.host.misbehave(Fault.REFUSING, "getSpaceCredential")
    answer = await is_refused(door, "AuthorityRefused")
    assert "TeaTime" in answer.message


@pytest.mark.parametrize("fault", [Fault.BROKEN, Fault.OVERLOADED, Fault.BUSY, Fault.GIBBERISH, Fault.CUT, Fault.BOMB])
async def test_host_that_gives_no_answer_is_told(door: Door, fault: Fault):
    door.host.misbehave(fault, "getSpaceCredential")
    response = await door.ask_to_open()
    assert (response.status_code, refused(response).error) == (503, "SpaceHostUnavailable")
    assert int(response.headers["retry-after"]) > 0
    assert await left(door) == []


@pytest.mark.parametrize(
    "tampered",
    [
        {"iss": did_of("lukas")},
        {"sub": "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/other"},
        {"cnf": {"jkt": "x"}},
        {"cnf": None},
        {"exp": 0},
        {"typ": "JWT"},
        {"kid": "#atproto_label"},
    ],
)
async def test_credential_that_is_not_for_it_opens_nothing(door: Door, tampered: dict[str, Any]):
    door.host.tamper_credentials(**tampered)
    await is_refused(door, "SpaceHostUnavailable", status=503)


async def test_credential_that_another_signed_opens_nothing(door: Door):
    door.host.tamper_credentials(signer=door.lukas)
    await is_refused(door, "SpaceHostUnavailable", status=503)


# What is told to whom


async def test_same_is_said_of_every_space_that_may_not_be_read(door: Door):
    """Unknown, opened and not held, expired, another's: one answer, but for its id and the time."""
    database = door.database
    unknown, syncing, expired, foreign = (f"{door.space}{each}" for each in range(4))
    now = door.world.clock()
    token = await grant(database, door.mara.did, syncing, now=now)
    await grant(database, door.mara.did, expired, now=now - 2 * HOUR, token=token)
    await grant(database, door.lukas.did, foreign, now=now)
    await hold(database, expired, foreign)
    await hold(database, syncing, fresh=False)
    answers = [
        await door.send("listRecords", token.text, space=space) for space in (unknown, syncing, expired, foreign)
    ]
    headers = [{name: value for name, value in answer.headers.items() if name != "request-id"} for answer in answers]
    assert {answer.status_code for answer in answers} == {400}
    assert len({answer.content for answer in answers}) == 1
    assert headers == headers[:1] * 4
    assert refused(answers[0]).error == "SpaceNotReadable"
