"""Nobody is shown a byte of what they may not read, whoever asks whatever of whichever face.

As many requests as TEST_ISOLATION_REQUESTS says, else some that take less than a minute.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

import pytest

from appview import access, call, http
from appview.answers import asked
from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.stores.endpoints import PREFIX as STORES
from appview.faces.xrpc import PREFIX as XRPC
from appview.page_cursor import Question
from appview.representation import Headers, Reply, represent
from appview.routes import notices
from appview.routes import spaces as routes
from appview.store.grants import Grant
from appview.store.stats import RecentTotals, Totals
from memory.cluster import Cluster
from memory.queries import Connection
from memory.space import ReadableSpaces, parse_space_uri
from tests.isolation_answers import BUSY, Fault, Why
from tests.isolation_asking import Asker, asking
from tests.isolation_indexes import Known

REQUESTS: Final = int(os.environ.get("TEST_ISOLATION_REQUESTS") or 2_000)
OF_ONE_DRAWING: Final = 1_000  # then others ask, of other memories
REQUESTS_BUSY: Final = 10
UNTIL_FOUND: Final = 4_000
DONE_BY_ALL: Final = frozenset(
    {
        *("own", "another's", "forged", "of another Space", "expired", "used", "made again", "SpaceDeleted"),
        *("UserNotAuthorized", "listed", "told truly", "forged word", "word again", "purged", "closed", "revoked"),
    }
)


async def first_fault(asker: Asker, requests: int) -> Fault | None:
    for _ in range(requests):
        if (fault := await asker.ask_one()) is not None:
            return fault
    return None


async def test_no_answer_has_a_byte_of_what_may_not_be_read(cluster: Cluster, seed: int) -> None:
    done = Counter[str]()
    for drawing in range(-(-REQUESTS // OF_ONE_DRAWING)):
        async with asking(cluster, seed + drawing) as asker:
            readable = any(asker.cast.readable(app) for app in asker.cast.apps)
            assert await first_fault(asker, min(REQUESTS, OF_ONE_DRAWING)) is None
            done += asker.actor.done
            if REQUESTS >= OF_ONE_DRAWING:
                # What may be read is, and every face answers, and refuses: else nothing would be shown by this.
                assert asker.seen or not readable
                assert {(face, 200) for face in (XRPC, STORES, ASSISTANTS)} <= set(asker.statuses)
                assert {(face, 401) for face in (XRPC, STORES, ASSISTANTS)} <= set(asker.statuses)
                assert asker.statuses[XRPC, 304] > 0
                assert sum(count for (_, status), count in asker.statuses.items() if status == BUSY) < REQUESTS_BUSY
    if REQUESTS >= 10 * OF_ONE_DRAWING:
        assert set(done) >= DONE_BY_ALL, DONE_BY_ALL - set(done)


Leak = Callable[[pytest.MonkeyPatch], None]
READABLE: Final = {
    "the Spaces of another app": "select space from grants where repo = $1 and $2 <> '' and expires_at > $3",
    "Spaces whose grants have expired": "select g.space from grants g join spaces s using (space)"
    " where (g.repo, g.token) = ($1, $2) and s.fresh_until > now() and $3 < 'infinity'",
    "Spaces that are not held": "select space from grants where (repo, token) = ($1, $2) and expires_at > $3",
    "the Spaces of everybody": "select space from spaces where $1 <> '' and $2 <> '' and $3 < 'infinity'",
}


def reads(statement: str) -> Leak:
    """Which Spaces may be read is what that statement says."""
    typed = statement.replace("$1", "$1::text").replace("$2", "$2::text").replace("$3", "$3::timestamptz")

    async def load(conn: Connection, repo: str, token: str, *, now: datetime) -> ReadableSpaces:
        rows = await conn.fetch(typed, repo, token, now)
        return ReadableSpaces(frozenset(row["space"] for row in rows))

    return lambda patch: patch.setattr(access, "load_readable_spaces", load)


def lets_anybody_name_a_space(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(asked, "require_readable", lambda *_: None)


def takes_cursors_of_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(call, "Question", lambda _, method, parameters: Question("", method, parameters))


def counts_once_for_all(patch: pytest.MonkeyPatch) -> None:
    counted: list[Totals] = []
    load = RecentTotals.load

    async def load_once(self: RecentTotals, *, spaces: ReadableSpaces) -> Totals:
        counted.append(counted[0] if counted else await load(self, spaces=spaces))
        return counted[0]

    patch.setattr(RecentTotals, "load", load_once)


def shows_grants_of_other_apps(patch: pytest.MonkeyPatch) -> None:
    async def load(conn: Connection, repo: str, _: str, *, now: datetime) -> list[Grant]:
        rows = await conn.fetch(
            "select space, granted_at, expires_at, true from grants where repo = $1 and expires_at > $2", repo, now
        )
        return [Grant(*row) for row in rows]

    patch.setattr(routes, "load_grants", load)


def believes_any_delegation(patch: pytest.MonkeyPatch) -> None:
    """The authority makes sure of nothing but that it was not used before."""

    async def believe(*_: object) -> None:
        pass

    patch.setattr(Known, "require_signature", believe)


def compresses(patch: pytest.MonkeyPatch) -> None:
    async def compress(reply: Reply, headers: Headers, *, compressible: bool) -> Reply:
        return await represent(reply, headers, compressible=True)

    patch.setattr(http, "represent", compress)


def keeps_grants_that_were_closed(patch: pytest.MonkeyPatch) -> None:
    async def delete(*_: object, **__: object) -> None:
        pass

    patch.setattr(routes, "delete_grant", delete)


def believes_any_authority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(notices, "_governed", lambda notice, _: parse_space_uri(notice.space))


LEAKS: Final[dict[str, Leak]] = {name: reads(statement) for name, statement in READABLE.items()} | {
    leak.__name__: leak
    for leak in (
        *(lets_anybody_name_a_space, takes_cursors_of_others, counts_once_for_all, shows_grants_of_other_apps),
        *(believes_any_delegation, compresses, keeps_grants_that_were_closed, believes_any_authority),
    )
}


@pytest.mark.parametrize("leak", LEAKS)
async def test_a_leak_would_be_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, leak: str) -> None:
    async with asking(cluster, 5) as asker:
        LEAKS[leak](monkeypatch)
        fault = await first_fault(asker, UNTIL_FOUND)
    assert fault is not None
    assert fault.why is not Why.FAILED
