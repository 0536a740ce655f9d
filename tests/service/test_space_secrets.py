"""A dump of the database, its files, and all that is logged show none of the secrets by which Spaces are read.

The whole flow, by real processes: access tokens, Spaces opened with delegation tokens (one with a client attestation),
synced, told of by their authority, refused, badly answered, sealed by another key, closed and deleted. Every secret of
it is collected on the way; then everything is searched.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from memory.cluster import Cluster
from memory.database import Database
from memory.es256 import Es256Key, base64url
from memory.sealed import SealingKeys
from tests.builders import memory
from tests.deadline import until
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_spaces import Space
from tests.feed import rkey
from tests.kept_quiet import learn_keys
from tests.private_words import PrivateWords
from tests.service.space_secrets import PUBLIC_URL, SYNCER, Flow, flow_at, write_secret
from tests.service_tokens import OWN_DID

TABLES: Final = """
select format('%I.%I', n.nspname, c.relname)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'
"""


async def live(flow: Flow) -> None:
    """All that may happen, until nothing is left of a Space."""
    host, mara = flow.host, flow.mara
    family = host.create_space(flow.noor, "family", mara)
    work = host.create_space(flow.noor, "work", mara, apps=[f"{PUBLIC_URL}/client-metadata.json"])
    for space in (family, work):
        mara.create(space, rkey(1), memory("Likes green tea."))
    async with (
        flow.process("appview", "serve"),
        flow.process("indexer", "spaces"),
    ):
        await until(flow.healthy)
        token = await open_all(flow, family, work)
        await refuse_all(flow, family, token)
        await sync_all(flow, family, token)
        await rotate_all(flow)
        assert (await flow.get("listGrants", token)).status_code == 200
        assert (await flow.post("closeSpace", token, space=str(work))).status_code == 200
        tokens = await flow.get("listAccessTokens", flow.auth("listAccessTokens"))
        for each in tokens.json()["tokens"]:
            assert (
                await flow.post("revokeAccessToken", flow.auth("revokeAccessToken"), id=each["id"])
            ).status_code == 200
        family.delete()
        await host.told()
        await until(lambda: left_of(flow.database, family), lambda count: count == 0)
        await flow.scrape()


async def open_all(flow: Flow, family: Space, work: Space) -> str:
    """The access token that reads both: for one of them its host has asked who we are."""
    made = await flow.post("createAccessToken", flow.auth("createAccessToken"), name="a client")
    token: str = made.json()["accessToken"]
    for space in (family, work):
        await flow.open(space, token)
        await flow.until_found(token, space, "Likes green tea.")
    assert "client attestation" in flow.sought.forms.values()
    assert "accessToken" in await flow.open(family, flow.auth("openSpace"))
    return token


async def refuse_all(flow: Flow, space: Space, token: str) -> None:
    """What is refused here, there, and what is answered badly."""
    host, lukas, used = flow.host, flow.lukas, flow.delegation(space)
    assert (await flow.post("openSpace", token, space=str(space), delegationToken=used)).status_code == 200
    assert await flow.refused(space, token, used) == "InvalidDelegationToken"
    assert await flow.refused(space, token, flow.delegation(space, lukas)) == "InvalidDelegationToken"
    assert await flow.refused(space, token, flow.delegation(space, aud=OWN_DID)) == "InvalidDelegationToken"
    assert (
        await flow.refused(space, flow.auth("openSpace", lukas), flow.delegation(space, lukas)) == "UserNotAuthorized"
    )
    assert await flow.refused(space, flow.auth("closeSpace"), flow.delegation(space)) == "BadJwtLexiconMethod"
    assert await flow.refused(space, token[:-1], flow.delegation(space)) == "InvalidToken"
    for fault in (Fault.BROKEN, Fault.GIBBERISH, Fault.REFUSING):
        host.misbehave(fault, "getSpaceCredential", times=1)
        assert await flow.refused(space, token, flow.delegation(space))
    host.misbehave(None, "getSpaceCredential")
    for change in (
        lambda: host.tamper_credentials(sub="at://did:plc:a/space/a.b.c/d"),
        lambda: host.tamper_credentials(exp=0),
        lambda: host.tamper_credentials(signer=lukas),
    ):
        change()
        assert await flow.refused(space, token, flow.delegation(space)) == "SpaceHostUnavailable"
    host.tamper_credentials()


async def sync_all(flow: Flow, space: Space, token: str) -> None:
    """What the authority tells, and what hosts answer, well and badly."""
    host, mara = flow.host, flow.mara

    async def has_subscribed() -> bool:
        return SYNCER in space.subscribers

    await until(has_subscribed)
    mara.create(space, rkey(2), memory("Likes black tea."))
    await flow.until_found(token, space, "Likes black tea.")
    faults = (Fault.BROKEN, Fault.GIBBERISH, Fault.REFUSING, Fault.WRONG_SIGNATURE, Fault.MOVED)
    for number, fault in enumerate(faults):
        author = host.add(f"author {number}")  # whoever failed rests for a while
        space.admit(author)
        host.misbehave(fault, "listRepoOps", author.did)
        host.misbehave(fault, "getRepo", author.did)
        author.create(space, rkey(1), memory("Likes coffee."))

    async def met() -> bool:
        return all(host.faults.met[fault] for fault in faults)

    await until(met)


async def rotate_all(flow: Flow) -> None:
    """Keys of files that are good, that open nothing, and that are broken."""
    flow.write_ring("second", "first")
    assert await flow.run("indexer", "rotate-key") == 0
    await flow.learn_sealed()
    flow.write_ring("third")
    assert await flow.run("indexer", "rotate-key") == 1
    ring, pem = flow.folder / "ring", flow.folder / "client.pem"
    kept = pem.read_text()
    write_secret(ring, ring.read_text().rstrip() + "z")
    assert await flow.run("indexer", "rotate-key") != 0
    assert await flow.run("appview", "serve") != 0
    flow.write_ring("first", "second")
    write_secret(pem, kept[:120])
    assert await flow.run("appview", "serve") != 0


async def left_of(database: Database, space: Space) -> int:
    async with database.connection() as conn:
        return await conn.fetchval("select count(*) from spaces where space = $1", str(space))


# What is searched


async def dump(database_url: str) -> bytes:
    """Every row of every table, as text."""
    pieces: list[bytes] = []

    async def take(data: bytes) -> None:
        pieces.append(data)

    conn = await asyncpg.connect(database_url)
    try:
        for row in await conn.fetch(TABLES):
            await conn.copy_from_query(f"table {row[0]}", output=take)
    finally:
        await conn.close()
    return b"".join(pieces)


async def files_of(cluster: Cluster, database: Database, since: str) -> bytes:
    """The files of the database, and of the log that it would be restored from."""
    async with database.connection() as conn:
        await conn.execute("checkpoint")
        number = await conn.fetchval("select oid from pg_database where datname = current_database()")
    files = [
        *(cluster.data / "base" / str(number)).iterdir(),
        *(file for file in (cluster.data / "pg_wal").iterdir() if len(file.name) == len(since) and file.name >= since),
    ]
    return b"".join(file.read_bytes() for file in files if file.is_file())


async def wal_file(database: Database) -> str:
    async with database.connection() as conn:
        return await conn.fetchval("select pg_walfile_name(pg_current_wal_lsn())")


@pytest.mark.timeout(300)
async def test_no_secret_stands_in_a_dump_in_files_or_in_logs(
    cluster: Cluster, database: Database, database_url: str, tmp_path: Path
):
    since = await wal_file(database)
    server_log_from = cluster.log.stat().st_size
    async with flow_at(database, database_url, tmp_path) as flow:
        await live(flow)
    sought = flow.sought
    assert set(sought.forms.values()) >= {
        *("access token", "delegation token", "credential", "DPoP key", "key that seals", "client key"),
        *("client attestation", "service auth", "service auth of the authority", "dpop of getSpaceCredential"),
        *("dpop of listRepoOps", "dpop of registerNotify", "jti of delegation token", "jti of service auth"),
    }
    log = (tmp_path / "log").read_bytes()
    for event in (b"space_sync_stopped", b"api_started", b"space_purged"):
        assert event in log
    assert sought.found(log) == set()
    assert sought.found(cluster.log.read_bytes()[server_log_from:]) == set()
    assert sought.found(b"\n".join([*flow.answers, *flow.told])) == set()
    assert sought.found(await dump(database_url)) == set()
    assert sought.found(await files_of(cluster, database, since)) == set()
    # All of that would find them, be they there, or have been there.
    key, credential = secrets.token_bytes(32), flow.delegation(flow.host.create_space(flow.noor, "b"))
    sought.key("a new key", key)
    async with database.transaction() as conn:
        await conn.execute(
            "insert into credentials (repo, token, space, sealed, key_id, expires_at)"
            " values ('did:plc:a', $1, 'at://did:plc:a/space/a.b.c/d', $2, 'x', now())",
            *(credential, key),
        )
    assert sought.found(await dump(database_url)) == {"a new key", "delegation token", "jti of delegation token"}
    async with database.transaction() as conn:
        await conn.execute("delete from credentials")
    assert sought.found(await dump(database_url)) == set()
    assert sought.found(await files_of(cluster, database, since)) >= {"a new key", "delegation token"}


def test_keys_are_searched_for_in_what_every_test_logs():
    patch, words, secret = pytest.MonkeyPatch(), PrivateWords(), secrets.token_bytes(32)
    learn_keys(patch, words)
    try:
        key = Es256Key.generate(secrets.token_bytes)
        SealingKeys({"first": secret}, random_bytes=secrets.token_bytes)
    finally:
        patch.undo()
    pieces = words.pieces()
    for each in (key.to_bytes(), secret):
        for written in (each.hex(), base64url(each), b64encode(each).decode(), repr(each), each.hex()[20:50]):
            assert len(pieces.leaks([f"it is {written} here"])) == 1, written
    assert pieces.leaks([str(dict(key.jwk)), key.thumbprint]) == []
