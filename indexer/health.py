"""`/live`, `/ready` and `/metrics` of the daemon, for whoever keeps it running."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from indexer.metrics import IndexerMetrics

Ready = Callable[[], Awaitable[str | None]]
"""Why it is not ready; null: it is."""


def build_app(metrics: IndexerMetrics, ready: Ready) -> Starlette:
    """The three routes."""

    async def live(_: Request) -> Response:
        return PlainTextResponse("live\n")

    async def tell_ready(_: Request) -> Response:
        reason = await ready()
        return PlainTextResponse(f"{reason or 'ready'}\n", status_code=503 if reason else 200)

    async def tell_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/live", live), Route("/ready", tell_ready), Route("/metrics", tell_metrics)])


class _Server(uvicorn.Server):
    """Leaves signals to the daemon."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def open_server(host: str, port: int, app: Starlette) -> AsyncGenerator[uvicorn.Server]:
    """A server whose `serve()` is to be run as a task; it stops when the context ends."""
    config = uvicorn.Config(
        app, host=host, port=port, lifespan="off", access_log=False, log_config=None, server_header=False
    )
    server = _Server(config)
    try:
        yield server
    finally:
        server.should_exit = True
