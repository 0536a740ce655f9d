"""A Space host on loopback, as the reference implementation of proposal 0016 is one, which misbehaves as told.

    async with space_world(clock=clock, directory=fake) as world:     # `fake`: tests/fakes/directory.py; gets documents
        home, away = await world.host(), await world.host()
        alice, bob = home.add("alice"), away.add("bob")               # the DIDs and keys of RepoBuilder("alice"), …
        space = home.create_space(alice, "main").admit(bob)           # str(space) is its at-uri
        bob.create(space, "3kaaaaaaaaa2a", memory("Likes green tea."))  # a commit; alice's host lists it, and tells
        bob.update(space, …), bob.delete(space, …), bob.apply(space, [Write(…), …])

        bob.delegation(space)                                         # what bob brings to `openSpace`; aud=…, typ=…
        bob.compact(space)                                            # the oplog forgets
        bob.apply(space, writes, at=far_ahead)                        # a rev of any instant
        bob.apply(space, writes, announced=False); bob.announce(space)
        bob.status = "deactivated"                                    # or takendown, suspended
        bob.rotate_key("other", published=False)
        space.remove(bob), space.delete(), home.create_space(alice, "main")
        home.create_space(alice, "a", apps=[client_id]); world.clients[client_id] = {kid: jwk}
        home.create_space(alice, "b", admits=lambda did: True)        # anybody

        away.misbehave(Fault.TORN, "getRepo", bob.did, times=2)       # `Fault`: tests/fakes/space_host_faults.py
        home.tamper_credentials(iss=bob.did)                          # or sub, exp, cnf, typ, kid, signer=bob
        space.say(bob, rev, digest)                                   # a false `notifyWrite`
        world.services["did:web:x#atproto_space_syncer"] = url        # who may subscribe, and where they are
        home.bell.ringing.clear()                                     # notifications wait
        await home.told()                                             # all of them went out: `home.bell.deliveries`

One host is both: the Space host of the authorities whose Spaces were created on it, and the PDS of its accounts. What
it is asked is in `asked`. Notifications go out by HTTP; from host to host the word goes round within the process.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tests.builders import RepoBuilder
from tests.fakes.directory import Directory
from tests.fakes.space_host_authority import Authority
from tests.fakes.space_host_faults import PRIVATE, Answer, Call, Fault, Faults, in_json, read_call
from tests.fakes.space_host_gate import Gate
from tests.fakes.space_host_params import judge_parameters
from tests.fakes.space_host_reads import Repos
from tests.fakes.space_host_spaces import Admits, Bell, Governed, Space
from tests.fakes.space_host_tokens import Refused
from tests.fakes.space_host_world import Account, Curve, World, new_account
from tests.fakes.space_host_writes import Own

SPACE_TYPE: Final = "dev.bastienrobert.memory.space"

_READS: Final = ("getLatestCommit", "getRepo", "listRepoOps", "listRecords", "getRecord", "listBlobs", "getBlob")
_WRITES: Final = ("createRecord", "putRecord", "deleteRecord", "applyWrites")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and when it came."""

    method: str  # the last part of the NSID
    space: str | None
    repo: str | None
    parameters: dict[str, str] = field(repr=False)
    at: datetime


@dataclass
class SpaceHost:
    """What it holds, what it was asked, and how it answers."""

    world: World = field(repr=False)
    port: int = 0
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    asked: list[Asked] = field(default_factory=list[Asked])
    at_once: Counter[str] = field(default_factory=Counter[str])  # by method; of all: ""
    most_at_once: Counter[str] = field(default_factory=Counter[str])
    faults: Faults = field(default_factory=Faults)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.gate = Gate(self.world)
        self.bell = Bell(self.world)
        self.governed = Governed(self.world, self.bell)
        self.authority = Authority(self.gate, self.governed)
        self.repos = Repos(self.gate, self.accounts)
        self.own = Own(self.gate, self.accounts)

    @property
    def url(self) -> str:
        """As the world knows it, and as proofs must name it."""
        return self.gate.url

    # What a test says

    def add(self, seed: str | RepoBuilder, *, curve: Curve = "k256", handle: str = "") -> Account:
        """An account here, the same for the same seed; or the Space side of a builder's."""
        if isinstance(seed, RepoBuilder):
            account = Account(self.world, seed.did, seed.handle, self.url, seed.key)
        else:
            account = new_account(self.world, seed, self.url, handle=handle, curve=curve)
        return self.adopt(account)

    def adopt(self, account: Account) -> Account:
        """An account that was made elsewhere."""
        self.accounts[account.did] = account
        return account

    def create_space(
        self,
        authority: Account,
        skey: str,
        *members: Account,
        space_type: str = SPACE_TYPE,
        admits: Admits | None = None,
        apps: Iterable[str] | None = None,
    ) -> Space:
        return self.governed.create(authority, skey, space_type, members=members, admits=admits, apps=apps)

    def misbehave(
        self, fault: Fault | None, method: str | None = None, did: str | None = None, *, times: int | None = None
    ) -> None:
        """From now on, or for that many requests; null: it behaves again. `did` is that of a repo."""
        self.faults.order(fault, method, did, times)

    def tamper_credentials(self, *, signer: Account | None = None, **changes: Any) -> None:
        """From now on all credentials are like that; without changes: as they should be. Null: without it."""
        header = {name: changes.pop(name) for name in ("typ", "alg", "kid") if name in changes}
        self.governed.credential_header, self.governed.credential_claims = header, changes
        self.governed.credential_signer = signer

    def asked_for(self, method: str, repo: str | None = None) -> int:
        """How often a method was asked for, of one repo or in all."""
        return sum(asked.method == method and repo in (None, asked.repo) for asked in self.asked)

    async def until_asked(self, method: str, times: int = 1) -> None:
        """Waits for that many requests of a method in all."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.asked_for(method) >= times)

    async def told(self) -> None:
        """Waits until every notification so far was delivered, or failed to be."""
        async with asyncio.timeout(60):
            await self.bell.queue.join()

    # How it answers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_next(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer_next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        call = await read_call(reader)
        parameters = dict(call.parameters)
        self.asked.append(Asked(call.method, parameters.get("space"), call.repo, parameters, self.world.clock()))
        for name in (call.method, ""):
            self.at_once[name] += 1
            self.most_at_once[name] = max(self.most_at_once[name], self.at_once[name])
        try:
            await self._tell()
            fault = self.faults.next(call)
            if fault is Fault.HUNG:
                await reader.read(1)  # until the client hangs up
                return False
            if fault is Fault.SLOW:
                await self.faults.wait(reader)
            return await self.faults.send(reader, writer, self.answer(call, fault), fault)
        finally:
            for name in (call.method, ""):
                self.at_once[name] -= 1

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def answer(self, call: Call, fault: Fault | None = None) -> Answer:
        """What it says to a request."""
        instead = self.faults.instead(fault)
        if instead is not None:
            return instead
        call = Call(call.method, call.verb, call.nsid, call.parameters, call.headers, call.body, fault)
        headers: tuple[str, ...] = ()
        try:
            judge_parameters(call)
            headers = PRIVATE
            return self._answer(call)
        except Refused as refused:
            said = {"error": refused.error, "message": refused.message}
            return in_json(said, refused.status, *headers, *refused.headers)

    def _answer(self, call: Call) -> Answer:
        if not call.nsid.startswith("com.atproto.space."):
            raise Refused(501, "MethodNotImplemented", "Method Not Implemented")
        if call.method in _READS:
            return self.repos.answer(call)
        if call.method in _WRITES:
            return self.own.write(call)
        match call.method:
            case "getDelegationToken":
                return self.own.delegation(call)
            case "listSpaces":
                return self.own.spaces(call)
            case "getSpaceCredential":
                return self.authority.credential(call)
            case "listRepos":
                return self.authority.listing(call)
            case "registerNotify" | "unregisterNotify":
                return self.authority.subscription(call)
            case "notifyWrite":
                return self.authority.heard(call)
            case _:
                raise Refused(501, "MethodNotImplemented", "Method Not Implemented")


@dataclass
class SpaceWorld(World):
    """Hosts that know of each other, and all who have accounts there; they listen until the end of the block."""

    hosts: list[SpaceHost] = field(default_factory=list[SpaceHost])
    servers: list[asyncio.Server] = field(default_factory=list[asyncio.Server])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def host(self, url: str = "", *, tls: ssl.SSLContext | None = None) -> SpaceHost:
        """One more. `url` is what the world calls it, which needs not be where it listens."""
        host = SpaceHost(self)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._keep(task)
            await host.serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        host.port = server.sockets[0].getsockname()[1]
        host.gate.url = url or f"http{'s' if tls else ''}://127.0.0.1:{host.port}"
        self._keep(asyncio.create_task(host.bell.ring()))
        self.servers.append(server)
        self.hosts.append(host)
        return host

    def _keep(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        for server in self.servers:
            server.close()
        under_way = list(self.tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for server in self.servers:
            await server.wait_closed()


@asynccontextmanager
async def space_world(
    clock: Callable[[], datetime] | None = None, *, directory: Directory | None = None, seed: int = 0, clock_id: int = 0
) -> AsyncGenerator[SpaceWorld]:
    """A world without hosts yet. `seed` draws all that is random in it."""
    world = SpaceWorld(draw=random.Random(seed), directory=directory, clock_id=clock_id)
    if clock is not None:
        world.clock = clock
    try:
        yield world
    finally:
        await world.close()
