"""`/live`, `/ready` and `/metrics`, on a port of their own, for whoever keeps a process running."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeAlias

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

STOP_TIMEOUT_S: Final = 2

Ready: TypeAlias = Callable[[], Awaitable[str | None]]
"""Why it is not ready; null: it is."""


def build_health_app(registry: CollectorRegistry, ready: Ready) -> Starlette:
    """The three routes."""

    async def live(_: Request) -> Response:
        return PlainTextResponse("live\n")

    async def tell_ready(_: Request) -> Response:
        reason = await ready()
        return PlainTextResponse(f"{reason or 'ready'}\n", status_code=503 if reason else 200)

    async def tell_metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/live", live), Route("/ready", tell_ready), Route("/metrics", tell_metrics)])


class _Server(uvicorn.Server):
    """Leaves signals to the process that it serves."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Captures none."""
        yield


@asynccontextmanager
async def open_health_server(host: str, port: int, app: Starlette) -> AsyncGenerator[uvicorn.Server]:
    """A server whose `serve()` is to be run as a task; it stops when the context ends."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
    )
    server = _Server(config)
    try:
        yield server
    finally:
        server.should_exit = True
