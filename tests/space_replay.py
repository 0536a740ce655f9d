"""What the reference implementation of Spaces was asked and answered, asked again of the Space host of our tests.

The recordings are in `tests/recordings/spaces/host`. Clock, keys, tokens and proofs are those of the recording; revs
come out the same, since the clock stands where it stood for each write whose rev was told. Then everything has to be
the same but what is drawn at random, and what hangs on that: `likeness` takes it out of both sides.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import coincurve
import httpx
import libipld
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from memory.identifiers import tid_time
from tests.builders import SigningKey, Write
from tests.fakes.space_bytes import cid_of
from tests.fakes.space_host import SpaceHost, SpaceWorld, space_world
from tests.fakes.space_host_faults import CAR, Call
from tests.fakes.space_host_gate import Session
from tests.fakes.space_host_tokens import read_token
from tests.fakes.space_host_world import Account
from tests.fakes.space_subscriber import Subscriber, subscriber, token_of

FOLDER: Final = Path(__file__).parent / "recordings" / "spaces" / "host"
CORE: Final = FOLDER.parent / "core"
CLOCK_ID: Final = 11  # of the recording's revs
SYNCERS: Final = (26590, 26591, 26592)  # the ports of those who listened to notifications

# The rev of each write, by the number of its exchange, where anything after it tells one; of the first, its rkey.
WRITTEN_AT: Final[Mapping[str, Mapping[int, str]]] = {
    "main": {
        27: "3n3iexo3bh22f", 32: "3n3iexoa5p32f", 33: "3n3iexocumd2f", 34: "3n3iexoeoa32f", 36: "3n3iexogew42f",
        39: "3n3iexoila42f", 43: "3n3iexoj3te2f", 44: "3n3iexokxfm2f", 65: "3n3iexou3fe2f", 118: "3n3iexpx5hm2f",
        119: "3n3iexpyw442f", 120: "3n3iexq2ppu2f", 197: "3n3iexrelku2f", 211: "3n3iexs7fxm2f", 214: "3n3iexsbp7e2f",
        217: "3n3iextdo4o2f", 232: "3n3iexuiewg2f", 234: "3n3iexvcrno2f", 236: "3n3iexwd3tg2f", 241: "3n3iexzj4i62f",
    },
    "more": {
        7: "3n3iey4sjjo2f", 9: "3n3iey7bexo2f", 11: "3n3ieybq5hw2f", 13: "3n3ieye6o662f", 16: "3n3ieygojtg2f",
        19: "3n3ieykk3wo2f", 44: "3n3ieyl3jkg2f", 50: "3n3ieyl6ibo2f", 54: "3n3ieyldpbg2f", 60: "3n3ieynhgb62f",
        62: "3n3ieyniy2w2f", 64: "3n3ieyqfg362f",
    },
    "oauth": {31: "3n3iezp7rnx2f"},
}  # fmt: skip
COMPACTED_BEFORE: Final = {("main", 258): "bob"}

CLIENT: Final = "http://127.0.0.1:26593/client-metadata.json"
CLIENT_RESOLVES_FROM: Final = ("more", 29)  # until then the reference refused to ask a host on loopback
# Of the app that attested itself: as its signatures in the recording have it.
CLIENT_KEY: Final = {
    "kty": "EC",
    "crv": "P-256",
    "x": "cn9UDdfolGF0OzhBmG5z9he2pFNnV3zZWtuYUzGKLpc",
    "y": "mepWKDonPSvKxYF14bp4P91tOewlyV0IAkjBVrHHi5g",
}

_HEADERS: Final = (
    "content-type", "cache-control", "www-authenticate", "access-control-expose-headers", "x-content-type-options",
    "content-disposition", "content-security-policy",
)  # fmt: skip
_DRAWN: Final = ("ikm", "mac", "sig")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One of the recording."""

    recording: str
    n: int
    step: str
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def request(self) -> Mapping[str, Any]:
        return self.raw.get("request") or {}

    @property
    def nsid(self) -> str:
        path = urlsplit(self.request.get("url") or self.request.get("path") or "").path
        return path.removeprefix("/xrpc/")

    @property
    def body(self) -> dict[str, Any]:
        said = (self.request.get("body") or {}).get("json")
        return said if isinstance(said, dict) else {}

    @property
    def answer(self) -> Mapping[str, Any]:
        return self.raw["response"]

    @property
    def said(self) -> Any:
        """The JSON that was answered."""
        return (self.answer.get("body") or {}).get("json")

    @property
    def why_not_compared(self) -> str | None:
        """Why its answer is not asked for again: what it did is done all the same."""
        if self.raw.get("inbound"):
            return "what was told to others: compared as notifications"
        if "didDoc" in self.raw:
            return "a DID document"
        if self.nsid.startswith("com.atproto.simplespace."):
            return "management of Spaces: no part of what is synced"
        if not self.nsid.startswith("com.atproto.space."):
            return "what every PDS does"
        if self.body.get("validate") and self.body.get("collection") == "app.bsky.graph.listitem":
            return "records against a lexicon of another app"
        scheme, _, token = self.request["headers"].get("authorization", "").partition(" ")
        if scheme == "DPoP" and read_token(token).typ == "at+jwt":
            return "OAuth sessions at a PDS"
        return None


def exchanges(recording: str) -> list[Exchange]:
    """All of a recording, in order."""
    lines = (FOLDER / f"{recording}.jsonl").read_text().splitlines()
    return [Exchange(recording, said["n"], said["step"], said) for said in map(json.loads, lines)]


class RecordedKey(SigningKey):
    """A secp256k1 key that was recorded."""

    def __init__(self, secret: str, did_key: str) -> None:
        self._k256 = coincurve.PrivateKey(bytes.fromhex(secret))
        self.did_key = did_key


@dataclass
class Replay:
    """The two hosts of a recording, and those who listened to notifications, as one goes through it."""

    recording: str
    world: SpaceWorld
    hosts: Mapping[int, SpaceHost]  # by their recorded ports
    syncers: Mapping[int, Subscriber]
    client: httpx.AsyncClient
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])  # accounts, by DID
    now: list[datetime] = field(default_factory=list[datetime])

    async def repeat(self, exchange: Exchange) -> httpx.Response | None:
        """Asks it again, or does what it did; null: nothing was asked."""
        self._set_clock(exchange)
        name = COMPACTED_BEFORE.get((exchange.recording, exchange.n))
        if name is not None:
            account = next(each for each in self.world.accounts.values() if each.handle.startswith(name))
            account.compact(_space_asked_for(exchange))
        if (exchange.recording, exchange.n) == CLIENT_RESOLVES_FROM:
            self.world.clients[CLIENT] = {"key-1": CLIENT_KEY}
        if exchange.why_not_compared is not None:
            self._do(exchange)
            answer = None
        else:
            answer = await self._ask(exchange)
        for host in self.hosts.values():
            await host.told()
        return answer

    def _set_clock(self, exchange: Exchange) -> None:
        rev = WRITTEN_AT[exchange.recording].get(exchange.n)
        if rev is not None:
            self.now[:] = [tid_time(rev)]
        elif exchange.raw.get("response") is not None:
            self.now[:] = [parsedate_to_datetime(exchange.answer["headers"]["date"])]

    async def _ask(self, exchange: Exchange) -> httpx.Response:
        request = exchange.request
        url = urlsplit(request["url"])
        host = self.hosts[url.port or 0]
        target = f"http://127.0.0.1:{host.port}{url.path}" + (f"?{url.query}" if url.query else "")
        sent = {name: request["headers"][name] for name in ("authorization", "dpop") if name in request["headers"]}
        body = request.get("body") or {}
        return await self.client.request(
            request["method"], target, headers=sent, content=base64.b64decode(body.get("b64") or "")
        )

    def _do(self, exchange: Exchange) -> None:
        """What it did, without asking."""
        if exchange.raw.get("inbound") or "didDoc" in exchange.raw or exchange.answer["status"] != 200:
            return
        body, host = exchange.body, self.hosts.get(urlsplit(exchange.request["url"]).port or 0)
        assert host is not None
        match exchange.nsid.removeprefix("com.atproto."):
            case "server.createAccount" | "server.createSession":
                self._sign_in(host, exchange.said)
            case "repo.uploadBlob":
                blob = exchange.said["blob"]
                data = base64.b64decode(exchange.request["body"]["b64"])
                host.repos.blobs[blob["ref"]["$link"]] = data, blob["mimeType"]
            case "simplespace.createSpace":
                self._create_space(host, body, exchange.said["uri"])
            case "simplespace.addMember":
                host.governed.spaces[body["space"]].members.add(body["did"])
            case "simplespace.removeMember":
                host.governed.spaces[body["space"]].members.discard(body["did"])
            case "simplespace.deleteSpace":
                if body["space"] in host.governed.spaces:
                    host.governed.spaces[body["space"]].delete()
            case "server.deactivateAccount":
                self._signed_in(exchange).status = "deactivated"
            case "admin.updateSubjectStatus":
                self.world.accounts[body["subject"]["did"]].status = "takendown"
            case "space.createRecord" | "space.putRecord":
                rkey = exchange.said["uri"].rpartition("/")[2]
                write = Write("create", rkey, body["record"], body["collection"])
                self.world.accounts[body["repo"]].apply(body["space"], [write], at=self.now[0])
            case _:
                pass  # asked for something

    def _sign_in(self, host: SpaceHost, said: Mapping[str, Any]) -> None:
        did = said["did"]
        if did not in self.world.accounts:
            known = self.known.get(did)
            key = SigningKey(did) if known is None else RecordedKey(known["signingKeyHex"], known["didKey"])
            keys = published_keys(said["didDoc"])
            host.adopt(Account(self.world, did, said["handle"], host.url, key, keys))
        scope = read_token(said["accessJwt"]).says("scope")
        host.gate.sessions[said["accessJwt"]] = Session(did, app_password=scope != "com.atproto.access")

    def _signed_in(self, exchange: Exchange) -> Account:
        token = exchange.request["headers"]["authorization"].partition(" ")[2]
        return self.world.accounts[read_token(token).says("sub")]

    def _create_space(self, host: SpaceHost, body: Mapping[str, Any], uri: str) -> None:
        authority = self.world.accounts[uri.split("/")[2]]
        by_list = body["policy"]["$type"].endswith("#memberListPolicy")
        host.create_space(
            authority,
            uri.rpartition("/")[2],
            space_type=body["type"],
            admits=None if by_list else lambda _did: True,
            apps=body["appAccess"].get("allowed"),
        )


@asynccontextmanager
async def replay(recording: str) -> AsyncGenerator[Replay]:
    """A recording from its beginning."""
    now: list[datetime] = []
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(space_world(lambda: now[0], clock_id=CLOCK_ID))
        hosts = {port: await world.host(f"http://localhost:{port}") for port in (26583, 26584)}
        syncers = {port: await stack.enter_async_context(subscriber()) for port in SYNCERS}
        for port, syncer in syncers.items():
            world.services[f"did:web:localhost%3A{port}#atproto_space_syncer"] = syncer.url
        for exchange in exchanges(recording):
            if "didDoc" in exchange.raw:
                world.documents[exchange.raw["didDoc"]["id"]] = published_keys(exchange.raw["didDoc"])
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        accounts = json.loads((CORE / "accounts.json").read_text()).values()
        yield Replay(recording, world, hosts, syncers, client, {each["did"]: each for each in accounts}, now)


def published_keys(document: Mapping[str, Any]) -> dict[str, str]:
    """By fragment, as did:keys; the recorded documents hold points without a word on their curve."""
    keys: dict[str, str] = {}
    for method in document["verificationMethod"]:
        point = libipld.decode_multibase(method["publicKeyMultibase"])[1]
        if method["type"] == "EcdsaSecp256k1VerificationKey2019":
            encoded = b"\xe7\x01" + coincurve.PublicKey(point).format()
        else:
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
            encoded = b"\x80\x24" + key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        fragment = "#" + method["id"].partition("#")[2]
        keys[fragment] = "did:key:" + libipld.encode_multibase("z", encoded)
    return keys


# Likeness


def recorded_likeness(exchange: Exchange) -> dict[str, Any]:
    """Of what was answered."""
    answer = exchange.answer
    return _likeness(answer["status"], answer["headers"], base64.b64decode((answer.get("body") or {}).get("b64") or ""))


def likeness(response: httpx.Response) -> dict[str, Any]:
    """Of what is answered now."""
    return _likeness(response.status_code, response.headers, response.content)


def _likeness(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = {name: headers[name] for name in _HEADERS if name in headers}
    shown["a nonce"] = "dpop-nonce" in headers
    kind = headers.get("content-type", "")
    if kind == CAR:
        said = _car_likeness(body)
    elif kind.startswith("application/json"):
        said = _without_chance(json.loads(body))
    else:
        said = body
    return {"status": status, "headers": shown, "body": said}


def _without_chance(said: Any) -> Any:
    match said:
        case dict():
            return {name: _value_without_chance(name, value) for name, value in said.items()}
        case list():
            return [_without_chance(each) for each in said]
        case _:
            return said


def _value_without_chance(name: str, value: Any) -> Any:
    if name in _DRAWN:
        return len(value["$bytes"])
    if name in ("token", "credential"):
        return token_likeness(value)
    if name == "expiresAt":
        return value[: len("2026-11-30T23:34")]
    return _without_chance(value)


def token_likeness(text: str) -> dict[str, Any]:
    """A JWT without its signature and its `jti`; how long it lasts, not from when."""
    token = read_token(text)
    claims = {name: value for name, value in token.claims.items() if name not in ("iat", "exp", "jti")}
    lasts = token.seconds("exp") - token.seconds("iat")
    return {"header": token.header, "claims": claims, "lasts": lasts, "jti": len(token.says("jti"))}


def _car_likeness(data: bytes) -> dict[str, Any]:
    header, *blocks = car_sections(data)
    (commit_cid, commit), *others = ((section[:36], section[36:]) for section in blocks)
    roots = libipld.decode_dag_cbor(header)
    said = libipld.decode_dag_cbor(commit)
    shown = {name: len(value) if name in _DRAWN else value for name, value in said.items()}
    assert roots["roots"][0] == commit_cid == cid_of(commit)
    return {"version": roots["version"], "roots": roots["roots"][1:], "commit": shown, "others": others}


def car_sections(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        length, shift = 0, 0
        while True:
            length |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                break
        yield data[at : at + length]
        at += length


def _space_asked_for(exchange: Exchange) -> str:
    return httpx.URL(exchange.request["url"]).params["space"]


# Notifications


def recorded_notifications(recording: str, port: int) -> list[dict[str, Any]]:
    """What one of those who listened was told, in order."""
    return [
        _notification(exchange.nsid, exchange.request["headers"], exchange.body)
        for exchange in exchanges(recording)
        if exchange.raw.get("inbound")
        and exchange.nsid.startswith("com.atproto.space.")
        and token_of(exchange.request["headers"]).says("aud").startswith(f"did:web:localhost%3A{port}#")
    ]


def notifications(heard: Iterable[Call]) -> list[dict[str, Any]]:
    return [_notification(call.nsid, call.headers, json.loads(call.body)) for call in heard]


def _notification(nsid: str, headers: Mapping[str, str], body: Any) -> dict[str, Any]:
    token = headers["authorization"].partition(" ")[2]
    return {"nsid": nsid, "kind": headers["content-type"], "token": token_likeness(token), "body": body}
