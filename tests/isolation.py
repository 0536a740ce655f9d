"""Viewers with several apps each, Spaces in every state, and who may read what by the simplest of words.

cast = draw_cast(random.Random(seed), now)
await draw_rows(seed, cast, SPACES).write(database)      # all that there is
await write_cast(database, cast, None)
await draw_rows(seed, cast, readable).write(other)       # what one app may read, and nothing else
await write_cast(other, cast, readable)

Every memory of a Space has a word that stands nowhere else, often in its kind, scope, agent or client too, and there
are record keys that are in one Space only: by these `load_marks` knows them wherever they show.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from appview.keys import Key
from appview.tokens import AccessToken, make_access_token
from memory.database import Database
from tests.builders import SigningKey, tid
from tests.fakes.identities import did_of
from tests.granted import HOUR
from tests.memory_rows import ALICE, BOB, CAROL, START, MemoryRows

VIEWERS: Final = tuple(did_of(name) for name in ("ada", "ben", "cleo"))
KEYS: Final = {did_of(name): SigningKey(name) for name in ("ada", "ben", "cleo")}
AUTHORS: Final = (ALICE, BOB, CAROL, *VIEWERS[:2])
AUTHORITIES: Final = ("did:plc:spaceaaaaaaaaaaaaaaaaaa", "did:plc:otheraaaaaaaaaaaaaaaaaa", VIEWERS[0])
SPACES: Final = tuple(
    f"at://{authority}/space/com.example.group/{skey}" for authority in AUTHORITIES for skey in ("family", "work")
)
UNKNOWN: Final = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/nothing"
RKEYS: Final = tuple(f"3kaaaaaaaaa2{letter}" for letter in "abcdef")
WORDS: Final[tuple[str, ...]] = ("tea", "green", "coffee", "prefers", "river", "morning", "lisbon")
GONE: Final = "deactivated"


@dataclass(frozen=True, slots=True)
class App:
    """One access token of a viewer, and what may be read by it. `text` is what is sent, true or not."""

    text: str
    readable: frozenset[str] = frozenset()


@dataclass
class Cast:
    """All who ask, what they may read, and the statements that make it so."""

    now: datetime
    apps: list[App] = field(default_factory=list[App])
    tokens: list[tuple[AccessToken, datetime]] = field(default_factory=list[tuple[AccessToken, datetime]])
    grants: list[tuple[AccessToken, str, datetime]] = field(default_factory=list[tuple[AccessToken, str, datetime]])
    states: dict[str, str] = field(default_factory=dict[str, str])  # Space → "fresh", "stale", "deleted" or "told"
    inactive: dict[str, str] = field(default_factory=dict[str, str])  # viewer → how

    def holds(self, token: AccessToken, space: str) -> bool:
        """Whether a grant holds, as this project means it; in its simplest words."""
        return (
            self.states[space] == "fresh"
            and token.did not in self.inactive
            and any(of is token and to == space and ends > self.now for of, to, ends in self.grants)
        )

    def readable_sets(self) -> set[frozenset[str]]:
        return {frozenset(), *(app.readable for app in self.apps)}


def draw_cast(draw: random.Random, now: datetime) -> Cast:
    """Three viewers with four apps each; one of them is not active. Some tokens are forged, expired or revoked."""
    cast = Cast(now)
    states = ["fresh", "fresh", "fresh", "stale", "deleted", "told"]
    draw.shuffle(states)
    cast.states = dict(zip(SPACES, states, strict=True))
    cast.inactive = {VIEWERS[2]: draw.choice((GONE, "tombstoned", "relay"))}
    for viewer in VIEWERS:
        for number in range(4):
            token = make_access_token(viewer, draw.randbytes)
            ends = now if number == 3 else now + HOUR * 24
            cast.tokens.append((token, ends))
            for space in draw.sample(SPACES, k=draw.choice((2, 3, 4))):
                cast.grants.append((token, space, draw.choice((now + HOUR, now + HOUR, now))))
            readable = frozenset(space for space in SPACES if ends > now and cast.holds(token, space))
            cast.apps.append(App(token.text, readable))
            # Of the same id, by somebody who knows no more than that.
            forged = make_access_token(viewer, _first(bytes.fromhex(token.id), draw))
            cast.apps.append(App(forged.text))
            stolen = make_access_token(VIEWERS[(VIEWERS.index(viewer) + 1) % 3], _first(bytes.fromhex(token.id), draw))
            cast.apps.append(App(stolen.text))
        # Revoked: there are grants of it, but it is gone.
        revoked = make_access_token(viewer, draw.randbytes)
        cast.grants.append((revoked, SPACES[0], now + HOUR))
        cast.apps.append(App(revoked.text))
    return cast


def _first(identifier: bytes, draw: random.Random) -> Callable[[int], bytes]:
    drawn = iter((identifier,))
    return lambda count: next(drawn, None) or draw.randbytes(count)


def draw_rows(seed: int, cast: Cast, spaces: Iterable[str]) -> MemoryRows:
    """Public memories, and those of these Spaces. What is in a Space is the same, whichever others are there."""
    rows = MemoryRows()
    rows.frame_time = cast.now
    for author in AUTHORS:
        if author != CAROL:  # she has nothing public
            rows.repo(author, handle=f"{author[8:16]}.test")
    for viewer, how in cast.inactive.items():
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


async def load_marks(database: Database) -> dict[str, set[bytes]]:
    """By Space, all by which what is in it is known: words, record keys of its own, CIDs, and its at-uri."""
    found: dict[str, set[bytes]] = {}
    async with database.connection() as conn:
        cids = await conn.fetch("select space, cid from memories union select space, cid from memory_versions")
    for space in SPACES:
        found[space] = {space.encode()}
        found[space] |= {mark_of(space, author, rkey).encode() for author in AUTHORS for rkey in (*RKEYS, "own")}
        found[space] |= {own_rkey(space, author).encode() for author in AUTHORS}
        found[space] |= {row["cid"].encode() for row in cids if row["space"] == space and row["cid"] is not None}
    return found


async def write_cast(database: Database, cast: Cast, spaces: Iterable[str] | None) -> None:
    """Tokens, grants and Spaces; null: all of them, else only those Spaces and grants that hold."""
    held = SPACES if spaces is None else sorted(spaces)
    async with database.transaction() as conn:
        for token, ends in cast.tokens:
            await conn.execute(
                "insert into access_tokens values ($1, $2, $3, 'x', $4, $5)",
                *(token.did, token.id, token.digest(), cast.now, ends),
            )
        for token, space, ends in cast.grants:
            if spaces is None or (space in held and cast.holds(token, space)):
                await conn.execute(
                    "insert into grants values ($1, $2, $3, $4, $5)", token.did, token.id, space, cast.now, ends
                )
        for space in held:
            state = cast.states[space]
            await conn.execute(
                "insert into spaces (repo, space, state, opened_at, fresh_until, credentialed_until)"
                " values (split_part($1, '/', 3), $1, $2, now(), $3::text::timestamptz, now())",
                *(space, "deleted" if state == "deleted" else "ready", "-infinity" if state == "stale" else "infinity"),
            )
            if state == "told":
                await conn.execute(
                    "insert into space_inbox (repo, space, kind) values (split_part($1, '/', 3), $1, 'deleted')", space
                )
        for viewer, how in cast.inactive.items():
            if how == "tombstoned":
                await conn.execute("update identities set tombstoned = true where repo = $1", viewer)
            if how == "relay":
                await conn.execute(
                    "insert into account_status values ($1, 'https://relay.example', 'relay', 1, false, null, now())",
                    viewer,
                )
