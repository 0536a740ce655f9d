"""Who finds room to wait for a key."""

from __future__ import annotations

from datetime import UTC, datetime

from indexer.arrivals import CommitParked, Place, Source, SourceKind
from indexer.parking_lot import Parked, ParkingLimits, ParkingLot

PLACE = Place(Source("https://relay.test", SourceKind.RELAY), 1, datetime(2026, 11, 30, tzinfo=UTC))


def commit(repo: str, number: int, size: int = 10) -> CommitParked:
    return CommitParked(PLACE, repo, f"3k{number}", b"x" * size, "key_unknown")


def lot(**limits: int) -> ParkingLot:
    return ParkingLot(ParkingLimits(**limits), Parked({}, 0, 0))


def test_repo_parks_so_many_commits_and_no_more():
    full = lot(max_commits=2)
    assert [full.take(commit("a", number), tracked=True) for number in range(3)] == [True, True, False]
    assert full.take(commit("b", 1), tracked=True)


def test_tracked_repo_parks_so_many_bytes_and_leaves_the_rest_to_others():
    shared = lot(max_bytes=60, max_bytes_of_a_repo=25)
    assert [shared.take(commit("a", number), tracked=True) for number in range(3)] == [True, True, False]
    assert shared.take(commit("a", 3, size=5), tracked=True)
    assert shared.take(commit("b", 1), tracked=True)


def test_bytes_that_a_tracked_repo_parked_before_count():
    before = Parked({("a", "3k1", PLACE.source.url): 20}, 20, 0)
    shared = ParkingLot(ParkingLimits(max_bytes_of_a_repo=25), before)
    assert not shared.take(commit("a", 2), tracked=True)


def test_no_repo_takes_the_room_of_all_by_default():
    limits = ParkingLimits()
    assert limits.max_bytes_of_a_stranger <= limits.max_bytes_of_a_repo <= limits.max_bytes // 16


def test_few_strangers_do_not_take_the_room_of_all():
    shared = lot(max_bytes_of_a_stranger=25)
    assert [shared.take(commit("a", number), tracked=False) for number in range(3)] == [True, True, False]
    assert shared.take(commit("b", 1), tracked=False)


def test_all_strangers_together_leave_room_for_tracked_repos():
    shared = lot(max_bytes=40, max_bytes_of_strangers=20)
    assert [shared.take(commit(repo, 1), tracked=False) for repo in "abc"] == [True, True, False]
    assert [shared.take(commit("t", number), tracked=True) for number in range(3)] == [True, True, False]


def test_what_was_parked_before_counts():
    before = Parked({("a", "3k1", PLACE.source.url): 10}, 30, 20)
    shared = ParkingLot(ParkingLimits(max_bytes=40, max_bytes_of_strangers=25), before)
    assert shared.has(commit("a", 1))
    assert not shared.take(commit("b", 1), tracked=False)
    assert shared.take(commit("b", 1), tracked=True)
    assert not shared.take(commit("c", 1), tracked=True)
