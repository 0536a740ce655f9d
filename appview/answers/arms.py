"""The two arms of a search, side by side: what has the query's words, and what means the like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appview.call import QueryModels, Resources
from appview.filters import Filters
from appview.keys import Key
from appview.search.candidates import Candidate, Candidates, Explained
from appview.search.fusion import Calibration
from appview.search.marks import Judge
from appview.search.query import ParsedQuery
from appview.search.ranking import Corpus, LexicalScorer, prepare_scorer
from appview.search.semantic import Near
from appview.store.search import Matches, explain_candidate, find_matches
from appview.store.semantic import Sought, StoredModel, find_near, load_mean, load_model, measure
from appview.store.service import plan_as_ever, share_snapshot, take_snapshot
from memory.likeness import BLANK, Aim
from memory.queries import Connection
from memory.query_embedding import NoVector
from memory.space import ReadableSpaces
from memory.tasks import TaskGroup


@dataclass(frozen=True, slots=True)
class Seeking:
    """What a query means, once it is known, or why it is not. `model`: whose vector is made; None: of none."""

    model: StoredModel | None
    sought: asyncio.Future[Sought | NoVector]


_NO_MATCHES: Final = Matches((), Corpus(0, 0.0, {}), capped=False, any_of=(), indexed_at=None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of the index, and what a search needs beside it."""

    conn: Connection
    resources: Resources

    @asynccontextmanager
    async def beside(self, shared: str) -> AsyncGenerator[Connection]:
        """Another connection that sees the same, by the name that `share_snapshot` gave, and plans anew."""
        async with self.resources.database.transaction(isolation="repeatable_read", readonly=True) as conn:
            await take_snapshot(conn, shared)
            yield conn


@asynccontextmanager
async def seek(resources: Resources, query: ParsedQuery, *, private: bool) -> AsyncGenerator[Seeking]:
    """Ask what a query means, or why that is not to be had; `private`: it is put to Spaces, too.

    A model in this process is at it while words are looked for. Another process may hang, until its deadline: that is
    waited for here, before a turn is taken, for meanwhile others go on by words.
    """
    models = resources.query_models
    if models is None or query.is_empty:
        yield no_meaning(NoVector.ABSENT)
        return
    async with resources.database.connection() as conn:
        model = await load_model(conn, resources.search_model)
    if model is None:
        yield no_meaning(NoVector.ABSENT)
        return
    async with TaskGroup() as tasks:
        sought = tasks.create_task(_seek(models, model, query, private=private))
        if await models.may_hang(model.name):
            await sought
        yield Seeking(model, sought)


def no_meaning(reason: NoVector) -> Seeking:
    """What need not be asked."""
    told: asyncio.Future[Sought | NoVector] = asyncio.get_running_loop().create_future()
    told.set_result(reason)
    return Seeking(None, told)


async def _seek(models: QueryModels, model: StoredModel, query: ParsedQuery, *, private: bool) -> Sought | NoVector:
    vector = await models.embed(model.name, query.wording, private=private)
    if isinstance(vector, NoVector):
        return vector
    if len(vector) != model.dimensions:  # another model goes by that name now
        return NoVector.FAILED
    blank = await models.embed(model.name, BLANK, private=False)
    return Sought(model, vector, None if isinstance(blank, NoVector) or len(blank) != len(vector) else blank)


@asynccontextmanager
async def search_snapshot(resources: Resources) -> AsyncGenerator[Snapshot]:
    """Wait for a turn, and lend one state of the index for all of a search. Raise TooBusy."""
    async with (
        resources.searches.turn(),
        resources.database.transaction(isolation="repeatable_read", readonly=True) as conn,
    ):
        yield Snapshot(conn, resources)


@dataclass(frozen=True, slots=True, repr=False)
class Inquiry:
    """What both arms are asked. `by_words`: whether words count. `seeking`: what is meant, or why that does not count.

    `kept`: how many of each arm are ranked, None for all that it brings. `explained`: a memory to be looked at anyway.
    """

    query: ParsedQuery
    filters: Filters
    watermark: datetime | None
    by_words: bool
    seeking: Seeking
    kept: int | None
    explained: Key | None


@dataclass(frozen=True, slots=True, repr=False)
class Findings:
    """What the arms found. `candidates` of `words` and all others, each once; `judge` marks them.

    `left_out`: what of a score none of those has more than that were not looked at; None: there are none. `no_vector`:
    why there was no semantic arm. `indexed_at`: when the latest of all was indexed.
    """

    words: Candidates
    candidates: Sequence[Candidate]
    judge: Judge
    explained: Explained | None
    left_out: int | None
    no_vector: NoVector | None
    indexed_at: datetime | None


async def ask_arms(snapshot: Snapshot, inquiry: Inquiry, *, spaces: ReadableSpaces) -> Findings:
    """Ask both arms at the same time, as far as they are wanted and there."""
    conn, model, sought = snapshot.conn, inquiry.seeking.model, inquiry.seeking.sought
    if model is None or (sought.done() and isinstance(sought.result(), NoVector)):
        no_vector = await sought
        assert isinstance(no_vector, NoVector)
        return await _judge_by_words(await _ask_words(conn, inquiry, spaces=spaces), inquiry.kept, no_vector)
    shared = await share_snapshot(conn)
    loop = asyncio.get_running_loop()
    aiming: asyncio.Future[_Aimed | NoVector] = loop.create_future()
    nearest: asyncio.Future[Near] = loop.create_future()
    async with TaskGroup() as tasks:
        tasks.create_task(_ask_meaning(snapshot, shared, model, inquiry, aiming, nearest, spaces=spaces))
        found = await _ask_words(conn, inquiry, spaces=spaces)
        await plan_as_ever(conn)
        aimed = await aiming
        if isinstance(aimed, NoVector):
            return await _judge_by_words(found, inquiry.kept, aimed)
        # Meanwhile the other arm looks for the nearest, which nearly always takes longer.
        measured = await _measure_best(conn, inquiry.kept, found, aimed, spaces=spaces)
        return await _judge_by_both(inquiry.kept, found, aimed, await nearest, measured)


@dataclass(frozen=True, slots=True, repr=False)
class _Lexical:
    """What was found by words, and of the one memory that is looked at anyway. `scores`: of the matches, in order."""

    matches: Matches
    scorer: LexicalScorer | None
    scores: Sequence[float]
    explained: Explained | None


async def _ask_words(conn: Connection, inquiry: Inquiry, *, spaces: ReadableSpaces) -> _Lexical:
    query, filters = inquiry.query, inquiry.filters
    matches, explained = _NO_MATCHES, None
    if inquiry.by_words and not query.is_empty:
        matches = await find_matches(conn, query, filters, watermark=inquiry.watermark, spaces=spaces)
    if inquiry.explained is not None:
        explained = await explain_candidate(conn, query, filters, inquiry.explained, spaces=spaces)
    scorer = prepare_scorer(query.terms, matches.corpus) if inquiry.by_words else None
    scores = () if scorer is None else await asyncio.to_thread(matches.scores, scorer)
    return _Lexical(matches, scorer, scores, explained)


async def _judge_by_words(found: _Lexical, kept: int | None, no_vector: NoVector) -> Findings:
    words, least = await asyncio.to_thread(_best_by_words, found, kept, ())
    judge = Judge(found.scorer)
    left_out = judge.bound(least, None)
    return Findings(words, words.memories, judge, found.explained, left_out, no_vector, words.indexed_at)


@dataclass(frozen=True, slots=True, repr=False)
class _Aimed:
    """What a query means, and what it is compared with."""

    sought: Sought
    aim: Aim


async def _ask_meaning(
    snapshot: Snapshot,
    shared: str,
    model: StoredModel,
    inquiry: Inquiry,
    aiming: asyncio.Future[_Aimed | NoVector],
    nearest: asyncio.Future[Near],
    *,
    spaces: ReadableSpaces,
) -> None:
    """Tells what it found by two futures, before the transaction has ended; cancels those that it leaves untold."""
    filters = inquiry.filters
    try:
        async with snapshot.beside(shared) as conn:
            mean = await load_mean(conn, model, filters, spaces=spaces)
            sought = await inquiry.seeking.sought
            if isinstance(sought, NoVector):
                aiming.set_result(sought)
                return
            aim = sought.aim_at(mean)
            aiming.set_result(_Aimed(sought, aim))
            near = await find_near(
                conn,
                sought,
                aim,
                inquiry.query,
                filters,
                watermark=inquiry.watermark,
                kept=inquiry.kept,
                spaces=spaces,
            )
            nearest.set_result(near)
    finally:  # also if the vector was given up, which ends this and nothing else: whoever waits would wait in vain
        aiming.cancel()
        nearest.cancel()


async def _measure_best(
    conn: Connection, kept: int | None, found: _Lexical, aimed: _Aimed, *, spaces: ReadableSpaces
) -> dict[Key, float]:
    """How near the best by words are, and what is looked at anyway: they need not be among the nearest."""
    words, _ = await asyncio.to_thread(_best_by_words, found, kept, ())
    keys = [candidate.key for candidate in words.memories]
    if found.explained is not None:
        keys.append(found.explained.candidate.key)
    return await measure(conn, aimed.sought, aimed.aim, keys, spaces=spaces) if keys else {}


async def _judge_by_both(
    kept: int | None, found: _Lexical, aimed: _Aimed, near: Near, measured: Mapping[Key, float]
) -> Findings:
    farthest = near.likeness[near.memories[-1].key] if near.capped else None
    words, least = await asyncio.to_thread(_best_by_words, found, kept, near.likeness)
    known = {candidate.key for candidate in words.memories}
    others = [candidate for candidate in near.memories if candidate.key not in known]
    times = [candidate.indexed_at for candidate in near.memories]
    if words.indexed_at is not None:
        times.append(words.indexed_at)
    calibration = _calibration(aimed.sought.model.calibration).at(aimed.aim.chance)
    judge = Judge(found.scorer, {**measured, **near.likeness}, calibration)
    return Findings(
        words,
        [*words.memories, *others],
        judge,
        found.explained,
        judge.bound(least, farthest),
        no_vector=None,
        indexed_at=max(times, default=None),
    )


def _calibration(measured: Mapping[str, object]) -> Calibration:
    match measured:
        case {"low": float(low), "high": float(high)}:
            return Calibration(low, high)
        case _:
            return Calibration()


def _best_by_words(found: _Lexical, kept: int | None, also: Container[Key]) -> tuple[Candidates, float | None]:
    if found.scorer is None or kept is None:
        return found.matches.all(), None
    return found.matches.best(found.scores, kept, also)
