"""What tests make happen at the Space host of our tests: to members, Spaces, accounts, keys, tokens, subscribers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory.outbound import Limits, Outbound
from memory.outbound_errors import HostRefused
from memory.outbound_hosts import Hosts
from tests.builders import START, RepoBuilder, SigningKey, Write, memory
from tests.fakes.directory import directory
from tests.fakes.internet import PUBLIC, UNLIMITED, Authority, Names, Wire, plain_outbound
from tests.fakes.space_bytes import from_json, hash_of
from tests.fakes.space_host import SpaceHost, SpaceWorld, space_world
from tests.fakes.space_host_spaces import WRITE, Delivery
from tests.fakes.space_host_tokens import DpopKey, read_token
from tests.fakes.space_host_world import MEMORY, Account
from tests.fakes.space_subscriber import subscriber, token_of
from tests.space_calls import is_signed
from tests.space_scene import RKEYS, SYNCER, Scene, error_of, scene_at


@pytest.fixture
async def scene() -> AsyncGenerator[Scene]:
    async with scene_at() as made:
        yield made


# Members, Spaces, accounts and keys


async def test_a_removed_member_stays_listed_where_they_stood_and_is_read_beyond(scene: Scene) -> None:
    credential = await scene.credential()
    before = (await scene.mara.read(scene.home, "listRepos", credential, space=scene.space)).json()
    scene.space.remove(scene.bob)
    rev = scene.bob.create(scene.space, RKEYS[3], memory("Written after the removal."))

    assert (await scene.mara.read(scene.home, "listRepos", credential, space=scene.space)).json() == before
    assert (await scene.read("getLatestCommit", credential)).json()["commit"]["rev"] == rev
    refused = await scene.mara.exchange(scene.home, scene.space, scene.bob.delegation(scene.space))
    assert error_of(refused) == (400, "UserNotAuthorized")


async def test_a_deleted_space_says_so_and_one_of_its_name_is_another(scene: Scene) -> None:
    credential = await scene.credential()
    scene.space.delete()

    refused = await scene.mara.exchange(scene.home, scene.space, scene.bob.delegation(scene.space))
    gone = await scene.mara.read(scene.home, "listRepos", credential, space=scene.space)
    recreated = scene.home.create_space(scene.alice, "main")
    empty = await scene.mara.read(scene.home, "listRepos", credential, space=recreated)

    assert error_of(refused) == (400, "SpaceDeleted")
    assert error_of(gone) == (400, "SpaceNotFound")
    assert (str(recreated), empty.json()) == (str(scene.space), {"repos": []})


@pytest.mark.parametrize(("status", "error"), [
    ("deactivated", "RepoDeactivated"), ("takendown", "RepoTakendown"), ("suspended", "RepoSuspended"),
])  # fmt: skip
async def test_an_inactive_author_is_not_read(scene: Scene, status: Any, error: str) -> None:
    scene.bob.status = status

    assert error_of(await scene.read("getRepo")) == (400, error)


@pytest.mark.parametrize("published", [True, False])
async def test_a_rotated_key_signs_at_once_whoever_knows_of_it(scene: Scene, published: bool) -> None:
    old = scene.bob.keys["#atproto"]
    scene.bob.rotate_key("another key", "p256", published=published)

    commit = from_json((await scene.read("getLatestCommit", await alices_credential(scene))).json()["commit"])

    assert (scene.bob.keys["#atproto"] != old) == published
    assert is_signed(commit, scene.space, scene.bob) == published


async def alices_credential(scene: Scene) -> str:
    return await scene.mara.credential(scene.home, scene.space, scene.alice)


async def test_documents_are_given_to_the_directory_whenever_they_change() -> None:
    async with directory() as fake, space_world(directory=fake) as world:
        alice = (await world.host("https://pds.example")).add("alice")
        before = fake.documents[alice.did]
        alice.use_space_key("for spaces only")

        assert before["service"][0]["serviceEndpoint"] == "https://pds.example"
        assert [method["id"] for method in fake.documents[alice.did]["verificationMethod"]] == [
            f"{alice.did}#atproto", f"{alice.did}#atproto_space",
        ]  # fmt: skip


# Tokens


async def test_a_delegation_token_is_good_once_and_a_bad_proof_does_not_burn_it(scene: Scene) -> None:
    token = scene.bob.delegation(scene.space)

    answers = [
        await scene.mara.exchange(scene.home, scene.space, token, htm="GET"),
        await scene.mara.exchange(scene.home, scene.space, token),
        await scene.mara.exchange(scene.home, scene.space, token),
    ]

    assert [answer.status_code for answer in answers] == [401, 200, 401]
    assert [answers[0].json()["error"], answers[2].json()["error"]] == ["BadDpopProof", "JwtReplayed"]


@pytest.mark.parametrize(("changes", "refused"), [
    ({"typ": "at+jwt"}, (401, "BadJwtType")),
    ({"aud": "did:web:elsewhere.example#atproto_space_host"}, (401, "BadJwtAudience")),
    ({"iss": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}, (401, "BadJwtIss")),
    ({"exp": 0}, (401, "JwtExpired")),
])  # fmt: skip
async def test_a_delegation_token_that_is_not_one_is_refused(
    scene: Scene, changes: dict[str, Any], refused: tuple[int, str]
) -> None:
    token = scene.bob.delegation(scene.space, **changes)

    assert error_of(await scene.mara.exchange(scene.home, scene.space, token)) == refused


async def test_a_credential_expires_by_the_clock(scene: Scene) -> None:
    credential = await scene.credential()
    scene.clock.now += timedelta(hours=2, seconds=5)
    assert (await scene.read("getLatestCommit", credential)).status_code == 200

    scene.clock.now += timedelta(seconds=1)
    assert error_of(await scene.read("getLatestCommit", credential)) == (401, "JwtExpired")


@pytest.mark.parametrize("changes", [
    {"iss": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"},
    {"sub": "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/a.b.c/d"},
    {"cnf": {"jkt": "another"}},
    {"cnf": None},
    {"exp": int(START.timestamp()) - 6},
    {"typ": "at+jwt"},
    {"kid": "#atproto_space"},
])  # fmt: skip
async def test_credentials_are_given_with_what_is_wrong_with_them_and_refused_by_those_who_look(
    scene: Scene, changes: dict[str, Any]
) -> None:
    scene.home.tamper_credentials(**changes)

    credential = await scene.credential()

    token = read_token(credential)
    assert {name: {**token.claims, **token.header}.get(name) for name in changes} == changes
    assert token.is_signed_by(scene.alice.keys["#atproto"])
    assert (await scene.read("getLatestCommit", credential)).status_code == 401
    scene.home.tamper_credentials()
    assert (await scene.read("getLatestCommit")).status_code == 200


async def test_a_credential_may_be_signed_by_another(scene: Scene) -> None:
    scene.home.tamper_credentials(signer=scene.bob)

    assert error_of(await scene.read("getLatestCommit")) == (401, "BadJwtSignature")


async def test_an_authority_may_have_a_key_for_its_spaces_alone(scene: Scene) -> None:
    scene.alice.use_space_key("for spaces only")

    credential = await scene.credential()

    assert read_token(credential).header["kid"] == "#atproto_space"
    assert (await scene.read("getLatestCommit", credential)).status_code == 200


async def test_a_space_may_want_to_know_the_app(scene: Scene) -> None:
    client, app = "https://app.example/client-metadata.json", DpopKey("the app")
    scene.world.clients[client] = {"key-1": app.jwk}
    space = scene.home.create_space(scene.alice, "apps", scene.bob, apps=[client])

    async def exchanged(attestation: str | None) -> httpx.Response:
        token = scene.bob.delegation(space)
        return await scene.mara.exchange(scene.home, space, token, attestation=attestation)

    attestation = app.attestation(client, scene.alice.did, START, "key-1")
    assert error_of(await exchanged(None)) == (400, "AppNotAuthorized")
    assert error_of(await exchanged(app.attestation(client, "did:web:x", START, "key-1"))) == (
        400, "InvalidClientAttestation",
    )  # fmt: skip
    assert (await exchanged(attestation)).status_code == 200
    assert error_of(await exchanged(attestation)) == (400, "InvalidClientAttestation")


# Notifications


async def test_a_false_notification_is_listed_and_told_with_a_true_signature(scene: Scene) -> None:
    async with subscriber() as syncer:
        await scene.subscribe(syncer)
        scene.space.say(scene.bob, "3zzzzzzzzzzzz", bytes(32))
        await scene.home.told()

        assert (await scene.listed())[scene.bob.did]["rev"] == "3zzzzzzzzzzzz"
        token = token_of(syncer.heard[0].headers)
        assert token.is_signed_by(scene.alice.keys["#atproto"])
        assert (token.says("iss"), token.says("aud"), token.says("lxm")) == (scene.alice.did, SYNCER, WRITE)


async def test_one_that_never_answers_is_given_up_and_the_next_hears_all_the_same(scene: Scene) -> None:
    scene.home.bell.patience_s = 0.05
    async with subscriber() as hung, subscriber() as failing, subscriber() as syncer:
        hung.status, failing.status = None, 500
        for number, service in enumerate((hung, failing, syncer)):
            await scene.subscribe(service, f"did:web:{number}.example#x")

        scene.bob.create(scene.space, RKEYS[3], memory("Heard by who listens."))
        await scene.home.told()

        assert [len(each.heard) for each in (hung, failing, syncer)] == [1, 1, 1]
        assert scene.home.bell.deliveries == [
            Delivery("did:web:0.example#x", WRITE, None),
            Delivery("did:web:1.example#x", WRITE, 500),
            Delivery("did:web:2.example#x", WRITE, 200),
        ]


async def test_notifications_can_be_held_back_and_end_after_a_day(scene: Scene) -> None:
    async with subscriber() as syncer:
        await scene.subscribe(syncer)
        scene.home.bell.ringing.clear()
        scene.bob.create(scene.space, RKEYS[3], memory("Told later."))
        assert (await scene.listed())[scene.bob.did]["rev"] == scene.bob.repo(scene.space).rev
        assert syncer.heard == []

        scene.home.bell.ringing.set()
        await syncer.until_heard(1)
        scene.clock.now += timedelta(hours=24)
        scene.bob.delete(scene.space, RKEYS[3])
        await scene.home.told()
        assert len(syncer.heard) == 1


# What tests of ours rely on


def test_the_hash_is_kept_as_records_come_and_go() -> None:
    world = SpaceWorld(lambda: START)
    author = Account(world, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "a.test", "", SigningKey("a"))
    space = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/a.b.c/d"

    author.apply(space, [Write("create", rkey, memory(rkey)) for rkey in RKEYS])
    author.apply(space, [Write("update", RKEYS[0], memory("other")), Write("delete", RKEYS[1]),
                         Write("create", "x", {"a": 1}, "a.b.post")])  # fmt: skip

    assert author.repo(space).digest == hash_of(author.cids(space))
    assert sorted(author.cids(space)) == sorted(
        ["a.b.post/x", *(f"{MEMORY}/{rkey}" for rkey in RKEYS if rkey != RKEYS[1])]
    )


async def test_the_same_seed_is_the_same_host(scene: Scene) -> None:
    async with space_world(scene.clock) as world:
        home = await world.host(scene.home.url)
        alice, bob = home.add("alice"), home.add("bob")
        space = home.create_space(alice, "main", bob)
        rev = bob.create(space, RKEYS[0], memory("Memory number 0 of what bob likes."))

    assert (alice.did, str(space), rev) == (scene.alice.did, str(scene.space), scene.bob.repo(scene.space).ops[0].rev)


def test_a_builder_and_an_account_of_one_seed_are_one_person() -> None:
    builder = RepoBuilder("cleo")
    one, other = (SpaceHost(SpaceWorld(lambda: START)).add(seed) for seed in ("cleo", builder))

    assert (one.did, one.handle, one.keys) == (other.did, other.handle, other.keys)
    assert other.keys == {"#atproto": builder.did_key}


async def test_a_user_asks_their_own_host_for_a_delegation_token_but_not_by_an_app_password(scene: Scene) -> None:
    url = f"{scene.away.url}/xrpc/com.atproto.space.getDelegationToken"
    answers = [
        await scene.mara.client.get(
            url, params={"space": str(scene.space)}, headers={"authorization": f"Bearer {session}"}
        )
        for session in (
            scene.away.gate.open_session(scene.bob.did),
            scene.away.gate.open_session(scene.bob.did, app_password=True),
        )
    ]

    exchanged = await scene.mara.exchange(scene.home, scene.space, answers[0].json()["token"])
    assert (exchanged.status_code, error_of(answers[1])) == (200, (400, "InvalidToken"))


async def test_our_own_way_out_reaches_it_and_is_asked_who_it_is(scene: Scene) -> None:
    url = f"{scene.home.url}/xrpc/com.atproto.space.listRepos?space={scene.space}"
    async with plain_outbound() as outbound:
        with pytest.raises(HostRefused) as refused:
            await outbound.get(url)

    assert (refused.value.status, refused.value.error) == (401, "AuthMissing")


async def test_it_can_be_a_host_of_the_public_internet(scene: Scene, tmp_path: Path) -> None:
    trust = Authority(datetime.now(UTC))
    host = await scene.world.host("https://spaces.example", tls=trust.server(tmp_path, "spaces.example"))
    names = Names()
    names.add("spaces.example", [PUBLIC])

    async with Outbound(names, Hosts(strangers=UNLIMITED), network=Wire(host.port), ssl_context=trust.clients()) as way:
        with pytest.raises(HostRefused) as refused:
            await way.get(f"{host.url}/xrpc/com.atproto.space.listRepos?space={scene.space}", Limits())

    assert refused.value.error == "AuthMissing"
