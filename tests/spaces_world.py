"""A worker that keeps Spaces in step, beside Space hosts, a directory, and an API that opens Spaces for viewers.

async with spaces_world(database) as world:
    home, away = await world.host(), await world.host()
    alice, bob = home.add("alice"), away.add("bob")
    space = home.create_space(alice, "main", bob)
    bob.create(space, rkey(1), memory("Likes green tea."))
    await world.open(space, bob)                   # as the API does: a grant, a credential, a note
    world.start()                                  # the worker; `await world.stop()` kills it
    await world.until_contents(space, bob, ["Likes green tea."])
    world.clock.advance(minutes=5)                 # the time of day, and that of pauses of hosts
    await world.note_write(space, bob)             # a notification, as the API hands it over
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from indexer.arrivals import Arrival, Batch
from indexer.quota import QuotaLimits
from indexer.resync.apply import SLICE_OPS
from indexer.resync.hosts import HostBudget
from indexer.spaces.hosts import Proofs, open_space_hosts
from indexer.spaces.sync import SpacePolicy
from indexer.spaces.worker import SpaceWorker
from indexer.writer import Writer
from memory.database import Database
from memory.dpop import ProofKey
from memory.handles import AskedHandles
from memory.outbound import StreamLimits
from memory.queries import Row
from memory.resolver import IdentityResolver
from memory.sealed import SealingKeys
from memory.space_authorities import SpaceAuthorities
from memory.space_credential import SpaceCredential
from memory.tasks import TaskGroup
from tests.builders import memory
from tests.deadline import until
from tests.fakes.directory import Directory, directory
from tests.fakes.internet import LOOPBACK, Names, plain_outbound
from tests.fakes.space_host import SpaceHost, SpaceWorld, space_world
from tests.fakes.space_host_spaces import CREDENTIAL_S, Space
from tests.fakes.space_host_world import Account
from tests.feed import LIMITS, rkey
from tests.mending import Clock

BUDGET = HostBudget(
    requests_per_s=10_000.0,
    burst=1000,
    questions_at_once=16,
    repos_at_once=16,
    repos_per_site=16,
    page_s=20.0,
    repo=StreamLimits(max_bytes=64 * 1024 * 1024, grace_s=20.0, total_s=20.0),
)
POLL_S = 0.02
KEY = bytes(range(32))
CONTENT_TABLES = (
    "memories",
    "memory_edges",
    "memory_versions",
    "invalid_records",
    "embeddings",
    "embedding_requests",
    "requests",
    "repos",
)
SPACE_TABLES = ("grants", "credentials", "spaces", "space_repos", "space_inbox")
# Of these Spaces, or of all: what is to be done at that time, or is being done.
TO_DO = """
select (select count(*) from space_inbox where $1::text[] is null or space = any($1))
    + (
        select count(*) from spaces
        where ($1::text[] is null or space = any($1)) and (due_at <= $2 or claimed_until > $2)
    )
    + (
        select count(*) from space_repos
        where ($1::text[] is null or space = any($1)) and (pull_token is not null or pull_after <= $2)
    )
"""


def sealing_keys() -> SealingKeys:
    """The keys of the index and of the API."""
    return SealingKeys({"first": KEY}, random_bytes=random.Random(7).randbytes)


@dataclass
class SpacesWorld:
    """What a test moves."""

    database: Database
    directory: Directory
    clock: Clock
    hosts: SpaceWorld
    writer: Writer
    worker: SpaceWorker
    new_worker: Callable[[], SpaceWorker]  # another process'
    keys: SealingKeys
    draw: random.Random = field(default_factory=lambda: random.Random(11))
    running: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    tokens: int = 0

    async def host(self) -> SpaceHost:
        return await self.hosts.host()

    # What the API does

    async def open(self, space: Space, viewer: Account, *, hours: float = CREDENTIAL_S / 3600) -> str:
        """Opens a Space for a viewer, by a new access token, whose id is told."""
        key = ProofKey.generate(self.draw.randbytes)
        credential = SpaceCredential(space.host.sign_credential(space, key.jkt), key)
        self.tokens += 1
        return await self.grant(str(space), viewer, credential, hours=hours)

    async def grant(self, space: str, viewer: Account, credential: SpaceCredential, *, hours: float) -> str:
        token = f"token-{self.tokens}"
        sealed = credential.seal(self.keys, space=space, viewer=viewer.did)
        now = self.clock()
        async with self.database.transaction() as conn:
            await conn.execute(
                "insert into grants (repo, token, space, granted_at, expires_at)"
                " values ($1, $2, $3, $4, $4::timestamptz + make_interval(secs => $5))",
                *(viewer.did, token, space, now, hours * 3600),
            )
            await conn.execute(
                "insert into credentials (repo, token, space, sealed, key_id, expires_at)"
                " values ($1, $2, $3, $4, $5, $6::timestamptz + make_interval(secs => $7))",
                *(viewer.did, token, space, sealed, self.keys.current, now, hours * 3600),
            )
        await self.note(space, "opened")
        return token

    async def note(
        self, space: object, kind: str, author: str = "", rev: str | None = None, digest: bytes | None = None
    ) -> None:
        """What the API hands over."""
        authority = str(space).removeprefix("at://").partition("/")[0]
        async with self.database.connection() as conn:
            await conn.execute(
                "insert into space_inbox (repo, space, kind, author, rev, hash, received_at)"
                " values ($1, $2, $3, $4, $5, $6, $7)"
                " on conflict (repo, space, kind, author) do update set"
                " rev = excluded.rev, hash = excluded.hash, received_at = excluded.received_at",
                *(authority, str(space), kind, author, rev, digest, self.clock()),
            )

    async def note_write(self, space: Space, author: Account) -> None:
        """A notification of where the author stands."""
        repo = author.repo(space)
        await self.note(space, "written", author.did, repo.rev, repo.digest)

    async def write(self, *arrivals: Arrival) -> None:
        """What the daemon beside writes."""
        await self.writer.apply(Batch(list(arrivals)), self.clock())

    async def write_public(self, author: Account) -> None:
        """The author has a public repo too."""
        async with self.database.connection() as conn:
            await conn.execute(
                "insert into repos (repo, state, rev, data_cid, tracked_at, changed_at)"
                " values ($1, 'active', '3kaaaaaaaaa2a', 'x', $2, $2)",
                *(author.did, self.clock()),
            )

    # What there is then

    async def rows(self, query: str, *arguments: object) -> list[Row]:
        async with self.database.connection() as conn:
            return await conn.fetch(query, *arguments)

    async def value(self, query: str, *arguments: object) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(query, *arguments)

    async def contents(self, space: Space, author: Account, *, shown: bool = True) -> list[str]:
        """What may be read of an author; with `shown` false: what is held."""
        rows = await self.rows(
            "select content from memories m where repo = $1 and space = $2 and (not $3 or exists ("
            " select from repos r where (r.repo, r.space) = (m.repo, m.space) and r.visible)) order by rkey",
            *(author.did, str(space), shown),
        )
        return [row["content"] for row in rows]

    async def space_row(self, space: object) -> Row:
        [row] = await self.rows("select * from spaces where space = $1", str(space))
        return row

    async def repo_row(self, space: object, author: Account) -> Row:
        query = "select * from space_repos where space = $1 and repo = $2"
        [row] = await self.rows(query, str(space), author.did)
        return row

    async def cids(self, space: object, author: Account) -> dict[str, str]:
        """Rkey → CID of every record that is held."""
        rows = await self.rows(
            "select rkey, cid from memories where repo = $1 and space = $2"
            " union all select rkey, cid from invalid_records where repo = $1 and space = $2",
            *(author.did, str(space)),
        )
        return {row["rkey"]: row["cid"] for row in rows}

    async def left_of(self, space: object) -> dict[str, int]:
        """How many rows of each table are of a Space; none is not named."""
        counts = {
            table: await self.value(f"select count(*) from {table} where space = $1", str(space))
            for table in (*CONTENT_TABLES, *SPACE_TABLES)
        }
        return {table: count for table, count in counts.items() if count}

    async def is_served(self, space: object) -> bool:
        """Whether the API may serve the Space now."""
        fresh = "select coalesce(bool_or(fresh_until > $2), false) from spaces where space = $1"
        return await self.value(fresh, str(space), self.clock())

    # Until when to wait

    async def until(self, ask: Callable[[], Awaitable[Any]], is_: Any) -> None:
        """Waits until something is so; a worker that dies meanwhile raises what it died of."""

        async def look() -> Any:
            for task in self.running:
                if task.done():
                    task.result()
            assert self.worker.failed == 0, "a bug of ours"
            return await ask()

        await until(look, lambda value: value == is_)

    async def until_contents(self, space: Space, author: Account, contents: Sequence[str]) -> None:
        await self.until(lambda: self.contents(space, author), list(contents))

    async def until_idle(self, *spaces: object) -> None:
        """Waits until nothing is to be done of these Spaces (none: of any) now, and nobody works on them."""
        await self.until(lambda: self.idle(*spaces), True)

    async def idle(self, *spaces: object) -> bool:
        names = [str(space) for space in spaces] or None
        return not await self.value(TO_DO, names, self.clock())

    async def pass_time_until(self, ask: Callable[[], Awaitable[Any]], is_: Any, **step: float) -> None:
        """Waits until something is so, while time goes by."""

        async def look() -> Any:
            self.clock.advance(**(step or {"seconds": 1}))
            return await ask()

        await self.until(look, is_)

    # Processes

    def start(self, worker: SpaceWorker | None = None) -> None:
        self.running.append(asyncio.create_task((worker or self.worker).run()))

    async def stop(self) -> None:
        """As kill -9 does: what is under way is left as it is."""
        for task in self.running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.running.clear()


@asynccontextmanager
async def spaces_world(
    database: Database,
    *,
    limits: QuotaLimits = LIMITS,
    budget: HostBudget = BUDGET,
    policy: SpacePolicy | None = None,
    slice_ops: int = SLICE_OPS,
    syncer: str | None = None,
    monotonic: Callable[[], float] | None = None,
) -> AsyncGenerator[SpacesWorld]:
    """A world whose worker does not run yet."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        known = await stack.enter_async_context(directory())
        hosts = await stack.enter_async_context(space_world(clock, directory=known))
        outbound = await stack.enter_async_context(plain_outbound(monotonic=clock.monotonic))
        tasks = await stack.enter_async_context(TaskGroup())
        proofs = Proofs(clock, random.Random(3).randbytes)
        asked = await stack.enter_async_context(
            open_space_hosts(Names(), budget, proofs, allowed=LOOPBACK, monotonic=clock.monotonic)
        )
        writer, keys = Writer(database, limits), sealing_keys()

        def new_worker() -> SpaceWorker:
            handles = AskedHandles(outbound, (known.url,))
            return SpaceWorker(
                database,
                writer,
                IdentityResolver(outbound, handles, database, tasks, plc_url=known.url, clock=clock),
                SpaceAuthorities(outbound, plc_url=known.url, clock=clock),
                asked,
                keys,
                policy=policy or SpacePolicy(),
                clock=clock,
                randomness=random.Random(1),
                syncer=syncer,
                slice_ops=slice_ops,
                poll_s=POLL_S,
                shared_clock=clock,
                monotonic=monotonic or (lambda: 0.0),  # no pull takes any time, so that no repo rests after it
            )

        world = SpacesWorld(database, known, clock, hosts, writer, new_worker(), new_worker, keys)
        try:
            yield world
        finally:
            await world.stop()
            known.release.set()
            for host in hosts.hosts:
                host.faults.release.set()


class Setting:
    """Alice's Space on one host, in which bob, of another, writes."""

    def __init__(self, world: SpacesWorld, home: SpaceHost, away: SpaceHost) -> None:
        self.world, self.home, self.away = world, home, away
        self.alice, self.bob = home.add("alice"), away.add("bob")
        self.space = home.create_space(self.alice, "main", self.bob)

    async def begin(self, *contents: str, shown: Sequence[str] | None = None) -> None:
        """Bob writes, the Space is opened, and all of it is held: the same, or `shown`."""
        for number, content in enumerate(contents):
            self.bob.create(self.space, rkey(number), memory(content))
        await self.world.open(self.space, self.bob)
        self.world.start()
        await self.world.until_contents(self.space, self.bob, contents if shown is None else shown)
        await self.world.until_idle(self.space)


async def setting(world: SpacesWorld) -> Setting:
    return Setting(world, await world.host(), await world.host())
