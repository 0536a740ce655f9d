"""Viewers with several apps each, Spaces in every state, and who may read what by the simplest of words.

cast = draw_cast(random.Random(seed), now)
await draw_rows(seed, cast, SPACES).write(database)      # all that there is
await write_cast(database, cast)
await draw_rows(seed, cast, readable).write(other)       # what may be read by one app, and nothing else
await write_readable(other, cast, readable)
cast.readable(app)                                       # as it is now: the cast changes with what its viewers do

Every memory of a Space has a word that stands nowhere else, often in its kind, scope, agent or client too, and there
are record keys that are in one Space only: by these `load_marks` knows them wherever they show.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from appview.faces.stores.ids import Ids
from appview.keys import Key
from appview.store.stores import StoreKey
from appview.tokens import AccessToken, make_access_token
from memory.database import Database
from memory.queries import Connection
from tests.builders import SigningKey, tid
from tests.fakes.identities import did_of
from tests.granted import HOUR
from tests.memory_rows import ALICE, BOB, CAROL, START, MemoryRows

VIEWERS: Final = tuple(did_of(name) for name in ("ada", "ben", "cleo"))
AUTHORS: Final = (ALICE, BOB, CAROL, *VIEWERS[:2])
AUTHORITIES: Final = (did_of("a family"), did_of("an office"), VIEWERS[0])
KEYS: Final = {did: SigningKey(did) for did in (*VIEWERS, *AUTHORITIES)}
SPACE_TYPE: Final = "com.example.group"
SPACES: Final = tuple(
    f"at://{authority}/space/{SPACE_TYPE}/{skey}" for authority in AUTHORITIES for skey in ("family", "work")
)
UNKNOWN: Final = f"at://{AUTHORITIES[0]}/space/{SPACE_TYPE}/nothing"
RKEYS: Final = tuple(f"3kaaaaaaaaa2{letter}" for letter in "abcdef")
WORDS: Final[tuple[str, ...]] = ("tea", "green", "coffee", "prefers", "river", "morning", "lisbon")
GONE: Final = "deactivated"
IDS: Final = Ids(b"i" * 32)


@dataclass(frozen=True, slots=True)
class App:
    """What one app of a viewer's sends as its access token; null: that is none that was ever made."""

    text: str
    token: AccessToken | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """When a Space was granted to an access token, and until when."""

    at: datetime
    ends: datetime


@dataclass
class Cast:
    """All who ask, and what they did by now: what the index and its API have to make of it."""

    began: datetime
    now: datetime
    apps: list[App] = field(default_factory=list[App])
    tokens: dict[str, tuple[AccessToken, datetime]] = field(default_factory=dict[str, tuple[AccessToken, datetime]])
    grants: dict[tuple[str, str, str], Grant] = field(default_factory=dict[tuple[str, str, str], Grant])
    # Space → "fresh", "stale", "told" (that it was deleted), "deleted" (and known to be), "gone" (and purged)
    states: dict[str, str] = field(default_factory=dict[str, str])
    told_at: dict[str, datetime] = field(default_factory=dict[str, datetime])
    inactive: dict[str, str] = field(default_factory=dict[str, str])  # viewer → how
    inactive_at_first: dict[str, str] = field(default_factory=dict[str, str])

    def is_kept(self, token: AccessToken) -> bool:
        return token.id in self.tokens and self.tokens[token.id][1] > self.now

    def granted(self, token: AccessToken) -> list[tuple[str, Grant]]:
        """What a viewer finds in the list of what was granted, by Space."""
        own = [(space, grant) for (did, of, space), grant in self.grants.items() if (did, of) == (token.did, token.id)]
        return sorted((space, grant) for space, grant in own if grant.ends > self.now)

    def readable(self, app: App) -> frozenset[str]:
        """The Spaces that may be read with it now, as this project means it; in its simplest words."""
        token = app.token
        if token is None or not self.is_kept(token) or token.did in self.inactive:
            return frozenset()
        return frozenset(space for space, _ in self.granted(token) if self.states[space] == "fresh")

    def wait(self, time: timedelta) -> None:
        self.now += time


def draw_cast(draw: random.Random, now: datetime) -> Cast:
    """Three viewers with four apps each; one of them is not active. Some tokens are forged, expired or revoked."""
    cast = Cast(now, now)
    states = ["fresh", "fresh", "fresh", "stale", "deleted", "told"]
    draw.shuffle(states)
    cast.states = dict(zip(SPACES, states, strict=True))
    cast.told_at = {space: now for space, state in cast.states.items() if state in ("told", "deleted")}
    cast.inactive_at_first = {VIEWERS[2]: draw.choice((GONE, "tombstoned", "relay"))}
    cast.inactive = dict(cast.inactive_at_first)
    for viewer in VIEWERS:
        for number in range(4):
            token = make_access_token(viewer, draw.randbytes)
            cast.tokens[token.id] = token, now if number == 3 else now + HOUR * 24
            for space in draw.sample(SPACES, k=draw.choice((2, 3, 4))):
                ends = draw.choice((now + HOUR, now + HOUR, now))
                cast.grants[viewer, token.id, space] = Grant(now, ends)
            cast.apps.append(App(token.text, token))
            # Of the same id, by somebody who knows no more than that.
            forged = make_access_token(viewer, _first(bytes.fromhex(token.id), draw))
            cast.apps.append(App(forged.text))
            stolen = make_access_token(VIEWERS[(VIEWERS.index(viewer) + 1) % 3], _first(bytes.fromhex(token.id), draw))
            cast.apps.append(App(stolen.text))
        # Revoked: there are grants of it, but it is gone.
        revoked = make_access_token(viewer, draw.randbytes)
        cast.grants[viewer, revoked.id, SPACES[0]] = Grant(now, now + HOUR)
        cast.apps.append(App(revoked.text, revoked))
    return cast


def _first(identifier: bytes, draw: random.Random) -> Callable[[int], bytes]:
    drawn = iter((identifier,))
    return lambda count: next(drawn, None) or draw.randbytes(count)


def draw_rows(seed: int, cast: Cast, spaces: Iterable[str]) -> MemoryRows:
    """Public memories, and those of these Spaces. What is in a Space is the same, whichever others are there."""
    rows = MemoryRows()
    rows.frame_time = cast.began
    for author in AUTHORS:
        if author != CAROL:  # she has nothing public
            rows.repo(author, handle=f"{author[8:16]}.test")
    for viewer, how in cast.inactive_at_first.items():
        rows.repo(viewer, handle="gone.test", visible=how != GONE, status=GONE if how == GONE else None)
    for space in ("", *sorted(spaces)):
        _fill(rows, space, random.Random(f"{seed} {space}"))
    return rows


def _fill(rows: MemoryRows, space: str, draw: random.Random) -> None:
    made = 0
    for author in AUTHORS if space else [author for author in AUTHORS if author != CAROL]:
        keys: list[Key] = []
        for rkey in RKEYS:
            mark = mark_of(space, author, rkey)
            words = " ".join(draw.choices(WORDS, k=draw.randint(2, 6)) + ([mark] if space else []))
            named: dict[str, Any] = {
                name: f"{draw.choice(('a', 'b'))}{mark if space and draw.random() < 0.5 else ''}"
                for name in ("kind", "scope", "agent", "client")
                if draw.random() < 0.7
            }
            made += 1
            days = draw.randint(1, 90) + made / 1000
            occurred = ("2020-01-01T00:00:00Z", "year") if draw.random() < 0.3 else None
            replaced = draw.sample(keys, k=min(len(keys), draw.choice((0, 0, 1, 2))))
            # Entries out of the Space, which do nothing.
            elsewhere = [Key(author, draw.choice(("", *SPACES)), draw.choice(RKEYS))] if draw.random() < 0.2 else []
            key = rows.put(
                author,
                words,
                space=space,
                rkey=rkey,
                days=days,
                occurred=occurred,
                supersedes=[*replaced, *(each for each in elsewhere if each.space == space)],
                agent=named.pop("agent", None),
                client=named.pop("client", None),
                **named,
            )
            if draw.random() < 0.2:
                rows.put(author, f"{words} again", space=space, rkey=rkey, days=days, indexed_days=days + 5)
            if draw.random() < 0.1:
                rows.delete(key, days=days + 9)
            else:
                keys.append(key)
        if space:  # a key of its own too
            rows.put(author, f"tea {mark_of(space, author, 'own')}", space=space, rkey=own_rkey(space, author), days=95)


def own_rkey(space: str, author: str) -> str:
    """A record key that is in that Space only."""
    at = 1 + SPACES.index(space) * len(AUTHORS) + AUTHORS.index(author)
    return tid(START.replace(second=at), 7)


def mark_of(space: str, author: str, rkey: str) -> str:
    """A word that stands in one memory only."""
    letters = random.Random(f"{space} {author} {rkey}")
    return "zq" + "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=10))


class Marks:
    """All by which what is in Spaces is known: words, record keys of its own, CIDs, ids, and its at-uri."""

    def __init__(self, cids: Iterable[tuple[str, str]]) -> None:
        self._named: dict[bytes, str] = {cid.encode(): space for space, cid in cids}
        self._parts: list[tuple[bytes, str]] = []
        for space in SPACES:
            self._parts += [(space.encode(), space)]
            self._parts += [(own_rkey(space, author).encode(), space) for author in AUTHORS]
            for author in AUTHORS:
                self._named[IDS.of_store(StoreKey(author, space)).encode()] = space
                for rkey in (*RKEYS, own_rkey(space, author)):
                    self._named[IDS.of_memory(Key(author, space, rkey)).encode()] = space
                self._named |= {mark_of(space, author, rkey).encode(): space for rkey in (*RKEYS, "own")}

    def found(self, data: bytes) -> set[str]:
        """The Spaces of which there is something in it."""
        spaces = {self._named[name] for name in _NAMED.findall(data) if name in self._named}
        return spaces | {space for part, space in self._parts if part in data}


_NAMED: Final = re.compile(rb"(?=(zq[a-z]{10}|bafy[a-z2-7]{55}|(?:memstore|mem)_[0-9a-f]{32}))")


async def load_marks(database: Database) -> Marks:
    """Of all that there is."""
    async with database.connection() as conn:
        rows = await conn.fetch("select space, cid from memories union select space, cid from memory_versions")
    return Marks((row["space"], row["cid"]) for row in rows if row["space"] and row["cid"] is not None)


async def write_cast(database: Database, cast: Cast) -> None:
    """Tokens, grants and Spaces as they are at first."""
    async with database.transaction() as conn:
        for token, ends in cast.tokens.values():
            await keep_token(conn, token, cast.now, ends)
        for (did, token, space), grant in cast.grants.items():
            await conn.execute(
                "insert into grants values ($1, $2, $3, $4, $5)", did, token, space, grant.at, grant.ends
            )
        for space, state in cast.states.items():
            await _hold(conn, space, "deleted" if state == "deleted" else "ready", fresh=state != "stale")
            if state == "told":
                await conn.execute(
                    "insert into space_inbox (repo, space, kind) values (split_part($1, '/', 3), $1, 'deleted')", space
                )
        await _tombstone(conn, cast)
        for viewer, how in cast.inactive_at_first.items():
            if how == "relay":
                await tell_inactive(conn, viewer)


async def write_readable(database: Database, cast: Cast, spaces: Iterable[str]) -> None:
    """Only these Spaces, and that whoever has a token may read them: for what is asked with tokens that may."""
    async with database.transaction() as conn:
        for space in spaces:
            await _hold(conn, space, "ready", fresh=True)
        await _tombstone(conn, cast)


async def keep_token(conn: Connection, token: AccessToken, made: datetime, ends: datetime) -> None:
    await conn.execute(
        "insert into access_tokens values ($1, $2, $3, 'x', $4, $5)", token.did, token.id, token.digest(), made, ends
    )


async def _hold(conn: Connection, space: str, state: str, *, fresh: bool) -> None:
    await conn.execute(
        "insert into spaces (repo, space, state, opened_at, fresh_until, credentialed_until)"
        " values (split_part($1, '/', 3), $1, $2, now(), $3::text::timestamptz, now())",
        *(space, state, "infinity" if fresh else "-infinity"),
    )


async def hold(database: Database, space: str) -> None:
    """A Space that was just synced for the first time."""
    async with database.transaction() as conn:
        await _hold(conn, space, "ready", fresh=True)


async def _tombstone(conn: Connection, cast: Cast) -> None:
    """Who is gone for good has no handle any more."""
    for viewer, how in cast.inactive_at_first.items():
        if how == "tombstoned":
            await conn.execute("update identities set tombstoned = true where repo = $1", viewer)


async def tell_inactive(conn: Connection, viewer: str) -> None:
    await conn.execute(
        "insert into account_status values ($1, 'https://relay.example', 'relay', 1, false, null, now())", viewer
    )
