from __future__ import annotations

import io
from collections import Counter

import pytest

from indexer.fetch_command import render
from indexer.progress import RATE_OVER_S, Pace, ProgressLine, bar, duration
from indexer.resync.backfill import Progress
from indexer.resync.search import SearchProgress


class Terminal(io.StringIO):
    """A stream that people see."""

    def isatty(self) -> bool:
        return True


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_is_that_of_the_last_minute():
    clock = Hands()
    pace = Pace(clock)
    rates = [pace.rate(0)]
    for second in range(1, 301):
        clock.now += 1
        rates.append(pace.rate(second * 10))
    assert (rates[0], rates[-1]) == (0.0, pytest.approx(10.0))
    for second in range(1, int(RATE_OVER_S) + 1):
        clock.now += 1
        rates.append(pace.rate(3000 + second * 2))
    assert rates[-1] == pytest.approx(2.0)


def test_rate_without_time_is_none():
    pace = Pace(lambda: 1.0)
    assert [pace.rate(1), pace.rate(5)] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (18_600, "5 h 10 min"),
        (183_600, "2 d 3 h"),
    ],
)
def test_duration_is_told_as_people_do(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(("done", "total", "full"), [(0, 0, 0), (0, 5, 0), (1, 2, 10), (5, 5, 20), (7, 5, 20)])
def test_bar_is_as_full_as_what_is_done(done: int, total: int, full: int):
    assert bar(done, total) == "█" * full + "░" * (20 - full)


def test_people_see_one_line_that_gives_way_to_what_stays():
    stream = Terminal()
    line = ProgressLine(stream)
    line._show("1 of 2")
    line._show("2 of 2")
    line.say("alice.test: no such handle")
    line.clear()
    assert stream.getvalue() == "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[Kalice.test: no such handle\n"


def test_line_is_no_longer_than_the_terminal():
    stream = Terminal()
    ProgressLine(stream)._show("x" * 500)
    assert stream.getvalue() == "\r\x1b[K" + "x" * 99


def test_logs_get_whole_lines():
    stream = io.StringIO()
    line = ProgressLine(stream)
    line._show("1 of 2")
    line.say("done")
    line.clear()
    assert stream.getvalue() == "1 of 2\ndone\n"


def drawn(progress: Progress, search: SearchProgress | None, *, interactive: bool = False, seconds: float = 10) -> str:
    """After so many seconds, at the beginning of which nothing was done."""
    clock = Hands()
    pace = Pace(clock)
    pace.rate(0)
    clock.now += seconds
    return render(progress, search, pace, interactive=interactive)


def test_progress_tells_rate_time_and_failures():
    finished = SearchProgress(finished=True)
    line = drawn(Progress(1200, 700, Counter(no_host=1, block_hash=2)), finished, interactive=True)
    assert line == "████████░░░░░░░░░░░░ 500 of 1,200 repos, 50.0/s, 14 s to go, 3 failed (block_hash 2, no_host 1)"


def test_progress_while_the_list_is_read_tells_no_time_to_go():
    line = drawn(Progress(1200, 700, Counter()), SearchProgress(listed=5000, found=1200))
    assert line == "500 of 1,200 repos, 50.0/s, reading the list: 5,000 seen, 1,200 found"


def test_progress_tells_that_the_server_does_not_answer():
    line = drawn(Progress(0, 0, Counter()), SearchProgress(waits_s=80.0))
    assert line == "0 of 0 repos, reading the list: 0 seen, 0 found, it does not answer, asked again in 1 min 20 s"


def test_progress_of_named_repos_needs_no_list():
    line = drawn(Progress(4, 2, Counter(unknown_handle=1)), None)
    assert line == "2 of 4 repos, 0.2/s, 10 s to go, 1 failed (unknown_handle 1)"
