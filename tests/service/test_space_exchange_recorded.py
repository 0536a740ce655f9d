"""What we make of each answer that the reference implementation gave to `getSpaceCredential`."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from appview.refusals import Refusal
from appview.spaces.delegation import judge_delegation
from appview.spaces.exchange import Exchange, Opened
from appview.spaces.refusals import (
    AppNotAuthorized,
    InvalidClientAttestation,
    InvalidDelegationToken,
    SpaceDeleted,
    SpaceHostUnavailable,
    SpaceNotFound,
    UserNotAuthorized,
)
from memory.outbound import Outbound
from memory.outbound_hosts import Hosts
from memory.space_authorities import SpaceAuthorities
from tests.credentials_recorded import DOCUMENTS, EXCHANGES, GRANTED, PROOF_SECRET, REFUSED, Exchanged, parts_of
from tests.fakes.answering_host import Answer, AnsweringHost, Asked, answering_host
from tests.fakes.internet import LOOPBACK, UNLIMITED, Names, Wire

METHOD = "/xrpc/com.atproto.space.getSpaceCredential"
GOOD = EXCHANGES["D.getSpaceCredential.bob"]

OUTCOMES: dict[str, tuple[type[Refusal], str, str]] = {
    "E.x.replayedDelegation": (InvalidDelegationToken, "InvalidDelegationToken", "JwtReplayed"),
    "E.x.noDpop": (SpaceHostUnavailable, "SpaceHostUnavailable", "MissingDpopProof"),
    "E.x.athPresent": (SpaceHostUnavailable, "SpaceHostUnavailable", "BadDpopProof"),
    "E.x.bodyOtherSpace": (InvalidDelegationToken, "InvalidDelegationToken", ""),
    "E.x.bodyOtherSpace.thenRetry(token consumed)": (InvalidDelegationToken, "InvalidDelegationToken", "JwtReplayed"),
    "E.x.wrongHost": (SpaceNotFound, "SpaceNotFound", ""),
    "E.x.carol(non-member)": (UserNotAuthorized, "UserNotAuthorized", ""),
    "E.x.carol.retrySameToken": (InvalidDelegationToken, "InvalidDelegationToken", "JwtReplayed"),
    "E.x.noSuchSpace": (SpaceNotFound, "SpaceNotFound", ""),
    "E.x.noSuchAuthority": (SpaceNotFound, "SpaceNotFound", ""),
    "E.x.expiredDelegation": (InvalidDelegationToken, "InvalidDelegationToken", "JwtExpired"),
    "E.x.badAud(bare did)": (InvalidDelegationToken, "InvalidDelegationToken", "BadJwtAudience"),
    "E.x.carolSignsForBob": (InvalidDelegationToken, "InvalidDelegationToken", "BadJwtSignature"),
    "E.x.accessJwtInsteadOfDelegation": (InvalidDelegationToken, "InvalidDelegationToken", "BadJwtType"),
    "E.x.malformedClientAttestation(500!)": (SpaceHostUnavailable, "SpaceHostUnavailable", "try again"),
    "E.allowList.noAttestation": (AppNotAuthorized, "AppNotAuthorized", ""),
    "G.dan.renew": (UserNotAuthorized, "UserNotAuthorized", ""),
    "H.renew.SpaceDeleted": (SpaceDeleted, "SpaceDeleted", ""),
    "H.renew.nonMember.SpaceDeleted(disclosed to anyone)": (SpaceDeleted, "SpaceDeleted", ""),
    "H.renew.stillSpaceDeleted": (SpaceDeleted, "SpaceDeleted", ""),
    "H.renew.afterAuthorityWrite(SpaceNotFound, not SpaceDeleted)": (SpaceNotFound, "SpaceNotFound", ""),
    "T.noAttestation": (AppNotAuthorized, "AppNotAuthorized", ""),
    "T.loopbackClientRefusedByProductionFetch": (InvalidClientAttestation, "InvalidClientAttestation", ""),
    "T.attested.replay": (InvalidClientAttestation, "InvalidClientAttestation", ""),
    "T.wrongAud": (InvalidClientAttestation, "InvalidClientAttestation", ""),
    "T.otherKey": (InvalidClientAttestation, "InvalidClientAttestation", ""),
    "T.expired": (InvalidClientAttestation, "InvalidClientAttestation", ""),
    "T.malformed": (SpaceHostUnavailable, "SpaceHostUnavailable", "try again"),
}


@asynccontextmanager
async def recorded_host(recorded: Exchanged) -> AsyncGenerator[AnsweringHost]:
    """The directory, and the host of every Space, which answers as was recorded."""

    def answer(asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer.of(200, DOCUMENTS[asked.path.removeprefix("/")])
        return Answer.of(recorded.status, recorded.answer)

    async with answering_host(answer) as host:
        yield host


async def open_with(host: AnsweringHost, at: datetime, draw: Callable[[int], bytes]) -> Opened:
    names = Names()
    names.add("localhost", ["127.0.0.1"])
    async with Outbound(names, Hosts(strangers=UNLIMITED), allowed=LOOPBACK, network=Wire(host.port)) as outbound:
        authorities = SpaceAuthorities(outbound, plc_url="http://localhost:26582", clock=lambda: at)
        exchange = Exchange(outbound, authorities, client=None, clock=lambda: at, random_bytes=draw)
        viewer = parts_of(GOOD.delegation)[1]["iss"]
        return await exchange.open(judge_delegation(GOOD.delegation, viewer=viewer, space=GOOD.space, now=GOOD.at))


def drawing(secret: bytes) -> Callable[[int], bytes]:
    """Randomness whose first is that secret."""
    drawn = iter([secret])
    return lambda length: next(drawn, random.Random(1).randbytes(length))


async def test_recorded_exchange_is_made_again():
    async with recorded_host(GOOD) as host:
        opened = await open_with(host, GOOD.at, drawing(PROOF_SECRET))
        (asked,) = host.asked_by("POST")
    assert asked.path == METHOD
    assert asked.headers["host"] == "localhost:26583"
    assert asked.headers["authorization"] == GOOD.authorization
    assert asked.headers["content-type"] == "application/json"
    assert asked.json == GOOD.body
    assert GOOD.proof is not None
    (header, claims), (made_header, made) = parts_of(GOOD.proof), parts_of(asked.headers["dpop"])
    assert made_header == header
    assert made == claims | {"jti": made["jti"], "iat": int(GOOD.at.timestamp())}
    assert opened.credential.text == GOOD.answer["credential"]
    assert abs(opened.expires_at - GOOD.at - timedelta(hours=2)) <= timedelta(seconds=1)


async def test_recorded_credential_for_another_key_is_refused():
    async with recorded_host(GOOD) as host:
        with pytest.raises(SpaceHostUnavailable, match="no credential"):
            await open_with(host, GOOD.at, random.Random(2).randbytes)


async def test_recorded_credential_that_is_replayed_when_it_has_expired_is_refused():
    async with recorded_host(GOOD) as host:
        with pytest.raises(SpaceHostUnavailable, match="no credential"):
            await open_with(host, GOOD.at + timedelta(hours=2, seconds=1), drawing(PROOF_SECRET))


@pytest.mark.parametrize("step", sorted(step for step in GRANTED if GRANTED[step].space != GOOD.space))
async def test_recorded_credential_for_another_space_is_refused(step: str):
    async with recorded_host(GRANTED[step]) as host:
        with pytest.raises(SpaceHostUnavailable, match="no credential"):
            await open_with(host, GRANTED[step].at, drawing(PROOF_SECRET))


def test_every_recorded_refusal_has_an_outcome():
    assert OUTCOMES.keys() == REFUSED.keys()


@pytest.mark.parametrize("step", sorted(REFUSED))
async def test_recorded_refusal_reaches_the_caller_by_its_name(step: str):
    kind, name, told = OUTCOMES[step]
    async with recorded_host(REFUSED[step]) as host:
        with pytest.raises(Refusal) as caught:
            await open_with(host, GOOD.at, random.Random(2).randbytes)
        assert len(host.asked_by("POST")) == 1  # a token is good once: nothing is tried again
    assert type(caught.value) is kind
    assert caught.value.error == name
    assert told in caught.value.message
    assert "/space/" not in caught.value.message
    assert "eyJ" not in caught.value.message
