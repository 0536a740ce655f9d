from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from indexer.arrivals import (
    AccountChanged,
    CommitArrived,
    CommitParked,
    CommitRefused,
    FrameIgnored,
    IdentityResolved,
    SyncArrived,
)
from indexer.interpret import InvalidMemory, StoredMemory
from tests.builders import START, decode_frame_parts, encode_frame, memory
from tests.feed import LONG_AGO, PDS, RELAY, rkey
from tests.watch import Watch, first_commit

OLD_HOST = "https://old.test"


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
