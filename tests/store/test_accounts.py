"""Who is served: by what each source says of an account and who the directory says it is; what stays of who left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from indexer.arrivals import Source, SourceKind
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.feed import PDS, RELAY, Feed, holdings, rkey, tally

NEW_PDS = Source("https://new.test", SourceKind.PDS)
SECOND = timedelta(seconds=1)
OTHER_RELAY = replace(RELAY, url="https://other.test")


async def with_a_memory(database: Database, *, source: Source = RELAY) -> tuple[Feed, RepoBuilder]:
    """Alice, tracked by her first memory; nothing is asked about her any more."""
    feed = Feed(database, source=source)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    async with database.connection() as conn:
        await conn.execute("delete from requests")
    return feed, alice


async def shown(feed: Feed, alice: RepoBuilder) -> tuple[bool, str | None]:
    row = await feed.repo(alice)
    return row["visible"], row["status"]


async def stands(feed: Feed, alice: RepoBuilder) -> tuple[str, str | None]:
    row = await feed.repo(alice)
    return row["state"], row["reason"]


def bury(feed: Feed, alice: RepoBuilder) -> bytes:
    """Her DID is tombstoned; the frame that says so."""
    feed.directory.bury(alice, feed.clock + SECOND / 2)
    return alice.identity_frame()


# Statuses


@pytest.mark.parametrize("status", ["deactivated", "suspended", "takendown", "deleted", "somethingNew"])
async def test_inactive_account_is_hidden_now_and_kept(database: Database, status: str):
    feed, alice = await with_a_memory(database)
    before = await holdings(database, alice.did)
    await feed.send(alice.account_frame(active=False, status=status))
    assert await shown(feed, alice) == (False, status)
    after = await holdings(database, alice.did)
    assert {**after, "repos": None} == {**before, "repos": None}


async def test_inactive_account_without_a_status_is_hidden(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=False))
    assert await shown(feed, alice) == (False, "inactive")


@pytest.mark.parametrize("status", ["desynchronized", "throttled"])
async def test_troubled_account_is_served_while_active_only(database: Database, status: str):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=True, status=status))
    assert await shown(feed, alice) == (True, status)
    await feed.send(alice.account_frame(active=False, status=status))
    assert await shown(feed, alice) == (False, status)


async def test_account_that_is_active_again_is_served_as_it_was(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=False, status="deactivated"))
    await feed.send(alice.account_frame())
    assert await shown(feed, alice) == (True, None)
    assert (await stands(feed, alice), await feed.requests(alice)) == (
        ("active", None),
        {"identity": "account_came_back"},
    )
    assert await feed.memories(alice) == {rkey(1): "tea"}


async def test_older_word_of_a_source_changes_nothing(database: Database):
    feed, alice = await with_a_memory(database)
    deactivated = alice.account_frame(active=False, status="deactivated")
    await feed.send(deactivated)
    await feed.send(alice.account_frame())
    outcome = await feed.send(deactivated)
    assert tally(outcome) == {"already_applied": ("already_applied", 1)}
    assert await shown(feed, alice) == (True, None)


async def test_relays_takedown_hides_until_that_relay_says_active(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=False, status="takendown"))
    await feed.send(alice.account_frame(), source=PDS)
    await feed.send(alice.account_frame(), source=OTHER_RELAY)
    assert await shown(feed, alice) == (False, "takendown")
    await feed.send(alice.account_frame())
    assert await shown(feed, alice) == (True, None)


async def test_words_are_kept_per_source(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=False, status="takendown"))
    await feed.send(alice.account_frame(active=True, status="throttled"), source=PDS)
    words = await feed.rows(
        "select source, source_kind, active, status, event_time from account_status order by source"
    )
    assert [tuple(row) for row in words] == [
        (PDS.url, "pds", True, "throttled", feed.clock),
        (RELAY.url, "relay", False, "takendown", feed.clock - SECOND),
    ]


async def test_late_word_of_an_old_host_does_not_win(database: Database):
    feed, alice = await with_a_memory(database, source=PDS)
    alice.host = NEW_PDS.url
    feed.directory.announce(alice, feed.clock)
    outcome = await feed.send(alice.account_frame(active=False, status="deactivated"))
    assert tally(outcome) == {"wrong_host": ("ignored", 1)}
    assert await shown(feed, alice) == (True, None)


async def test_word_of_an_old_host_counts_no_more_after_the_move(database: Database):
    feed, alice = await with_a_memory(database, source=PDS)
    await feed.send(alice.account_frame(active=False, status="deactivated"))
    assert await shown(feed, alice) == (False, "deactivated")
    alice.host = NEW_PDS.url
    feed.directory.announce(alice, feed.clock)
    await feed.send(alice.identity_frame())
    assert await shown(feed, alice) == (True, None)


async def test_word_of_the_new_host_counts_from_the_move_on(database: Database):
    feed, alice = await with_a_memory(database, source=PDS)
    alice.host = NEW_PDS.url
    feed.directory.announce(alice, feed.clock)
    await feed.send(alice.account_frame(active=False, status="deactivated"), source=NEW_PDS)
    await feed.send(alice.identity_frame())
    assert await shown(feed, alice) == (False, "deactivated")


async def test_status_that_was_known_before_the_first_commit_hides_it(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    async with database.connection() as conn:
        await conn.execute(
            "insert into account_status values ($1, $2, 'relay', 1, false, 'takendown', now())", alice.did, RELAY.url
        )
    await feed.send(alice.create(rkey(1), memory("tea")))
    assert await shown(feed, alice) == (False, "takendown")
    assert await feed.memories(alice) == {}
    assert await stands(feed, alice) == ("desynchronized", "account_inactive")


async def test_new_repo_asks_for_its_status(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    assert await feed.requests(alice) == {"repo_status": "first_sight"}


# While inactive


async def test_commit_while_inactive_is_ignored_and_remembered(database: Database):
    feed, alice = await with_a_memory(database)
    held = (await feed.repo(alice))["rev"]
    await feed.send(alice.account_frame(active=False, status="suspended"))
    outcome = await feed.send(alice.create(rkey(2), memory("coffee")))
    assert tally(outcome) == {"account_inactive": ("ignored", 1)}
    assert ((await feed.repo(alice))["rev"], await feed.memories(alice)) == (held, {rkey(1): "tea"})
    assert await stands(feed, alice) == ("desynchronized", "account_inactive")
    assert await feed.requests(alice) == {"fetch": "account_inactive", "repo_status": "live_while_inactive"}


async def test_account_that_wrote_while_inactive_waits_for_its_fetch(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=False, status="suspended"), alice.create(rkey(2), memory("coffee")))
    await feed.send(alice.account_frame())
    outcome = await feed.send(alice.create(rkey(3), memory("water")))
    assert tally(outcome) == {"awaiting_resync": ("ignored", 1)}
    assert await stands(feed, alice) == ("desynchronized", "account_inactive")
    assert (await feed.requests(alice))["fetch"] == "account_inactive"


async def test_status_within_a_batch_counts_from_its_place_on(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(
        alice.create(rkey(2), memory("coffee")),
        alice.account_frame(active=False, status="suspended"),
        alice.create(rkey(3), memory("water")),
    )
    assert list(await feed.memories(alice)) == [rkey(1), rkey(2)]


# Deletion


async def test_deleted_account_is_hidden_and_its_deletion_to_be_confirmed(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(alice.account_frame(active=False, status="deleted"))
    assert await shown(feed, alice) == (False, "deleted")
    assert await feed.memories(alice) == {rkey(1): "tea"}
    assert await feed.requests(alice) == {"confirm_deletion": "deleted"}


async def test_tombstone_purges_at_once(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(
        alice.update(rkey(1), memory("coffee")),
        alice.create(rkey(2), memory("newer", supersedes=[f"at://{alice.did}/{COLLECTION}/{rkey(1)}"])),
        alice.create(rkey(3), {"$type": COLLECTION}),
        alice.delete(rkey(2)),
    )
    feed.directory.announce(alice, feed.clock, signing_key=None)
    await feed.send(alice.create(rkey(4), memory("parked")))
    before = await holdings(database, alice.did)
    assert all(rows for table, rows in before.items() if table != "edges")
    await feed.send(bury(feed, alice))
    after = await holdings(database, alice.did)
    assert {table for table, rows in after.items() if rows} == {"repos"}
    row = await feed.repo(alice)
    assert (row["visible"], row["status"], row["data_cid"]) == (False, "deleted", None)
    assert (row["memory_count"], row["memory_bytes"], row["edge_count"]) == (0, 0, 0)
    assert await feed.requests(alice) == {}


async def test_tombstone_purges_what_its_own_batch_brought(database: Database):
    feed, alice = await with_a_memory(database)
    commit = alice.create(rkey(2), memory("coffee"))
    await feed.send(commit, bury(feed, alice))
    assert {table for table, rows in (await holdings(database, alice.did)).items() if rows} == {"repos"}
    assert (await feed.repo(alice))["rev"] == alice.rev


async def test_late_replay_after_a_purge_resurrects_nothing(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    frames = [alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("coffee")), alice.delete(rkey(1))]
    await feed.send(*frames, bury(feed, alice))
    after = await holdings(database, alice.did)
    late = Feed(database)
    late.directory.identities = feed.directory.identities
    for cut in (None, 1):
        await late.send(*frames, cut=cut)
        assert await holdings(database, alice.did) == after
    assert await feed.requests(alice) == {}


async def test_commit_after_the_gate_of_a_purged_repo_is_not_applied(database: Database):
    """Signed before the tombstone, met after it: as when a replay ends in the middle, and goes on."""
    feed, alice = await with_a_memory(database)
    late = alice.create(rkey(2), memory("coffee"))
    await feed.send(bury(feed, alice))
    outcome = await feed.send(late)
    assert tally(outcome) == {"account_inactive": ("ignored", 1)}
    assert {table for table, rows in (await holdings(database, alice.did)).items() if rows} == {"repos"}
    assert "fetch" not in await feed.requests(alice)


async def test_account_that_comes_back_is_fetched_whole(database: Database):
    feed, alice = await with_a_memory(database)
    await feed.send(bury(feed, alice))
    gate = (await feed.repo(alice))["rev"]
    feed.directory.announce(alice, feed.clock + SECOND)
    feed.stream.next(None, None)
    await feed.send(alice.identity_frame())
    assert await shown(feed, alice) == (True, None)
    assert await stands(feed, alice) == ("pending", "account_came_back")
    assert (await feed.requests(alice))["fetch"] == "account_came_back"
    assert (await feed.repo(alice))["rev"] == gate


async def test_account_that_comes_back_within_a_batch_counts_what_follows(database: Database):
    feed, alice = await with_a_memory(database)
    buried = bury(feed, alice)
    feed.directory.announce(alice, feed.clock + SECOND / 2)
    await feed.send(buried, alice.identity_frame(), alice.create(rkey(2), memory("coffee")))
    row = await feed.repo(alice)
    assert await feed.memories(alice) == {rkey(2): "coffee"}
    assert (row["state"], row["rev"], row["memory_count"]) == ("pending", alice.rev, 1)
    records = await feed.rows("select record from memories")
    assert row["memory_bytes"] == sum(len(record["record"]) for record in records)
    assert (await feed.requests(alice))["fetch"] == "account_came_back"


async def test_purge_is_of_one_repo_only(database: Database):
    feed, alice = await with_a_memory(database)
    bob = feed.account("bob")
    await feed.send(bob.create(rkey(1), memory("tea")))
    bobs = await holdings(database, bob.did)
    await feed.send(bury(feed, alice))
    assert await holdings(database, bob.did) == bobs


# Identities


@pytest.mark.parametrize("change", ["host", "key"])
async def test_other_host_or_key_asks_for_the_latest_commit(database: Database, change: str):
    feed, alice = await with_a_memory(database)
    if change == "host":
        alice.host = NEW_PDS.url
    else:
        alice.rotate_key("new")
    feed.directory.announce(alice, feed.clock)
    await feed.send(alice.identity_frame())
    assert await feed.requests(alice) == {"latest_commit": "identity_changed"}


async def test_other_handle_is_stored_and_asks_nothing(database: Database):
    feed, alice = await with_a_memory(database)
    alice.handle = "renamed.test"
    feed.directory.announce(alice, feed.clock)
    await feed.send(alice.identity_frame())
    assert (await feed.row("select handle from identities"))["handle"] == "renamed.test"
    assert await feed.requests(alice) == {}


async def test_older_document_never_replaces_a_newer(database: Database):
    feed, alice = await with_a_memory(database)
    alice.handle = "renamed.test"
    feed.directory.announce(alice, feed.clock)
    early = alice.identity_frame(time=feed.clock - timedelta(days=1))
    await feed.send(alice.identity_frame(time=feed.clock + timedelta(days=2)))
    await feed.send(early)
    assert (await feed.row("select handle from identities"))["handle"] == "renamed.test"


async def test_sync_of_the_held_commit_under_another_rev_is_a_no_op(database: Database):
    feed, alice = await with_a_memory(database)
    alice.rotate_key("of the new host")
    alice.host = NEW_PDS.url
    feed.directory.announce(alice, feed.clock)
    before = await holdings(database, alice.did)
    outcome = await feed.send(alice.sync_frame(rev="3zzzzzzzzzz2a"), source=NEW_PDS)
    assert tally(outcome) == {"already_applied": ("already_applied", 1)}
    assert await holdings(database, alice.did) == before
    assert await feed.requests(alice) == {}


# What is asked


async def test_forger_is_asked_about_at_most_once_an_hour(database: Database):
    feed, alice = await with_a_memory(database)
    forger = RepoBuilder("alice", stream=feed.stream)
    forger.rotate_key("forger")
    times: list[object] = []
    for minutes in (0, 30, 31):
        feed.stream.time += timedelta(minutes=minutes)
        await feed.send(forger.create(rkey(minutes + 5), memory("forged")))
        request = await feed.row("select reason, requested_at, not_before from requests where repo = $1", alice.did)
        assert request["reason"] == "bad_signature"
        times.append(request["requested_at"])
    assert times[0] == times[1] != times[2]
    assert await stands(feed, alice) == ("active", None)


async def test_clock_that_goes_back_asks_nothing_anew(database: Database):
    feed, _ = await with_a_memory(database)
    forger = RepoBuilder("alice", stream=feed.stream)
    forger.rotate_key("forger")
    await feed.send(forger.create(rkey(5), memory("forged")))
    asked = await feed.rows("select * from requests")
    feed.stream.time -= timedelta(days=9)
    await feed.send(forger.create(rkey(6), memory("forged")))
    assert await feed.rows("select * from requests") == asked
