"""Run files as TREC's tools read them: what each system answered, by ids alone, so that others can score it."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.retrieval.measures import DEPTH
from benchmarks.retrieval.ranker import Found
from benchmarks.retrieval.sets import Group, Question

FOLDER = Path(__file__).parent / "runs"


class Run:
    """The answers to one set; written when all are in, a file for each system and one with what is relevant."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: defaultdict[str, list[str]] = defaultdict(list)
        self._relevant: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            for system, lines in self._lines.items():
                _write(FOLDER / f"{self._name}.{system}.run.gz", lines)
            _write(FOLDER / f"{self._name}.qrels.gz", list(self._relevant))

    def write(self, system: str, group: Group, question: Question, found: Sequence[Found]) -> None:
        """Add the first answers of a system to a question."""
        topic = f"{group.name}/{question.name}"
        self._lines[system] += [
            f"{topic} Q0 {group.ids[hit.place]} {rank} {hit.order:.4f} {system}"
            for rank, hit in enumerate(found[:DEPTH], 1)
        ]
        self._relevant |= dict.fromkeys(f"{topic} 0 {group.ids[place]} 1" for place in sorted(question.relevant))


def _write(file: Path, lines: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Without a time in it, the same answers are the same bytes.
    file.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
