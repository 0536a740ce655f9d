"""Who has something in Spaces is heard of, though their public repo is not followed."""

from __future__ import annotations

from indexer.arrivals import AccountChanged, CommitArrived, IdentityResolved
from indexer.consumer import Consumer
from indexer.frames import event_of_others, open_frame
from tests.builders import RepoBuilder, memory
from tests.feed import LONG_AGO, RELAY, Directory, rkey

OTHER = "com.example.note"


def watching(builder: RepoBuilder) -> Consumer:
    known = Directory()
    known.announce(builder, LONG_AGO)
    return Consumer(
        identities=known,
        clock=lambda _: LONG_AGO,
        tracked=set(),
        admits=lambda _: True,
        cursors={},
        watched={builder.did},
    )


def test_account_and_identity_events_of_watched_accounts_are_taken():
    bob = RepoBuilder("bob")
    consumer = watching(bob)
    for frame, kind in ((bob.account_frame(active=False), AccountChanged), (bob.identity_frame(), IdentityResolved)):
        assert event_of_others(frame, consumer.concerned) is None
        [arrival], _ = consumer.take(RELAY, frame)
        assert isinstance(arrival, kind)


def test_commits_of_watched_accounts_make_nobody_tracked_unless_they_write_memories():
    bob = RepoBuilder("bob")
    consumer = watching(bob)
    bob.genesis()
    other = bob.create("note", {"$type": OTHER}, collection=OTHER)
    consumer.notice(open_frame(other))
    assert consumer.take(RELAY, other)[0] == []
    assert consumer.candidates == set()
    mine, after = bob.create(rkey(1), memory("public")), bob.create("n2", {"$type": OTHER}, collection=OTHER)
    for frame in (mine, after):
        consumer.notice(open_frame(frame))
    arrivals = consumer.take(RELAY, mine)[0] + consumer.take(RELAY, after)[0]
    assert [type(each) for each in arrivals] == [IdentityResolved, CommitArrived, CommitArrived]
