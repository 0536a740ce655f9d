"""Who asks: by service auth, with keys that are looked up, and never more often than is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from appview.access import ANYBODY, Access, Credential, Viewer, read_credential
from appview.issuers import ADDRESS_PACE, Issuers, LookUpBudget, Pace
from appview.refusals import (
    AuthenticationRequired,
    BadJwt,
    BadJwtAudience,
    BadJwtIss,
    BadJwtLexiconMethod,
    BadJwtSignature,
    BadJwtType,
    InvalidToken,
    JwtExpired,
    JwtReplayed,
    NotEnoughResources,
    RateLimited,
    Refusal,
)
from memory.database import Database
from memory.resolver import LOOK_UP_INTERVAL, MAX_AGE
from memory.space import ReadableSpaces
from tests.builders import SigningKey
from tests.fakes.directory import Mood, document
from tests.fakes.identities import MARA, NOOR, PDS, World, did_of, mara, world_at
from tests.service_tokens import ALGORITHMS, OWN_DID, SEARCH, Curve, claims, signed

OLD, NEW = SigningKey("mara"), SigningKey("mara, later", "p256")
CREATE = "dev.bastienrobert.memory.createAccessToken"
HOME = "203.0.113.7"
ELSEWHERE = "2001:db8::"
SECOND = timedelta(seconds=1)


def said(authorization: bytes) -> Credential | None:
    return read_credential(((b"authorization", authorization),))


class Door:
    """Mara, whose key the directory knows, and where she asks."""

    def __init__(self, world: World, database: Database, budget: LookUpBudget | None = None) -> None:
        self.world = world
        self.time_s = 0.0
        budget = budget or LookUpBudget(lambda: self.time_s)
        self.access = Access(database, Issuers(world.resolver, budget), own_did=OWN_DID, clock=world.clock)
        self.has_key(OLD)

    def has_key(self, key: SigningKey, did: str = MARA) -> None:
        self.world.fake.documents[did] = document(did, handle="mara.example", pds=PDS, key=key.did_key)

    def token(self, signer: SigningKey = OLD, issuer: str = MARA, **changes: Any) -> bytes:
        curve: Curve = "p256" if signer is NEW else "k256"
        return signed(signer, ALGORITHMS[curve], claims(issuer, self.world.clock(), **changes))

    async def ask(self, token: bytes, *, address: str = HOME, lxm: str = SEARCH, acts: bool = False) -> Viewer:
        return await self.access.viewer(said(b"Bearer " + token), address, lxm, acts=acts)

    async def create(self, token: bytes) -> Viewer:
        return await self.ask(token, lxm=CREATE, acts=True)

    @property
    def look_ups(self) -> int:
        return len(self.world.fake.asked)


async def refusal(asking: Awaitable[object]) -> type[Refusal]:
    with pytest.raises(Refusal) as caught:
        await asking
    return type(caught.value)


@asynccontextmanager
async def door_with(database: Database, budget: LookUpBudget) -> AsyncGenerator[Door]:
    async with world_at(database) as world:
        yield Door(world, database, budget)


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with world_at(database) as world:
        yield Door(world, database)


# Who asks


async def test_nobody_asks_without_a_header(door: Door):
    assert await door.access.viewer(read_credential(()), HOME, SEARCH, acts=False) is ANYBODY
    assert ANYBODY.did is None


@pytest.mark.parametrize("aud", [OWN_DID, f"{OWN_DID}#memory_appview"])
async def test_account_that_signed_asks_and_reads_what_is_public(door: Door, aud: str):
    viewer = await door.ask(door.token(aud=aud))
    assert viewer == Viewer(MARA, ReadableSpaces.public_only(), MARA)
    assert door.look_ups == 1


async def test_account_with_a_key_of_the_other_curve_asks(door: Door):
    door.has_key(NEW)
    assert (await door.ask(door.token(NEW))).did == MARA


@pytest.mark.parametrize("scheme", [b"bearer ", b"BEARER ", b"Bearer   ", b" Bearer "])
async def test_scheme_is_read_as_http_says(door: Door, scheme: bytes):
    assert (await door.access.viewer(said(scheme + door.token()), HOME, SEARCH, acts=False)).did == MARA


@pytest.mark.parametrize(
    "header",
    [
        *(b"Bearer", b"Bearer ", b" ", b"\xff\xfe", b"Basic YTpi", b"Bearer\tx", b"Digest x=1, y=2"),
        b"x" * 100_000,
        b"Bearer " + b"x" * 100_000,
    ],
)
async def test_wrong_header_is_never_taken_for_nobody(door: Door, header: bytes):
    assert await refusal(door.access.viewer(said(header), HOME, SEARCH, acts=False)) is AuthenticationRequired
    assert door.look_ups == 0


async def test_token_for_dpop_is_no_bearer_token(door: Door):
    asking = door.access.viewer(said(b"DPoP " + door.token()), HOME, SEARCH, acts=False)
    assert await refusal(asking) is AuthenticationRequired


@pytest.mark.parametrize("credential", [b"memat_", b"memat_x", b"memat_\xff", b"memat_" + b"A" * 70, b"MEMAT_x"])
async def test_what_looks_like_an_access_token_and_is_none_is_refused(door: Door, credential: bytes):
    expected = BadJwt if credential.isupper() or credential.startswith(b"MEMAT") else InvalidToken
    assert await refusal(door.ask(credential)) is expected


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"exp": 1}, JwtExpired),
        ({"exp": 99_999_999_999}, BadJwt),
        ({"aud": "did:web:other.example"}, BadJwtAudience),
        ({"lxm": CREATE}, BadJwtLexiconMethod),
        ({"lxm": None}, BadJwtLexiconMethod),
        ({"iss": "mara.example"}, BadJwtIss),
        ({"iss": f"{MARA}#atproto_labeler"}, BadJwtIss),
    ],
)
async def test_nobody_is_asked_about_a_token_that_could_not_hold(door: Door, changes: dict[str, Any], name: type):
    assert await refusal(door.ask(door.token(**changes))) is name
    assert door.look_ups == 0


async def test_session_token_of_a_pds_is_refused_by_its_type(door: Door):
    token = signed(OLD, "ES256K", claims(MARA, door.world.clock()), typ="at+jwt")
    assert await refusal(door.ask(token)) is BadJwtType


async def test_server_that_has_no_did_takes_no_jwt(door: Door, database: Database):
    access = Access(database, door.access._issuers, own_did=None, clock=door.world.clock)
    assert await refusal(access.viewer(said(b"Bearer " + door.token()), HOME, SEARCH, acts=False)) is BadJwtAudience


# Keys


async def test_key_is_looked_up_once_for_many_requests(door: Door):
    for _ in range(5):
        await door.ask(door.token())
    assert door.look_ups == 1


async def test_key_that_was_rotated_is_looked_up_again_by_the_first_signature_of_the_new_one(door: Door):
    await door.ask(door.token())
    door.has_key(NEW)
    assert (await door.ask(door.token(NEW))).did == MARA
    assert await refusal(door.ask(door.token(OLD))) is BadJwtSignature
    assert door.look_ups == 2


async def test_forged_tokens_make_us_ask_once_in_ten_minutes(door: Door):
    await door.ask(door.token())
    forger = SigningKey("forger")
    for _ in range(20):
        assert await refusal(door.ask(door.token(forger))) is BadJwtSignature
    assert door.look_ups == 2
    assert (await door.ask(door.token())).did == MARA
    door.world.wait(LOOK_UP_INTERVAL)
    assert await refusal(door.ask(door.token(forger))) is BadJwtSignature
    assert door.look_ups == 3


async def test_key_that_was_looked_up_for_the_token_is_not_looked_up_again(door: Door):
    assert await refusal(door.ask(door.token(SigningKey("forger")))) is BadJwtSignature
    assert door.look_ups == 1


async def test_key_that_another_process_learnt_holds_at_once(door: Door):
    """The indexer hears of changes on the firehose."""
    await door.ask(door.token())
    door.world.wait(SECOND)
    await door.world.store(mara(door.world.clock(), signing_key=NEW.did_key))
    assert (await door.ask(door.token(NEW))).did == MARA
    assert door.look_ups == 1


async def test_account_that_is_known_asks_while_the_directory_is_away(door: Door):
    await door.world.store(mara(door.world.clock() - 2 * MAX_AGE, signing_key=OLD.did_key))
    door.world.fake.mood = Mood.OUTAGE
    assert (await door.ask(door.token())).did == MARA


async def test_account_of_which_nobody_can_be_asked_now_may_try_again(door: Door):
    door.world.fake.mood = Mood.OUTAGE
    assert await refusal(door.ask(door.token())) is NotEnoughResources


@pytest.mark.parametrize(
    "issuer", [NOOR, "did:plc:short", "did:example:mara", "did:web:localhost%3A1", "did:web:127.0.0.1", "did:web:a"]
)
async def test_account_that_cannot_be_resolved_is_named(door: Door, issuer: str):
    expected = {"did:web:localhost%3A1": NotEnoughResources}.get(issuer, BadJwtIss)
    assert await refusal(door.ask(door.token(issuer=issuer))) is expected


async def test_tombstone_signs_nothing(door: Door):
    await door.ask(door.token())
    door.world.fake.tombstoned.add(MARA)
    del door.world.fake.documents[MARA]
    door.world.wait(MAX_AGE)
    door.world.wait(SECOND)
    assert await refusal(door.ask(door.token())) is BadJwtIss


async def test_document_without_a_key_is_named(door: Door):
    door.world.fake.documents[MARA]["verificationMethod"] = []
    assert await refusal(door.ask(door.token())) is BadJwtIss


# Floods


async def test_flood_of_made_up_issuers_costs_a_bounded_number_of_look_ups(door: Door):
    names = [await refusal(door.ask(door.token(issuer=did_of(str(n))))) for n in range(ADDRESS_PACE.burst + 50)]
    assert door.look_ups == ADDRESS_PACE.burst
    assert names == [BadJwtIss] * ADDRESS_PACE.burst + [RateLimited] * 50
    door.time_s += 3
    for n in range(1000, 1020):
        await refusal(door.ask(door.token(issuer=did_of(str(n)))))
    assert door.look_ups == ADDRESS_PACE.burst + 3


async def test_flood_of_one_made_up_issuer_costs_one_look_up(door: Door):
    for _ in range(100):
        assert await refusal(door.ask(door.token(issuer=NOOR))) is BadJwtIss
    assert door.look_ups == 1


async def test_flood_at_the_same_time_costs_no_more(door: Door):
    door.world.fake.mood = Mood.HELD
    flood = [asyncio.create_task(refusal(door.ask(door.token(issuer=did_of(str(n)))))) for n in range(100)]
    await door.world.fake.until_asked(1)
    door.world.fake.release.set()
    names = await asyncio.gather(*flood)
    assert door.look_ups <= ADDRESS_PACE.burst
    assert names.count(RateLimited) == 100 - ADDRESS_PACE.burst


async def test_flood_from_one_address_hinders_no_other(door: Door):
    for n in range(ADDRESS_PACE.burst + 1):
        await refusal(door.ask(door.token(issuer=did_of(str(n)))))
    assert await refusal(door.ask(door.token())) is RateLimited
    assert (await door.ask(door.token(), address=ELSEWHERE)).did == MARA


async def test_flood_hinders_no_account_that_is_known(door: Door):
    """Not even one whose identity is older than is good: it stands until there is room to ask."""
    await door.world.store(mara(door.world.clock() - 2 * MAX_AGE, signing_key=OLD.did_key))
    for n in range(ADDRESS_PACE.burst + 1):
        await refusal(door.ask(door.token(issuer=did_of(str(n)))))
    before = door.look_ups
    assert (await door.ask(door.token())).did == MARA
    assert await refusal(door.ask(door.token(NEW))) is BadJwtSignature
    assert door.look_ups == before


async def test_flood_from_many_addresses_is_bounded_too(database: Database):
    budget = LookUpBudget(lambda: 0.0, pace_in_all=Pace(burst=12, per_s=1.0))
    async with door_with(database, budget) as door:
        names = [
            await refusal(door.ask(door.token(issuer=did_of(str(n))), address=f"198.51.100.{n}")) for n in range(20)
        ]
        assert door.look_ups == 12
        assert names == [BadJwtIss] * 12 + [NotEnoughResources] * 8


async def test_addresses_that_are_forgotten_do_not_lift_the_bound(database: Database):
    budget = LookUpBudget(lambda: 0.0, address_pace=Pace(1, 1.0), pace_in_all=Pace(burst=5, per_s=1.0), max_addresses=2)
    async with door_with(database, budget) as door:
        for n in range(20):
            await refusal(door.ask(door.token(issuer=did_of(str(n))), address=str(n % 4)))
        assert door.look_ups == 5
        assert len(budget._addresses) == 2


def test_clock_that_goes_back_gives_nothing_away():
    time_s = 100.0
    budget = LookUpBudget(lambda: time_s, address_pace=Pace(2, 1.0))
    assert [budget.take("a") for _ in range(2)] == [None, None]
    time_s = 50.0
    limited = budget.take("a")
    assert isinstance(limited, RateLimited)
    assert limited.retry_after_s == 1


# Replay


async def test_token_for_a_read_holds_until_it_expires(door: Door):
    token = door.token()
    for _ in range(3):
        assert (await door.ask(token)).did == MARA
    door.world.wait(timedelta(seconds=60))
    assert await refusal(door.ask(token)) is JwtExpired


async def test_token_for_a_procedure_holds_once(door: Door):
    token = door.token(lxm=CREATE)
    assert (await door.create(token)).did == MARA
    assert await refusal(door.create(token)) is JwtReplayed
    assert (await door.create(door.token(lxm=CREATE, jti="another"))).did == MARA


async def test_token_with_the_jti_of_a_used_one_is_used(door: Door):
    await door.create(door.token(lxm=CREATE))
    door.world.wait(SECOND)
    assert await refusal(door.create(door.token(lxm=CREATE))) is JwtReplayed


async def test_token_that_is_used_many_times_at_once_holds_once(door: Door):
    await door.ask(door.token())
    token = door.token(lxm=CREATE)
    outcomes = await asyncio.gather(*(door.create(token) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(outcome, Viewer) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, JwtReplayed) for outcome in outcomes) == 19


async def test_jti_of_one_account_says_nothing_of_another(door: Door):
    door.has_key(NEW, NOOR)
    door.world.fake.documents[NOOR] = document(NOOR, handle="noor.example", pds=PDS, key=NEW.did_key)
    await door.create(door.token(lxm=CREATE))
    assert (await door.create(door.token(NEW, NOOR, lxm=CREATE))).did == NOOR


async def test_procedure_takes_no_token_that_cannot_be_told_from_others(door: Door):
    assert await refusal(door.create(door.token(lxm=CREATE, jti=None))) is BadJwt
    assert door.look_ups == 0


async def test_forged_token_uses_up_nothing(door: Door):
    await door.ask(door.token())
    assert await refusal(door.create(door.token(SigningKey("forger"), lxm=CREATE))) is BadJwtSignature
    assert (await door.create(door.token(lxm=CREATE))).did == MARA


async def test_what_is_kept_of_a_used_token_is_a_hash_until_it_expires(door: Door, database: Database):
    await door.create(door.token(lxm=CREATE, jti="a name of its own"))
    async with database.connection() as conn:
        [row] = await conn.fetch("select * from seen_tokens")
    assert row["repo"] == MARA
    assert len(row["jti_sha256"]) == 32
    assert row["expires_at"] == door.world.clock() + timedelta(seconds=60)


async def test_viewer_of_whom_hosting_says_that_they_left_reads_what_is_public(door: Door, database: Database):
    async with database.connection() as conn:
        await conn.execute(
            "insert into repos (repo, state, visible, status, tracked_at, changed_at) "
            "values ($1, 'active', false, 'deactivated', $2, $2)",
            MARA,
            door.world.clock(),
        )
    assert (await door.ask(door.token())).spaces == ReadableSpaces.public_only()


async def test_no_error_repeats_the_token(door: Door):
    token = door.token(SigningKey("forger"), jti="Mandarin")
    with pytest.raises(Refusal) as caught:
        await door.ask(token)
    assert "Mandarin" not in repr(caught.value)
    assert replace(ANYBODY, id="x") != ANYBODY
