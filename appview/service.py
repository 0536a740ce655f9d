"""Wires the API: settings, database and clock in, a running server out."""

from __future__ import annotations

import asyncio
import errno
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from time import monotonic
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from appview.access import Access, Credential, Viewer
from appview.call import Answer, Resources, SpaceOpening, Stream, Turns
from appview.connections import BoundedConnection
from appview.faces.assistants.face import AssistantsFace
from appview.faces.assistants.fields import load_fields
from appview.faces.stores.face import StoresFace
from appview.faces.stores.ids import Ids
from appview.faces.xrpc import Route, XrpcFace
from appview.http import Action, Edge, FindViewer
from appview.issuers import Issuers, LookUpBudget
from appview.lexicon import Catalogue, load_catalogue
from appview.metrics import Metrics
from appview.page_cursor import PageCursors
from appview.query_models import OpenedQueryModels
from appview.rates import Limits, Rates
from appview.routes.history import get_history
from appview.routes.records import get_record, list_records, stream_records
from appview.routes.search import search_records
from appview.routes.spaces import close_space, list_grants, open_space
from appview.routes.stats import get_stats
from appview.routes.tokens import create_access_token, list_access_tokens, revoke_access_token
from appview.spaces.attestation import ClientAttestation
from appview.spaces.exchange import Exchange
from appview.store.service import load_page_cursor_key
from appview.store.stats import RecentTotals
from appview.store.stores import load_id_key
from appview.web.pages import build_pages
from memory.database import Database, connect_database
from memory.embedders import configured_model, open_embedder
from memory.embedding import Absent, Embedder
from memory.errors import Misconfigured, Unavailable
from memory.health import build_health_app, serve_health
from memory.identifiers import NAMESPACE
from memory.identities import Identities, open_identities
from memory.outbound import Outbound
from memory.outbound_hosts import Hosts
from memory.resolver import PLC_LIMITS
from memory.sealed import SealingKeys
from memory.service_did import service_did
from memory.settings import EmbeddingSettings, Settings
from memory.space_authorities import SpaceAuthorities
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

VERSION: Final = "0.1.0"

_CONNECTIONS: Final = 14
_SEARCHES_AT_ONCE: Final = 4  # of two connections each: more would be slower, and take the connections of other answers
_SEARCHES_WAITING: Final = 8  # what may take seconds each, so that none waits for longer than an answer may take
_CLIENTS: Final = 1_000  # each may hold a body, a question and an answer: a few hundred MiB in all
_KEEP_ALIVE_S: Final = 15
_OPENED_LESS_OFTEN: Final = 10  # a viewer opens Spaces a tenth as often as they may ask
_BACKLOG: Final = 1_024
_STOP_TIMEOUT_S: Final = 10
_READY_TIMEOUT_S: Final = 2
_ANSWERS: Final[dict[str, Answer]] = {
    "searchRecords": search_records,
    "listRecords": list_records,
    "getRecord": get_record,
    "getHistory": get_history,
    "getStats": get_stats,
    "createAccessToken": create_access_token,
    "listAccessTokens": list_access_tokens,
    "revokeAccessToken": revoke_access_token,
    "openSpace": open_space,
    "closeSpace": close_space,
    "listGrants": list_grants,
}
_TAKE_POST: Final = frozenset({"searchRecords"})
_SEALED: Final = frozenset({"listGrants"})  # it names Spaces
_STREAMS: Final[dict[str, Stream]] = {"listRecords": stream_records}


def utc_now() -> datetime:
    """The clock of a live service."""
    return datetime.now(UTC)


async def serve(settings: Settings, *, host: str, port: int) -> None:
    """Serve the API until a signal stops it; requests under way are finished first.

    Raise Misconfigured if the address cannot be listened on, Unavailable if there is no database.
    """
    with bind(host, port) as listener:
        async with open_app(settings, port=port, clock=utc_now, monotonic=monotonic) as app:
            server = _Server(
                uvicorn.Config(
                    app,
                    lifespan="off",
                    http=BoundedConnection,
                    ws="none",
                    # No header of a proxy is believed but of those that are named, whatever the environment says.
                    proxy_headers=bool(settings.appview.trusted_proxies),
                    forwarded_allow_ips=[str(network) for network in settings.appview.trusted_proxies],
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
    settings: Settings, *, port: int, clock: Callable[[], datetime], monotonic: Callable[[], float]
) -> AsyncGenerator[App]:
    """The application, on the database of the settings; it will listen on `port`."""
    async with connect_database(settings.database, application_name="appview", connections=_CONNECTIONS) as database:
        async with database.connection() as conn:
            key = await load_page_cursor_key(conn)
            id_key = await load_id_key(conn)
        if key is None or id_key is None:
            raise Misconfigured("The table `settings` lacks keys that the migrations put there: run them.")
        if settings.appview.id_key is not None:
            id_key = settings.appview.id_key.get_secret_value().encode()
        searches = Turns(at_once=_SEARCHES_AT_ONCE, waiting=_SEARCHES_WAITING)
        resources = Resources(database, PageCursors(key), clock, searches, RecentTotals(database, monotonic))
        rates = Rates(limit=settings.appview.rate_limit, clock=clock)
        # Without a public URL it is known on this machine at least, where PDSes for development run too.
        url = settings.appview.public_url
        known_at = url or f"http://localhost:{port}"
        client = _client_of(settings)
        async with (
            _identities(settings, database, clock) as identities,
            aclosing(_models(settings.embedding)) as models,
            Outbound(identities.names, _ways(settings), allowed=settings.indexer.allow_private_addresses) as outbound,
        ):
            if (model := configured_model(settings.embedding)) is not None:
                await models.open(model)
            resources = replace(resources, query_models=models, search_model=settings.embedding.search_model)
            issuers = Issuers(identities.resolver, LookUpBudget(monotonic))
            access = Access(database, issuers, own_did=service_did(known_at), clock=clock)
            resources = replace(resources, opening=opening_of(settings, issuers, outbound, client, clock))
            yield build_app(
                resources,
                url=url,
                known_at=known_at,
                find_viewer=finder(access),
                rates=rates,
                ids=Ids(id_key),
                client=client,
            )


def opening_of(
    settings: Settings,
    issuers: Issuers,
    outbound: Outbound,
    client: ClientAttestation | None,
    clock: Callable[[], datetime],
) -> SpaceOpening | None:
    """What opens Spaces; None where there is no key to keep credentials by. Raise Misconfigured for an unusable one."""
    file = settings.spaces.key_file
    if file is None:
        return None
    authorities = SpaceAuthorities(outbound, plc_url=settings.indexer.plc_url, clock=clock)
    exchange = Exchange(outbound, authorities, client=client, clock=clock, random_bytes=secrets.token_bytes)
    keys = SealingKeys.read(file, random_bytes=secrets.token_bytes)
    limit = settings.appview.rate_limit
    viewers = Rates(limit=ceil(limit / _OPENED_LESS_OFTEN), clock=clock)
    return SpaceOpening(issuers, exchange, keys, viewers, Rates(limit=limit, clock=clock))


def _client_of(settings: Settings) -> ClientAttestation | None:
    file = settings.spaces.client_key_file
    return None if file is None else ClientAttestation.read(file, public_url=settings.appview.public_url or "")


def _ways(settings: Settings) -> Hosts:
    """To hosts of Spaces. The directory is asked as often as for whoever signs in, apart from that."""
    return Hosts(named={settings.indexer.plc_url: PLC_LIMITS})


def _models(settings: EmbeddingSettings) -> OpenedQueryModels:
    async def opened(model: str) -> Embedder | Absent:
        return await open_embedder(settings, model=model)

    return OpenedQueryModels(opened, allow_private=settings.allow_private)


def _identities(
    settings: Settings, database: Database, clock: Callable[[], datetime]
) -> AbstractAsyncContextManager[Identities]:
    """Whoever signs in is looked up as the indexer looks up whom it follows."""
    network = settings.indexer
    return open_identities(
        database,
        plc_url=network.plc_url,
        handle_resolvers=network.handle_resolver,
        private_networks=network.allow_private_addresses,
        clock=clock,
    )


def finder(access: Access) -> FindViewer:
    """Finds out who asks for what the request wants to do."""

    async def find(credential: Credential, address: str, action: Action) -> Viewer:
        if action.of_authority:
            return await access.authority(credential, address, action.lxm)
        return await access.viewer(credential, address, action.lxm, acts=action.acts)

    return find


@dataclass(frozen=True, slots=True)
class App:
    """The application, and what there is to tell of it."""

    faces: Mapping[str, ASGIApp]  # by the beginning of their paths
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
        await self._part(path)(scope, receive, send)

    def _part(self, path: str) -> ASGIApp:
        for prefix, face in self.faces.items():
            if path.startswith(prefix) or path + "/" == prefix:
                return face
        return self.pages

    async def ready(self) -> str | None:
        """Why it is not ready to answer; None: it is."""
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S), self.database.connection() as conn:
                await load_page_cursor_key(conn)
        except (Unavailable, TimeoutError):
            return "the database does not answer"
        return None


def build_app(
    resources: Resources,
    *,
    url: str | None,
    known_at: str,
    find_viewer: FindViewer,
    rates: Rates,
    ids: Ids,
    client: ClientAttestation | None = None,
) -> App:
    """The application.

    `url` is where clients reach it, None for wherever they found it; `known_at` the URL that its DID is made of. `ids`
    are those of memory stores. `client`: who it says it is to Spaces that ask.
    """
    catalogue = load_catalogue()
    routes = routes_of(catalogue)
    metrics = Metrics()
    faces = (
        XrpcFace({route.method.nsid: route for route in routes}, resources, VERSION),
        AssistantsFace(resources, load_fields(catalogue)),
        StoresFace(resources, ids),
    )
    limits = Limits(rates)
    edges = {face.prefix: Edge(face, find_viewer, limits, metrics) for face in faces}
    pages = build_pages(catalogue, routes, version=VERSION, url=url, known_at=known_at, client=client)
    return App(edges, pages, resources.database, metrics)


def routes_of(catalogue: Catalogue) -> list[Route]:
    """What answers each method of the lexicons, in the order in which documents tell of them."""
    return [
        Route(method, answer, takes_post=name in _TAKE_POST, stream=_STREAMS.get(name), sealed=name in _SEALED)
        for name, answer in _ANSWERS.items()
        for method in (catalogue.methods[NAMESPACE + name],)
    ]
