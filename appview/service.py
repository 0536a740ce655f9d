"""Wires the API: settings, database and clock in, a running server out."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from appview.call import Answer, Resources, Stream, Turns
from appview.http import PREFIX, Route, Xrpc
from appview.lexicon import Catalogue, load_catalogue
from appview.metrics import Metrics
from appview.page_cursor import PageCursors
from appview.routes.history import get_history
from appview.routes.records import get_record, list_records, stream_records
from appview.routes.search import search_records
from appview.routes.stats import get_stats
from appview.store.service import load_page_cursor_key
from appview.store.stats import RecentTotals
from appview.web.pages import build_pages
from memory.database import Database, connect_database
from memory.errors import Misconfigured, Unavailable
from memory.health import build_health_app, serve_health
from memory.settings import Settings
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

VERSION: Final = "0.1.0"

_CONNECTIONS: Final = 10
_SEARCHES_AT_ONCE: Final = 4  # more would be slower each, and take the connections of other answers
_SEARCHES_WAITING: Final = 8  # what may take seconds each, so that none waits for longer than an answer may take
_CLIENTS: Final = 1_000  # each may hold a body, a question and an answer: a few hundred MiB in all
_KEEP_ALIVE_S: Final = 15
_BACKLOG: Final = 1_024
_STOP_TIMEOUT_S: Final = 10
_READY_TIMEOUT_S: Final = 2
_NAMESPACE: Final = "dev.bastienrobert.memory."
_ANSWERS: Final[dict[str, Answer]] = {
    "searchRecords": search_records,
    "listRecords": list_records,
    "getRecord": get_record,
    "getHistory": get_history,
    "getStats": get_stats,
}
_TAKE_POST: Final = frozenset({"searchRecords"})
_STREAMS: Final[dict[str, Stream]] = {"listRecords": stream_records}


def utc_now() -> datetime:
    """The clock of a live service."""
    return datetime.now(UTC)


async def serve(settings: Settings, *, host: str, port: int) -> None:
    """Serve the API until a signal stops it; requests under way are finished first.

    Raise Misconfigured if the address cannot be listened on, Unavailable if there is no database.
    """
    with bind(host, port) as listener:
        async with open_app(settings, clock=utc_now, monotonic=monotonic) as app:
            server = _Server(
                uvicorn.Config(
                    app,
                    lifespan="off",
                    ws="none",
                    # Who asks is not looked at, so no header of a proxy is believed, whatever the environment says.
                    proxy_headers=False,
                    limit_concurrency=_CLIENTS,
                    timeout_keep_alive=_KEEP_ALIVE_S,
                    # Queries stand in URLs: no access log. What uvicorn warns of goes the way of all logs.
                    access_log=False,
                    log_config=None,
                    server_header=False,
                    timeout_graceful_shutdown=_STOP_TIMEOUT_S,
                )
            )
            for stop in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(stop, server.handle_exit, stop, None)
            get_logger().info("api_started", host=host, port=port)
            async with _metrics_served(settings, app):
                await server.serve(sockets=[listener])
            get_logger().info("api_stopped", host=host, port=port)


@asynccontextmanager
async def _metrics_served(settings: Settings, app: App) -> AsyncGenerator[None]:
    port = settings.appview.metrics_port
    if port is None:
        yield
        return
    health = build_health_app(app.metrics.registry, app.ready)
    async with TaskGroup() as tasks:
        serving = tasks.create_task(serve_health(settings.appview.host, port, health, setting="APPVIEW_METRICS_PORT"))
        yield
        serving.cancel()


class _Server(uvicorn.Server):
    """A server that leaves signals to us: its own way raises them again before our resources are closed."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; Misconfigured says what to do if there cannot be one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once (TCP_NODELAY) on such sockets only.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as failure:
        listener.close()
        match failure.errno:
            case errno.EADDRINUSE:
                fix = f"Port {port} is taken: stop what listens there, or choose another by --port or APPVIEW_PORT."
                raise Misconfigured(fix, setting="APPVIEW_PORT") from None
            case errno.EACCES:
                fix = f"Port {port} needs privileges: choose one above 1023 by --port or APPVIEW_PORT."
                raise Misconfigured(fix, setting="APPVIEW_PORT") from None
            case _:
                fix = f"Nothing can listen on {host}: give an address of this machine by --host or APPVIEW_HOST."
                raise Misconfigured(fix, setting="APPVIEW_HOST") from None


@asynccontextmanager
async def open_app(
    settings: Settings, *, clock: Callable[[], datetime], monotonic: Callable[[], float]
) -> AsyncGenerator[App]:
    """The application, on the database of the settings."""
    async with connect_database(settings.database, application_name="appview", connections=_CONNECTIONS) as database:
        async with database.connection() as conn:
            key = await load_page_cursor_key(conn)
        if key is None:
            raise Misconfigured("The table `settings` has no page_cursor_key, which the migrations put there.")
        searches = Turns(at_once=_SEARCHES_AT_ONCE, waiting=_SEARCHES_WAITING)
        resources = Resources(database, PageCursors(key), clock, searches, RecentTotals(database, monotonic))
        yield build_app(resources, url=settings.appview.public_url)


@dataclass(frozen=True, slots=True)
class App:
    """The application, and what there is to tell of it."""

    xrpc: ASGIApp
    pages: ASGIApp
    database: Database
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; nothing here speaks WebSocket."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # before it is accepted: the server answers 403
            return
        path: str = scope.get("path", "")  # the server's own messages (`lifespan`) have none
        part = self.xrpc if path.startswith(PREFIX) or path + "/" == PREFIX else self.pages
        await part(scope, receive, send)

    async def ready(self) -> str | None:
        """Why it is not ready to answer; None: it is."""
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S), self.database.connection() as conn:
                await load_page_cursor_key(conn)
        except (Unavailable, TimeoutError):
            return "the database does not answer"
        return None


def build_app(resources: Resources, *, url: str | None) -> App:
    """The application; `url` is where clients reach it, None if that is not known."""
    catalogue = load_catalogue()
    routes = routes_of(catalogue)
    metrics = Metrics()
    xrpc = Xrpc({route.method.nsid: route for route in routes}, resources, metrics, VERSION)
    return App(xrpc, build_pages(catalogue, routes, version=VERSION, url=url), resources.database, metrics)


def routes_of(catalogue: Catalogue) -> list[Route]:
    """What answers each method of the lexicons, in the order in which documents tell of them."""
    return [
        Route(catalogue.methods[_NAMESPACE + name], answer, takes_post=name in _TAKE_POST, stream=_STREAMS.get(name))
        for name, answer in _ANSWERS.items()
    ]
