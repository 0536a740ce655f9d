"""The screen of `status` says whether all is well, and if not, why."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from indexer.status_text import problems, render
from indexer.store.status import CursorStatus, IndexStatus, MemoryCounts, ReposStatus, RequestStatus

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SOURCE = CursorStatus("https://relay.test", 7, NOW, NOW, None, None, followed=True)
WHOLE = ReposStatus("active", None, True, None, 3, 9, 0)
WELL = IndexStatus([SOURCE], [WHOLE], MemoryCounts(9, 1, 0), {}, [], [], 0, 0, 0)


def test_index_without_trouble_is_well():
    assert problems(WELL, NOW) == []
    assert render(WELL, NOW).startswith("All is well\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cursors": [replace(SOURCE, stopped_reason="FutureCursor")]}, "cursor set https://relay.test 0"),
        ({"cursors": [replace(SOURCE, gap_at=NOW)]}, "lost frames"),
        ({"cursors": [replace(SOURCE, frame_time=NOW - timedelta(hours=1))]}, "nothing newer than 2026-11-30 11:00"),
        ({"cursors": [replace(SOURCE, followed=False)]}, "no daemon is running"),
        ({"repos": [replace(WHOLE, state="pending", repos=2)]}, "2 repos are not whole"),
        ({"repos": [replace(WHOLE, over_quota=5)]}, "5 records are over the quota"),
        ({"parked_commits": 4}, "4 commits wait for their author's key"),
        ({"quarantined_frames": 1}, "1 frames of the last week were broken"),
        ({"requests": [RequestStatus("fetch", "sync", 1, NOW - timedelta(hours=2))]}, "questions to hosts wait"),
    ],
)
def test_each_trouble_is_named(change: dict[str, object], words: str):
    status = replace(WELL, **change)
    named = problems(status, NOW)
    assert len(named) == 1
    assert words in named[0]
    assert render(status, NOW).startswith(f"Not all is well\n  {named[0]}\n")


def test_hidden_repo_is_no_trouble():
    hidden = replace(WHOLE, state="desynchronized", visible=False, status="deactivated")
    assert problems(replace(WELL, repos=[hidden]), NOW) == []
