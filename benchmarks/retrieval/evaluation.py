"""`retrieval_obs`, `retrieval_turns`, `retrieval_xquad`: what a search finds, beside what simpler ones find.

Each question is asked once. `value` is the nDCG of the first ten, times 100, of the hybrid search as it serves.
Intervals are of 95%, by bootstrap over conversations (of XQuAD-R: over questions).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from benchmarks.result import Result
from benchmarks.retrieval import sets
from benchmarks.retrieval.frozen import Scores, bm25, fuse_by_extremes
from benchmarks.retrieval.measures import DEPTH, Estimate, Worth, estimate, judge
from benchmarks.retrieval.ranker import Arms, Found, Ranker
from benchmarks.retrieval.runs import Run
from benchmarks.retrieval.sets import Group
from benchmarks.retrieval.vectors import Matrix, Vectors
from memory.likeness import BLANK

BASELINE = "baseline"
COMPARED = (BASELINE, "bm25s", "cosine", *Arms)
THRESHOLDS = (0.0, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True, slots=True)
class Board:
    """What each system's answers are worth, by group, in the order of the questions."""

    worths: dict[str, dict[str, list[Worth]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def ndcg(self, system: str) -> Estimate:
        """The nDCG of a system."""
        return estimate({group: [each.ndcg for each in found] for group, found in self.worths[system].items()})

    def recall(self, system: str) -> Estimate:
        """The recall of a system."""
        return estimate({group: [each.recall for each in found] for group, found in self.worths[system].items()})

    def gain(self, system: str, over: str) -> Estimate:
        """How much more nDCG a system has than another, question by question."""
        return estimate(
            {
                group: [mine.ndcg - other.ndcg for mine, other in zip(found, self.worths[over][group], strict=True)]
                for group, found in self.worths[system].items()
            }
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A group with the vectors of its memories and questions."""

    group: Group
    passages: Matrix
    queries: Matrix
    blank: Sequence[float]

    @property
    def ranker(self) -> Ranker:
        """What ranks it."""
        return Ranker(self.group, self.passages, self.blank)


async def run_obs() -> Result:
    """LoCoMo's observations: one statement each."""
    return await _run_locomo("obs")


async def run_turns() -> Result:
    """LoCoMo's turns of dialogue."""
    return await _run_locomo("turns")


async def run_xquad() -> Result:
    """The sentence with the answer, in eight languages, and for English questions in seven others."""
    vectors = Vectors()
    try:
        blank = (await vectors.queries([BLANK]))[0].tolist()
        boards: dict[str, Board] = {}
        with Run("xquad") as run:
            for asked, documents in [(each, each) for each in sets.LANGUAGES] + [
                ("en", each) for each in sets.LANGUAGES[1:]
            ]:
                board = boards[f"{asked}-{documents}"] = Board()
                for group in sets.xquad(asked, documents):
                    compare([board], await _embed(vectors, group, blank), run)
    finally:
        await vectors.aclose()
    same = {name: board for name, board in boards.items() if len(set(name.split("-"))) == 1}
    other = {name: board for name, board in boards.items() if name not in same}
    value, base = _mean(same, Arms.HYBRID), _mean(same, BASELINE)
    notes = [f"{name}: {describe(board)}" for name, board in boards.items()]
    return Result(
        name="retrieval_xquad",
        value=value,
        unit="ndcg_x100",
        peer_value=base,
        ratio=value / base,
        notes=tuple(notes),
        beside={
            "worst_language": min(board.ndcg(Arms.HYBRID).mean for board in same.values()),
            "cross_lingual": _mean(other, Arms.HYBRID),
            "baseline_cross_lingual": _mean(other, BASELINE),
            "cosine_cross_lingual": _mean(other, "cosine"),
            **gain_beside("gain", _merged(same), BASELINE),
            **gain_beside("cross_lingual_gain_over_cosine", _merged(other), "cosine"),
            **{f"{system}_alone": _mean(same, system) for system in (Arms.LEXICAL, Arms.SEMANTIC, "bm25s")},
        },
    )


async def _run_locomo(kind: str) -> Result:
    vectors = Vectors()
    try:
        blank = (await vectors.queries([BLANK]))[0].tolist()
        asked = {name: vector async for name, vector in _question_vectors(vectors)}
        groups = sets.locomo(kind)
        passages = {group.name: await vectors.passages(group.texts) for group in groups}
    finally:
        await vectors.aclose()
    board, smaller = Board(), {size: Board() for size in (10, 50)}
    with Run(kind) as run:
        for group in groups:
            queries = np.stack([asked[question.name] for question in group.questions])
            compare([board], Asked(group, passages[group.name], queries, blank), run)
            for size, part_board in smaller.items():
                for part, places in sets.parts(group, size):
                    if part.questions:
                        queries = np.stack([asked[question.name] for question in part.questions])
                        rows = passages[group.name][places[0] : places[-1] + 1]
                        compare([part_board], Asked(part, rows, queries, blank), None, group.name)
    pool = sets.pooled(groups, 5_000)
    pooled = Board()
    rows = np.concatenate([passages[group.name] for group in groups])[: len(pool.ids)]
    queries = np.stack([asked[question.name] for question in pool.questions])
    compare([pooled], Asked(pool, rows, queries, blank), None)
    hybrid, base = board.ndcg(Arms.HYBRID), board.ndcg(BASELINE)
    notes = [f"all: {describe(board)}"]
    notes += [f"repos of {size}: {describe(each)}" for size, each in smaller.items()]
    notes.append(f"one repo of {len(pool.ids)}: {describe(pooled)}")
    notes += _false_recall(groups, passages, asked, blank)
    return Result(
        name=f"retrieval_{kind}",
        value=hybrid.mean,
        unit="ndcg_x100",
        peer_value=base.mean,
        ratio=hybrid.mean / base.mean,
        notes=tuple(notes),
        beside={
            "recall_at_10": board.recall(Arms.HYBRID).mean,
            "baseline_recall_at_10": board.recall(BASELINE).mean,
            "value_low": hybrid.low,
            "value_high": hybrid.high,
            **gain_beside("gain", board, BASELINE),
            "without_company": board.ndcg(Arms.ALONE).mean,
            "without_company_recall_at_10": board.recall(Arms.ALONE).mean,
            **gain_beside("without_company_gain", board, BASELINE, Arms.ALONE),
            **{f"{system}_alone": board.ndcg(system).mean for system in (Arms.LEXICAL, Arms.SEMANTIC, "bm25s")},
        },
    )


async def _question_vectors(vectors: Vectors) -> AsyncIterator[tuple[str, Matrix]]:
    """Every question of LoCoMo by its name: the observations and the turns share them."""
    for group in sets.locomo("turns", (*sets.ANSWERABLE, sets.ADVERSARIAL)):
        rows = await vectors.queries([question.text for question in group.questions])
        for question, row in zip(group.questions, rows, strict=True):
            yield question.name, row


async def _embed(vectors: Vectors, group: Group, blank: Sequence[float]) -> Asked:
    queries = await vectors.queries([question.text for question in group.questions])
    return Asked(group, await vectors.passages(group.texts), queries, blank)


def compare(boards: Sequence[Board], asked: Asked, run: Run | None, name: str | None = None) -> None:
    """Ask each system each question, and note on all boards what its answers are worth."""
    group, ranker = asked.group, asked.ranker
    texts = [question.text for question in group.questions]
    cosines: Scores = (asked.queries @ asked.passages.T).astype(float)
    lexical = bm25(group.texts, texts)
    rows = {BASELINE: fuse_by_extremes(lexical, cosines), "cosine": cosines}
    for number, question in enumerate(group.questions):
        answers = {system: _top(scores[number]) for system, scores in rows.items()}
        answers["bm25s"] = [found for found in _top(lexical[number]) if found.order]  # without a word, no hit
        answers |= {arms: ranker.rank(question.text, asked.queries[number].tolist(), arms) for arms in Arms}
        for system, found in answers.items():
            worth = judge([hit.place for hit in found[:DEPTH]], question.relevant)
            for board in boards:
                board.worths[system][name or group.name].append(worth)
            if run is not None:
                run.write(system, group, question, found)


def _top(scores: Scores) -> list[Found]:
    places = np.argsort(-scores, kind="stable")[: 10 * DEPTH].tolist()
    return [Found(place, float(scores[place]), 0.0) for place in places]


def _false_recall(
    groups: Sequence[Group], passages: Mapping[str, Matrix], asked: Mapping[str, Matrix], blank: Sequence[float]
) -> list[str]:
    """What a threshold leaves: of questions to another conversation, of adversarial ones, and of those with answers."""
    adversarial = {group.name: group.questions for group in sets.locomo("turns", (sets.ADVERSARIAL,))}
    foreign: list[float] = []
    tricky: list[float] = []
    answered: list[tuple[list[Found], frozenset[int]]] = []
    for number, group in enumerate(groups):
        ranker = Asked(group, passages[group.name], passages[group.name], blank).ranker

        def ask(name: str, text: str, ranker: Ranker = ranker) -> list[Found]:
            return ranker.rank(text, asked[name].tolist(), Arms.HYBRID)

        stranger = groups[(number + 1) % len(groups)]
        foreign += [_best(ask(each.name, each.text)) for each in stranger.questions]
        tricky += [_best(ask(each.name, each.text)) for each in adversarial[group.name]]
        answered += [(ask(each.name, each.text), each.relevant) for each in group.questions]
    lines: list[str] = []
    for threshold in THRESHOLDS:
        worths = [
            judge([hit.place for hit in found if hit.score >= threshold], relevant) for found, relevant in answered
        ]
        lines.append(
            f"minScore {threshold}: {_share_over(foreign, threshold):.0f}% of questions to another conversation recall"
            f" something, {_share_over(tricky, threshold):.0f}% of adversarial ones; those with answers have nDCG"
            f" {100 * fmean(each.ndcg for each in worths):.1f} and recall"
            f" {100 * fmean(each.recall for each in worths):.1f}"
        )
    return lines


def _best(found: Sequence[Found]) -> float:
    return max((hit.score for hit in found), default=-1.0)


def _share_over(scores: Sequence[float], threshold: float) -> float:
    return 100 * fmean(score >= threshold for score in scores)


def _mean(boards: Mapping[str, Board], system: str) -> float:
    return fmean(board.ndcg(system).mean for board in boards.values())


def _merged(boards: Mapping[str, Board]) -> Board:
    """All languages as one, so that the bootstrap draws questions, each with its answers in all of them."""
    merged = Board()
    for system in COMPARED:
        by_language = [worths for board in boards.values() for worths in board.worths[system].values()]
        for number, same_question in enumerate(zip(*by_language, strict=True)):
            merged.worths[system][str(number)] = list(same_question)
    return merged


def gain_beside(name: str, board: Board, over: str, system: str = Arms.HYBRID) -> dict[str, float]:
    """The gain over another system with its interval, for a result's line."""
    gain = board.gain(system, over)
    return {name: gain.mean, f"{name}_low": gain.low, f"{name}_high": gain.high}


def describe(board: Board) -> str:
    """All systems of a board in one line."""
    return "; ".join(f"{system} {board.ndcg(system)} recall {board.recall(system).mean:.1f}" for system in COMPARED)
