"""Delegation tokens exchanged at a Space host that behaves as the reference does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from appview.spaces.exchange import Exchange
from appview.spaces.refusals import (
    AppNotAuthorized,
    AuthorityRefused,
    InvalidClientAttestation,
    InvalidDelegationToken,
    SpaceDeleted,
    SpaceHostUnavailable,
    UserNotAuthorized,
)
from memory.sealed import SealingKeys
from memory.space_credential import open_credential
from tests.credentials_recorded import parts_of
from tests.exchanging import CLIENT_URL, METHOD, START, Setting, attesting, published, refused, setting_with
from tests.fakes.space_host_faults import Fault


@pytest.fixture
async def setting() -> AsyncGenerator[Setting]:
    async with setting_with() as made:
        yield made


# What opens


async def test_member_gets_a_credential_that_reads(setting: Setting):
    setting.mara.create(setting.space, "3kaaaaaaaaa2a", {"$type": "dev.bastienrobert.memory.record", "text": "Tea."})
    opened = await setting.open()
    assert opened.expires_at == START + timedelta(hours=2)
    url = f"{setting.host.url}/xrpc/com.atproto.space.listRepos?space={setting.space}"
    headers = opened.credential.headers("GET", url, now=setting.now, random_bytes=setting.draw.randbytes)
    assert setting.mara.did.encode() in await setting.outbound.get(url, headers=headers)


async def test_proof_reads_once(setting: Setting):
    opened = await setting.open()
    url = f"{setting.host.url}/xrpc/com.atproto.space.listRepos?space={setting.space}"
    headers = opened.credential.headers("GET", url, now=setting.now, random_bytes=setting.draw.randbytes)
    await setting.outbound.get(url, headers=headers)
    with pytest.raises(Exception, match="BadDpopProof"):
        await setting.outbound.get(url, headers=headers)


async def test_sealed_credential_still_reads(setting: Setting):
    keys = SealingKeys({"k": setting.draw.randbytes(32)}, random_bytes=setting.draw.randbytes)
    owner = {"space": str(setting.space), "viewer": setting.mara.did}
    kept = (await setting.open()).credential.seal(keys, **owner)
    url = f"{setting.host.url}/xrpc/com.atproto.space.listRepos?space={setting.space}"
    headers = open_credential(keys, kept, **owner).headers(
        "GET", url, now=setting.now, random_bytes=setting.draw.randbytes
    )
    assert await setting.outbound.get(url, headers=headers)


async def test_every_credential_has_a_key_of_its_own(setting: Setting):
    first, second = await setting.open(), await setting.open()
    assert first.credential.key.jkt != second.credential.key.jkt


@pytest.mark.parametrize("curve", ["p256", "k256"])
async def test_authority_may_sign_with_a_key_for_its_spaces(setting: Setting, curve: Any):
    setting.noor.use_space_key("spaces", curve)
    assert parts_of((await setting.open()).credential.text)[0]["kid"] == "#atproto_space"


async def test_authority_that_changed_its_key_is_looked_up_anew(setting: Setting):
    await setting.open()
    setting.noor.rotate_key("another")
    setting.now += timedelta(minutes=2)
    assert (await setting.open()).expires_at == setting.now + timedelta(hours=2)


async def test_authority_is_looked_up_once_for_many_exchanges(setting: Setting):
    for _ in range(5):
        await setting.open()
    assert setting.fake.asked_for(f"/{setting.noor.did}") == 1


async def test_authority_is_looked_up_again_after_ten_minutes(setting: Setting):
    await setting.open()
    setting.now += timedelta(minutes=10)
    await setting.open()
    assert setting.fake.asked_for(f"/{setting.noor.did}") == 2


async def test_credential_that_says_it_lasts_longer_counts_for_two_hours(setting: Setting):
    setting.host.tamper_credentials(exp=int(START.timestamp()) + 30 * 365 * 86400)
    assert (await setting.open()).expires_at == START + timedelta(hours=2)


# Attestations


async def test_space_for_named_apps_opens_for_who_says_its_name(setting: Setting, tmp_path: Path):
    setting.client = attesting(tmp_path)
    setting.host.world.clients[setting.client.client_id] = published(5)
    space = setting.host.create_space(setting.noor, "apps", setting.mara, apps=[setting.client.client_id])
    assert (await setting.open(space=space)).expires_at == START + timedelta(hours=2)


async def test_space_for_any_app_opens_for_who_says_its_name(setting: Setting, tmp_path: Path):
    setting.client = attesting(tmp_path)
    setting.host.world.clients[setting.client.client_id] = published(5)
    await setting.open()


async def test_space_for_named_apps_does_not_open_for_who_does_not_say_its_name(setting: Setting):
    space = setting.host.create_space(setting.noor, "apps", setting.mara, apps=[f"{CLIENT_URL}/client-metadata.json"])
    assert isinstance(await refused(setting, None, space), AppNotAuthorized)


async def test_space_for_other_apps_does_not_open(setting: Setting, tmp_path: Path):
    setting.client = attesting(tmp_path)
    setting.host.world.clients[setting.client.client_id] = published(5)
    space = setting.host.create_space(setting.noor, "apps", setting.mara, apps=["https://other.example/client.json"])
    assert isinstance(await refused(setting, None, space), AppNotAuthorized)


async def test_attestation_by_a_key_that_is_not_published_is_refused_by_its_name(setting: Setting, tmp_path: Path):
    setting.client = attesting(tmp_path)
    setting.host.world.clients[setting.client.client_id] = published(6)
    space = setting.host.create_space(setting.noor, "apps", setting.mara, apps=[setting.client.client_id])
    assert isinstance(await refused(setting, None, space), InvalidClientAttestation)


# What the authority refuses


async def test_stranger_is_refused_by_name(setting: Setting):
    assert isinstance(await refused(setting, setting.lukas), UserNotAuthorized)


async def test_removed_member_is_refused_by_name(setting: Setting):
    setting.space.remove(setting.mara)
    assert isinstance(await refused(setting), UserNotAuthorized)


async def test_deleted_space_is_told_by_name(setting: Setting):
    setting.space.delete()
    assert isinstance(await refused(setting), SpaceDeleted)


async def test_delegation_opens_once(setting: Setting):
    delegation = setting.delegation()
    await setting.open_by(delegation)
    with pytest.raises(InvalidDelegationToken, match="JwtReplayed"):
        await setting.open_by(delegation)


async def test_delegation_that_another_signed_is_refused(setting: Setting):
    setting.mara.rotate_key("stolen", published=False)
    refusal = await refused(setting)
    assert isinstance(refusal, InvalidDelegationToken)
    assert "BadJwtSignature" in refusal.message


async def test_clock_that_is_wrong_is_ours_to_mend(setting: Setting):
    delegation = setting.delegation()
    world_now = setting.now
    exchange = Exchange(
        setting.outbound,
        setting.authorities,
        client=None,
        clock=lambda: world_now - timedelta(minutes=5),
        random_bytes=setting.draw.randbytes,
    )
    with pytest.raises(SpaceHostUnavailable, match="DpopProofExpired"):
        await exchange.open(delegation)


@pytest.mark.parametrize(
    ("status", "name", "told"),
    [
        (400, "PaymentRequired", "PaymentRequired"),
        (403, "Forbidden", "Forbidden"),
        (501, "MethodNotImplemented", "MethodNotImplemented"),
        (400, "x" * 65, "answers 400"),
        (400, "<script>", "answers 400"),
        (404, "Not found", "answers 404"),
        (418, "", "answers 418"),
    ],
)
async def test_refusal_of_another_name_is_told_as_that_and_bounded(setting: Setting, status: int, name: str, told: str):
    setting.host.faults.refusal = (status, name)
    setting.host.misbehave(Fault.REFUSING, METHOD)
    refusal = await refused(setting)
    assert isinstance(refusal, AuthorityRefused)
    assert told in refusal.message
    assert len(refusal.message) < 150


# Credentials that are none


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"},
        {"iss": None},
        {"sub": "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/dev.bastienrobert.memory.space/main"},
        {"sub": None},
        {"exp": int(START.timestamp())},
        {"exp": None},
        {"cnf": {"jkt": "KKmauCyu4NBr0kXwsxSK7xTxI76QgJSAqC5YR6Y6ZMY"}},
        {"cnf": {}},
        {"cnf": None},
        {"typ": "JWT"},
        {"typ": "atproto-space-delegation+jwt"},
        {"kid": "#atproto_label"},
        {"kid": "#atproto_space"},  # which the document has not
        {"kid": None},
        {"alg": "none"},
    ],
)
async def test_answer_that_is_no_credential_for_this_opens_nothing(setting: Setting, changes: dict[str, Any]):
    setting.host.tamper_credentials(**changes)
    refusal = await refused(setting)
    assert isinstance(refusal, SpaceHostUnavailable)
    assert "no credential" in refusal.message


async def test_credential_that_another_signed_opens_nothing(setting: Setting):
    setting.host.tamper_credentials(signer=setting.lukas)
    assert isinstance(await refused(setting), SpaceHostUnavailable)


async def test_bad_signatures_have_the_authority_looked_up_once_a_minute(setting: Setting):
    setting.host.tamper_credentials(signer=setting.lukas)
    setting.now += timedelta(seconds=1)
    for _ in range(4):
        await refused(setting)
    assert setting.fake.asked_for(f"/{setting.noor.did}") == 1
    setting.now += timedelta(minutes=1)
    for _ in range(4):
        await refused(setting)
    assert setting.fake.asked_for(f"/{setting.noor.did}") == 2
