"""`/live`, `/ready` and `/metrics`, on a port of their own, for whoever keeps a process running."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from memory.errors import Misconfigured

Ready = Callable[[], Awaitable[str | None]]
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
        yield


async def serve_health(host: str, port: int, app: Starlette, *, setting: str) -> None:
    """Serves until cancelled. Misconfigured, naming `setting`: that address cannot be listened on."""
    config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, server_header=False)
    with _listen(host, port, setting) as listening:
        server = _Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = server.force_exit = True
            await serving


def _listen(host: str, port: int, setting: str) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as failure:
        raise Misconfigured(f"{host}:{port} cannot be listened on: {failure.strerror}.", setting=setting) from None
