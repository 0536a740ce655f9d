"""Public memories, and what is added to them that a viewer may not read: no answer may tell that it is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import httpx

from appview.keys import Key
from memory.database import Database
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day

OTHER_SPACE = "at://did:plc:otheraaaaaaaaaaaaaaaaaa/space/com.example.group/work"

FIRST = "3kaaaaaaaaa2a"
SECOND = "3kaaaaaaaaa2b"
THIRD = "3kaaaaaaaaa2c"
FOURTH = "3kaaaaaaaaa2d"
FIFTH = "3kaaaaaaaaa2e"


def public_rows() -> MemoryRows:
    """Public memories of two authors, with a replacement and a cycle."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    rows.frame_time = day(300)
    first = rows.put(ALICE, "green tea", rkey=FIRST, days=1, kind="fact", scope="home")
    rows.put(ALICE, "black tea", rkey=SECOND, days=2, supersedes=[first], agent="codex")
    rows.put(ALICE, "black tea, strong", rkey=SECOND, days=2, indexed_days=3, supersedes=[first], agent="codex")
    fourth = rows.put(ALICE, "coffee, tea", rkey=FOURTH, days=5)
    rows.put(ALICE, "coffee, no tea", rkey=FIFTH, days=6, supersedes=[fourth])
    rows.put(BOB, "tea for one", rkey=FIRST, days=3, supersedes=[Key(BOB, "", SECOND)])
    rows.put(
        BOB,
        "tea for two",
        rkey=SECOND,
        days=4,
        supersedes=[Key(BOB, "", FIRST)],
        occurred=("2020-01-01T00:00:00Z", "year"),
    )
    return rows


def add_unreadable(rows: MemoryRows, space: str = SPACE) -> None:
    """The same repos, keys and words in a Space, and another author's who has nothing public."""
    first = rows.put(ALICE, "green tea", space=space, rkey=FIRST, days=1, kind="fact", scope="home")
    rows.put(ALICE, "green tea green tea", space=space, rkey=SECOND, days=2, supersedes=[first], kind="secret")
    # Two that replace one another, where in public only one replaces the other.
    rows.put(ALICE, "coffee, tea", space=space, rkey=FOURTH, days=7, supersedes=[Key(ALICE, space, FIFTH)])
    rows.put(ALICE, "coffee, no tea", space=space, rkey=FIFTH, days=6, supersedes=[Key(ALICE, space, FOURTH)])
    # Entries that point out of the Space, to public memories.
    rows.put(ALICE, "black tea", space=space, rkey=THIRD, days=9, supersedes=[Key(ALICE, "", SECOND)], agent="spy")
    rows.put(BOB, "tea for one", space=space, rkey=FIRST, days=3, supersedes=[Key(BOB, space, SECOND)])
    rows.put(BOB, "tea for two", space=space, rkey=SECOND, days=4, supersedes=[Key(BOB, space, FIRST)])
    for number in range(30):
        when = ("2020-01-01T00:00:00Z", "year") if number % 2 else None
        rows.put(CAROL, f"tea number {number}", space=space, days=number / 7, occurred=when)
    gone = rows.put(CAROL, "tea that was taken back", space=space, days=5)
    rows.delete(gone, days=6)


def add_hidden(rows: MemoryRows) -> None:
    """A public repo whose account is not active."""
    rows.repo(CAROL, handle="carol.test", visible=False)
    for number in range(30):
        when = ("2020-01-01T00:00:00Z", "year") if number % 2 else None
        rows.put(CAROL, f"green tea number {number}", days=number / 7, occurred=when)


def rows_and_unreadable(*spaces: str) -> MemoryRows:
    """The public ones, and the same in Spaces: in two, unless others are named."""
    rows = public_rows()
    for space in spaces or (SPACE, OTHER_SPACE):
        add_unreadable(rows, space)
    return rows


def rows_and_hidden() -> MemoryRows:
    """The public ones, and repos that are not served, one of them in a Space."""
    rows = public_rows()
    add_hidden(rows)
    rows.repo(ALICE, space=SPACE, visible=False)
    return rows


Answer: TypeAlias = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


def answer_of(response: httpx.Response) -> Answer:
    """An answer without its id, which is random."""
    headers = {name: value for name, value in response.headers.items() if name != "request-id"}
    return response.status_code, headers, response.content


async def changed_answers(
    database: Database, rows: MemoryRows, ask: Callable[[], Awaitable[Sequence[Answer]]]
) -> list[int]:
    """The places of the answers that are others once `rows` are there, and not only the public ones."""
    await public_rows().write(database)
    before = await ask()
    await rows.write(database)
    after = await ask()
    return [place for place, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
