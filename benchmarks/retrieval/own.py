"""`retrieval_own`: the own set, which was written before anything was tuned; `own/README.md` describes it.

What was replaced at the time that is asked about, and what did not happen in the period, is left out as searches do:
before anything is ranked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import cbrrr
import numpy as np

from benchmarks.result import Result
from benchmarks.retrieval.evaluation import BASELINE, COMPARED, THRESHOLDS, Asked, Board, compare, describe, gain_beside
from benchmarks.retrieval.ranker import Arms
from benchmarks.retrieval.runs import Run
from benchmarks.retrieval.sets import Group, Question
from benchmarks.retrieval.vectors import Matrix, Vectors
from memory.likeness import BLANK
from memory.record import Memory, Occurrence, interpret_record

FOLDER = Path(__file__).parent / "own"
COLLECTION = "dev.bastienrobert.memory.record"

Stated = Mapping[str, Any]

_ANY_KEY = "3jzfcijpj2z2a"


@dataclass(frozen=True, slots=True)
class Person:
    """The memories of one repo, in the order of recording, and their vectors."""

    name: str
    memories: Sequence[Stated]
    occurrences: Sequence[Occurrence | None]
    passages: Matrix

    def search(self, question: Stated) -> tuple[list[int], Group]:
        """The memories that pass what is asked for beside the text, by their places, and the question to them."""
        as_of = _time(question.get("asOf"))
        known = [at for at, each in enumerate(self.memories) if as_of is None or _recorded(each) <= as_of]
        replaced = {old for at in known for old in self.memories[at].get("supersedes", ())}
        places = [
            at for at in known if self.memories[at]["id"] not in replaced and _passes(self.occurrences[at], question)
        ]
        ids = [self.memories[at]["id"] for at in places]
        relevant = frozenset(number for number, each in enumerate(ids) if each in question["relevant"])
        asked = Question(question["id"], question["text"], relevant, 0)
        texts = [self.memories[at]["content"] for at in places]
        return places, Group(self.name, ids, texts, [_recorded(self.memories[at]) for at in places], [asked])


async def run_own() -> Result:
    """Ask all questions of all people."""
    by_person: defaultdict[str, list[Stated]] = defaultdict(list)
    for question in _read("questions"):
        by_person[question["person"]].append(question)
    vectors = Vectors()
    try:
        blank = (await vectors.queries([BLANK]))[0].tolist()
        people = [await _person(vectors, name) for name in by_person]
        asked = {
            person.name: await vectors.queries([each["text"] for each in by_person[person.name]]) for person in people
        }
    finally:
        await vectors.aclose()
    everything, by_tag = Board(), defaultdict[str, Board](Board)
    unanswerable: list[float] = []
    with Run("own") as run:
        for person in people:
            for question, vector in zip(by_person[person.name], asked[person.name], strict=True):
                places, group = person.search(question)
                if not places:
                    continue
                made = Asked(group, person.passages[places], vector[np.newaxis], blank)
                if question["relevant"]:
                    boards = [everything, *(by_tag[tag] for tag in question["tags"]), by_tag[question["language"]]]
                    compare(boards, made, run)
                else:
                    found = made.ranker.rank(question["text"], vector.tolist(), Arms.HYBRID)
                    unanswerable.append(max((hit.score for hit in found), default=-1.0))
    hybrid, base = everything.ndcg(Arms.HYBRID), everything.ndcg(BASELINE)
    notes = [f"all: {describe(everything)}"]
    notes += [f"{tag}: {describe(by_tag[tag])}" for tag in sorted(by_tag)]
    notes += [
        f"minScore {threshold}: {_percent(unanswerable, lambda score, least=threshold: score >= least):.0f}% of"
        " unanswerable questions recall something"
        for threshold in THRESHOLDS
    ]
    return Result(
        name="retrieval_own",
        value=hybrid.mean,
        unit="ndcg_x100",
        peer_value=base.mean,
        ratio=hybrid.mean / base.mean,
        notes=tuple(notes),
        beside={
            "recall_at_10": everything.recall(Arms.HYBRID).mean,
            "baseline_recall_at_10": everything.recall(BASELINE).mean,
            "value_low": hybrid.low,
            "value_high": hybrid.high,
            **gain_beside("gain", everything, BASELINE),
            **{f"{system}_alone": everything.ndcg(system).mean for system in COMPARED if system != BASELINE},
        },
    )


def _passes(occurrence: Occurrence | None, question: Stated) -> bool:
    after, before = _time(question.get("occurredAfter")), _time(question.get("occurredBefore"))
    if after is None and before is None:
        return True
    return (
        occurrence is not None
        and (after is None or occurrence.end > after)
        and (before is None or occurrence.start < before)
    )


async def _person(vectors: Vectors, name: str) -> Person:
    memories = sorted((each for each in _read("memories") if each["person"] == name), key=_recorded)
    passages = await vectors.passages([each["content"] for each in memories])
    return Person(name, memories, [_interpret(each).occurred for each in memories], passages)


def _interpret(stated: Stated) -> Memory:
    record = {key: stated[key] for key in ("content", "createdAt", "kind", "scope", "occurredAt") if key in stated}
    block = cbrrr.encode_dag_cbor({"$type": COLLECTION, **record})  # pyright: ignore[reportUnknownMemberType]
    found = interpret_record(_ANY_KEY, block)
    assert isinstance(found, Memory), stated["id"]
    return found


@lru_cache
def _read(name: str) -> list[Stated]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def _recorded(stated: Stated) -> datetime:
    at = _time(stated["createdAt"])
    assert at is not None
    return at


def _time(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written).astimezone(UTC)


def _percent(scores: Iterable[float], holds: Callable[[float], bool]) -> float:
    return 100 * fmean(holds(score) for score in scores)
