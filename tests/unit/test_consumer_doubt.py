"""Commits that the known key does not fit, until it was asked for anew; and whom a frame names."""

from __future__ import annotations

import pytest

from indexer.arrivals import CommitArrived, CommitParked, CommitRefused
from indexer.consumer import DOUBTED_COMMITS_MAX
from indexer.frames import OpenFrame
from tests.builders import RepoBuilder, memory
from tests.feed import rkey
from tests.watch import Watch, first_commit


def doubting() -> tuple[Watch, RepoBuilder, RepoBuilder]:
    """A watch that may ask for each key once, a tracked author, and who signs for them with another key."""
    watch, asked = Watch(), set[str]()

    def may_refresh(did: str) -> bool:
        return did not in asked and not asked.add(did)

    watch.consumer._may_refresh = may_refresh
    alice = watch.account()
    first_commit(watch, alice)
    other = RepoBuilder("alice", stream=watch.stream)
    other.rotate_key("another")
    return watch, alice, other


def test_commits_that_the_key_does_not_fit_wait_for_one_refresh():
    watch, _, other = doubting()
    for number in (2, 3):
        [parked] = watch.take(other.create(rkey(number), memory("tea")))
        assert isinstance(parked, CommitParked)
        assert parked.reason == "bad_signature"
    assert watch.consumer.held_back() == {other.did}


def test_author_is_not_held_up_meanwhile():
    watch, alice, other = doubting()
    watch.take(other.create(rkey(2), memory("forged")))
    [arrived] = watch.take(alice.create(rkey(2), memory("tea")))
    assert isinstance(arrived, CommitArrived)


def test_new_key_counts_only_once_its_repo_is_let_go():
    watch, _, other = doubting()
    watch.take(other.create(rkey(2), memory("tea")))
    watch.directory.announce(other, watch.stream.time)
    [still_parked] = watch.take(other.create(rkey(3), memory("tea")))
    assert isinstance(still_parked, CommitParked)
    watch.consumer.let_go(other.did, settled=True)
    [arrived] = watch.take(other.create(rkey(4), memory("tea")))
    assert isinstance(arrived, CommitArrived)
    assert watch.consumer.held_back() == set()


def test_key_stays_in_doubt_while_the_identity_is_not_settled():
    watch, _, other = doubting()
    frame = other.create(rkey(2), memory("tea"))
    watch.take(frame)
    watch.consumer.let_go(other.did, settled=False)
    for _ in range(2 * DOUBTED_COMMITS_MAX):  # judged again and again, it stays one commit
        assert isinstance(watch.take(frame)[0], CommitParked)


def test_forger_fills_no_more_than_a_few_places():
    watch, _, other = doubting()
    arrivals = [watch.take(other.create(rkey(n), memory("forged")))[0] for n in range(2, 2 + 2 * DOUBTED_COMMITS_MAX)]
    assert [type(arrival) for arrival in arrivals] == [CommitParked] * DOUBTED_COMMITS_MAX + [
        CommitRefused
    ] * DOUBTED_COMMITS_MAX


@pytest.mark.parametrize("named", ["did:plc:\x00", "did:plc:" + "x" * 3000, "alice", "", 7, None, ["did"]], ids=repr)
def test_what_is_no_did_is_no_candidate(named: object):
    watch = Watch()
    assert watch.consumer.notice(OpenFrame({"op": 1, "t": "#commit"}, {"repo": named})) == ""
    assert watch.consumer.candidates == set()
