"""What `make up` says."""

from __future__ import annotations

from deploy.local import Sample, describe, describe_empty
from memory.settings import load


def test_empty_index_is_told_how_to_bring_in_what_was_written_before_and_how_to_write():
    told = describe_empty(load({"INDEXER_RELAY_URLS": "wss://relay.example.com,wss://two.example.com"}))
    [backfill] = [line for line in told.splitlines() if "python -m indexer backfill" in line]
    assert backfill.strip() == ".venv/bin/python -m indexer backfill --discover https://relay.example.com"
    assert "com.atproto.repo.createRecord" in told
    assert told.endswith(
        "Seconds later it is found: curl 'http://127.0.0.1:8600/xrpc/dev.bastienrobert.memory.listRecords'"
    )


def test_pds_is_as_good_as_a_relay():
    assert "backfill --discover https://pds.example.com\n" in describe_empty(
        load({"INDEXER_PDS_URLS": "https://pds.example.com"})
    )


def test_line_tells_what_waits_for_a_vector_as_long_as_something_does():
    counts = {"records": 12_000, "repos": 30}
    before, busy, done = (
        Sample(at, at * 10, {"relay": True}, 1.0, waiting) for at, waiting in ((0, 0), (5, 1_234), (9, 0))
    )
    assert describe(before, busy, counts) == (
        "  10 frames/s, 1 s behind; 12,000 memories of 30 people, 1,234 wait for a vector"
    )
    assert describe(busy, done, counts) == "  10 frames/s, 1 s behind; 12,000 memories of 30 people"
