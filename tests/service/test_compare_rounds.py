"""After gaps, and once in a while, it is asked where repos stand; and what was left behind is taken up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from indexer.books import RequestKind
from indexer.resync import rounds
from indexer.store import leases
from memory.database import Database
from memory.errors import Misconfigured
from memory.queries import StatementFailed
from memory.tasks import TaskGroup
from tests.builders import RepoBuilder, memory
from tests.fakes.pds import Fault
from tests.feed import RELAY, rkey
from tests.mending import AUDIT_EVERY, Mending, mending
from tests.store.test_lock_order import waiting

LATEST = RequestKind.LATEST_COMMIT


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        yield opened


async def known(world: Mending, seed: str = "alice") -> RepoBuilder:
    """A repo that is held whole."""
    person = world.account(seed)
    await world.live(*person.genesis(), person.create(rkey(1), memory("one")))
    await world.value("delete from requests")
    return person


async def known_all(world: Mending, number: int) -> list[RepoBuilder]:
    return [await known(world, f"{each}") for each in range(number)]


# Gaps


async def note_gap(world: Mending, source: str = RELAY.url) -> None:
    async with world.database.connection() as conn:
        await conn.execute(
            "insert into sources (source, seq, updated_at) values ($1, 1, $2) on conflict do nothing",
            source,
            world.clock(),
        )
        await leases.note_gap(conn, source, world.clock())


async def gaps(world: Mending) -> list[tuple[str, str | None]]:
    rows = await world.rows("select source, gap_compared_to from sources where gap_at is not null order by source")
    return [tuple(row) for row in rows]


async def asked_about(world: Mending) -> set[str]:
    return {row["repo"] for row in await world.rows("select repo from requests where kind = $1", LATEST)}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "COMPARED_A_PIECE", 3)
    monkeypatch.setattr(rounds, "PIECES_A_ROUND", 1)


async def test_gap_has_every_repo_compared_and_only_those_that_moved_fetched(world: Mending):
    people = await known_all(world, 6)
    moved = people[1::2]
    for person in moved:
        person.create(rkey(2), memory("two"))
    await note_gap(world)
    await world.rounds.round()
    assert await gaps(world) == []
    assert await asked_about(world) == {person.did for person in people}
    world.start()
    await world.until_answered(*people)
    fetched = {asked.did for asked in world.pds.asked if asked.method == "getRepo"}
    assert fetched == {person.did for person in moved}
    for person in people:
        assert await world.contents(person) == (["one", "two"] if person in moved else ["one"])


async def test_gap_concerns_hidden_accounts_too_but_not_denied_ones(world: Mending):
    hidden, denied = await known(world, "hidden"), await known(world, "denied")
    await world.value("update repos set visible = false, status = 'deactivated' where repo = $1", hidden.did)
    await world.value("update repos set reason = 'denied', state = 'pending' where repo = $1", denied.did)
    await note_gap(world)
    await world.rounds.round()
    assert await asked_about(world) == {hidden.did}


async def test_gap_is_worked_off_in_pieces_that_a_kill_does_not_repeat(world: Mending, small_pieces: None):
    people = sorted(await known_all(world, 8), key=lambda person: person.did)
    await note_gap(world)
    for pieces in (1, 2):
        await rounds.Rounds(world.database, audit_every=None, shared_clock=world.clock).round()  # another process each
        assert await gaps(world) == [(RELAY.url, people[3 * pieces - 1].did)]
        assert await asked_about(world) == {person.did for person in people[: 3 * pieces]}
        await world.value("update requests set reason = 'kept'")
    await world.rounds.round()
    assert await gaps(world) == []
    reasons = await world.rows("select reason from requests order by repo")
    assert [row["reason"] for row in reasons] == ["kept"] * 6 + ["gap"] * 2


async def test_gap_that_ends_with_a_whole_piece_ends(world: Mending, small_pieces: None):
    people = await known_all(world, 3)
    await note_gap(world)
    await world.rounds.round()
    await world.rounds.round()
    assert await gaps(world) == []
    assert await asked_about(world) == {person.did for person in people}


async def test_gap_that_is_noted_again_starts_anew(world: Mending, small_pieces: None):
    people = sorted(await known_all(world, 8), key=lambda person: person.did)
    await note_gap(world)
    await world.rounds.round()
    await world.value("delete from requests")  # they were answered before the second loss
    await note_gap(world)
    assert await gaps(world) == [(RELAY.url, None)]
    for _ in range(3):
        await world.rounds.round()
    assert await asked_about(world) == {person.did for person in people}


async def test_gap_that_is_noted_again_while_a_piece_is_worked_off_starts_anew(world: Mending, small_pieces: None):
    people = sorted(await known_all(world, 8), key=lambda person: person.did)
    await note_gap(world)
    await world.rounds.round()
    async with TaskGroup() as tasks, world.database.transaction() as conn:
        await conn.execute(
            "insert into requests (repo, kind, reason, requested_at, not_before) values ($1, $2, 'held', now(), now())",
            people[4].did,
            LATEST,
        )
        tasks.create_task(world.rounds.round())
        await waiting(world.database, 1)  # in the middle of its piece
        await note_gap(world)  # for whose row nobody has to wait
    assert await gaps(world) == [(RELAY.url, None)]
    for _ in range(3):
        await world.rounds.round()
    assert await gaps(world) == []
    assert await asked_about(world) == {person.did for person in people}


async def test_gap_is_worked_off_by_one_process_at_a_time(world: Mending, small_pieces: None):
    await known_all(world, 8)
    await note_gap(world)
    async with world.database.transaction() as conn:
        assert await rounds.fetches.compare_next(conn, 3, world.clock()) == RELAY.url
        async with world.database.transaction() as other:
            assert await rounds.fetches.compare_next(other, 3, world.clock()) is None


async def test_gaps_of_several_sources_are_worked_off_one_after_another(world: Mending):
    await known_all(world, 2)
    await note_gap(world, "https://one.test")
    world.clock.advance(seconds=1)
    await note_gap(world, "https://two.test")
    await world.rounds.round()
    assert await gaps(world) == []


async def test_repo_that_is_compared_just_now_is_compared_again_for_a_gap(world: Mending):
    alice = await known(world)
    world.pds.misbehave(Fault.SLOW)
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.pds.until_asked("getLatestCommit")
    await note_gap(world)
    await world.rounds.round()
    world.pds.misbehave(None)
    world.pds.release.set()
    await world.until_answered(alice)
    assert world.pds.asked_for("getLatestCommit") == 2


# Audits


async def test_repos_that_nobody_compared_for_long_are_compared(world: Mending):
    people = await known_all(world, 3)
    await world.rounds.round()
    assert await asked_about(world) == set()
    world.clock.advance(days=1)
    await world.value("update repos set audited_at = $1 where repo = $2", world.clock.now, people[0].did)
    world.clock.advance(seconds=AUDIT_EVERY.total_seconds())
    await world.value("update repos set audited_at = $1 where repo = $2", world.clock.now, people[1].did)
    await world.rounds.round()
    assert await asked_about(world) == {people[2].did}
    world.clock.advance(seconds=1)
    await world.rounds.round()
    assert await asked_about(world) == {people[0].did, people[2].did}


async def test_oldest_are_audited_first(world: Mending, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rounds, "ASKED_A_ROUND", 1)
    people = await known_all(world, 3)
    for number, person in enumerate(people):
        audited_at = world.clock.now - AUDIT_EVERY - timedelta(days=number + 1)
        await world.value("update repos set audited_at = $1 where repo = $2", audited_at, person.did)
    for number in (1, 2, 3):
        await world.rounds.round()
        assert await asked_about(world) == {person.did for person in people[-number:]}


@pytest.mark.parametrize("case", ["whole", "behind", "hidden", "unserved"])
async def test_audit_of_a_repo_is_not_repeated_whatever_comes_of_it(world: Mending, case: str):
    alice = await known(world)
    match case:
        case "behind":
            alice.create(rkey(2), memory("two"))
            world.pds.misbehave(Fault.GIBBERISH, "getRepo")
        case "hidden":
            await world.live(alice.account_frame(active=False, status="takendown"))
        case "unserved":
            world.pds.statuses[alice.did] = "suspended"
        case _:
            pass
    world.clock.advance(days=31)
    await world.rounds.round()
    world.start()
    await world.until_answered(alice, kind=LATEST)
    await world.rounds.round()
    await world.until_answered(alice, kind=LATEST)
    assert world.pds.asked_for("getLatestCommit") == 1


async def test_audit_finds_what_the_relay_never_carried(world: Mending):
    alice = await known(world)
    alice.create(rkey(2), memory("two"))
    world.clock.advance(days=31)
    await world.rounds.round()
    world.start()
    await world.until_answered(alice)
    assert await world.contents(alice) == ["one", "two"]


async def test_audit_finds_an_account_that_came_back_unheard(world: Mending):
    alice = await known(world)
    world.pds.statuses[alice.did] = "deactivated"
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert not (await world.row(alice))["visible"]
    del world.pds.statuses[alice.did]
    world.clock.advance(days=31)
    await world.rounds.round()
    await world.until_answered(alice)
    assert (await world.row(alice))["visible"]


@pytest.mark.parametrize("state", ["pending", "desynchronized", "error", "resyncing"])
async def test_repo_that_is_fetched_anyway_is_not_audited(world: Mending, state: str):
    await known(world)
    await world.value("update repos set state = $1, audited_at = '2020-01-01'", state)
    await world.rounds.round()
    assert await asked_about(world) == set()


# Trouble


async def test_round_that_goes_wrong_is_told_and_followed_by_the_next(world: Mending, monkeypatch: pytest.MonkeyPatch):
    looks: list[None] = []

    async def refuse(*_: object) -> int:
        looks.append(None)
        if len(looks) > 2:
            raise Misconfigured("to end the test")
        raise StatementFailed("42501", "forsaken_fetches")

    monkeypatch.setattr("indexer.store.fetches.take_back_forsaken", refuse)
    failing = rounds.Rounds(world.database, audit_every=None, round_s=0)
    with capture_logs() as logs, pytest.raises(Misconfigured):
        await failing.run()
    assert failing.failed == 2
    assert [(told["event"], told["times"]) for told in logs] == [("round_failed", 1), ("round_failed", 2)]


# What was left behind


async def test_fetch_that_was_killed_is_taken_back_once_its_claim_has_run_out(world: Mending):
    alice = await known(world)
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    await world.stop()
    await world.rounds.round()
    assert (await world.state(alice))[0] == "resyncing"
    world.clock.advance(minutes=3)
    await world.rounds.round()
    assert await world.state(alice) == ("desynchronized", "fetch_interrupted")
    assert (await world.row(alice))["fetch_token"] is None


async def test_repo_that_is_not_whole_and_that_nobody_asked_for_is_asked_for(world: Mending):
    people = {state: await known(world, state) for state in ("active", "pending", "desynchronized", "error", "hidden")}
    for state, person in people.items():
        visible = state != "hidden"
        await world.value(
            "update repos set state = $1, reason = 'why', visible = $2 where repo = $3",
            state if visible else "error",
            visible,
            person.did,
        )
    denied = await known(world, "denied")
    await world.value("update repos set state = 'pending', reason = 'denied' where repo = $1", denied.did)
    await world.rounds.round()
    asked = await world.rows("select repo, kind, reason from requests")
    assert {tuple(row) for row in asked} == {
        (people[state].did, "fetch", "why") for state in ("pending", "desynchronized", "error")
    }


async def test_request_that_waits_is_left_as_it_is(world: Mending):
    alice = await known(world)
    await world.value("update repos set state = 'error', reason = 'no_host'")
    await world.ask(alice)
    await world.value("update requests set attempts = 7, not_before = $1", world.clock.now + timedelta(hours=5))
    await world.rounds.round()
    request = await world.request(alice)
    assert (request["reason"], request["attempts"]) == ("test", 7)
