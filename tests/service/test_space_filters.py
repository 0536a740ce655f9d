"""`space` and `publicOnly`: whatever a viewer may read, an answer is drawn from what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from appview.access import Viewer
from appview.faces.xrpc import PREFIX
from appview.filters import Filters
from appview.keys import Key, uri_of
from appview.search.query import parse_query
from appview.store.lists import Order, list_places, start_of
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import NAMESPACE, Api, checked, in_query
from tests.memory_rows import ALICE, BOB, CAROL, MemoryRows
from tests.memory_rows import SPACE as FAMILY
from tests.searching import find_candidates

WORK = "at://did:plc:otheraaaaaaaaaaaaaaaaaa/space/com.example.group/work"
UNREAD = "at://did:plc:otheraaaaaaaaaaaaaaaaaa/space/com.example.group/diary"
OF_FAMILY = ReadableSpaces(frozenset({FAMILY}))
FIRST = "3kaaaaaaaaa2a"
SECOND = "3kaaaaaaaaa2b"


@pytest.fixture
async def rows(database: Database) -> MemoryRows:
    """The same keys in public, in two Spaces of the reader, and in one of others; CAROL has nothing public."""
    written = MemoryRows()
    for space in ("", FAMILY, WORK, UNREAD):
        for did in (ALICE, BOB, CAROL) if space else (ALICE, BOB):
            first = written.put(did, "green tea", space=space, rkey=FIRST, days=1)
            written.put(did, "black tea", space=space, rkey=SECOND, days=2, supersedes=[first])
            for number in range(6):
                when = ("2020-01-01T00:00:00Z", "year") if number % 2 else None
                written.put(did, f"tea number {number}", space=space, days=3 + number, occurred=when)
    await written.write(database)
    return written


def expected(rows: MemoryRows, spaces: Sequence[str]) -> list[str]:
    """The at-uris of all memories in these Spaces."""
    return sorted(uri_of(key) for key in rows.stored if key.space in spaces)


READER = Viewer("reader", ReadableSpaces(frozenset({FAMILY, WORK})))
SPACE_FILTERS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("", FAMILY, WORK)),
    ({"space": [FAMILY]}, (FAMILY,)),
    ({"space": [FAMILY, WORK, FAMILY]}, (FAMILY, WORK)),
    ({"publicOnly": True}, ("",)),
    ({"space": [FAMILY], "publicOnly": True}, ()),
]


async def told(api: Api, method: str, **asked: Any) -> dict[str, Any]:
    """What a method answers the reader."""
    path = PREFIX + NAMESPACE + method
    response = await api.send("GET", path, params=in_query(asked), headers={"authorization": "Bearer x"})
    assert response.status_code == 200, response.text
    return checked(method, response)


@pytest.mark.parametrize("order", ["newest", "oldest", "occurred"])
@pytest.mark.parametrize("where", [{}, {"repo": [ALICE, BOB, CAROL]}])
@pytest.mark.parametrize(("asked", "spaces"), SPACE_FILTERS)
async def test_a_list_is_of_the_spaces_that_were_asked_for(
    database: Database,
    rows: MemoryRows,
    order: str,
    where: dict[str, Any],
    asked: dict[str, Any],
    spaces: tuple[str, ...],
) -> None:
    api = Api(database, viewer=READER)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await told(api, "listRecords", order=order, includeSuperseded=True, limit=20, **where, **asked, **cursor)
        seen += [record["uri"] for record in page["records"]]
        assert all(record.get("space", "") in spaces for record in page["records"])
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert sorted(seen) == expected(rows, spaces)


@pytest.mark.parametrize("where", [{}, {"repo": [ALICE, BOB, CAROL]}])
@pytest.mark.parametrize(("asked", "spaces"), SPACE_FILTERS)
async def test_a_search_and_its_statistics_are_of_the_spaces_that_were_asked_for(
    database: Database, rows: MemoryRows, where: dict[str, Any], asked: dict[str, Any], spaces: tuple[str, ...]
) -> None:
    answer = await told(
        Api(database, viewer=READER), "searchRecords", q="tea", includeSuperseded=True, limit=100, **where, **asked
    )
    shown = [uri for record in answer["records"] for uri in (record["uri"], *record.get("duplicates", ()))]
    assert sorted(shown) == expected(rows, spaces)
    filters = Filters(
        repos=tuple(where["repo"]) if where else None,
        spaces=tuple(asked["space"]) if "space" in asked else None,
        public_only="publicOnly" in asked,
        superseded=True,
    )
    async with database.transaction(readonly=True) as conn:
        found = await find_candidates(conn, parse_query("tea"), filters, watermark=None, spaces=READER.spaces)
    assert (found.corpus.documents, found.corpus.frequencies.get("tea", 0)) == (len(shown), len(shown))


async def test_asking_for_a_space_makes_it_no_more_readable(database: Database, rows: MemoryRows) -> None:
    """Below the check that refuses it, too."""
    filters = Filters(spaces=(WORK,), superseded=True)
    query = parse_query("tea")
    for repos in (None, (ALICE, BOB, CAROL)):
        of = replace(filters, repos=repos)
        async with database.transaction(readonly=True) as conn:
            for order in Order:
                start = start_of(order, None)
                assert await list_places(conn, order, of, after=start, limit=9, spaces=OF_FAMILY) == []
            assert not (await find_candidates(conn, query, of, watermark=None, spaces=OF_FAMILY)).memories


@pytest.mark.parametrize(
    ("key", "asked", "failed"),
    [
        (Key(ALICE, "", FIRST), {"space": [FAMILY]}, "space"),
        (Key(ALICE, WORK, FIRST), {"space": [FAMILY]}, "space"),
        (Key(ALICE, WORK, FIRST), {"publicOnly": True}, "publicOnly"),
        (Key(ALICE, WORK, FIRST), {"space": [FAMILY], "publicOnly": True}, "space"),
        (Key(ALICE, FAMILY, FIRST), {"space": [FAMILY], "publicOnly": True}, "publicOnly"),
        (Key(ALICE, WORK, FIRST), {"publicOnly": True, "repo": [BOB]}, "repo"),
        (Key(ALICE, FAMILY, FIRST), {"space": [FAMILY], "scope": ["work"]}, "scope"),
        (Key(ALICE, FAMILY, FIRST), {"space": [FAMILY]}, "superseded"),
        (Key(ALICE, FAMILY, FIRST), {"space": [FAMILY], "includeSuperseded": True}, None),
    ],
)
async def test_an_explanation_names_the_filter_on_spaces(
    database: Database, rows: MemoryRows, key: Key, asked: dict[str, Any], failed: str | None
) -> None:
    api = Api(database, viewer=READER)
    answer = await told(api, "searchRecords", q="green tea", explainUri=uri_of(key), **asked)
    assert answer["explanation"].get("failedFilter") == failed
