"""`make demo`: a recorded firehose through the whole path, served, asked, and left running to be asked more.

Needs no network and no settings but APPVIEW_PORT. The database is an embedded one in `.data/demo`, made anew each time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from appview.service import bind, serve
from indexer.arrivals import Source, SourceKind
from indexer.embed import ModelCare, add_first_model, opened_models
from indexer.embedder import EmbeddingWorker
from indexer.report import ReplayReport
from indexer.service import EMBED_CONNECTIONS, embed_of, replay
from memory.database import connect_database
from memory.embedded import clear_cluster, hold_cluster
from memory.embedding import Absent
from memory.errors import MemoryAppviewError, Misconfigured
from memory.identifiers import COLLECTION, NAMESPACE, normalise_source
from memory.settings import Settings, load
from memory.tasks import TaskGroup
from memory.telemetry import set_up_logging

ROOT: Final = Path(__file__).parents[1]
RECORDING: Final = ROOT / "tests" / "recordings" / "demo"
DATA_DIR: Final = ROOT / ".data" / "demo"
RECORDED_PDS: Final = "localhost:2583"
HOST: Final = "127.0.0.1"
QUESTION: Final = "where does Mara live"
OTHER_WORDS: Final = ("priya.test", "medicines she cannot take")
OTHER_LANGUAGE: Final = ("amina.test", "what allergies does her daughter have")
PAST: Final = "2026-06-15T00:00:00Z"
START_TIMEOUT_S: Final = 30
EMBEDDING_THREADS: Final = 4
OTHER_PORTS: Final = (8601, 8602)

Json = Any
"""What the API answers; read here as a stranger's script would read it."""


def main() -> int:
    """Runs the demo until Ctrl-C. 0: stopped; 2: something has to be mended first, and it says what."""
    set_up_logging(open(os.devnull, "w"))  # noqa: SIM115, PTH123  open until the end: the demo tells its own story
    try:
        asyncio.run(demonstrate(_settings(os.environ)))
    except MemoryAppviewError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _settings(environ: Mapping[str, str]) -> Settings:
    """Those of the API's port, this demo's own database, and more of the machine than a daemon would take."""
    port = {"APPVIEW_PORT": environ["APPVIEW_PORT"]} if "APPVIEW_PORT" in environ else {}
    threads = str(min(EMBEDDING_THREADS, os.cpu_count() or 1))
    return load({**port, "APPVIEW_HOST": HOST, "DATABASE_DATA_DIR": str(DATA_DIR), "EMBEDDING_THREADS": threads})


async def demonstrate(settings: Settings) -> None:
    """Fills an index, serves it, asks it a few things, and goes on serving."""
    port = settings.appview.port
    require_port(port)
    data_dir = settings.database.data_dir
    data_dir.parent.mkdir(exist_ok=True)
    step("Starting an embedded Postgres of its own")
    clear_cluster(data_dir)
    with hold_cluster(data_dir) as cluster:
        if cluster.home != data_dir.absolute():
            print(f"  in {cluster.home}, as the user it runs as may not enter {data_dir}", flush=True)
        step("Replaying a recorded firehose: eight people, nine months of memories")
        report = await replay(
            settings,
            [RECORDING / "firehose.bin"],
            Source(normalise_source(RECORDED_PDS), SourceKind.PDS),
            RECORDING / "identities.jsonl",
            use_cursor=True,
        )
        tell_report(report)
        step("Giving each memory its vector, for search by meaning")
        has_vectors = await embed(settings)
        async with TaskGroup() as tasks:
            server = tasks.create_task(serve(settings, host=HOST, port=port))
            await ask(f"http://{HOST}:{port}", by_meaning=has_vectors)
            print(f"\nServing at http://{HOST}:{port}/ (Ctrl-C stops it)", flush=True)
            print(
                f"How its index is: DATABASE_DATA_DIR={shown(data_dir)} .venv/bin/python -m indexer status", flush=True
            )
            await server


def require_port(port: int) -> None:
    """A taken port is better known now than after the replay; the fix is one that make hands on."""
    try:
        bind(HOST, port).close()
    except Misconfigured as failure:
        other = next(each for each in OTHER_PORTS if each != port)
        fix = f"Nothing can listen on port {port}. To take another: APPVIEW_PORT={other} make demo"
        raise Misconfigured(fix, setting=failure.setting) from None


def shown(path: Path) -> str:
    """A path as it is given from where the demo was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def step(text: str) -> None:
    print(f"• {text}", flush=True)


def tell_report(report: ReplayReport) -> None:
    held = report.memories
    print(
        f"  {report.frames} frames, {report.commits_verified} commits verified in {report.seconds:.1f} s: "
        f"{held.current} memories current, {held.masked} masked by newer ones, {held.invalid} invalid",
        flush=True,
    )


async def embed(settings: Settings) -> bool:
    """Gives every memory its vector, as `python -m indexer embed` does; False: there is no model here."""
    began = perf_counter()
    async with (
        connect_database(settings.database, application_name="demo", connections=EMBED_CONNECTIONS) as database,
        opened_models(embed_of(settings.embedding).open_embedder) as models,
    ):
        model = await models.look_up(None)
        if isinstance(model, Absent):
            print(f"  Search is by words alone, because {model.reason}", flush=True)
            return False
        await add_first_model(database, models)
        await ModelCare(database, models).look()
        worker = EmbeddingWorker(database, models.find, allow_private=False)
        while await worker.step():
            pass
    print(
        f"  {worker.embedded} memories, also the masked ones, in {perf_counter() - began:.1f} s by {model.model}, "
        "which runs in this process",
        flush=True,
    )
    return True


async def ask(base: str, *, by_meaning: bool) -> None:
    """A few questions, each with the line that asks it again; with vectors also what shares no word with its answer."""
    names: dict[str, str] = json.loads((RECORDING / "names.json").read_text("utf-8"))
    await until_healthy(base)
    search = {"q": QUESTION, "repo": "mara.test", "limit": "1"}
    found = await show(base, "A search", "searchRecords", search)
    tell_record(found["records"][0])

    if by_meaning:
        await ask_by_meaning(base, "Asked in other words than it was stated in", *OTHER_WORDS)
        await ask_by_meaning(base, "Asked in another language", *OTHER_LANGUAGE)

    lisbon = {"uri": names["mara/lisbon"]}
    replaced = await show(base, "A replaced fact is masked, and says by what", "getRecord", lisbon)
    tell_record(replaced)
    print(f"    superseded by {replaced['supersededBy'][0]}")

    past = await show(base, "The same search, as of June", "searchRecords", {**search, "asOf": PAST})
    tell_record(past["records"][0])

    why = {"q": QUESTION, "repo": "mara.test", "explainUri": names["mara/porto"], "limit": "1"}
    explained = await show(base, "Why was an older memory not recalled?", "searchRecords", why)
    reason = explained["explanation"]
    print(f"    not recalled: {reason['failedFilter']}, by {reason['maskedBy'][0]}")
    print(f"    without that it would have scored {reason['score']} of 1000", flush=True)


async def ask_by_meaning(base: str, title: str, person: str, question: str) -> None:
    """A search that words alone would not answer, and how each of its arms ranks the best hit."""
    asked = {"q": question, "repo": person, "limit": "1", "explain": "true"}
    found = await show(base, title, "searchRecords", asked)
    for record in found["records"]:  # none, where the machine was too busy to give the question its vector in time
        tell_record(record)
        tell_arms(record["scores"])


async def until_healthy(base: str) -> None:
    deadline = perf_counter() + START_TIMEOUT_S
    while True:
        try:
            await get(f"{base}/xrpc/_health")
            return
        except (URLError, ConnectionError):
            if perf_counter() > deadline:
                raise
            await asyncio.sleep(0.05)


async def show(base: str, title: str, method: str, parameters: Mapping[str, str]) -> Json:
    """Asks, and prints the line that asks it again."""
    url = f"{base}/xrpc/{NAMESPACE}{method}?{urlencode(parameters, safe=':/')}"
    print(f"\n{title}\n    curl '{url}'", flush=True)
    return await get(url)


def get(url: str) -> Awaitable[Json]:
    """The JSON at a URL of the API that was just started."""

    def fetch() -> Json:
        with urlopen(url, timeout=START_TIMEOUT_S) as answer:  # noqa: S310  our own, on loopback
            return json.load(answer)

    return asyncio.to_thread(fetch)


def tell_record(record: Json) -> None:
    value = record["value"]
    assert value["$type"] == COLLECTION
    print(f"    “{value['content']}”  ({record.get('handle', record['repo'])}, {value['createdAt'][:10]})", flush=True)


def tell_arms(scores: Json) -> None:
    """How each arm of the search ranks a hit."""
    told: list[str] = []
    for name, arm in (("by words", scores.get("lexical")), ("by meaning", scores.get("semantic"))):
        told.append(f"{name} not found" if arm is None else f"{name} number {arm['rank']}")
    print(f"    {', '.join(told)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
