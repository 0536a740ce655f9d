"""`python -m benchmarks.space_hosts SPACES WRITES HOSTS`: hosts of Spaces and of their authors on loopback ports, and
a PLC directory that knows all of them.

Every answer is made beforehand, with real hashes and signatures, so that serving costs little. Once all are made,
stdout says where the hosts and the directory listen. A line `{"number": 7, "api": "http://…", "audience": "did:web:…"}`
on stdin has the seventh write happen: from then on its author's host and its Space's give other answers, and the
Space's host tells the API, as one that it registered with. stdout says when the notification was handed to the socket,
and what can be found by it. `{"count": true}` has it say what was asked so far. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from benchmarks.doubles import directory_of, tell
from benchmarks.population import sentence, unique_word
from benchmarks.space_people import MEMORIES_EACH, Community, communities, writers
from indexer.verify.car import Link, encode_block
from indexer.verify.set_hash import SetHash, element
from memory.es256 import base64url, compact
from memory.identifiers import COLLECTION, cid_text
from memory.space_protocol import SpaceMethod
from tests.builders import RepoBuilder, memory, tid
from tests.fakes.space_bytes import cid_of, signed_commit, to_json, write_car

# Revs order an author's writes, and none may lie ahead of the clock.
_FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WRITTEN: Final = datetime(2026, 6, 1, tzinfo=UTC)
_REGISTERED_FOR: Final = timedelta(hours=24)
_TOKEN_S: Final = 60
_BACKLOG: Final = 1024
_CAR: Final = "application/vnd.ipld.car"

Follow = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Answers one connection's requests."""


class Repo:
    """One author's repo in one Space."""

    def __init__(self, author: RepoBuilder, space: str, draw: random.Random) -> None:
        self.author, self.space = author, space
        self.rev = ""
        self.hash = SetHash()
        self._draw = draw
        self._records: dict[str, tuple[bytes, bytes]] = {}  # path → CID and block

    def add(self, rkey: str, record: Mapping[str, Any], rev: str) -> dict[str, Any]:
        """Writes a memory; the op in the JSON of `listRepoOps`."""
        block = encode_block(dict(record))
        cid, path = cid_of(block), f"{COLLECTION}/{rkey}"
        self._records[path] = cid, block
        self.hash.add([element(path, cid_text(cid))])
        self.rev = rev
        return {"rev": rev, "collection": COLLECTION, "rkey": rkey, "cid": cid_text(cid), "prev": None, "value": record}

    def records(self) -> Iterator[tuple[str, str, bytes]]:
        """Rkey, CID and block of each, in order."""
        for path, (cid, block) in sorted(self._records.items()):
            yield path.removeprefix(f"{COLLECTION}/"), cid_text(cid), block

    def commit(self) -> dict[str, Any]:
        """A signed one of how it stands."""
        return signed_commit(
            self.author.key,
            self.space,
            self.author.did,
            self.rev,
            digest=self.hash.digest(),
            ikm=self._draw.randbytes(32),
        )

    def car(self) -> bytes:
        """The whole repo."""
        head = encode_block(self.commit())
        index = encode_block({path: Link(cid) for path, (cid, _) in self._records.items()})
        blocks = [
            (cid_of(head), head),
            (cid_of(index), index),
            *(self._records[path] for path in sorted(self._records)),
        ]
        return write_car((cid_of(head), cid_of(index)), blocks)

    def listed(self) -> dict[str, Any]:
        """It as its Space's host lists it."""
        return {"did": self.author.did, "rev": self.rev, "hash": _json_bytes(self.hash.digest())}


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """What changes by one write, and what is told of it."""

    community: Community
    author: RepoBuilder
    notice: bytes
    word: str
    answers: Mapping[tuple[str, ...], bytes]  # what the hosts answer from then on


@dataclass(slots=True)
class World:
    """All answers, by method and what is asked about."""

    answers: dict[tuple[str, ...], bytes] = field(default_factory=dict[tuple[str, ...], bytes])
    asked: Counter[str] = field(default_factory=Counter[str])

    async def follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one connection's requests."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head, reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        target = urlsplit(head.split(b" ", 2)[1].decode())
        method = target.path.removeprefix("/xrpc/")
        self.asked[method] += 1
        lower = head.lower()
        if b"\r\nauthorization: dpop " not in lower or b"\r\ndpop: " not in lower:
            return _response(b'{"error":"AuthMissing"}', status=401)
        if method == SpaceMethod.REGISTER_NOTIFY:
            await reader.readexactly(int(lower.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]))
            until = datetime.now(UTC) + _REGISTERED_FOR
            return _response(compact({"expiresAt": until.isoformat().replace("+00:00", "Z")}))
        given = {name: values[0] for name, values in parse_qs(target.query).items()}
        key = (method, *(given[name] for name in ("space", "repo", "since") if name in given))
        answer = self.answers.get(key)
        return answer or _response(b'{"error":"RepoNotFound"}', status=400)


def grown(author: RepoBuilder, space: str, draw: random.Random) -> Repo:
    """A repo as it is at first."""
    repo = Repo(author, space, draw)
    for place in range(MEMORIES_EACH):
        time = _FIRST + timedelta(minutes=place)
        repo.add(tid(time, draw.randrange(1024)), memory(sentence(draw)), tid(time))
    return repo


def make(world: World, made: Sequence[Community], writes: int) -> list[PreparedWrite]:
    """Has the hosts answer with all repos as they are at first; each of the writes to come."""
    draw = random.Random(3)
    told = {writer.author.did: number for number, writer in enumerate(writers(made, writes))}
    later: list[tuple[int, Community, Repo, list[dict[str, Any]]]] = []
    for community in made:
        space, listing = str(community.space), list[dict[str, Any]]()
        for author in community.authors:
            repo = grown(author, space, draw)
            world.answers[SpaceMethod.GET_REPO, space, author.did] = _response(repo.car(), _CAR)
            listing.append(repo.listed())
            if (number := told.get(author.did)) is not None:
                later.append((number, community, repo, listing))
        world.answers[SpaceMethod.LIST_REPOS, space] = _listing(listing)
    prepared = {number: _prepare(number, community, repo, listing) for number, community, repo, listing in later}
    return [prepared[number] for number in range(writes)]


def _prepare(number: int, community: Community, repo: Repo, listing: list[dict[str, Any]]) -> PreparedWrite:
    since, word, time = repo.rev, unique_word(number), _WRITTEN + timedelta(seconds=number)
    op = repo.add(tid(time), memory(f"It was noted as {word}."), tid(time))
    listed = repo.listed()
    # In the order in which they happen: what was written before in this Space is in the listing, too.
    listing[[each["did"] for each in listing].index(repo.author.did)] = listed
    commit = to_json(repo.commit())
    answers = {
        (SpaceMethod.LIST_REPOS, repo.space): _listing(listing),
        (SpaceMethod.GET_REPO, repo.space, repo.author.did): _response(repo.car(), _CAR),
        (SpaceMethod.LIST_REPO_OPS, repo.space, repo.author.did, since): _json({"ops": [op], "commit": commit}),
        (SpaceMethod.LIST_REPO_OPS, repo.space, repo.author.did, repo.rev): _json({"ops": [], "commit": commit}),
    }
    notice = {"space": repo.space, "repo": listed["did"], "rev": listed["rev"], "hash": listed["hash"]}
    return PreparedWrite(community, repo.author, compact(notice), word, answers)


def _listing(repos: list[dict[str, Any]]) -> bytes:
    return _json({"repos": repos})


def _json_bytes(value: bytes) -> dict[str, str]:
    return {"$bytes": b64encode(value).decode().rstrip("=")}


def _json(value: Mapping[str, Any]) -> bytes:
    return _response(compact(value))


def _response(body: bytes, kind: str = "application/json", *, status: int = 200) -> bytes:
    head = f"HTTP/1.1 {status} Said So\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def notify(write: PreparedWrite, api: str, audience: str) -> float:
    """Tells the API, with service auth that the authority signs for it; when it was handed to the socket."""
    place, now = urlsplit(api), int(datetime.now(UTC).timestamp())
    claims = {
        "iss": write.community.authority.did,
        "aud": audience,
        "lxm": SpaceMethod.NOTIFY_WRITE,
        "iat": now,
        "exp": now + _TOKEN_S,
        "jti": write.word,
    }
    token = signed_jwt(write.community.authority, {"typ": "JWT", "alg": "ES256K"}, claims)
    lines = (
        f"POST /xrpc/{SpaceMethod.NOTIFY_WRITE} HTTP/1.1",
        f"Host: {place.netloc}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(write.notice)}",
        "Connection: close",
    )
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        at = perf_counter()
        writer.write("\r\n".join((*lines, "", "")).encode() + write.notice)
        answer = await reader.read()
    finally:
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
    return at


def signed_jwt(account: RepoBuilder, header: Mapping[str, object], claims: Mapping[str, object]) -> str:
    """A JWT by an account's key."""
    signed = f"{base64url(compact(header))}.{base64url(compact(claims))}"
    return f"{signed}.{base64url(account.key.sign(signed.encode()))}"


async def main(spaces: int, writes: int, hosts: int) -> None:
    """Makes all, then serves until stdin ends."""
    async with AsyncExitStack() as stack:

        async def listen(follow: Follow) -> int:
            server = await asyncio.start_server(follow, "127.0.0.1", 0, backlog=_BACKLOG)
            await stack.enter_async_context(server)
            port: int = server.sockets[0].getsockname()[1]
            return port

        world = World()
        ports = [await listen(world.follow) for _ in range(hosts)]
        made = communities(spaces, [f"http://127.0.0.1:{port}" for port in ports])
        prepared = make(world, made, writes)
        directory = directory_of(account for each in made for account in (each.authority, *each.authors))
        tell({"ports": ports, "directory": await listen(directory.follow)})
        await _obey(world, prepared)


async def _obey(world: World, prepared: Sequence[PreparedWrite]) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        asked: dict[str, Any] = json.loads(line)
        if "count" in asked:
            tell({"asked": dict(world.asked)})
            continue
        write = prepared[int(asked["number"])]
        world.answers.update(write.answers)
        at = await notify(write, asked["api"], asked["audience"])
        tell({"at": at, "space": str(write.community.space), "author": write.author.did, "word": write.word})


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
