"""The API as others meet it: at its public URL, by the DID that this URL makes it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, assert_never

from indexer.doctor.network import Endpoint, Network, NoAnswer, Step
from indexer.doctor.report import Check, failed, passed, warned
from memory.identifiers import NAMESPACE
from memory.identity import BadIdentity, DidDocument, parse_document
from memory.service_did import APPVIEW_FRAGMENT, DOCUMENT_PATH, service_did
from memory.space_protocol import SYNCER_FRAGMENT

SETTING: Final = "APPVIEW_PUBLIC_URL"

_METHOD_PATH: Final = f"/xrpc/{NAMESPACE}getStats"
_PROBE_LIFETIME: Final = timedelta(minutes=1)
_OTHER_METHOD: Final = f"{NAMESPACE}doctor"  # there is none: the token can never be good for anything
_MEETS_METHOD: Final = "BadJwtLexiconMethod"
_MEETS_AUDIENCE: Final = "BadJwtAudience"


async def check_service(
    network: Network, url: str | None, clock: Callable[[], datetime], *, in_spaces: bool = False
) -> Check:
    """Whether PDSes find the API by its DID, and it takes what they sign for it.

    `url` is spelt as by normalise_source; None: it has none. `in_spaces`: hosts of Spaces are to find it too.
    """
    swept = "; what is written in Spaces is found by sweeps only" if in_spaces else ""
    if url is None:
        what = f"{SETTING} is not set: only PDSes on this machine can pass requests on to the API{swept}"
        return passed("service", what)
    name = f"service {url}"
    did = service_did(url)
    if did is None:
        fix = f"Give {SETTING} as https, a name and no port, like https://memory.example.com."
        return warned(name, f"a URL of this form has no DID, so no PDS can pass requests on to it{swept}", fix)
    try:
        offered = (APPVIEW_FRAGMENT, SYNCER_FRAGMENT) if in_spaces else (APPVIEW_FRAGMENT,)
        return await _check_document(network, url, did, offered) or await _check_audience(network, url, did, clock)
    except NoAnswer as silence:
        return failed(name, silence.reason, _mend(silence, Endpoint.of(url)))


async def _check_document(network: Network, url: str, did: str, offered: tuple[str, ...]) -> Check | None:
    """What is wrong with the service's DID document, which has to offer these; None: nothing."""
    name = f"service {url}"
    restart = f"Start `python -m appview serve` anew with {SETTING}={url}, as it is set here."
    answer, body = await network.read(Endpoint.of(url), DOCUMENT_PATH)
    if answer.status != HTTPStatus.OK:
        fix = f"Let what listens there hand {DOCUMENT_PATH} on to the API (APPVIEW_PORT). {restart}"
        return failed(name, f"no DID document: {DOCUMENT_PATH} answers {answer.status}", fix)
    try:
        document = parse_document(did, body)
    except BadIdentity:
        return failed(name, f"what {DOCUMENT_PATH} answers is no DID document of {did}", restart)
    for fragment in offered:
        if _endpoints(document, fragment) != [url]:
            return failed(name, f"its DID document does not say that {fragment} is at {url}", restart)
    return None


def _endpoints(document: DidDocument, fragment: str) -> Sequence[object]:
    return [each.service_endpoint for each in document.service if each.id in (fragment, document.id + fragment)]


async def _check_audience(network: Network, url: str, did: str, clock: Callable[[], datetime]) -> Check:
    """Whether a token for that DID comes to the API, and is judged as one for it."""
    name = f"service {url}"
    token = _probe(did, clock() + _PROBE_LIFETIME)
    answer, body = await network.read(Endpoint.of(url), _METHOD_PATH, {"Authorization": f"Bearer {token}"})
    match _error_in(body):
        case str(error) if error == _MEETS_METHOD and answer.status == HTTPStatus.UNAUTHORIZED:
            return passed(name, f"{did} is found there, after {answer.seconds * 1000:.0f} ms")
        case str(error) if error == _MEETS_AUDIENCE:
            fix = f"Start `python -m appview serve` anew with the same {SETTING}; all that listen there must have it."
            return failed(name, f"it refuses tokens for {did}", fix)
        case _:
            fix = "Let the proxy in front of the API hand on /xrpc/ with the header Authorization."
            return failed(name, f"credentials do not come through: it answers {answer.status}", fix)


def _probe(did: str, expires_at: datetime) -> str:
    """A token that nobody signed, for that service and a method that does not exist: only its audience can be right."""
    parts = (
        {"typ": "JWT", "alg": "ES256"},
        {"iss": did, "aud": did, "lxm": _OTHER_METHOD, "exp": int(expires_at.timestamp())},
        "0" * 62,
    )
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def _error_in(body: bytes) -> str | None:
    with suppress(ValueError):
        match json.loads(body):
            case {"error": str(error)}:
                return error
            case _:
                pass
    return None


def _mend(silence: NoAnswer, endpoint: Endpoint) -> str:
    host, port = endpoint.host, endpoint.port
    match silence.step:
        case Step.NAME:
            return f"Make a DNS record (A, AAAA) of {host} that leads to this machine, or correct {SETTING}."
        case Step.CONNECTION:
            return (
                f"Start the API and what stands in front of it, and let others connect to port {port} of {host}"
                " (firewall, DNS)."
            )
        case Step.TLS:
            return f"Let a proxy with a certificate listen on port {port} of {host}: deploy/tls has one."
        case Step.CERTIFICATE:
            return f"Renew the certificate of {host}, for this name and by an authority that everybody trusts."
        case Step.HTTP:
            return f"See what listens on port {port} of {host}: it has to hand on to the API, which has to run."
        case _:
            assert_never(silence.step)
