"""Every refusal that was recorded of the reference implementation, and what becomes of it here.

A refusal is an endpoint, a status and a name. Each is either answered to what asks that endpoint here, or to what asks
another behind the same door, or it is of an endpoint that nothing here asks.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
import pytest

from appview.access import Access
from appview.faces.xrpc import PREFIX
from appview.issuers import Issuers, LookUpBudget
from indexer.spaces.hosts import Proofs, open_space_hosts
from indexer.spaces.reads import AccountInactive, CredentialsRefused, RepoAbsent, SpaceReads
from memory.database import Database
from memory.dpop import ProofKey
from memory.outbound_errors import HostRefused
from memory.space_credential import SpaceCredential
from memory.space_protocol import SpaceMethod
from memory_client import MemoryApiError
from memory_spaces import pds_delegation
from tests.api_client import Api, refused
from tests.builders import START, memory
from tests.credentials_recorded import REFUSED
from tests.fakes.answering_host import Answer, AnsweringHost, answering_host
from tests.fakes.identities import world_at
from tests.fakes.internet import LOOPBACK, Names
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_tokens import read_token
from tests.feed import rkey
from tests.service.test_space_exchange_recorded import OUTCOMES
from tests.space_replay import Exchange, exchanges
from tests.spaces_world import BUDGET, setting, spaces_world

Refusal = tuple[str, int, str]  # the last part of the NSID, the status, the name

RECORDINGS: Final = ("main", "more", "oauth", "oauth-refused")
_SPACE: Final = "com.atproto.space."


def name_of(exchange: Exchange) -> str:
    """Of the endpoint: the last part of an NSID, else the path."""
    return exchange.nsid.removeprefix(_SPACE)


def recorded_refusals() -> dict[Refusal, list[Exchange]]:
    found: dict[Refusal, list[Exchange]] = {}
    for recording in RECORDINGS:
        for exchange in exchanges(recording):
            answer = exchange.raw.get("response")
            if answer is not None and answer["status"] >= 400:
                found.setdefault((name_of(exchange), answer["status"], exchange.said["error"]), []).append(exchange)
    return found


RECORDED: Final = recorded_refusals()

# What the readers of Spaces make of it: which failure, and of how many credentials it is the word.
_OF_THE_CREDENTIAL: Final = (CredentialsRefused, 2)
_OF_THE_REPO: Final = (RepoAbsent, 1)
_OF_THE_ACCOUNT: Final = (AccountInactive, 1)
_FOR_THE_TIME_BEING: Final = (HostRefused, 1)
READ: Final[dict[Refusal, tuple[type[Exception], int]]] = {
    ("listRepos", 400, "InvalidCredential"): _OF_THE_CREDENTIAL,
    ("listRepos", 400, "SpaceNotFound"): _FOR_THE_TIME_BEING,
    ("registerNotify", 400, "ServiceNotResolvable"): _FOR_THE_TIME_BEING,
    ("registerNotify", 400, "SpaceNotFound"): _FOR_THE_TIME_BEING,
    ("listRepoOps", 400, "InvalidRequest"): _FOR_THE_TIME_BEING,
    ("listRepoOps", 400, "MalformedCursor"): _FOR_THE_TIME_BEING,
    ("getRepo", 400, "RepoNotFound"): _OF_THE_REPO,
    ("getRepo", 400, "RepoDeactivated"): _OF_THE_ACCOUNT,
    ("getRepo", 400, "RepoTakendown"): _OF_THE_ACCOUNT,
    # Recorded of a method that is not asked here, at the door that those have too which are.
    ("getLatestCommit", 400, "InvalidCredential"): _OF_THE_CREDENTIAL,
    ("getLatestCommit", 400, "InvalidToken"): _OF_THE_CREDENTIAL,
    ("getLatestCommit", 400, "InvalidRequest"): _FOR_THE_TIME_BEING,
    ("getLatestCommit", 400, "RepoNotFound"): _OF_THE_REPO,
    **{
        ("getLatestCommit", 401, error): _OF_THE_CREDENTIAL
        for error in (
            *("AuthMissing", "BadJwt", "BadJwtCnf", "BadJwtIss", "BadJwtSignature", "JwtExpired", "use_dpop_nonce"),
            *("MissingDpopProof", "BadDpopProof", "BadDpopProofSignature", "DpopProofExpired", "DpopKeyMismatch"),
        )
    },
}
# What whoever opens a Space is told: `test_space_exchange_recorded.py` has each by its step.
EXCHANGED: Final = "getSpaceCredential"
# What the reference did not take from others, and is not taken here either.
TOLD: Final = "notifyWrite"
# What a viewer's PDS refuses to their app.
DELEGATED: Final = "getDelegationToken"
# Management, writes, blobs, single records, and OAuth: nothing here asks for any of them.
NEVER_ASKED: Final = frozenset(
    {
        *("createRecord", "putRecord", "applyWrites", "getRecord", "listRecords", "getBlob", "listSpaces"),
        *(f"com.atproto.simplespace.{name}" for name in ("addMember", "createSpace", "deleteSpace", "getSpace")),
        *("com.atproto.simplespace.listMembers", "/oauth/par"),
    }
)


def test_every_recorded_refusal_has_its_place():
    assert len(RECORDED) == 67
    placed = {
        refusal for refusal in RECORDED if refusal[0] in (EXCHANGED, TOLD, DELEGATED) or refusal[0] in NEVER_ASKED
    }
    assert placed | READ.keys() == RECORDED.keys()
    assert not placed & READ.keys()


@pytest.mark.parametrize("name", sorted(NEVER_ASKED))
def test_what_is_never_asked_has_no_name_here(name: str):
    assert {f"{_SPACE}{name}", name} & {method.value for method in SpaceMethod} == set()


def test_every_refused_exchange_has_its_outcome():
    told = {(EXCHANGED, each.status, each.answer["error"]) for step, each in REFUSED.items() if step in OUTCOMES}
    assert told == {refusal for refusal in RECORDED if refusal[0] == EXCHANGED}


# What is read


@asynccontextmanager
async def reads_of(host: AnsweringHost) -> AsyncGenerator[SpaceReads]:
    """Two credentials, of which nobody but the host says what they are worth."""
    draw = random.Random(4)
    credentials = [SpaceCredential("a.b.c", ProofKey.generate(draw.randbytes)) for _ in range(2)]
    proofs = Proofs(lambda: START, draw.randbytes)
    async with open_space_hosts(Names(), BUDGET, proofs, allowed=LOOPBACK) as hosts:
        yield SpaceReads(hosts, "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/com.example.group/main", credentials)


async def read_repo(reads: SpaceReads, host: str) -> None:
    async with reads.repo(host, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"):
        pass


async def read_ops(reads: SpaceReads, host: str) -> None:
    await reads.list_ops(host, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "3kaaaaaaaaa2a", None)


ASKED_BY: Final[dict[str, Callable[[SpaceReads, str], Awaitable[object]]]] = {
    "listRepos": lambda reads, host: reads.list_repos(host),
    "registerNotify": lambda reads, host: reads.register(host, "did:web:x#atproto_space_syncer"),
    "listRepoOps": read_ops,
    "getLatestCommit": read_ops,
    "getRepo": read_repo,
}


@pytest.mark.parametrize("refusal", READ, ids=lambda refusal: "-".join(map(str, refusal)))
async def test_refused_read_is_what_it_is_a_word_on(refusal: Refusal):
    """The credential: the next one is tried. The repo or its account: that is told. Else: it is asked again, later."""
    failure, times = READ[refusal]
    for recorded in RECORDED[refusal]:
        async with (
            answering_host(lambda _, said=recorded: Answer.of(refusal[1], said.said)) as host,
            reads_of(host) as reads,
        ):
            with pytest.raises(failure) as caught:
                await ASKED_BY[refusal[0]](reads, f"http://127.0.0.1:{host.port}")
            assert len(host.asked) == times
        if isinstance(caught.value, AccountInactive):
            assert f"Repo{caught.value.status.title()}" == refusal[2]
        assert "did:plc" not in str(caught.value)


@pytest.mark.parametrize("error", ["MalformedCursor", "InvalidRequest"])
async def test_ops_that_are_refused_are_made_good_by_the_whole_repo(database: Database, error: str):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.away.faults.refusal = (400, error)
        here.away.misbehave(Fault.REFUSING, "listRepoOps")
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        assert here.away.asked_for("getRepo") == 2


async def test_repo_that_its_host_does_not_find_is_kept_unserved(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.away.faults.refusal = (400, "RepoNotFound")
        here.away.misbehave(Fault.REFUSING)
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), [], seconds=30)
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        assert (await world.repo_row(here.space, here.bob))["failure"] == "repo_not_found"
        here.away.misbehave(None)
        await world.open(here.space, here.bob)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"], seconds=20)


# What is told


async def test_what_the_reference_was_told_wrongly_is_not_taken_here(database: Database):
    """It is for somebody else: a host of Spaces, of which this is none. Nobody is looked up for it."""
    told = [exchange for refusal, each in RECORDED.items() if refusal[0] == TOLD for exchange in each]
    assert len(told) == 6
    async with world_at(database) as world:
        for exchange in told:
            headers = {name: exchange.request["headers"][name] for name in ("authorization", "content-type")}
            token = read_token(headers["authorization"].partition(" ")[2])
            world.clock.now = at(exchange)
            own_did = token.says("aud").partition("#")[0]
            access = Access(
                database, Issuers(world.resolver, LookUpBudget(lambda: 0.0)), own_did=own_did, clock=world.clock
            )
            api = Api(database, now=world.clock(), access=access)
            response = await api.send("POST", PREFIX + exchange.nsid, headers=headers, json=exchange.body)
            assert (response.status_code, refused(response).error) == (401, "BadJwtAudience"), exchange.step
        assert world.fake.asked == []
        async with database.connection() as conn:
            assert await conn.fetchval("select count(*) from space_inbox") == 0


def at(exchange: Exchange) -> datetime:
    """By the clock of who was told."""
    return parsedate_to_datetime(exchange.answer["headers"]["date"])


# What is delegated


@pytest.mark.parametrize(
    "refusal", [each for each in RECORDED if each[0] == DELEGATED], ids=lambda refusal: "-".join(map(str, refusal))
)
def test_what_a_pds_does_not_delegate_reaches_the_app_by_its_name(refusal: Refusal):
    for recorded in RECORDED[refusal]:
        answer: dict[str, Any] = {"status_code": refusal[1], "json": recorded.said}
        transport = httpx.MockTransport(lambda _, answer=answer: httpx.Response(**answer))
        with pytest.raises(MemoryApiError) as caught:
            pds_delegation("https://pds.test", "x", transport=transport)("at://did:plc:x/space/a.b.c/d")
        assert (caught.value.status, caught.value.error) == refusal[1:]
        assert caught.value.message == recorded.said["message"]
