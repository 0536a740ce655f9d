"""`/live`, `/ready` and `/metrics` of the daemon, for whoever keeps it running."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from indexer.metrics import IndexerMetrics
from memory.errors import Misconfigured

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


async def serve(host: str, port: int, app: Starlette) -> None:
    """Serves until cancelled. Misconfigured: that address cannot be listened on."""
    config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, server_header=False)
    with _listen(host, port) as listening:
        server = _Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = server.force_exit = True
            await serving


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as failure:
        raise Misconfigured(
            f"{host}:{port} cannot be listened on: {failure.strerror}.", setting="INDEXER_HEALTH_PORT"
        ) from None
