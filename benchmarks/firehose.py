"""`firehose`: a network mix over a local WebSocket through the whole daemon, beside the SDK's client that only parses.

`value` is frames per second from the first frame received to the cursor of the last; `peer_value` that of the SDK's own
asynchronous client, which parses every message and filters its ops by collection, and does nothing else.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time

from atproto import AsyncFirehoseSubscribeReposClient, firehose_models, models, parse_subscribe_repos_message

from benchmarks.dense import LIMITS, open_to_all
from benchmarks.network_mix import network_mix, served
from benchmarks.result import Result
from indexer.arrivals import Source, SourceKind
from indexer.live import Daemon
from indexer.live import run as follow
from indexer.metrics import IndexerMetrics
from indexer.recording import frame_seq
from memory.database import Database, open_database
from memory.embedded import hold_cluster
from memory.identifiers import COLLECTION
from memory.identity import PlcExport
from memory.schema import apply_migrations
from memory.store.identities import store_identity

FRAMES, PEER_FRAMES = 100_000, 20_000
PREFIX = COLLECTION + "/"


async def run() -> Result:
    """Frames per second of both."""
    first, mix, export = network_mix(FRAMES)
    mean = sum(map(len, mix)) / len(mix)
    async with served(mix[:PEER_FRAMES]) as url:
        peer, peer_cpu_s = await rate_of_sdk(url, PEER_FRAMES)
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-") as folder,
        hold_cluster(open_to_all(folder) / "postgres") as cluster,
    ):
        apply_migrations(cluster.url("firehose"))
        async with open_database(cluster.url("firehose"), application_name="bench", connections=12) as database:
            await know(database, export)
            async with served([*first, *mix]) as url:
                ours, cpu_s = await rate_of_daemon(database, url, first, mix)
    notes = (
        f"{FRAMES} frames of {mean:.0f} bytes on average; the SDK's client over {PEER_FRAMES}",
        f"{cpu_s * 1e6:.1f} µs of a core a frame in the daemon's process, {peer_cpu_s * 1e6:.1f} in the SDK's client",
    )
    return Result("firehose", round(ours), "frames/s", round(peer), round(ours / peer, 2), notes)


async def rate_of_sdk(url: str, frames: int) -> tuple[float, float]:
    """Frames per second, and seconds of a core a frame, of the SDK's client from its first message to its last."""
    client = AsyncFirehoseSubscribeReposClient(base_uri=url.replace("http", "ws", 1) + "/xrpc")
    seen, named, started, cpu_started, seconds, cpu_s = 0, 0, 0.0, 0.0, 0.0, 0.0

    async def take(message: firehose_models.MessageFrame) -> None:
        nonlocal seen, named, started, cpu_started, seconds, cpu_s
        if not seen:
            started, cpu_started = perf_counter(), process_time()
        event = parse_subscribe_repos_message(message)
        if isinstance(event, models.ComAtprotoSyncSubscribeRepos.Commit):
            named += any(op.path.startswith(PREFIX) for op in event.ops)
        seen += 1
        if seen == frames:
            seconds, cpu_s = perf_counter() - started, process_time() - cpu_started
            await client.stop()

    await client.start(take)
    return frames / seconds, cpu_s / frames


async def know(database: Database, export: PlcExport) -> None:
    """Everybody's key is cached, as it is after the first day."""
    async with database.connection() as conn:
        for identity in export.changes(None, None):
            await store_identity(conn, identity)
        await conn.execute("update identities set resolved_at = now()")


async def rate_of_daemon(database: Database, url: str, first: list[bytes], mix: list[bytes]) -> tuple[float, float]:
    """Frames per second, and seconds of a core a frame, from the first frames received to the cursor at the last."""
    daemon = Daemon(
        sources=[Source(url, SourceKind.RELAY)],
        plc_url="http://127.0.0.1:9",
        handle_resolvers=(),
        private_networks=(),
        admits=lambda _: True,
        limits=LIMITS,
        batch_events=500,
        version_content=timedelta(days=30),
        deletions_kept=timedelta(days=90),
        health=None,
        clock=lambda: datetime.now(UTC),
    )
    metrics = IndexerMetrics()
    last = frame_seq(mix[-1]) or 0
    running = asyncio.create_task(follow(daemon, lambda: nullcontext(database), metrics))
    while received(metrics, url) < len(first):
        await asyncio.sleep(0.01)
    started, cpu_started, begun = perf_counter(), process_time(), received(metrics, url)
    while not await reached(database, last):
        await asyncio.sleep(0.02)
    seconds, cpu_s = perf_counter() - started, process_time() - cpu_started
    frames = len(first) + len(mix) - begun
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return frames / seconds, cpu_s / frames


def received(metrics: IndexerMetrics, url: str) -> float:
    """How many frames came."""
    return metrics.registry.get_sample_value("indexer_frames_total", {"source": url}) or 0.0


async def reached(database: Database, seq: int) -> bool:
    """Whether the cursor is there."""
    async with database.connection() as conn:
        return bool(await conn.fetchval("select coalesce(max(seq), 0) >= $1 from sources", seq))
