from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from indexer.arrivals import (
    AccountChanged,
    Arrival,
    CommitArrived,
    CommitParked,
    CommitRefused,
    FrameBroken,
    FrameIgnored,
    IdentityResolved,
    Position,
    Source,
    SyncArrived,
)
from indexer.consumer import Consumer, frame_clock
from indexer.interpret import InvalidMemory, StoredMemory
from indexer.recording import read_frames
from tests.builders import START, RepoBuilder, Sequence, decode_frame_parts, encode_frame, memory
from tests.feed import LONG_AGO, PDS, RELAY, Directory, rkey
from tests.recorded import FOLDER

OLD_HOST = "https://old.test"


@dataclass
class Watch:
    """A consumer with what it was given, and an account that it may know."""

    admits: Callable[[str], bool] = lambda _: True
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    tracked: set[str] = field(default_factory=set[str])
    directory: Directory = field(default_factory=Directory)

    def __post_init__(self) -> None:
        self.stream = Sequence()
        self.consumer = Consumer(
            identities=self.directory,
            clock=frame_clock(LONG_AGO),
            tracked=self.tracked,
            admits=self.admits,
            cursors=self.cursors,
        )

    def account(self, seed: str = "alice", *, host: str = PDS.url, known: bool = True) -> RepoBuilder:
        builder = RepoBuilder(seed, host=host, stream=self.stream)
        if known:
            self.directory.announce(builder, LONG_AGO)
        return builder

    def take(self, frame: bytes, source: Source = RELAY) -> list[Arrival]:
        return self.consumer.take(source, frame)[0]

    def covers(self, frame: bytes, source: Source = RELAY) -> Position | None:
        return self.consumer.take(source, frame)[1]


def first_commit(watch: Watch, builder: RepoBuilder) -> bytes:
    """Tracks the builder's repo."""
    frame = builder.create(rkey(1), memory("tea"))
    watch.take(frame)
    return frame


# Tracking


def test_frames_of_untracked_repos_mean_nothing():
    watch = Watch()
    alice = watch.account()
    frames = [*alice.genesis(), alice.create("x", {"text": "hello"}, "app.bsky.feed.post")]
    assert [watch.take(frame) for frame in frames] == [[]] * len(frames)
    assert watch.tracked == set()


def test_frames_of_untracked_repos_move_the_cursor():
    watch = Watch()
    alice = watch.account()
    assert [position and position.seq for position in map(watch.covers, alice.genesis())] == [1, 2, 3, 4]


def test_frame_of_an_untracked_repo_is_neither_verified_nor_looked_up():
    class Unreachable(Directory):
        def at(self, did: str, time: datetime) -> None:
            raise AssertionError(did)

    watch = Watch(directory=Unreachable())
    alice = watch.account(known=False)
    watch.take(alice.create("x", {"text": "hello"}, "app.bsky.feed.post"))
    watch.take(alice.account_frame())


def test_first_op_in_our_collection_tracks_the_repo():
    watch = Watch()
    alice = watch.account()
    [identified, arrived] = watch.take(alice.create(rkey(1), memory("tea")))
    assert isinstance(identified, IdentityResolved)
    assert isinstance(arrived, CommitArrived)
    assert arrived.first_sight
    assert watch.tracked == {alice.did}


def test_deletion_in_our_collection_tracks_the_repo_too():
    watch = Watch()
    alice = watch.account()
    alice.create(rkey(1), memory("tea"))
    assert watch.take(alice.delete(rkey(1)))
    assert watch.tracked == {alice.did}


def test_tracked_repo_is_first_seen_once():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    [arrived] = watch.take(alice.create(rkey(2), memory("coffee")))
    assert isinstance(arrived, CommitArrived)
    assert not arrived.first_sight


def test_commit_of_a_tracked_repo_counts_although_it_touches_no_memory():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    [arrived] = watch.take(alice.create("x", {"text": "hello"}, "app.bsky.feed.post"))
    assert isinstance(arrived, CommitArrived)
    assert arrived.ops == ()


def test_repo_that_is_not_admitted_is_not_tracked():
    watch = Watch(admits=lambda _: False)
    alice = watch.account()
    assert watch.take(alice.create(rkey(1), memory("tea"))) == []
    assert watch.tracked == set()


def test_repo_that_is_tracked_already_is_never_left():
    watch = Watch(admits=lambda _: False)
    alice = watch.account()
    watch.tracked.add(alice.did)
    assert watch.take(alice.create(rkey(1), memory("tea")))


def test_unverified_commit_tracks_nobody():
    watch = Watch()
    alice = watch.account()
    alice.rotate_key("forger")
    [refused] = watch.take(alice.create(rkey(1), memory("tea")))
    assert isinstance(refused, CommitRefused)
    assert refused.reason == "bad_signature"
    assert watch.tracked == set()


# What is judged


def test_op_arrives_interpreted():
    watch = Watch()
    alice = watch.account()
    [_, arrived] = watch.take(alice.create(rkey(1), memory("tea")))
    assert isinstance(arrived, CommitArrived)
    [op] = arrived.ops
    assert isinstance(op.entry, StoredMemory)
    assert (op.rkey, op.entry.memory.content, op.created) == (rkey(1), "tea", True)


def test_record_that_fails_the_lexicon_arrives_with_its_reason():
    watch = Watch()
    alice = watch.account()
    [_, arrived] = watch.take(alice.create(rkey(1), {"$type": "dev.bastienrobert.memory.record"}))
    assert isinstance(arrived, CommitArrived)
    assert isinstance(arrived.ops[0].entry, InvalidMemory)


def test_commit_with_an_unknown_key_is_parked_whole():
    watch = Watch()
    alice = watch.account(known=False)
    frame = alice.create(rkey(1), memory("tea"))
    [parked] = watch.take(frame)
    assert isinstance(parked, CommitParked)
    assert (parked.repo, parked.rev, parked.frame, parked.reason) == (alice.did, alice.rev, frame, "key_unknown")
    assert watch.tracked == set()


def test_commit_of_an_identity_without_a_key_is_parked():
    watch = Watch()
    alice = watch.account(known=False)
    watch.directory.announce(alice, LONG_AGO, signing_key=None)
    [parked] = watch.take(alice.create(rkey(1), memory("tea")))
    assert isinstance(parked, CommitParked)


def test_commit_before_its_authors_first_document_is_parked():
    watch = Watch()
    alice = watch.account(known=False)
    watch.directory.announce(alice, START + timedelta(hours=1))
    [parked] = watch.take(alice.create(rkey(1), memory("tea")))
    assert isinstance(parked, CommitParked)


def test_commit_under_a_key_that_cannot_be_read_is_refused():
    watch = Watch()
    alice = watch.account(known=False)
    watch.directory.announce(alice, LONG_AGO, signing_key="did:key:zNonsense")
    [refused] = watch.take(alice.create(rkey(1), memory("tea")))
    assert isinstance(refused, CommitRefused)
    assert refused.reason == "bad_key"


def test_commit_is_verified_by_the_key_of_its_time():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    old = alice.create(rkey(2), memory("coffee"))
    alice.rotate_key("new")
    watch.directory.announce(alice, watch.stream.time + timedelta(seconds=1))
    new = alice.create(rkey(3), memory("water"), time=watch.stream.time + timedelta(seconds=2))
    assert [type(arrival) for arrival in (*watch.take(old), *watch.take(new))] == [CommitArrived, CommitArrived]


def test_commit_of_a_tombstoned_identity_is_ignored():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    watch.directory.bury(alice, watch.stream.time)
    [ignored] = watch.take(alice.create(rkey(2), memory("coffee")))
    assert isinstance(ignored, FrameIgnored)
    assert ignored.reason == "tombstoned"


def test_sync_of_a_tombstoned_identity_is_ignored():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    watch.directory.bury(alice, watch.stream.time)
    [ignored] = watch.take(alice.sync_frame())
    assert isinstance(ignored, FrameIgnored)
    assert ignored.reason == "tombstoned"


def test_account_event_of_a_tombstoned_identity_is_kept():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    watch.directory.bury(alice, watch.stream.time)
    [changed] = watch.take(alice.account_frame(active=False, status="deleted"))
    assert isinstance(changed, AccountChanged)


# Hosts


@pytest.mark.parametrize("kind", ["commit", "sync", "account"])
def test_old_hosts_word_on_an_account_that_moved_is_refused(kind: str):
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    frame = {
        "commit": lambda: alice.create(rkey(2), memory("coffee")),
        "sync": alice.sync_frame,
        "account": lambda: alice.account_frame(active=False, status="deactivated"),
    }[kind]()
    [ignored] = watch.take(frame, replace(PDS, url=OLD_HOST))
    assert isinstance(ignored, FrameIgnored)
    assert ignored.reason == "wrong_host"


def test_stranger_is_not_tracked_by_a_host_that_is_not_theirs():
    watch = Watch()
    alice = watch.account()
    [ignored] = watch.take(alice.create(rkey(1), memory("tea")), replace(PDS, url=OLD_HOST))
    assert isinstance(ignored, FrameIgnored)
    assert watch.tracked == set()


def test_relay_speaks_for_accounts_of_any_host():
    watch = Watch()
    alice = watch.account(host=OLD_HOST)
    first_commit(watch, alice)
    [changed] = watch.take(alice.account_frame(active=False, status="takendown"), RELAY)
    assert isinstance(changed, AccountChanged)
    assert (changed.active, changed.status) == (False, "takendown")


def test_host_speaks_for_an_account_whose_document_is_unknown():
    watch = Watch()
    alice = watch.account(known=False)
    watch.tracked.add(alice.did)
    [changed] = watch.take(alice.account_frame(), PDS)
    assert isinstance(changed, AccountChanged)


def test_identity_event_reads_the_directory_also_from_an_old_host():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    [identified] = watch.take(alice.identity_frame(), replace(PDS, url=OLD_HOST))
    assert isinstance(identified, IdentityResolved)
    assert identified.identity.host == PDS.url


# Syncs


def test_sync_arrives_with_what_its_commit_claims():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    [arrived] = watch.take(alice.create(rkey(2), memory("coffee")))
    [sync] = watch.take(alice.sync_frame())
    assert isinstance(arrived, CommitArrived)
    assert isinstance(sync, SyncArrived)
    assert (sync.commit_cid, sync.data_cid) == (arrived.commit.commit_cid, arrived.commit.data_cid)
    assert sync.refusal is None


def test_sync_after_a_move_names_the_commit_although_its_rev_differs():
    watch = Watch()
    alice = watch.account()
    [_, arrived] = watch.take(alice.create(rkey(1), memory("tea")))
    alice.rotate_key("of the new host")
    watch.directory.announce(alice, watch.stream.time)
    [sync] = watch.take(alice.sync_frame(rev="3zzzzzzzzzz2a"))
    assert isinstance(arrived, CommitArrived)
    assert isinstance(sync, SyncArrived)
    assert (sync.commit_cid, sync.refusal) == (arrived.commit.commit_cid, "rev_mismatch")


def test_sync_without_a_readable_commit_names_none():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    header, body = decode_frame_parts(alice.sync_frame())
    [sync] = watch.take(encode_frame(header, body | {"blocks": b"nothing"}))
    assert isinstance(sync, SyncArrived)
    assert (sync.commit_cid, sync.data_cid, sync.refusal) == (None, None, "malformed_car")


def test_sync_with_an_unknown_key_is_not_proven():
    watch = Watch()
    alice = watch.account(known=False)
    alice.apply()
    watch.tracked.add(alice.did)
    [sync] = watch.take(alice.sync_frame())
    assert isinstance(sync, SyncArrived)
    assert sync.refusal == "key_unknown"


# Cursors, clocks and what is no event


def test_frame_at_or_below_the_cursor_is_dropped():
    watch = Watch(cursors={RELAY.url: 2})
    alice = watch.account()
    frames = [alice.create(rkey(number), memory("tea")) for number in range(3)]
    assert [watch.consumer.take(RELAY, frame) for frame in frames[:2]] == [([], None)] * 2
    assert watch.take(frames[2])


def test_cursor_of_another_source_drops_nothing():
    watch = Watch(cursors={RELAY.url: 2})
    assert watch.take(watch.account().create(rkey(1), memory("tea")), PDS)


def test_unknown_frame_at_or_below_the_cursor_is_dropped():
    watch = Watch(cursors={RELAY.url: 2})
    frame = encode_frame({"op": 1, "t": "#future"}, {"seq": 2})
    assert watch.consumer.take(RELAY, frame) == ([], None)


def test_unknown_frame_is_ignored_and_covered():
    watch = Watch()
    frame = encode_frame({"op": 1, "t": "#future"}, {"seq": 7})
    [ignored], position = watch.consumer.take(RELAY, frame)
    assert isinstance(ignored, FrameIgnored)
    assert (ignored.reason, position) == ("unknown_type", Position(7, None))


def test_broken_frame_is_kept_with_the_seq_before_it():
    watch = Watch()
    watch.take(watch.account().create(rkey(1), memory("tea"), seq=41))
    [broken], position = watch.consumer.take(RELAY, b"junk")
    assert isinstance(broken, FrameBroken)
    assert (broken.frame, broken.place.seq, position) == (b"junk", 41, None)


def test_broken_frame_after_an_unknown_one_keeps_that_ones_seq():
    watch = Watch()
    watch.take(encode_frame({"op": 1, "t": "#future"}, {"seq": 7}))
    [broken] = watch.take(b"junk")
    assert broken.place.seq == 7


def test_first_frame_that_is_broken_stands_at_the_cursor():
    watch = Watch(cursors={RELAY.url: 9})
    [broken] = watch.take(b"junk")
    assert broken.place.seq == 9


def test_event_without_what_it_needs_is_broken():
    watch = Watch()
    header, body = decode_frame_parts(watch.account().account_frame())
    del body["seq"]
    [broken] = watch.take(encode_frame(header, body))
    assert isinstance(broken, FrameBroken)
    assert broken.reason == "malformed_event"


def test_words_on_the_stream_itself_are_counted_and_cover_nothing():
    watch = Watch(cursors={RELAY.url: 5})
    met = [watch.consumer.take(RELAY, frame) for frame in read_frames(FOLDER / "control.bin")]
    assert [[(type(arrival), getattr(arrival, "reason", "")) for arrival in arrivals] for arrivals, _ in met] == [
        [(FrameIgnored, "error")],
        [(FrameIgnored, "error")],
        [(FrameIgnored, "info")],
        [(FrameIgnored, "error")],
    ]
    assert [position for _, position in met] == [None] * 4


def test_replays_clock_is_the_time_of_each_frame_also_when_it_goes_back():
    watch = Watch()
    alice = watch.account()
    first_commit(watch, alice)
    times = [START + timedelta(hours=hours) for hours in (3, 1, 2)]
    met = [watch.take(alice.account_frame(time=time))[0].place.seen_at for time in times]
    assert met == times


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
def test_ends_of_time_are_kept_from_the_database(time: str):
    """asyncpg writes them as plus and minus infinity, and reads those as datetimes without a zone."""
    watch = Watch()
    alice = watch.account()
    watch.tracked.add(alice.did)
    header, body = decode_frame_parts(alice.account_frame())
    arrivals, position = watch.consumer.take(RELAY, encode_frame(header, body | {"time": time}))
    assert position is not None
    assert position.frame_time is not None
    for moment in (position.frame_time, arrivals[0].place.seen_at):
        assert datetime.min.replace(tzinfo=UTC) < moment < datetime.max.replace(tzinfo=UTC)
