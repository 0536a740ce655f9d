"""Serves the web page, the documents and their assets, all from here and with nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as PathRoute

from appview.did_document import did_document
from appview.faces.xrpc import Route
from appview.lexicon import Catalogue
from appview.openapi import openapi_document
from appview.spaces.attestation import ClientAttestation
from appview.web.docs import docs_page
from memory.client_keys import KEYS_PATH, METADATA_PATH
from memory.service_did import DOCUMENT_PATH, service_did

_FOLDER: Final = Path(__file__).parent
_OPEN: Final = {"access-control-allow-origin": "*"}

# Nothing from elsewhere, no inline script or style: a text that became markup by a mistake could still do nothing.
_SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def build_pages(
    catalogue: Catalogue,
    routes: Iterable[Route],
    *,
    version: str,
    url: str | None,
    known_at: str,
    client: ClientAttestation | None = None,
) -> Starlette:
    """The application for all paths that no face has. It has a DID if `known_at` allows one.

    `client`: who it says it is to Spaces that ask, with the keys by which they believe it.
    """
    described = list(routes)
    document = orjson.dumps(openapi_document(catalogue, described, version=version, url=url))
    application = Starlette(
        routes=[
            _serve("/", (_FOLDER / "page.html").read_bytes(), "text/html; charset=utf-8"),
            _serve("/page.css", (_FOLDER / "page.css").read_bytes(), "text/css; charset=utf-8"),
            _serve("/page.js", (_FOLDER / "page.js").read_bytes(), "text/javascript; charset=utf-8"),
            _serve("/docs", docs_page(catalogue, described).encode(), "text/html; charset=utf-8"),
            _serve("/openapi.json", document, "application/json", _OPEN),
            *_identify(known_at),
            *_attest(client),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    # Other paths are not found, and led nowhere else.
    application.router.redirect_slashes = False
    return application


def _identify(url: str) -> list[PathRoute]:
    did = service_did(url)
    if did is None:
        return []
    return [_serve(DOCUMENT_PATH, orjson.dumps(did_document(did, url)), "application/json", _OPEN)]


def _attest(client: ClientAttestation | None) -> list[PathRoute]:
    if client is None:
        return []
    return [
        _serve(METADATA_PATH, client.metadata(), "application/json", _OPEN),
        _serve(KEYS_PATH, client.key_set(), "application/json", _OPEN),
    ]


async def _refuse(_request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    headers = _SECURITY | dict(failure.headers or {})
    return PlainTextResponse(failure.detail, failure.status_code, headers=headers)


def _serve(path: str, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> PathRoute:
    response_headers = _SECURITY | {"content-type": content_type, "cache-control": "no-cache"} | (headers or {})

    async def answer(_request: Request) -> Response:
        return Response(body, headers=response_headers)

    return PathRoute(path, answer)
