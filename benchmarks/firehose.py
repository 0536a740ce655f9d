"""`firehose`: a network mix over a local WebSocket through the whole daemon, beside the SDK's client that only parses.

`value` is frames per second from the first frame received to the cursor of the last; `peer_value` that of the SDK's own
asynchronous client, which parses every message and filters its ops by collection, and does nothing else.
"""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

from atproto import AsyncFirehoseSubscribeReposClient, models, parse_subscribe_repos_message

from benchmarks.dense import LIMITS, open_to_all
from benchmarks.network_mix import MEAN_FRAME_BYTES, network_mix, served
from benchmarks.result import Result
from indexer.arrivals import Source, SourceKind
from indexer.follower import Patience
from indexer.live import Daemon, start
from indexer.metrics import IndexerMetrics
from memory.database import Database, open_database
from memory.embedded import hold_cluster
from memory.identifiers import COLLECTION
from memory.identity import PlcExport
from memory.schema import apply_migrations

FRAMES, PEER_FRAMES = 100_000, 20_000


async def run() -> Result:
    """Frames per second of both."""
    first, mix, export = network_mix(FRAMES)
    mean = sum(map(len, mix)) / len(mix)
    async with served(mix[:PEER_FRAMES]) as url:
        peer = PEER_FRAMES / await timed_sdk(url, PEER_FRAMES)
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-") as folder,
        hold_cluster(open_to_all(folder) / "postgres") as cluster,
    ):
        apply_migrations(cluster.url("firehose"))
        async with open_database(cluster.url("firehose"), application_name="bench", connections=10) as database:
            async with served([*first, *mix]) as url:
                ours = FRAMES / await timed_daemon(database, url, len(first), export)
    notes = (f"{FRAMES} frames of {mean:.0f} bytes on average (wanted: {MEAN_FRAME_BYTES}); SDK over {PEER_FRAMES}",)
    return Result("firehose", round(ours), "frames/s", round(peer), round(ours / peer, 2), notes)
