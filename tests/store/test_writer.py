"""One batch is one transaction with its cursor, whatever fails, whoever else writes and whatever cannot be stored."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from indexer.arrivals import (
    AccountChanged,
    Arrival,
    Batch,
    CommitArrived,
    CommitParked,
    FrameIgnored,
    IdentityResolved,
    Place,
    Position,
    RequestAnswered,
    Source,
)
from indexer.interpret import StoredMemory
from indexer.writer import FIRST_STATISTICS_AT
from memory.database import Database
from memory.errors import Unavailable
from memory.identifiers import COLLECTION
from memory.identity import Identity
from memory.queries import Connection, StatementFailed, StatementTimedOut
from memory.tasks import TaskGroup
from tests.builders import RepoBuilder, SigningKey, Write, memory
from tests.deadline import DEADLINE_S
from tests.feed import RELAY, Feed, rkey, tally
from tests.recorded import contents

BROKEN_TERMS = "'"
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def unstorable(arrival: Arrival) -> CommitArrived:
    """The same commit, with what Postgres takes for no tsvector."""
    assert isinstance(arrival, CommitArrived)
    [op] = arrival.ops
    assert isinstance(op.entry, StoredMemory)
    return replace(arrival, ops=(replace(op, entry=replace(op.entry, terms=BROKEN_TERMS)),))


# The cursor


async def test_cursor_moves_with_what_it_covers(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(*alice.genesis(), alice.create(rkey(1), memory("tea")))
    assert (await feed.cursor(), await feed.memories(alice)) == (5, {rkey(1): "tea"})


async def test_cursor_moves_when_nothing_is_tracked(database: Database):
    feed = Feed(database)
    await feed.send(*feed.account("alice").genesis())
    assert await feed.cursor() == 4


async def test_cursor_never_goes_back(database: Database):
    feed = Feed(database)
    for seq in (5, 3):
        await feed.writer.apply(Batch([], {RELAY.url: Position(seq, NOW)}), NOW)
    assert await feed.cursor() == 5


async def test_time_at_the_cursor_outlasts_a_frame_without_one(database: Database):
    feed = Feed(database)
    await feed.writer.apply(Batch([], {RELAY.url: Position(1, NOW)}), NOW)
    await feed.writer.apply(Batch([], {RELAY.url: Position(2, None)}), NOW)
    assert (await feed.row("select seq, frame_time from sources"))[:] == (2, NOW)


@pytest.mark.parametrize(
    "table", ["memories", "memory_edges", "memory_versions", "invalid_records", "requests", "rejections", "sources"]
)
async def test_statement_that_fails_leaves_neither_rows_nor_cursor(database: Database, table: str):
    feed = Feed(database)
    alice = feed.account("alice")
    first = alice.create(rkey(1), memory("tea", supersedes=[f"at://{alice.did}/{COLLECTION}/{rkey(2)}"]))
    frames = [first, alice.create(rkey(3), {"$type": COLLECTION}), alice.account_frame(), b"junk"]
    async with database.connection() as conn:
        await conn.execute(f"alter table {table} rename to elsewhere")
    with pytest.raises(StatementFailed):
        await feed.send(*frames)
    async with database.connection() as conn:
        await conn.execute(f"alter table elsewhere rename to {table}")
    assert await feed.cursor() is None
    assert all(rows == [] for rows in (await contents(database)).values())
    assert (
        await feed.rows("select from requests union all select from rejections union all select from quarantine") == []
    )
    await feed.restart()
    await feed.send(*frames)
    assert (await feed.cursor(), await feed.memories(alice)) == (3, {rkey(1): "tea"})


# Several writers


async def play(feed: Feed, frames: Sequence[bytes], draw: random.Random) -> None:
    """One writer's stream, in random batches; the event loop may go on with another between any two words."""
    at = 0
    while at < len(frames):
        size = draw.randrange(1, 12)
        await feed.send(*frames[at : at + size])
        at += size


def life(alice: RepoBuilder, draw: random.Random) -> list[bytes]:
    """What one person writes, valid and not, with replacements and an account event now and then."""
    frames: list[bytes] = []
    for number in range(12):
        own = [path.removeprefix(f"{COLLECTION}/") for path in alice.records]
        target = f"at://{alice.did}/{COLLECTION}/{rkey(draw.randrange(6))}"
        record = memory(f"note {number}", supersedes=[target]) if draw.random() < 0.9 else {"$type": COLLECTION}
        match draw.choice(("create", "create", "update", "delete", "account")):
            case "create" if len(own) < 6:
                free = [rkey(index) for index in range(6) if rkey(index) not in own]
                frames.append(alice.create(draw.choice(free), record))
            case "update" if own:
                frames.append(alice.update(draw.choice(own), record))
            case "delete" if own:
                frames.append(alice.delete(draw.choice(own)))
            case _:
                frames.append(alice.account_frame())
    return frames


def interleave(lives: Sequence[Sequence[bytes]], draw: random.Random) -> list[bytes]:
    """One stream of them all, as one of many relays may have it: only each person's own order is certain."""
    turns = [turn for turn, frames in enumerate(lives) for _ in frames]
    draw.shuffle(turns)
    rest = [iter(frames) for frames in lives]
    return [next(rest[turn]) for turn in turns]


async def test_writers_at_once_end_as_one(database: Database, seed: int):
    """Each has the whole stream, ordered and cut in its own way: nothing is applied twice, and none waits for ever."""
    draw = random.Random(seed)
    for number in range(10):
        feeds = [Feed(database, source=replace(RELAY, url=f"https://relay{index}.test")) for index in range(3)]
        for feed in feeds:
            feed.directory.identities = feeds[0].directory.identities
        people = [feeds[0].account(f"{number} {name}") for name in range(6)]
        strangers = [feeds[0].account(f"{number} stranger {name}", known=False) for name in range(12)]
        lives = [life(person, draw) for person in people]
        lives += [[stranger.create(rkey(1), memory("tea"))] for stranger in strangers] + [[b"junk", b"junk", b"more"]]
        async with asyncio.timeout(DEADLINE_S), TaskGroup() as tasks:
            for feed in feeds:
                own = random.Random(draw.random())
                tasks.create_task(play(feed, interleave(lives, own), own))
        together = await contents(database)
        parked = await feeds[0].row("select count(*), count(distinct repo) as repos from parked_commits")
        assert tuple(parked) == (len(strangers) * len(feeds), len(strangers))
        await empty(database)
        alone = Feed(database)
        alone.directory.identities = feeds[0].directory.identities
        await alone.send(*interleave(lives, draw))
        assert await contents(database) == together, f"round {number}"
        await empty(database)


OTHER_RELAY = replace(RELAY, url="https://other.test")


@pytest.mark.parametrize(
    ("row_of_another", "source"),
    [
        ("insert into parked_commits select $1, $2, $3, 1, '', '', now()", RELAY),
        ("insert into requests select $1, '', 'identity', $2 || $3, now(), now()", OTHER_RELAY),
    ],
    ids=["parked_commits", "requests"],
)
async def test_writers_that_meet_the_same_strangers_never_wait_in_a_circle(
    database: Database, row_of_another: str, source: Source
):
    """The first is stopped half way by a third transaction; the second has the same strangers in the other order."""
    first, second = Feed(database), Feed(database, source=source)
    strangers = sorted((first.account(f"stranger {name}", known=False) for name in range(3)), key=lambda each: each.did)
    frames = [stranger.create(rkey(1), memory("tea")) for stranger in strangers]
    middle = strangers[1]
    async with asyncio.timeout(DEADLINE_S), TaskGroup() as tasks, database.transaction() as conn:
        await conn.execute(row_of_another, middle.did, middle.rev, RELAY.url)
        tasks.create_task(first.send(*frames))
        await waiting(database, 1)
        tasks.create_task(second.send(*reversed(frames)))
        await waiting(database, 2)
    assert {row["repo"] for row in await first.rows("select repo from requests")} == {each.did for each in strangers}
    parked = await first.rows("select distinct repo from parked_commits")
    assert len(parked) == len(strangers)


async def waiting(database: Database, statements: int) -> None:
    """Returns once so many statements wait for a lock."""
    async with database.connection() as conn:
        query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        while await conn.fetchval(query) < statements:
            pass


async def test_writers_of_different_sources_keep_a_cursor_each(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    frames = [alice.create(rkey(number), memory("tea")) for number in range(4)]
    await asyncio.gather(feed.send(*frames), feed.send(*frames[:2], source=OTHER_RELAY))
    assert (await feed.cursor(), await feed.cursor(OTHER_RELAY)) == (4, 2)
    assert len(await feed.memories(alice)) == 4


async def empty(database: Database) -> None:
    """As if nothing had ever been seen."""
    async with database.connection() as conn:
        await conn.execute(
            "truncate memories, memory_edges, memory_versions, invalid_records, repos, identities, parked_commits,"
            " account_status, requests, sources, rejections, quarantine"
        )


# What the database refuses


@pytest.mark.parametrize("size", [1, 2, 3, 8])
async def test_unstorable_commit_never_takes_its_batch_along(database: Database, size: int):
    for place in range(size):
        feed = Feed(database)
        people = [feed.account(f"{size} {place} {number}") for number in range(size)]
        arrivals = feed.arrivals(*(person.create(rkey(1), memory("tea")) for person in people))
        commits = [arrival for arrival in arrivals if isinstance(arrival, CommitArrived)]
        poisoned = commits[place]
        outcome = await feed.write(*(unstorable(arrival) if arrival is poisoned else arrival for arrival in arrivals))
        for number, person in enumerate(people):
            repo = await feed.repo(person)
            if number == place:
                assert (repo["state"], repo["reason"], repo["rev"]) == ("desynchronized", "unstorable", None)
                assert await feed.memories(person) == {}
                assert (await feed.requests(person))["fetch"] == "unstorable"
            else:
                assert (repo["state"], repo["rev"]) == ("active", person.rev)
                assert await feed.memories(person) == {rkey(1): "tea"}
        assert tally(outcome)["unstorable"] == ("desynchronized", 1)


async def test_commits_before_an_unstorable_one_stay_and_those_after_wait(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    arrivals = feed.arrivals(*(alice.create(rkey(number), memory("tea")) for number in range(5)))
    before, poisoned, after = arrivals[:3], arrivals[3], arrivals[4:]
    outcome = await feed.write(*before, unstorable(poisoned), *after)
    assert list(await feed.memories(alice)) == [rkey(0), rkey(1)]
    assert (await feed.repo(alice))["reason"] == "unstorable"
    assert tally(outcome) == {
        "accepted": ("accepted", 2),
        "unstorable": ("desynchronized", 1),
        "awaiting_resync": ("ignored", 2),
    }


async def test_several_unstorable_commits_are_each_found(database: Database):
    feed = Feed(database)
    people = [feed.account(f"person {number}") for number in range(9)]
    arrivals = feed.arrivals(*(person.create(rkey(1), memory("tea")) for person in people))
    broken = [arrival for arrival in arrivals if isinstance(arrival, CommitArrived)][::3]
    await feed.write(*(unstorable(arrival) if arrival in broken else arrival for arrival in arrivals))
    states = await feed.rows("select state, count(*) from repos group by state order by state")
    assert [tuple(row) for row in states] == [("active", 6), ("desynchronized", 3)]


async def test_cursor_passes_an_unstorable_commit_with_it(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    arrivals = feed.arrivals(alice.create(rkey(1), memory("tea")))
    batch = Batch([*arrivals[:-1], unstorable(arrivals[-1])], {RELAY.url: Position(1, feed.clock)})
    await feed.writer.apply(batch, feed.clock)
    assert (await feed.cursor(), (await feed.repo(alice))["state"]) == (1, "desynchronized")


async def test_what_is_counted_beside_an_unstorable_commit_is_counted_once(database: Database):
    feed = Feed(database)
    alice, bob = feed.account("alice"), feed.account("bob")
    bob.rotate_key("forger")
    arrivals = feed.arrivals(alice.create(rkey(1), memory("tea")), bob.create(rkey(1), memory("tea")), b"junk")
    await feed.write(*(unstorable(each) if isinstance(each, CommitArrived) else each for each in arrivals))
    counted = {row["reason"]: row["times"] for row in await feed.rows("select * from rejections")}
    assert counted == {"unstorable": 1, "bad_signature": 1, "broken_frame": 1}
    assert (await feed.row("select times_met from quarantine"))["times_met"] == 1


def long_text(length: int) -> str:
    """What no compression makes short."""
    return "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz234567", k=length))


REFUSED: dict[str, Callable[[Place, str], Arrival]] = {
    "key that no index takes": lambda place, _: CommitParked(
        place, f"did:web:{long_text(2000)}", long_text(1999), b"frame", "key_unknown"
    ),
    "NUL in a status": lambda place, did: AccountChanged(place, did, False, "\x00"),
    "NUL in an identity": lambda place, did: IdentityResolved(
        place, Identity(did, "\x00", None, None, False, place.seen_at)
    ),
    "lone surrogate in an identity": lambda place, did: IdentityResolved(
        place, Identity(did, "\ud800", None, None, False, place.seen_at)
    ),
    "NUL in an answer": lambda place, did: RequestAnswered(place, did, "\x00"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_unstorable_event_is_ignored_and_passed(database: Database, what: str):
    feed = Feed(database)
    alice, bob = feed.account("alice"), feed.account("bob")
    first = feed.arrivals(alice.create(rkey(1), memory("tea")))
    refused = REFUSED[what](feed.place(), alice.did)
    last = feed.arrivals(bob.create(rkey(1), memory("tea")))
    batch = Batch([*first, refused, *last], {RELAY.url: Position(feed.stream.seq, feed.clock)})
    outcome = await feed.writer.apply(batch, feed.clock)
    assert tally(outcome) == {"accepted": ("accepted", 2), "unstorable": ("ignored", 1)}
    assert await feed.cursor() == feed.stream.seq
    assert await feed.memories(alice) == await feed.memories(bob) == {rkey(1): "tea"}


async def test_refusal_that_is_not_about_data_is_raised(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    async with database.connection() as conn:
        await conn.execute("alter table memories add constraint no_tea check (content <> 'tea')")
    with pytest.raises(StatementFailed, match="23514"):
        await feed.send(alice.create(rkey(1), memory("tea")))
    assert await feed.cursor() is None


async def test_frame_that_cannot_even_be_counted_is_raised(database: Database):
    feed = Feed(database)
    with pytest.raises(StatementFailed):
        await feed.write(FrameIgnored(feed.place(replace(RELAY, url="\x00")), "unknown_type"))


async def test_broken_frames_are_quarantined_with_how_often_they_were_met(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), b"junk", b"junk", b"other")
    await feed.send(b"junk")
    met = await feed.rows("select frame, previous_seq, times_met from quarantine order by frame")
    assert [tuple(row) for row in met] == [(b"junk", 1, 2), (b"other", 1, 1)]


async def test_tables_are_counted_for_the_planner_as_they_fill(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    counted = "select reltuples from pg_class where relname = 'memories'"
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert (await feed.row(counted))["reltuples"] == -1, "never"
    for start in range(0, FIRST_STATISTICS_AT, 100):
        writes = [Write("create", rkey(start + number), memory("tea")) for number in range(1, 101)]
        await feed.send(alice.apply(writes))
    assert (await feed.row(counted))["reltuples"] >= FIRST_STATISTICS_AT


@pytest.mark.parametrize("failure", [Unavailable("gone"), StatementTimedOut("slow"), StatementFailed("57014")])
async def test_batch_whose_statistics_fail_is_written_and_not_taken_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, failure: Exception
):
    """What is not kept is only how the next plans are made: taken again, its rejections would count twice."""

    async def analyze(conn: Connection) -> None:
        raise failure

    monkeypatch.setattr("indexer.store.records.analyze", analyze)
    monkeypatch.setattr("indexer.writer.FIRST_STATISTICS_AT", 1)
    feed = Feed(database)
    alice = feed.account("alice")
    forged = alice.create(rkey(2), memory("tea"), tamper=lambda parts: setattr(parts, "key", SigningKey("mallory")))
    await feed.send(alice.create(rkey(1), memory("tea")), forged)
    assert await feed.memories(alice) == {rkey(1): "tea"}
    assert (await feed.row("select times from rejections where reason = 'bad_signature'"))["times"] == 1


async def test_commit_of_many_records_is_one_rev(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.apply([Write("create", rkey(number), memory(f"note {number}")) for number in range(200)]))
    revs = await feed.rows("select rev, count(*) from memories group by rev")
    assert [tuple(row) for row in revs] == [(alice.rev, 200)]
