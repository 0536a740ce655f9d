"""Nobody is shown a byte of what they may not read, whoever asks whatever of whichever face.

As many requests as TEST_ISOLATION_REQUESTS says, else some that take less than a minute.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Final

import pytest

from appview import access
from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.stores.endpoints import PREFIX as STORES
from appview.faces.xrpc import PREFIX as XRPC
from memory.cluster import Cluster
from memory.queries import Connection
from memory.space import ReadableSpaces
from tests.isolation_asking import Asker, Fault, Why, asking

REQUESTS: Final = int(os.environ.get("TEST_ISOLATION_REQUESTS") or 2_000)
OF_ONE_DRAWING: Final = 1_000  # then others ask, of other memories
UNTIL_FOUND: Final = 2_000


async def first_fault(asker: Asker, requests: int) -> Fault | None:
    for _ in range(requests):
        if (fault := await asker.ask_one()) is not None:
            return fault
    return None


async def test_no_answer_has_a_byte_of_what_may_not_be_read(cluster: Cluster, seed: int) -> None:
    for drawing in range(-(-REQUESTS // OF_ONE_DRAWING)):
        async with asking(cluster, seed + drawing) as asker:
            assert await first_fault(asker, min(REQUESTS, OF_ONE_DRAWING)) is None
            if REQUESTS >= OF_ONE_DRAWING:
                # What may be read is, and every face answers, and refuses: else nothing would be shown by this.
                assert set(asker.seen) == {space for spaces in asker.twins for space in spaces}
                assert {(face, 200) for face in (XRPC, STORES, ASSISTANTS)} <= set(asker.statuses)
                assert {(face, 401) for face in (XRPC, STORES, ASSISTANTS)} <= set(asker.statuses)
                assert asker.statuses[XRPC, 304] > 0


LEAKS: Final = {
    "the Spaces of another app": "select space from grants where repo = $1 and $2 <> '' and expires_at > $3",
    "Spaces whose grants have expired": "select g.space from grants g join spaces s using (space)"
    " where (g.repo, g.token) = ($1, $2) and s.fresh_until > now() and $3 < 'infinity'",
    "Spaces that are not held": "select space from grants where (repo, token) = ($1, $2) and expires_at > $3",
    "the Spaces of everybody": "select space from spaces where $1 <> '' and $2 <> '' and $3 < 'infinity'",
}


@pytest.mark.parametrize("leak", LEAKS)
async def test_a_leak_would_be_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, leak: str) -> None:
    statement = LEAKS[leak].replace("$1", "$1::text").replace("$2", "$2::text").replace("$3", "$3::timestamptz")

    async def load(conn: Connection, repo: str, token: str, *, now: datetime) -> ReadableSpaces:
        rows = await conn.fetch(statement, repo, token, now)
        return ReadableSpaces(frozenset(row["space"] for row in rows))

    async with asking(cluster, 5) as asker:
        monkeypatch.setattr(access, "load_readable_spaces", load)
        fault = await first_fault(asker, UNTIL_FOUND)
    assert fault is not None
    assert fault.why is not Why.FAILED
