"""What viewers, authorities and whoever pretends to be one of them do between two requests, drawn at random.

async with acting(draw, cast) as actor:
    await actor.begin(whole)                     # the index, whose API has `actor.opening`
    fault = await actor.act()                    # null: it was answered as it should be, and did what it should

Spaces are opened by delegation tokens of one's own and of others, forged, replayed, for another Space and expired ones;
by access tokens of one's own and of others, and by service auth. Grants are listed, closed and revoked. Authorities
tell of writes and deletions, truly and falsely, others pretend to; members are removed, accounts go and come back, time
passes, Spaces are deleted, purged (by the indexer's own code) and made again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import httpx

from appview.call import SpaceOpening
from appview.faces.xrpc import PREFIX
from appview.rates import Rates
from appview.spaces.exchange import Exchange
from appview.tokens import parse_access_token
from appview.views import datetime_text
from memory.outbound import Outbound
from memory.sealed import SealingKeys
from memory.space_authorities import SpaceAuthorities
from tests.api_client import NAMESPACE
from tests.fakes.directory import directory
from tests.fakes.internet import plain_outbound
from tests.fakes.space_host import SpaceHost, space_world
from tests.fakes.space_host_spaces import DELETED, WRITE, Space
from tests.fakes.space_host_tokens import Token, delegation_token, service_token
from tests.fakes.space_host_world import Account
from tests.isolation import AUTHORITIES, KEYS, SPACE_TYPE, SPACES, UNKNOWN, VIEWERS, App, Cast, Grant, tell_inactive
from tests.isolation_indexes import KNOWN, Index
from tests.isolation_recreating import make_again, purge_now
from tests.service_tokens import OWN_DID

CREDENTIAL: Final = timedelta(hours=2)
SYNCER: Final = f"{OWN_DID}#atproto_space_syncer"
TOLD: Final = {
    "repo": VIEWERS[0],
    "rev": "3kaaaaaaaaa2a",
    "hash": {"$bytes": "L7pjnnnZt5TUuxHRlWbH/D+sYDlpT5dSciEZG3turJA"},
}
REFUSED: Final = range(400, 500)


@dataclass
class Actor:
    """Who does it, at a host that governs all the Spaces."""

    draw: random.Random
    cast: Cast
    host: SpaceHost
    opening: SpaceOpening
    accounts: dict[str, Account]
    seed: int
    index: Index | None = None
    used: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])  # viewer, Space, delegation
    used_auth: list[tuple[str, str, datetime]] = field(default_factory=list[tuple[str, str, datetime]])
    done: Counter[str] = field(default_factory=Counter[str])

    @property
    def whole(self) -> Index:
        assert self.index is not None
        return self.index

    async def act(self) -> str | None:
        """One act; what is wrong with its answer, or with what it led to."""
        acts: list[tuple[int, Callable[[], Awaitable[str | None]]]] = [
            (12, self._open), (2, self._close), (1, self._revoke), (4, self._list), (2, self._tell_of_a_write),
            (3, self._tell_of_a_deletion), (1, self._admit), (1, self._remove), (1, self._turn_account),
            (1, self._wait), (2, self._purge), (2, self._make_again),
        ]  # fmt: skip
        [act] = self.draw.choices([act for _, act in acts], [weight for weight, _ in acts])
        fault = await act()
        if fault is not None:
            return f"{act.__name__}: {fault}"
        return await self._wrong_grants()

    async def _wrong_grants(self) -> str | None:
        """Nothing may be granted but what the cast knows of, and not for longer."""
        async with self.whole.database.connection() as conn:
            rows = await conn.fetch(
                "select repo, token, space, expires_at from grants where expires_at > $1", self.cast.now
            )
        held = {(row["repo"], row["token"], row["space"]): row["expires_at"] for row in rows}
        known = {key: grant.ends for key, grant in self.cast.grants.items() if grant.ends > self.cast.now}
        return None if held == known else f"grants are {held.items() ^ known.items()}"

    # As a viewer

    def _auth(self, method: str, viewer: str, *, key: str | None = None) -> str:
        """Service auth of a viewer for a method of ours; `key`: whose it is signed with."""
        jti = self.draw.randbytes(16).hex()
        return service_token(KEYS[key or viewer], viewer, OWN_DID, NAMESPACE + method, self.cast.now, jti)

    async def _post(self, method: str, credential: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"authorization": f"Bearer {credential}"}
        return await self.whole.send("POST", PREFIX + NAMESPACE + method, headers=headers, json=body)

    def _credential(self, method: str, viewer: str) -> tuple[str, App | None, bool]:
        """What a request for a viewer comes with, the app if it is one's, and whether it holds."""
        draw, chance = self.draw, self.draw.random()
        if chance < 0.6:
            app = draw.choice([app for app in self.cast.apps if app.token is not None and app.token.did == viewer])
            assert app.token is not None
            return app.text, app, self.cast.is_kept(app.token)
        if chance < 0.7:
            app = draw.choice([app for app in self.cast.apps if app.token is None])
            return app.text, None, False
        fresh = [
            text for did, text, at in self.used_auth if did == viewer and self.cast.now - at < timedelta(minutes=1)
        ]
        if chance < 0.8 and fresh:
            return draw.choice(fresh), None, False  # of another method, or used up
        if chance < 0.85:
            return self._auth(method, viewer, key=draw.choice([did for did in VIEWERS if did != viewer])), None, False
        text = self._auth(method, viewer)
        self.used_auth.append((viewer, text, self.cast.now))
        return text, None, True

    def _delegation(self, viewer: str, space: str) -> tuple[str, str, bool]:
        """A delegation token, of what kind it is, and whether it holds for that viewer and Space."""
        draw, now = self.draw, self.cast.now
        other = draw.choice([did for did in VIEWERS if did != viewer])
        jti = draw.randbytes(16).hex()
        used = [text for did, of, text in self.used if (did, of) == (viewer, space)]
        kind = draw.choice(
            ("own",) * 9 + ("another's", "forged", "of another Space", "expired") + (("used",) * 2 if used else ())
        )
        match kind:
            case "another's":
                text = delegation_token(KEYS[other], other, space, now, jti)
            case "forged":
                text = delegation_token(KEYS[other], viewer, space, now, jti)
            case "of another Space":
                text = delegation_token(
                    KEYS[viewer], viewer, draw.choice([of for of in SPACES if of != space]), now, jti
                )
            case "expired":
                text = delegation_token(KEYS[viewer], viewer, space, now - timedelta(minutes=3), jti)
            case "used":
                text = draw.choice(used)
            case _:
                text = delegation_token(KEYS[viewer], viewer, space, now, jti)
        return text, kind, kind == "own"

    async def _open(self) -> str | None:
        draw, cast = self.draw, self.cast
        viewer, space = draw.choice(VIEWERS), draw.choice((*SPACES, *SPACES, UNKNOWN))
        credential, app, holds = self._credential("openSpace", viewer)
        delegation, kind, is_good = self._delegation(viewer, space)
        answer = await self._post("openSpace", credential, {"space": space, "delegationToken": delegation})
        self.done[kind if holds else "without a credential"] += 1
        if holds and is_good:
            self.used.append((viewer, space, delegation))  # also one that was refused
        governed = self.host.governed
        there = governed.spaces.get(space)
        if not holds or not is_good or there is None or not there.is_open_to(viewer):
            if holds and is_good:
                self.done[answer.json()["error"]] += 1
            if holds and is_good and space in governed.deleted:
                await self._was_told(space)
            return self._is(answer, REFUSED, f"{kind}, {holds}")
        if (wrong := self._is(answer, range(200, 201), f"{kind} of {viewer} to {space}")) is not None:
            return wrong
        said, ends = answer.json(), cast.now + CREDENTIAL
        if app is None:
            made = parse_access_token(said["accessToken"])
            assert made is not None
            cast.tokens[made.id] = made, ends
            app = App(made.text, made)
            cast.apps.append(app)
        assert app.token is not None
        ends = min(ends, cast.tokens[app.token.id][1])
        cast.grants[viewer, app.token.id, space] = Grant(cast.now, ends)
        async with self.whole.database.connection() as conn:  # by the clock of the database; here it is the cast's
            await conn.execute(
                "update grants set granted_at = $4 where (repo, token, space) = ($1, $2, $3)",
                *(viewer, app.token.id, space, cast.now),
            )
        ready = cast.states[space] == "fresh"
        expected = {"status": "ready" if ready else "syncing", "expiresAt": datetime_text(ends)}
        return None if {**said, **expected} == said else f"{said} and not {expected}"

    async def _close(self) -> str | None:
        viewer = self.draw.choice(VIEWERS)
        opened = sorted(space for did, _, space in self.cast.grants if did == viewer)
        space = self.draw.choice(opened if opened and self.draw.random() < 0.8 else SPACES)
        credential, app, holds = self._credential("closeSpace", viewer)
        answer = await self._post("closeSpace", credential, {"space": space})
        if not holds:
            return self._is(answer, REFUSED)
        self.done["closed"] += 1
        for key in list(self.cast.grants):
            if key[0] == viewer and key[2] == space and (app is None or app.token is None or key[1] == app.token.id):
                del self.cast.grants[key]
        return self._is(answer, range(200, 201))

    async def _revoke(self) -> str | None:
        cast, by = self.cast, self.draw.choice(VIEWERS)
        token, _ = self.draw.choice(list(cast.tokens.values()))
        answer = await self._post("revokeAccessToken", self._auth("revokeAccessToken", by), {"id": token.id})
        if by != token.did:
            return self._is(answer, REFUSED)
        self.done["revoked"] += 1
        del cast.tokens[token.id]
        cast.grants = {key: grant for key, grant in cast.grants.items() if key[:2] != (by, token.id)}
        return self._is(answer, range(200, 201))

    async def _list(self) -> str | None:
        """An app finds its own grants, those too that let nothing be read now, and no others."""
        cast, app = self.cast, self.draw.choice(self.cast.apps)
        answer = await self.whole.send(
            "GET", f"{PREFIX}{NAMESPACE}listGrants", headers={"authorization": f"Bearer {app.text}"}
        )
        if app.token is None or not cast.is_kept(app.token):
            return self._is(answer, REFUSED)
        self.done["listed"] += 1
        expected = [
            {
                "space": space,
                "status": "ready" if cast.states[space] == "fresh" else "syncing",
                "grantedAt": datetime_text(grant.at),
                "expiresAt": datetime_text(grant.ends),
            }
            for space, grant in cast.granted(app.token)
        ]
        return self._is(answer, range(200, 201)) or (
            None if answer.json() == {"grants": expected} else f"{answer.text} and not {expected}"
        )

    # As an authority, or as if one were one

    async def _tell_of_a_write(self) -> str | None:
        space = self.draw.choice((*SPACES, UNKNOWN))
        answer, is_true = await self._tell(WRITE, space, {"space": space, **TOLD})
        return self._is(answer, range(200, 201) if is_true else REFUSED)

    async def _tell_of_a_deletion(self) -> str | None:
        """Mostly it is not true, and not by who may say it."""
        space = self.draw.choice(SPACES)
        answer, is_true = await self._tell(DELETED, space, {"space": space}, seldom=True)
        if is_true:
            await self._was_told(space)
            there = self.host.governed.spaces.get(space)
            if there is not None and self.draw.random() < 0.7:
                there.delete()
        return self._is(answer, range(200, 201) if is_true else REFUSED)

    async def _tell(
        self, method: str, space: str, body: dict[str, Any], *, seldom: bool = False
    ) -> tuple[httpx.Response, bool]:
        """Whether it was told by the authority itself, of a Space that somebody opened, once."""
        draw, authority = self.draw, space.split("/")[2]
        others = [did for did in KEYS if did != authority]
        issuer = key = authority
        audience, named, at = SYNCER, method, self.cast.now
        kind = draw.choice(
            ("true",) * (1 if seldom else 4) + ("another", "forged", "as a viewer", "of another method", "old", "again")
        )
        match kind:
            case "another":
                issuer = key = draw.choice(others)
            case "forged":
                key = draw.choice(others)
            case "as a viewer":
                audience = OWN_DID
            case "of another method":
                named = NAMESPACE + "openSpace"
            case "old":
                at -= timedelta(minutes=3)
            case _:
                pass
        token = service_token(KEYS[key], issuer, audience, named, at, draw.randbytes(16).hex())
        is_known = any(of.split("/")[2] == authority and state != "gone" for of, state in self.cast.states.items())
        headers = {"authorization": f"Bearer {token}"}
        if kind == "again":  # the first time, of nothing
            nothing = body | {"space": f"at://{authority}/space/{SPACE_TYPE}/nothing"}
            await self.whole.send("POST", PREFIX + method, headers=headers, json=nothing)
        answer = await self.whole.send("POST", PREFIX + method, headers=headers, json=body)
        self.done["told truly" if kind == "true" else f"{kind} word" if kind == "forged" else f"word {kind}"] += 1
        return answer, kind == "true" and is_known

    async def _was_told(self, space: str) -> None:
        async with self.whole.database.connection() as conn:
            noted = await conn.fetchval(
                "select exists (select from space_inbox where space = $1 and kind = 'deleted')", space
            )
        assert noted or self.cast.states[space] == "gone"
        if noted:
            self.cast.states[space] = "told"
            self.cast.told_at[space] = self.cast.now
            self.cast.wait(timedelta(seconds=1))  # what comes now comes after

    async def _admit(self) -> None:
        self._any_space().admit(self.accounts[self.draw.choice(VIEWERS)])

    async def _remove(self) -> None:
        """They read on until what they were given ends, and are given no more."""
        self._any_space().remove(self.accounts[self.draw.choice(VIEWERS)])

    def _any_space(self) -> Space:
        return self.draw.choice(list(self.host.governed.spaces.values()))

    async def _turn_account(self) -> None:
        """A relay says that an account is away, or there again."""
        viewer = self.draw.choice(VIEWERS)
        how = self.cast.inactive.get(viewer)
        async with self.whole.database.connection() as conn:
            if how is None:
                self.cast.inactive[viewer] = "relay"
                await tell_inactive(conn, viewer)
            elif how == "relay":
                del self.cast.inactive[viewer]
                await conn.execute("delete from account_status where repo = $1", viewer)

    async def _wait(self) -> None:
        self.cast.wait(timedelta(minutes=self.draw.choice((1, 20, 59))))

    async def _purge(self) -> None:
        """What the indexer does about what it was told."""
        told = [space for space, state in self.cast.states.items() if state in ("told", "deleted")]
        if not told:
            return
        space = self.draw.choice(told)
        at = self.cast.told_at[space]
        await purge_now(self.whole.database, space, at)
        self.done["purged"] += 1
        self.cast.states[space] = "gone"
        self.cast.grants = {key: grant for key, grant in self.cast.grants.items() if key[2] != space or grant.at > at}

    async def _make_again(self) -> None:
        """At its host; and here, once somebody opened it: with the same in it, for who was let in anew."""
        for space in self.host.governed.deleted & set(SPACES):
            authority = self.accounts[space.split("/")[2]]
            members = self.draw.sample([self.accounts[did] for did in VIEWERS], k=2)
            self.host.create_space(authority, space.rpartition("/")[2], *members, space_type=SPACE_TYPE)
        for space, state in self.cast.states.items():
            if state == "gone" and any(of == space for _, _, of in self.cast.grants):
                await make_again(self.whole, self.seed, self.cast, space)
                self.cast.states[space] = "fresh"
                self.done["made again"] += 1

    def _is(self, answer: httpx.Response, expected: range, what: str = "") -> str | None:
        return None if answer.status_code in expected else f"{answer.status_code} {answer.text} ({what})"


def _opening(draw: random.Random, outbound: Outbound, plc_url: str, clock: Callable[[], datetime]) -> SpaceOpening:
    exchange = Exchange(
        outbound,
        SpaceAuthorities(outbound, plc_url=plc_url, clock=clock),
        client=None,
        clock=clock,
        random_bytes=draw.randbytes,
    )
    keys = SealingKeys({"first": draw.randbytes(32)}, random_bytes=draw.randbytes)
    return SpaceOpening(KNOWN, exchange, keys, Rates(limit=0, clock=clock), Rates(limit=0, clock=clock))


def _believe(token: Token) -> None:
    """What a careless host does with a delegation token, but for one that was used before."""


@asynccontextmanager
async def acting(draw: random.Random, drawn: Cast, seed: int) -> AsyncGenerator[Actor]:
    """At a host on loopback, until the end of the block."""

    def clock() -> datetime:
        return drawn.now

    async with directory() as fake, plain_outbound() as outbound, space_world(clock, directory=fake) as world:
        host = await world.host()
        host.world.judge = _believe  # whose signature it is, and whether it holds, is for the API to see to
        accounts = {did: host.adopt(Account(world, did, "who.test", host.url, KEYS[did])) for did in KEYS}
        for space in SPACES:
            authority = accounts[space.split("/")[2]]
            members = draw.sample([accounts[did] for did in VIEWERS], k=2)
            made = host.create_space(authority, space.rpartition("/")[2], *members, space_type=SPACE_TYPE)
            if drawn.states[space] in ("told", "deleted"):
                made.delete()
        assert set(AUTHORITIES) <= set(accounts)
        yield Actor(draw, drawn, host, _opening(draw, outbound, fake.url, clock), accounts, seed)
        fake.release.set()
