"""Spaces are opened by whom their authorities let, for one access token, and for so long."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from appview.access import Viewer
from appview.call import Call, Resources, Turns
from appview.page_cursor import PageCursors
from appview.parameters import decode_query
from appview.rates import Rates
from appview.routes.records import stream_records
from appview.store.access import MAX_ACCESS_TOKENS
from appview.store.stats import RecentTotals
from appview.tokens import parse_access_token
from memory.database import Database
from memory.space import ReadableSpaces
from memory.space_credential import open_credential
from memory.tasks import TaskGroup
from tests.api_client import CATALOGUE, NAMESPACE, refused
from tests.exchanging import CLIENT_URL, attesting, published
from tests.fakes.identities import INSTANT
from tests.fakes.space_host_faults import Fault
from tests.granted import HOUR, hold, texts
from tests.memory_rows import ALICE, MemoryRows
from tests.opening import Door, doors


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with doors(database) as made:
        yield made


async def count(door: Door, *tables: str) -> list[int]:
    async with door.database.connection() as conn:
        return [await conn.fetchval(f"select count(*) from {table}") for table in tables]


# What opens


async def test_member_opens_a_space_and_reads_it_once_it_is_held(door: Door, database: Database):
    made = await door.open()
    assert made["status"] == "syncing"
    assert made["expiresAt"] == "2026-03-01T14:00:00.000000Z"
    assert await door.reads(made["accessToken"]) == "SpaceNotReadable"
    await hold(database, door.space)
    assert await door.reads(made["accessToken"]) is None
    assert (await door.open())["status"] == "ready"


async def test_what_is_in_the_space_is_read_by_its_token_only(door: Door, database: Database):
    rows = MemoryRows()
    rows.put(ALICE, "tea in public")
    rows.put(ALICE, "tea in the Space", space=str(door.space))
    await rows.write(database)
    await hold(database, door.space)
    opened, other = (await door.open())["accessToken"], await door.token()

    async def read(credential: str | None) -> list[str]:
        answer = (await door.send("listRecords", credential)).json()
        return sorted(record["value"]["content"] for record in answer["records"])

    assert await read(opened) == ["tea in public", "tea in the Space"]
    for credential in (other, door.service_auth("listRecords"), None):
        assert await read(credential) == ["tea in public"]


async def test_space_is_ready_once_all_of_it_was_fetched(door: Door, database: Database):
    """Until then what is there already may be read."""
    await hold(database, door.space, state="syncing")
    token = (await door.open())["accessToken"]
    assert (await door.open(token=token))["status"] == "syncing"
    assert await door.grants(token) == [(str(door.space), "syncing")]
    assert await door.reads(token) is None
    await hold(database, door.space)
    assert await door.grants(token) == [(str(door.space), "ready")]


async def test_space_is_added_to_the_token_that_asks(door: Door, database: Database):
    token = await door.token()
    second = door.host.create_space(door.noor, "second", door.mara)
    for space in (door.space, second):
        made = await door.open(token=token, space=space)
        assert "accessToken" not in made
        assert made["expiresAt"] == "2026-03-01T14:00:00.000000Z"
    assert await door.grants(token) == [(str(door.space), "syncing"), (str(second), "syncing")]
    await hold(database, second)
    assert await door.grants(token) == [(str(door.space), "syncing"), (str(second), "ready")]


async def test_token_that_was_made_ends_with_its_grant(door: Door, database: Database):
    await hold(database, door.space)
    token = (await door.open())["accessToken"]
    door.world.wait(2 * HOUR - INSTANT)
    assert await door.reads(token) is None
    door.world.wait(INSTANT)
    assert await door.reads(token) == "InvalidToken"


async def test_grant_ends_while_its_token_goes_on(door: Door, database: Database):
    await hold(database, door.space)
    token = await door.token()
    await door.open(token=token)
    door.world.wait(2 * HOUR)
    assert await door.reads(token) == "SpaceNotReadable"
    assert await door.grants(token) == []
    assert (await door.send("listRecords", token)).status_code == 200
    await door.open(token=token)
    assert await door.reads(token) is None


async def test_grant_lasts_no_longer_than_its_token(door: Door):
    token = (await door.open())["accessToken"]
    door.world.wait(HOUR)
    assert (await door.open(token=token))["expiresAt"] == "2026-03-01T14:00:00.000000Z"


async def test_grant_lasts_no_longer_than_its_credential(door: Door):
    door.host.tamper_credentials(exp=int((door.world.clock() + HOUR / 2).timestamp()))
    assert (await door.open())["expiresAt"] == "2026-03-01T12:30:00.000000Z"


async def test_grant_lasts_two_hours_whatever_the_authority_says(door: Door):
    door.host.tamper_credentials(exp=int((door.world.clock() + HOUR * 24).timestamp()))
    assert (await door.open())["expiresAt"] == "2026-03-01T14:00:00.000000Z"


async def test_credential_is_kept_sealed_for_this_space_and_viewer(door: Door, database: Database):
    await door.open()
    async with database.connection() as conn:
        [kept] = await conn.fetch("select * from credentials")
        [whole] = await conn.fetch("select credentials::text from credentials")
    assert (kept["repo"], kept["space"], kept["key_id"]) == (door.mara.did, str(door.space), "first")
    credential = open_credential(door.keys, kept["sealed"], space=str(door.space), viewer=door.mara.did)
    assert credential.text.encode() not in kept["sealed"]
    assert credential.text[:20] not in whole[0]
    url = f"{door.host.url}/xrpc/com.atproto.space.listRepos?space={door.space}"
    headers = credential.headers("GET", url, now=door.world.clock(), random_bytes=door.draw.randbytes)
    assert await door.world.outbound.get(url, headers=headers)


async def test_no_table_shows_a_secret(door: Door, database: Database):
    """As in a dump: neither in clear nor as the digits that bytes are written in."""
    delegation, service_auth = door.mara.delegation(door.space), door.service_auth("openSpace")
    body = {"space": str(door.space), "delegationToken": delegation}
    made = (await door.send("openSpace", service_auth, body)).json()["accessToken"]
    await door.send("listGrants", made)
    async with database.connection() as conn:
        sealed = await conn.fetchval("select sealed from credentials")
        tables = await conn.fetch("select tablename from pg_tables where schemaname = 'public'")
        rows = [row[0] for [name] in tables for row in await conn.fetch(f"select t::text from {name} t")]
    credential = open_credential(door.keys, sealed, space=str(door.space), viewer=door.mara.did)
    key = credential.key.to_bytes()
    dump = "\n".join(rows)
    assert door.mara.did in dump
    for secret in (delegation.encode(), service_auth.encode(), made.encode(), credential.text.encode(), key):
        for part in (secret[-24:], secret[len(secret) // 2 :][:24]):
            assert part.hex() not in dump
            assert part.decode("latin-1") not in dump


async def test_indexer_is_told_that_a_space_was_opened(door: Door, database: Database):
    await door.open()
    await door.open()
    [row] = await texts(database, "select repo || ' ' || space || ' ' || kind || author from space_inbox")
    assert row == f"{door.noor.did} {door.space} opened"


async def test_space_that_asks_who_we_are_is_told(door: Door, tmp_path: Path):
    door.client = attesting(tmp_path)
    door.spaces.clients[f"{CLIENT_URL}/client-metadata.json"] = published(5)
    space = door.host.create_space(door.noor, "apps", door.mara, apps=[f"{CLIENT_URL}/client-metadata.json"])
    await door.open(space=space)


async def test_answer_is_for_nobody_else(door: Door):
    response = await door.ask_to_open()
    assert response.headers["cache-control"] == "private, no-store"
    assert "Authorization" in response.headers["vary"]
    listed = await door.send("listGrants", response.json()["accessToken"])
    assert listed.headers["cache-control"] == "private, no-store"
    assert "Authorization" in listed.headers["vary"]
    assert "content-encoding" not in listed.headers


# What ends it


async def test_closed_space_is_read_no_more(door: Door, database: Database):
    await hold(database, door.space)
    first, second = await door.token(), await door.token()
    for token in (first, second):
        await door.open(token=token)
    closing = {"space": str(door.space)}
    for _ in range(2):
        closed = await door.send("closeSpace", first, closing)
        assert (closed.status_code, closed.content) == (200, b"{}")
    assert await door.reads(first) == "SpaceNotReadable"
    assert await door.reads(second) is None
    assert (await door.send("closeSpace", door.service_auth("closeSpace"), closing)).content == b"{}"
    assert await door.reads(second) == "SpaceNotReadable"
    assert await count(door, "grants", "credentials") == [0, 0]


async def test_nobody_closes_a_space_of_others(door: Door, database: Database):
    await hold(database, door.space)
    token = (await door.open())["accessToken"]
    closing = {"space": str(door.space)}
    for credential in (await door.token(), await door.token(door.lukas), door.service_auth("closeSpace", door.lukas)):
        assert (await door.send("closeSpace", credential, closing)).content == b"{}"
    assert await door.reads(token) is None
    assert refused(await door.send("closeSpace", None, closing)).error == "AuthenticationRequired"


async def test_revoked_token_takes_its_grants_and_credentials_along(door: Door):
    await door.open()
    await door.open()
    credential = door.service_auth("listAccessTokens")
    tokens = (await door.send("listAccessTokens", credential)).json()["tokens"]
    assert [token["name"] for token in tokens] == ["openSpace", "openSpace"]
    revoke = {"id": tokens[0]["id"]}
    assert (await door.send("revokeAccessToken", door.service_auth("revokeAccessToken"), revoke)).status_code == 200
    assert await count(door, "access_tokens", "grants", "credentials") == [1, 1, 1]


async def test_viewer_whose_account_is_not_active_reads_nothing_private(door: Door, database: Database):
    await hold(database, door.space)
    token = (await door.open())["accessToken"]
    rows = MemoryRows()
    rows.repo(door.mara.did, visible=False, status="deactivated", status_changed_at=door.world.clock())
    await rows.write(database)
    assert await door.reads(token) == "SpaceNotReadable"
    assert (await door.send("listRecords", token)).status_code == 200


@pytest.mark.parametrize("ended_by", ["closing", "time", "revocation", "the account", "staleness"])
async def test_stream_ends_when_a_space_may_be_read_no_more(door: Door, database: Database, ended_by: str):
    rows = MemoryRows()
    for number in range(250):
        rows.put(ALICE, f"tea {number}", space=str(door.space))
    await rows.write(database)
    await hold(database, door.space)
    token = parse_access_token((await door.open())["accessToken"])
    assert token is not None
    viewer = Viewer("ada", ReadableSpaces(frozenset({str(door.space)})), token.did, token.id)
    turns = Turns(at_once=1, waiting=1)
    resources = Resources(
        database, PageCursors(b"k" * 32), door.world.clock, turns, RecentTotals(database, lambda: 0.0)
    )
    nsid = f"{NAMESPACE}listRecords"
    lines = stream_records(Call(nsid, viewer, decode_query(CATALOGUE.methods[nsid], b""), resources))
    assert (await anext(lines)).count(b"tea") == 100
    match ended_by:
        case "closing":
            await door.send("closeSpace", token.text, {"space": str(door.space)})
        case "time":
            door.world.wait(2 * HOUR)
        case "revocation":
            revoking = door.service_auth("revokeAccessToken")
            assert (await door.send("revokeAccessToken", revoking, {"id": token.id})).status_code == 200
        case "the account":
            rows.repo(door.mara.did, visible=False, status="deactivated", status_changed_at=door.world.clock())
            await rows.write(database)
        case _:
            await hold(database, door.space, fresh=False)
    said = [json.loads(line) async for piece in lines for line in piece.splitlines()]
    assert [line["error"] for line in said] == ["SpaceNotReadable"]


# Who lists


async def test_grants_are_told_to_their_own_token_only(door: Door):
    token = (await door.open())["accessToken"]
    assert await door.grants(token) == [(str(door.space), "syncing")]
    assert await door.grants(await door.token()) == []
    answer = refused(await door.send("listGrants", door.service_auth("listGrants")))
    assert (answer.status, answer.error) == (403, "AccessTokenRequired")
    nobody = refused(await door.send("listGrants", None))
    assert (nobody.status, nobody.error) == (401, "AuthenticationRequired")


# Bounds


async def test_viewer_opens_so_many_spaces_in_a_while(door: Door):
    """Wherever they are."""
    door.viewers = Rates(limit=2, clock=door.world.clock)
    spaces = [door.space]
    for number in range(2):
        away = await door.spaces.host()
        spaces.append(away.create_space(away.add(f"governs {number}"), "main", door.mara))
    await door.open()
    await door.open(space=spaces[1])
    response = await door.ask_to_open(space=spaces[2])
    assert (response.status_code, refused(response).error) == (429, "RateLimitExceeded")
    assert int(response.headers["retry-after"]) > 0
    assert [host.asked_for("getSpaceCredential") for host in door.spaces.hosts] == [1, 1, 0]
    assert (await door.refuse(door.lukas)).error == "UserNotAuthorized"
    door.world.wait(timedelta(minutes=5))
    await door.open(space=spaces[2])


async def test_nobody_has_more_tokens_for_opening_spaces(door: Door):
    token = await door.token()
    async with door.database.connection() as conn:
        await conn.execute(
            "insert into access_tokens select $1, i::text, '', 'x', now(), 'infinity' from generate_series(2, $2) i",
            door.mara.did,
            MAX_ACCESS_TOKENS,
        )
    assert (await door.refuse()).error == "TooManyAccessTokens"
    assert await count(door, "grants", "credentials", "space_inbox") == [0, 0, 0]
    await door.open(token=token)


async def test_token_that_is_revoked_meanwhile_is_granted_nothing(door: Door):
    token = await door.token()
    door.host.misbehave(Fault.SLOW, "getSpaceCredential")
    async with TaskGroup() as group:
        opening = group.create_task(door.refuse(token=token))
        await door.host.until_asked("getSpaceCredential")
        async with door.database.connection() as conn:
            await conn.execute("delete from access_tokens")
        door.host.faults.release.set()
    assert (await opening).error == "InvalidToken"
    assert await count(door, "grants", "credentials", "space_inbox") == [0, 0, 0]
