"""Names, relays, PDSes and the directory: what the indexer asks of other machines."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, assert_never
from urllib.parse import urlsplit

from indexer.doctor.network import Answer, Endpoint, Network, NoAnswer, Step
from indexer.doctor.report import Check, failed, passed, warned

FIREHOSE: Final = "/xrpc/com.atproto.sync.subscribeRepos"
PUBLIC_RELAY: Final = "wss://relay1.us-east.bsky.network"
PUBLIC_DIRECTORY: Final = "https://plc.directory"

_KEY: Final = base64.b64encode(b"memory-appview..").decode()  # nobody else reads this stream: it need not be random
_ACCEPT: Final = base64.b64encode(
    hashlib.sha1(f"{_KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode(), usedforsecurity=False).digest()
).decode()
_UPGRADE: Final = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": _KEY,
    "Sec-WebSocket-Version": "13",
}


@dataclass(frozen=True, slots=True)
class Followed:
    """A relay or PDS, and the setting that names it."""

    url: str
    setting: str


async def check_names(network: Network, urls: Collection[str]) -> Check:
    """Whether the names in the settings can be looked up."""
    names = sorted({host for url in urls if (host := Endpoint.of(url).host) != "localhost" and not _is_address(host)})
    unknown = [name for name in await asyncio.gather(*(_unknown(network, name) for name in names)) if name is not None]
    match names, unknown:
        case [], _:
            return passed("dns", "the settings hold no name to look up")
        case _, []:
            return passed("dns", f"{', '.join(names)} found")
        case _ if len(unknown) == len(names):
            return failed(
                "dns",
                f"{', '.join(names)} not found",
                "Mend the name servers of this machine (/etc/resolv.conf; in a container, its `dns`), or the names.",
            )
        case _:
            return warned("dns", f"{', '.join(unknown)} not found", "Check how the settings spell it.")


async def check_source(network: Network, source: Followed) -> Check:
    """Whether a firehose answers at a relay or PDS."""
    name = f"source {source.url}"
    endpoint = Endpoint.of(source.url)
    try:
        answer = await network.get(endpoint, FIREHOSE, _UPGRADE)
    except NoAnswer as silence:
        return failed(name, silence.reason, _mend(silence, endpoint, source.setting))
    if answer.status == HTTPStatus.SWITCHING_PROTOCOLS and answer.headers.get("sec-websocket-accept") == _ACCEPT:
        return passed(name, f"a firehose answers, after {answer.seconds * 1000:.0f} ms")
    return failed(name, f"no firehose: it answers {answer.status}", _mend_answer(answer, source))


async def check_directory(network: Network, url: str, clock: Callable[[], datetime]) -> tuple[Check, float | None]:
    """Whether the PLC directory answers, and how many seconds its clock is ahead of ours, if it says so."""
    name = f"directory {url}"
    endpoint = Endpoint.of(url)
    try:
        answer = await network.get(endpoint, "/_health")
    except NoAnswer as silence:
        return failed(name, silence.reason, _mend(silence, endpoint, "INDEXER_PLC_URL")), None
    ahead_s = _ahead(answer, clock())
    if answer.status == HTTPStatus.OK:
        return passed(name, f"answers, after {answer.seconds * 1000:.0f} ms"), ahead_s
    if _is_busy(answer):
        fix = "Wait: until it is well, nothing new is learnt of whose key is whose."
    else:
        fix = f"Name a directory of did:plc in INDEXER_PLC_URL: the public one is {PUBLIC_DIRECTORY}."
    return failed(name, f"not well, or no directory: it answers {answer.status}", fix), ahead_s


def sources(relays: Sequence[str], pdses: Sequence[str]) -> list[Followed]:
    """What is followed, by the setting that names it."""
    return [
        *(Followed(url, "INDEXER_RELAY_URLS") for url in relays),
        *(Followed(url, "INDEXER_PDS_URLS") for url in pdses),
    ]


def no_source() -> Check:
    """What to say if nothing is followed."""
    fix = f"Set INDEXER_RELAY_URLS: {PUBLIC_RELAY} is a public relay."
    return failed("source", "neither a relay nor a PDS is set: there is nothing to follow", fix)


async def _unknown(network: Network, host: str) -> str | None:
    try:
        await network.addresses(host)
    except NoAnswer:
        return host
    return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_busy(answer: Answer) -> bool:
    return answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status == HTTPStatus.TOO_MANY_REQUESTS


def _ahead(answer: Answer, now: datetime) -> float | None:
    """By the `Date` header, which knows whole seconds and was written at some moment of the request."""
    try:
        told = parsedate_to_datetime(answer.headers["date"])
        middle = now - timedelta(seconds=answer.seconds / 2)
        return (told + timedelta(seconds=0.5) - middle).total_seconds()
    except (KeyError, ValueError, TypeError):  # TypeError: a time without a zone
        return None


def _mend(silence: NoAnswer, endpoint: Endpoint, setting: str) -> str:
    host, port = endpoint.host, endpoint.port
    match silence.step:
        case Step.NAME:
            return f"Check how {setting} spells {host}, and that the name servers of this machine answer."
        case Step.CONNECTION:
            return f"Let this machine connect to port {port} of {host} (firewall), or wait until {host} is up again."
        case Step.TLS:
            return f"If {host} serves without TLS, name it with ws:// or http:// in {setting}."
        case Step.CERTIFICATE:
            return (
                "If other hosts fail alike, mend this machine: its clock, its certificate authorities (the package"
                f" ca-certificates), a proxy that opens TLS. Else whoever runs {host} has to mend its certificate."
            )
        case Step.HTTP:
            return f"See what listens on port {port} of {host}, and correct {setting}, or wait until it is well again."
        case _:
            assert_never(silence.step)


def _mend_answer(answer: Answer, source: Followed) -> str:
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return "Stop other readers at this address, or wait: it limits how many connections one may have."
    if _is_busy(answer):
        return "Wait: it is in trouble, and the indexer tries again by itself."
    location = urlsplit(answer.headers.get("location", ""))
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST and location.netloc:
        return f"Name in {source.setting} where it leads: {location.scheme}://{location.netloc}."
    return f"Correct {source.setting}: {PUBLIC_RELAY} is a public relay."
