from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from indexer.arrivals import (
    CommitArrived,
    CommitRefused,
    FrameBroken,
    FrameIgnored,
    IdentityResolved,
    Position,
)
from indexer.recording import read_frames
from tests.builders import START, decode_frame_parts, encode_frame, memory
from tests.feed import PDS, RELAY, Directory, rkey
from tests.recorded import FOLDER
from tests.watch import Watch, first_commit

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
