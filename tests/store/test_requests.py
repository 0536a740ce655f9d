"""A request is worked on by one, crossed out when it is answered, and taken up again when it was asked again since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from indexer.arrivals import CommitParked, IdentityAnnounced, Place, RequestAnswered
from indexer.books import Answer, RequestKind
from indexer.store import repos, requests
from indexer.store.requests import HANDLE_UNSETTLED, Claim, SiteShares
from memory.database import Database
from memory.queries import load_queries
from tests.builders import tid
from tests.feed import LONG_AGO, RELAY, Feed

STATEMENTS = Path(requests.__file__).parent / "sql" / "requests.sql"
STRANGER = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
CLAIMED_FOR = timedelta(minutes=2)
SECOND = timedelta(seconds=1)


async def ask(feed: Feed, after: timedelta) -> None:
    """One more commit of a stranger, whose key is not known."""
    at = LONG_AGO + after
    await feed.write(CommitParked(Place(RELAY, 1, at), STRANGER, tid(at), b"frame", "key_unknown"))


async def answer(feed: Feed, claim: Claim) -> None:
    """To what was asked when it was claimed."""
    await feed.write(RequestAnswered(Place(RELAY, 1, LONG_AGO), STRANGER, RequestKind.IDENTITY, claim.requested_at))


async def claims(database: Database, after: timedelta) -> list[Claim]:
    async with database.connection() as conn:
        return await requests.claim(
            conn,
            RequestKind.IDENTITY,
            LONG_AGO + after,
            CLAIMED_FOR,
            at_most=10,
            tracked=False,
            shares=SiteShares(plc=10, others=10, busy={}),
        )


async def test_request_that_is_asked_again_while_it_is_worked_on_is_nobody_elses(database: Database):
    feed = Feed(database)
    await ask(feed, after=0 * SECOND)
    [claim] = await claims(database, after=SECOND)
    await ask(feed, after=2 * SECOND)
    assert await claims(database, after=3 * SECOND) == []
    assert [again.attempts for again in await claims(database, after=SECOND + CLAIMED_FOR)] == [claim.attempts + 1]


async def test_answered_request_is_gone(database: Database):
    feed = Feed(database)
    await ask(feed, after=0 * SECOND)
    [claim] = await claims(database, after=SECOND)
    await answer(feed, claim)
    assert await feed.rows("select from requests") == []


async def test_request_that_was_asked_again_before_its_answer_is_due_at_once_as_a_new_one(database: Database):
    feed = Feed(database)
    await ask(feed, after=0 * SECOND)
    [claim] = await claims(database, after=SECOND)
    await ask(feed, after=2 * SECOND)
    await answer(feed, claim)
    [again] = await claims(database, after=3 * SECOND)
    assert (again.requested_at, again.attempts) == (LONG_AGO + 2 * SECOND, 1)
    await answer(feed, again)
    assert await feed.rows("select from requests") == []


async def test_of_several_answers_the_one_that_says_most_counts(database: Database):
    feed = Feed(database)
    await ask(feed, after=0 * SECOND)
    key = (STRANGER, "")
    answers = [Answer(key, RequestKind.IDENTITY, LONG_AGO - SECOND), Answer(key, RequestKind.IDENTITY, None)]
    async with database.transaction() as conn:
        await repos.delete_requests(conn, answers)
    assert await feed.rows("select from requests") == []


async def test_identity_that_has_to_be_renewed_has_to_be_though_commits_wait_for_its_key_since(database: Database):
    feed = Feed(database)
    await ask(feed, after=0 * SECOND)
    [claim] = await claims(database, after=SECOND)
    await feed.write(IdentityAnnounced(Place(RELAY, 1, LONG_AGO + 2 * SECOND), STRANGER))
    await ask(feed, after=3 * SECOND)
    await answer(feed, claim)
    [again] = await claims(database, after=4 * SECOND)
    assert (again.reason, again.requested_at) == ("identity_event", LONG_AGO + 3 * SECOND)


async def test_commit_that_waits_for_a_key_does_not_wait_for_a_handle(database: Database):
    feed = Feed(database)
    async with database.connection() as conn:
        await conn.execute(ASKED, STRANGER, LONG_AGO)
        await conn.execute("update requests set reason = $1", HANDLE_UNSETTLED)
    await ask(feed, after=SECOND)
    [claim] = await claims(database, after=SECOND)
    assert (claim.reason, claim.requested_at) == ("key_unknown", LONG_AGO + SECOND)


# Sites

ASKED = """
insert into requests (repo, kind, reason, requested_at, not_before, tracked) values ($1, 'identity', '', $2, $2, false)
"""


async def claimed(database: Database, dids: Sequence[str], busy: Mapping[str, int], at_most: int = 10) -> list[str]:
    """Who is claimed of these, which fell due in that order; a site has two claims at most, the directory three."""
    async with database.transaction() as conn:
        for number, did in enumerate(dids):
            due = LONG_AGO + number * SECOND
            await conn.execute(ASKED, did, due)
        claims = await requests.claim(
            conn,
            RequestKind.IDENTITY,
            LONG_AGO + timedelta(days=1),
            CLAIMED_FOR,
            at_most=at_most,
            tracked=False,
            shares=SiteShares(plc=3, others=2, busy=busy),
        )
    names = {claim.repo: claim.site for claim in claims}
    assert set(names.values()) <= {"did:plc", "a.example", "b.example", "c.example"}
    return [did for did in dids if did in names]


A1, A2, A3, A = (f"did:web:{name}a.example" for name in ("x.", "y.", "z.z.", ""))
B, C = "did:web:b.example", "did:web:c.example"
P1, P2, P3, P4 = (f"did:plc:{letter * 24}" for letter in "abcd")


async def test_claims_of_one_site_are_bounded_and_those_due_first_come_first(database: Database):
    assert await claimed(database, [A1, A2, A3, A, B, C], {}) == [A1, A2, B, C]


async def test_site_that_has_its_share_is_passed_over(database: Database):
    assert await claimed(database, [A1, A2, B, C], {"a.example": 2}) == [B, C]
    assert await claimed(database, ["did:web:A.Example"], {"a.example": 2}) == []


async def test_site_that_has_a_part_of_its_share_gets_the_rest(database: Database):
    assert await claimed(database, [A1, A2, B], {"a.example": 1, "b.example": 2}) == [A1]


async def test_directory_is_a_site_with_a_share_of_its_own(database: Database):
    assert await claimed(database, [P1, P2, P3, P4, A1], {}) == [P1, P2, P3, A1]
    assert await claimed(database, [B], {"did:plc": 3}) == [B]


async def test_domain_that_only_ends_like_a_busy_one_is_another(database: Database):
    async with database.transaction() as conn:
        await conn.execute(ASKED, "did:web:aa.example", LONG_AGO)
    busy = SiteShares(plc=3, others=2, busy={"a.example": 2})
    async with database.connection() as conn:
        [claim] = await requests.claim(
            conn, RequestKind.IDENTITY, LONG_AGO, CLAIMED_FOR, at_most=1, tracked=False, shares=busy
        )
    assert claim.site == "aa.example"


async def test_no_more_are_claimed_than_asked_for(database: Database):
    assert await claimed(database, [P1, A1, B, C], {}, at_most=2) == [P1, A1]


# Very many

MANY = """
insert into requests (repo, kind, reason, requested_at, not_before, tracked)
select 'did:plc:' || n, 'identity', '', $1, $1::timestamptz + n * interval '1 second', false
from generate_series(1, 100000) n
"""


async def test_claims_read_no_more_than_they_look_at_though_nothing_is_known_of_how_many_there_are(database: Database):
    statement = next(each for each in load_queries(STATEMENTS) if each.name == "claim_requests")
    looked = {"kind": "identity", "tracked": False, "now": LONG_AGO + timedelta(days=1), "looked_at": 200}
    claims = {"claimed_until": LONG_AGO + timedelta(days=2), "at_most": 10, "plc_share": 3, "site_share": 2}
    given = looked | claims | {"plc_is_full": False, "full_sites": [], "busy_sites": [], "busy_claims": []}
    async with database.connection() as conn:
        await conn.execute(MANY, LONG_AGO)
        plan = [row[0] for row in await conn.fetch(f"explain {statement.sql}", *map(given.get, statement.parameters))]
    assert any("Index Scan using requests_by_time" in line for line in plan), plan
    assert not any("Bitmap" in line for line in plan), plan
