"""`search_hybrid` and `search_million`: searches by words and by meaning, one API process, asked from here.

A question that was asked before has its vector already: what is asked for the second time is without embedding.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final
from urllib.parse import quote

import orjson

from benchmarks.http_client import connected
from benchmarks.processes import api, ended_by_signals, percentile
from benchmarks.result import Result
from benchmarks.search_scale import MEMORIES, scaled
from benchmarks.search_scale_rows import FOLDER, columns, repo_name
from benchmarks.search_scale_texts import questions
from memory.identifiers import NAMESPACE

ONE_REPO: Final = 28_000
"""Memories of an index whose largest repo has some 4,600."""

ASKED: Final = 200
_SEARCH: Final = f"/xrpc/{NAMESPACE}searchRecords?limit=10&q="


async def run_search_hybrid() -> Result:
    """p95 of a search in a repo of about 5,000 memories, without the query's embedding."""
    asked = questions(ASKED, 5)
    with ended_by_signals(), scaled(ONE_REPO) as url, TemporaryDirectory() as folder:
        async with api(url, Path(folder)) as served:
            await _ask(served.url, [f"{_SEARCH}{quote(text)}&repo={repo_name(0)}" for text in questions(ASKED // 5, 7)])
            targets = [f"{_SEARCH}{quote(text)}&repo={repo_name(0)}" for text in asked]
            first = await _ask(served.url, targets)
            again = await _ask(served.url, targets)
    beside = {
        "p50_ms": _ms(again, 0.5),
        "with_embedding_p50_ms": _ms(first, 0.5),
        "with_embedding_p95_ms": _ms(first, 0.95),
    }
    for place_of, language in ((0, "english"), (4, "arabic"), (5, "chinese"), (7, "thai")):
        beside[f"{language}_p95_ms"] = _ms(again[place_of::8], 0.95)
        beside[f"{language}_with_embedding_p95_ms"] = _ms(first[place_of::8], 0.95)
    return Result("search_hybrid", _ms(again, 0.95), "p95 ms", beside=beside)


async def run_search_million() -> Result:
    """p95 of a search over all authors of a million memories, with embedding; and of one in a repo."""
    with ended_by_signals(), scaled(MEMORIES) as url, TemporaryDirectory() as folder:
        built: dict[str, float] = orjson.loads((FOLDER / str(MEMORIES) / "built.json").read_bytes())
        async with api(url, Path(folder)) as served:
            await _ask(served.url, list(_in_repos(questions(ASKED, 7))))
            everywhere = await _ask(served.url, [_SEARCH + quote(text) for text in questions(ASKED, 11)])
            again = await _ask(served.url, [_SEARCH + quote(text) for text in questions(ASKED, 11)])
            in_repo = await _ask(served.url, list(_in_repos(questions(ASKED, 13))))
    beside = {
        "p50_ms": _ms(everywhere, 0.5),
        "without_embedding_p95_ms": _ms(again, 0.95),
        "in_repo_p50_ms": _ms(in_repo, 0.5),
        "in_repo_p95_ms": _ms(in_repo, 0.95),
        **built,
    }
    return Result("search_million", _ms(everywhere, 0.95), "p95 ms", beside=beside)


def _in_repos(asked: Sequence[str]) -> Iterator[str]:
    """Each in the repo of some memory, so that large repos are asked more often."""
    draw, some = random.Random(53), columns(MEMORIES)
    for text in asked:
        yield f"{_SEARCH}{quote(text)}&repo={repo_name(int(some.repo[draw.randrange(some.count)]))}"


async def _ask(url: str, targets: Sequence[str]) -> list[float]:
    """One after the other; the seconds of each. AssertionError: it was not answered by both arms."""
    took: list[float] = []
    async with connected(url) as connection:
        for target in targets:
            began = perf_counter()
            body = await connection.get(target)
            took.append(perf_counter() - began)
            assert orjson.loads(body)["mode"] == "hybrid", body[:200]
    return took


def _ms(seconds: Sequence[float], share: float) -> float:
    return round(percentile(sorted(seconds), share) * 1000, 2)
