"""Whose turn it is among repos in Spaces, by which clock grants end, and what the planner remembers of a Space."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from appview.store.grants import SealedCredential, add_grant
from indexer.spaces import sync
from indexer.store import space_repos
from indexer.store.pull_turns import SLOW_TURNS, DuePull, PullTurns, order
from indexer.store.space_repos import LOOKED_AT, LOOKED_AT_EACH, PUT_OFF, SPACES_LOOKED_AT, PullClaim
from memory.cluster import Cluster
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.queries import Connection
from memory.space import parse_space_uri
from tests.builders import memory
from tests.feed import rkey
from tests.service.test_space_sync_ends import fill, fill_vectors
from tests.spaces_world import CONTENT_TABLES, SPACE_TABLES, Setting, SpacesWorld, setting, spaces_world
from tests.store.test_erasure import erased
from tests.visited_rows import visited_rows

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUICK, SLOW, BUSY = "https://quick.test", "https://slow.test", "https://busy.test"
MANY = 20_000
# What one claim looks at, some steps in an index each.
VISITS_MAX = 20 * (LOOKED_AT + SPACES_LOOKED_AT * (LOOKED_AT_EACH + 1))


def uri(name: object) -> str:
    return f"at://did:plc:{name}/space/com.example.group/main"


async def due(conn: Connection, space: str, count: int, *, host: str = QUICK, since: datetime = NOW) -> None:
    """So many authors of a Space whose repos are to be pulled."""
    await conn.execute(
        "insert into space_repos (repo, space, listed_rev, listed_hash, host, pull_after)"
        " select 'did:plc:' || n || substr($4, 9), $1, '3kaaaaaaaaa2a', 'x', $4, $3 from generate_series(1, $2) n",
        *(space, count, since, host),
    )


async def claim(
    conn: Connection, turns: PullTurns | None = None, *, at_most: int = 16, busy: Iterable[str] = ()
) -> list[PullClaim]:
    return await space_repos.claim(
        conn, uuid4(), MINUTE, at_most=at_most, each_host=16, busy_hosts=list(busy), now=NOW, turns=turns
    )


def turns_of(*, room: int, under_way: dict[str, int] | None = None) -> PullTurns:
    """Where one host is quick, and one known to be slow."""
    turns = PullTurns(lambda host: host == QUICK, lambda host: host == SLOW, strangers_at_most=room)
    turns.under_way.update(under_way or {})
    return turns


# Whose turn it is


async def test_large_space_keeps_no_small_one_waiting(database: Database):
    async with database.connection() as conn:
        await due(conn, uri("large"), 10_000, since=NOW - MINUTE)
        for number in range(3):
            await due(conn, uri(f"small{number}"), 10)
        turns = turns_of(room=8, under_way={uri("large"): 16})
        found = [each.space for _ in range(3) for each in await claim(conn, turns, at_most=10)]
        assert {space: found.count(space) for space in found} == {uri(f"small{number}"): 10 for number in range(3)}


async def test_spaces_are_taken_in_turns(database: Database):
    async with database.connection() as conn:
        await due(conn, uri("a"), 50, since=NOW - MINUTE)
        await due(conn, uri("b"), 5)
        assert [each.space for each in await claim(conn, at_most=4)].count(uri("b")) == 2


async def test_all_spaces_are_looked_at_in_some_claims(database: Database):
    spaces = [uri(f"s{number:03}") for number in range(3 * SPACES_LOOKED_AT)]
    async with database.connection() as conn:
        await due(conn, uri("aaa"), 10_000, since=NOW - MINUTE)
        for space in spaces:
            await due(conn, space, 2)
        turns = turns_of(room=0, under_way={uri("aaa"): 1000})
        found = {each.space for _ in range(4) for each in await claim(conn, turns, at_most=2 * SPACES_LOOKED_AT)}
        assert found >= set(spaces)


@pytest.mark.parametrize("host", [BUSY, SLOW])
async def test_what_cannot_be_pulled_now_hides_nothing_else_of_its_space(database: Database, host: str):
    async with database.connection() as conn:
        await due(conn, uri("a"), 500, host=host, since=NOW - MINUTE)
        await due(conn, uri("a"), 1)
        turns, found = turns_of(room=0), list[PullClaim]()
        for _ in range(20):
            found += await claim(conn, turns, busy=[BUSY])
        assert [each.author for each in found] == ["did:plc:1quick.test"]
        late = await conn.fetchval("select max(pull_after) from space_repos where pull_token is null")
        assert late == NOW + PUT_OFF


async def test_what_waits_for_a_busy_host_stays_as_it_is_where_it_hides_nothing(database: Database):
    async with database.connection() as conn:
        await due(conn, uri("a"), 5, host=BUSY)
        assert await claim(conn, busy=[BUSY]) == []
        assert await conn.fetchval("select count(*) from space_repos where pull_after = $1", NOW) == 5


async def test_strangers_get_no_more_places_than_there_are_for_them(database: Database):
    async with database.connection() as conn:
        await due(conn, uri("a"), 50, host="", since=NOW - MINUTE)
        await due(conn, uri("b"), 50)
        found = await claim(conn, turns_of(room=3))
        assert [each.is_stranger for each in found] == [True] * 3 + [False] * 13
        assert {each.space for each in found if each.is_stranger} == {uri("a")}


def test_slow_host_comes_some_turns_later_and_not_last():
    slow = [DuePull("did:plc:slow", "slow", SLOW, NOW - MINUTE)]
    others = [DuePull(f"did:plc:{number}", "new", "https://new.test", NOW) for number in range(3 * SLOW_TURNS)]
    found = order([*others, *slow], turns_of(room=1), each_host=100, busy_hosts=()).strangers
    assert found.index(slow[0]) == SLOW_TURNS


async def test_claim_goes_through_few_rows_however_many_are_due(database: Database):
    async with database.connection() as conn:
        await due(conn, uri("large"), MANY, since=NOW - MINUTE)
        for number in range(30):
            await due(conn, uri(f"small{number}"), 3)
        await conn.execute("analyze space_repos")
        assert await visits(conn) < VISITS_MAX


async def visits(conn: Connection) -> float:
    """How many rows a look at what is due goes through, in all steps of its plan."""
    given = {
        "now": NOW,
        "looked_at": LOOKED_AT,
        "spaces_looked_at": SPACES_LOOKED_AT,
        "looked_at_each": LOOKED_AT_EACH,
        "after_space": "",
    }
    return await visited_rows(conn, space_repos._SQL.due_pulls, given)


# The hash is the truth


async def ahead(world: SpacesWorld) -> Setting:
    """An author's host is ahead of the listing, which says nothing of the last write."""
    here = await setting(world)
    await here.begin("0")
    here.bob.create(here.space, rkey(1), memory("1"))
    here.bob.create(here.space, rkey(2), memory("2"), announced=False)
    world.clock.advance(minutes=5)
    await world.until_contents(here.space, here.bob, ["0", "1", "2"])
    return here


async def test_what_is_not_as_listed_is_looked_at_again_though_its_rev_is_later(database: Database):
    async with spaces_world(database) as world:
        here = await ahead(world)
        assert not (await world.repo_row(here.space, here.bob))["in_step"]
        here.bob.delete(here.space, rkey(2), announced=False)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"], seconds=20)


async def test_what_is_never_as_listed_is_served_and_asked_for_ever_more_seldom(database: Database):
    async with spaces_world(database) as world:
        here = await ahead(world)
        for _ in range(80):
            world.clock.advance(seconds=30)
            await world.until_idle(here.space)
            assert await world.contents(here.space, here.bob) == ["0", "1", "2"]
            assert await world.is_served(here.space)
        assert here.away.asked_for("listRepoOps") < 25


async def test_who_was_not_as_listed_is_pulled_at_once_when_they_write(database: Database):
    async with spaces_world(database) as world:
        here = await ahead(world)
        for number in range(3, 6):
            here.bob.create(here.space, rkey(number), memory(f"{number}"))
            await world.note_write(here.space, here.bob)
            await world.until_contents(here.space, here.bob, [f"{each}" for each in range(number + 1)])
        assert (await world.repo_row(here.space, here.bob))["in_step"]


# How many authors there may be


async def held(world: SpacesWorld, space: object) -> set[str]:
    rows = await world.rows("select repo from repos where space = $1 and visible", str(space))
    return {row["repo"] for row in rows}


async def crowd(here: Setting, count: int) -> list[str]:
    """So many authors more, in the order of the listing."""
    people = [here.away.add(f"person {number}") for number in range(count)]
    here.space.admit(*people)
    for person in people:
        person.create(here.space, rkey(1), memory("mine"))
    return [person.did for person in people]


async def test_only_so_many_authors_of_a_space_are_indexed_and_whoever_was_first_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sync, "AUTHORS_MAX", 3)
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        people = await crowd(here, 5)
        world.clock.advance(minutes=5)
        await world.until(lambda: world.value("select count(*) from repos where visible"), 3)
        first = await held(world, here.space)
        assert here.bob.did in first
        assert first <= {here.bob.did, *people}
        for gone in first - {here.bob.did}:
            here.space.listing.pop(gone)
        world.clock.advance(minutes=5)
        await here.home.until_asked("listRepos", 3)
        await world.until_idle()
        assert await world.value("select count(*) from space_repos") == 3, "what is held has its place"
        assert here.away.asked_for("getRepo") == 3


async def test_author_for_whom_there_is_no_place_has_nothing_listed_anew(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sync, "AUTHORS_MAX", 1)
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await crowd(here, 1)
        stranger = here.away.accounts[next(did for did in here.away.accounts if did != here.bob.did)]
        world.clock.advance(seconds=30)
        await world.note_write(here.space, stranger)
        await world.until_idle()
        assert here.home.asked_for("listRepos") == 1


async def test_author_whose_did_nobody_can_look_up_is_passed_over(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, rkey(0), memory("0"))
        here.space.listing["did:key:zQ3shRb2X2BvQs8xfN21uJ3UZUsZjhgtpP67WGA1Ld1h1cp6h"] = here.space.listing[
            here.bob.did
        ]
        await world.open(here.space, here.bob)
        world.start()
        await world.until_contents(here.space, here.bob, ["0"])
        await world.until_idle()
        assert await world.value("select array_agg(repo) from space_repos") == [here.bob.did]
        assert (await world.space_row(here.space))["state"] == "ready"


# By which clock


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=1)])
async def test_grant_ends_with_its_space_whatever_the_clock_of_the_api_says(database: Database, ahead: timedelta):
    async with spaces_world(database) as world:
        world.clock.now = datetime.now(UTC)
        here = await setting(world)
        await here.begin("0")
        space = parse_space_uri(str(here.space))
        assert space is not None
        now = datetime.now(UTC) + ahead
        credential = SealedCredential(b"sealed", "k", now + MINUTE)
        async with database.transaction() as conn:
            assert await add_grant(
                conn, here.bob.did, "api", space, credential, granted_at=now, expires_at=now + MINUTE
            )
        here.space.delete()
        deleted = "insert into space_inbox (repo, space, kind) values ($1, $2, 'deleted')"
        async with database.connection() as conn:
            await conn.execute(deleted, here.alice.did, str(here.space))
        world.clock.now = datetime.now(UTC)
        await world.until(lambda: world.value("select count(*) from spaces"), 0)
        assert await world.value("select count(*) from grants") == 0


# The planner's samples


async def samples(world: SpacesWorld) -> str:
    """All that the planner remembers of values, as text."""
    rows = await world.rows("select s::text from pg_stats s where schemaname = 'public'")
    return "\n".join(row[0] for row in rows)


async def in_samples_file(cluster: Cluster, world: SpacesWorld, words: Iterable[str]) -> list[str]:
    async with world.database.connection() as conn:
        await conn.execute("checkpoint")
        path: str = await conn.fetchval("select pg_relation_filepath('pg_statistic')")
        toast: str = await conn.fetchval(
            "select pg_relation_filepath(reltoastrelid) from pg_class where oid = 'pg_statistic'::regclass"
        )
    content = b"".join((cluster.data / Path(each)).read_bytes() for each in (path, toast))
    return [word for word in words if word.encode() in content]


@pytest.mark.parametrize("is_last", [True, False])
async def test_planner_keeps_no_sample_of_a_space_that_was_deleted(
    cluster: Cluster, database: Database, *, is_last: bool
):
    """Also where all of a table was of that Space: analysing what is empty forgets nothing."""
    async with spaces_world(database) as world:
        await fill(world)
        here = await setting(world)
        carol = here.away.add("carol")
        here.space.admit(carol)
        for number in range(5):
            path = f"{here.space}/{carol.did}/{COLLECTION}/{rkey(number)}"
            carol.create(here.space, rkey(number), memory("x", kind="mandarin", supersedes=[path, path + "x"]))
            carol.create(here.space, rkey(10 + number), {"$type": COLLECTION, "content": number})
        other = here.home.create_space(here.alice, "other", here.bob)
        if not is_last:
            here.bob.create(other, rkey(1), memory("y"))
            await world.open(other, here.bob)
        await world.open(here.space, carol)
        await here.begin("0", "1", "2")
        await world.until_idle()
        await fill_vectors(world, here.space)
        async with world.database.connection() as conn:
            await conn.execute("analyze")
        words = [str(here.space), "mandarin"]
        assert [word for word in words if word in await samples(world)] == words
        assert await in_samples_file(cluster, world, words) == words
        here.space.delete()
        await world.note(here.space, "deleted")
        await world.until(lambda: world.left_of(here.space), {})
        async with world.database.connection() as conn:
            await conn.execute("analyze")
        assert str(here.space) in await samples(world)
        await world.worker.expire()
        if not is_last:
            await erased(database)  # of what is not empty
        assert [word for word in words if word in await samples(world)] == []
        await erased(database)
        assert await in_samples_file(cluster, world, words) == []
        if is_last:
            for table in (*CONTENT_TABLES, *SPACE_TABLES):
                assert await world.value(f"select count(*) from {table}") == 0
