"""What the arm that goes by meaning finds among everybody's memories, against all compared, and how long it takes.

Each filter is asked for with the questions of `search_scale_texts`. Exact neighbours are computed here, of the same
half-precision vectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np

from appview.filters import Filters
from appview.search.query import ParsedQuery, parse_query
from appview.store.semantic import Sought, StoredModel, find_near, load_mean, load_model
from appview.store.service import plan_anew
from benchmarks.processes import ended_by_signals, percentile
from benchmarks.result import Result
from benchmarks.search_scale import MEMORIES, scaled
from benchmarks.search_scale_rows import (
    SHARES,
    YEARS,
    Columns,
    Vectors,
    columns,
    real_vectors,
    repo_name,
    rkey_of,
    time_of,
    vectors_of,
)
from memory.database import Database, open_database
from memory.space import ReadableSpaces

AT: Final = 10
ASKED: Final = 40
SPAN_S: Final = YEARS * 365 * 86_400
SELECTIVITIES: Final = (0.5, 0.1, 0.01, 0.001, 0.0001)
_EPSILON: Final = 1e-4  # nearer by less is no nearer: of rounding
_NOBODY: Final = ReadableSpaces.public_only()


@dataclass(frozen=True)
class Sieve:
    """A filter: how it is asked for, and which memories pass."""

    name: str
    share: float
    query: ParsedQuery
    filters: Filters
    passing: Any


def sieves(some: Columns) -> Iterator[Sieve]:
    """No filter, and each kind of filter of each selectivity."""
    searched, no_words, phrase = some.searched, parse_query("x"), '"{}" x'
    yield Sieve("none", 1.0, no_words, Filters(), searched)
    for share in SELECTIVITIES:
        for name, values in SHARES.items():
            value = next(index for index, (_, of) in enumerate(values) if of == share)
            text = values[value][0]
            found = searched & (some.labels[name] == value)
            if name == "word":
                yield Sieve("phrase", share, parse_query(phrase.format(text)), Filters(), found)
            else:
                yield Sieve(name, share, no_words, _of_property(name, text), found)
        first, width = round(SPAN_S * 0.3), round(SPAN_S * share)
        within = (some.created_s >= first) & (some.created_s < first + width)
        between = Filters(created_after=time_of(first), created_before=time_of(first + width))
        yield Sieve("created", share, no_words, between, searched & within)
        until = Filters(as_of=time_of(width))
        yield Sieve("as_of", share, no_words, until, searched & (some.effective_s <= width))
        ends = some.occurred_s + some.occurred_days * 86_400
        during = (some.occurred_s >= 0) & (ends > first) & (some.occurred_s < first + width)
        occurred = Filters(occurred_after=time_of(first), occurred_before=time_of(first + width))
        yield Sieve("occurred", share, no_words, occurred, searched & during)
    kind, scope = some.labels["kind"], some.labels["scope"]
    for name, one, other in (("event+work", 2, 0), ("event+travel", 2, 2), ("fact+health", 0, 3)):
        kinds, scopes = SHARES["kind"][one], SHARES["scope"][other]
        both = Filters(kinds=(kinds[0],), scopes=(scopes[0],))
        found = searched & (kind == one) & (scope == other)
        yield Sieve(name, kinds[1] * scopes[1], no_words, both, found)


def _of_property(name: str, value: str) -> Filters:
    wanted: dict[str, Any] = {f"{name}s": (value,)}
    return Filters(**wanted)


def all_vectors(some: Columns, real: Vectors) -> Any:
    """As they are stored."""
    return np.concatenate(
        [vectors_of(some, real, first, min(first + 10_000, some.count)) for first in range(0, some.count, 10_000)]
    )


def _likeness(asked: Any, vectors: Any) -> Any:
    return (asked.astype(np.float32) @ vectors.astype(np.float32).T).round(6)


@dataclass(frozen=True)
class Measured:
    """Of one filter: what share of the exact nearest came back, of all questions, and how long each took."""

    sieve: Sieve
    matches: int
    recall: float
    seconds: list[float]

    def __str__(self) -> str:
        p50, p95 = (percentile(sorted(self.seconds or [0.0]), share) * 1000 for share in (0.5, 0.95))
        return (
            f"{self.sieve.name:>12} {self.sieve.share:<7g} matches {self.matches:>7} "
            f"recall@{AT} {self.recall:.4f} p50 {p50:6.1f} ms p95 {p95:6.1f} ms"
        )


async def run_search_recall() -> Result:
    """The least recall@10 under any filter, over a million memories."""
    some, real = columns(MEMORIES), await asyncio.to_thread(real_vectors)
    asked = real.questions[:ASKED]
    exact = _likeness(asked, all_vectors(some, real))
    numbers = {(repo_name(int(repo)), rkey_of(number)): number for number, repo in enumerate(some.repo)}
    with ended_by_signals(), scaled(MEMORIES) as url:
        async with open_database(url, application_name="benchmark", connections=1) as database:
            measured = [await measure_sieve(database, sieve, exact, asked, numbers) for sieve in sieves(some)]
    matched = [each for each in measured if each.seconds]
    beside = {
        "no_filter_recall": round(matched[0].recall, 4),
        "mean_recall": round(sum(each.recall for each in matched) / len(matched), 4),
        "slowest_p95_ms": round(max(percentile(sorted(each.seconds), 0.95) for each in matched) * 1000, 1),
    }
    least = round(min(each.recall for each in matched), 4)
    return Result("search_recall", least, f"recall@{AT}", notes=tuple(map(str, measured)), beside=beside)


async def measure_sieve(database: Database, sieve: Sieve, exact: Any, questions: Any, numbers: Any) -> Measured:
    """`exact`: similarity of each question with each memory, half a millionth rounded away; `numbers`: key → memory."""
    recalled = wanted_in_all = 0
    seconds: list[float] = []
    async with database.connection() as conn:
        model = await load_model(conn, None)
    assert model is not None
    passing = np.flatnonzero(sieve.passing)
    for place, question in enumerate(questions):
        likeness = exact[place][passing]
        wanted = min(AT, len(passing))
        if wanted == 0:
            continue
        least = np.partition(likeness, len(passing) - wanted)[len(passing) - wanted]
        began = perf_counter()
        found = await _ask(database, model, sieve, question)
        seconds.append(perf_counter() - began)
        places = [numbers[key.repo, key.rkey] for key in found[:AT]]
        recalled += sum(1 for number in places if sieve.passing[number] and exact[place][number] >= least - _EPSILON)
        wanted_in_all += wanted
    return Measured(sieve, len(passing), recalled / max(wanted_in_all, 1), seconds)


async def _ask(database: Database, model: StoredModel, sieve: Sieve, question: Any) -> list[Any]:
    async with database.transaction(isolation="repeatable_read", readonly=True) as conn:
        await plan_anew(conn)
        sought = Sought(model, question.tolist())
        aim = sought.aim_at(await load_mean(conn, sought.model, sieve.filters, spaces=_NOBODY))
        near = await find_near(conn, sought, aim, sieve.query, sieve.filters, watermark=None, spaces=_NOBODY)
    return [memory.key for memory in near.memories]
