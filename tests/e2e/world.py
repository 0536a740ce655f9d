"""A daemon on the real network, for one test: its own database, fresh accounts, proxies before the PDSes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from indexer.store import leases
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import memory
from tests.deadline import DEADLINE_S
from tests.e2e.accounts import Account, new_account
from tests.e2e.comparison import assert_same, handle_of, not_healed
from tests.e2e.daemon import Daemon, environment, until
from tests.e2e.servers import Network, Pds
from tests.fakes.proxy import Proxy, proxy

HEALING_S = 300.0  # the claim of one who was killed, and some attempts with the waits between them


@dataclass
class World:
    """Everything that a test moves."""

    network: Network
    database: Database
    daemon: Daemon
    proxies: Sequence[Proxy]  # before each PDS
    relays: dict[str, Pds]  # URL of a relay → the PDS whose stream it hands on

    @property
    def sources(self) -> dict[str, Pds]:
        return {pds.url: pds for pds in self.network.pdses} | self.relays

    async def account(self, pds: int = 0) -> Account:
        """Someone new at one of the PDSes."""
        return await new_account(self.network.pdses[pds])

    async def begin_here(self) -> None:
        """What was before this test is none of its business."""
        async with self.database.transaction() as conn:
            for url, pds in self.sources.items():
                await leases.set_cursor(conn, url, pds.last_seq(), datetime.now(UTC))

    async def is_followed(self, account: Account) -> bool:
        """Whether the index has met the account's repo."""
        async with self.database.connection() as conn:
            return bool(await conn.fetchval("select count(*) from repos where repo = $1", account.did))

    async def cursor(self, source: str) -> int:
        """How far a source is durable."""
        async with self.database.connection() as conn:
            return int(await conn.fetchval("select seq from sources where source = $1", source) or 0)

    async def is_beyond(self, source: str, seq: int) -> bool:
        """Whether a source is durable further than that."""
        self.daemon.assert_alive()
        return await self.cursor(source) > seq

    def cut(self) -> None:
        """Tears every stream."""
        for each in self.proxies:
            each.cut()

    async def named(self, account: Account) -> None:
        """Waits until the index knows the account's handle."""

        async def is_named() -> bool:
            return await handle_of(self.database, account.did) == account.handle

        await self._until(is_named, f"the handle {account.handle}")

    async def unnamed(self, account: Account) -> None:
        """Waits until the index knows that the account's handle cannot be verified."""

        async def is_unnamed() -> bool:
            return await handle_of(self.database, account.did) is None

        await self._until(is_unnamed, f"no handle of {account.did}")

    async def caught_up(self) -> None:
        """Waits until all that was sent is durable, and no commit or look-up that is due waits."""
        wanted = {url: pds.last_seq() for url, pds in self.sources.items()}

        async def done() -> bool:
            self.daemon.assert_alive()
            async with self.database.connection() as conn:
                cursors = {row["source"]: row["seq"] for row in await conn.fetch("select source, seq from sources")}
                busy = await conn.fetchval(
                    "select (select count(*) from parked_commits)"
                    " + (select count(*) from requests where kind = 'identity' and attempts = 0)"
                )
            return not busy and all(cursors.get(url, 0) >= seq for url, seq in wanted.items())

        await self._until(done, f"all of {wanted}")

    async def kill(self) -> None:
        """The daemon dies, and whom it had started ends a moment later. What that stores until then happened before."""
        await self.daemon.kill()
        await self._until(self._is_left_alone, "the end of whoever was killed")

    async def revive(self) -> None:
        """The daemon dies and is started again, so much later that nobody holds a lease."""
        await self.daemon.kill()
        async with self.database.connection() as conn:
            await conn.execute("delete from leases")
        await self.daemon.start()

    async def let_time_pass(self) -> None:
        """A quarter of an hour goes by while the daemon is dead: nobody holds a lease, and look-ups that wait are due.

        So is every handle that could not be asked for, however often.
        """
        await self.kill()
        async with self.database.transaction() as conn:
            await conn.execute("update identities set resolved_at = resolved_at - interval '15 minutes'")
            await conn.execute("update requests set not_before = not_before - interval '15 minutes'")
        await self.revive()

        async def looked_up() -> bool:
            self.daemon.assert_alive()
            async with self.database.connection() as conn:
                # By then they may be put off, as those of strangers are.
                await conn.execute("update identities set handle_retry_at = now() where handle_retry_at > now()")
                # Whoever claims a look-up has two minutes, and needs less than two seconds, whatever was asked since.
                return not await conn.fetchval(
                    "select (select count(*) from requests where kind = 'identity' and (attempts = 0"
                    " or not_before < now() or not_before > now() + interval '118 seconds'))"
                    " + (select count(*) from identities join repos using (repo) where handle_retry_at is not null)"
                )

        await self._until(looked_up, "no look-up that waits")

    async def _is_left_alone(self) -> bool:
        """Whether no process of the indexer is connected to the database any more."""
        async with self.database.connection() as conn:
            return not await conn.fetchval(
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and application_name = 'indexer'"
            )

    async def healed(self) -> None:
        """Waits until every account that is shown is known to be whole, and no host has to be asked about any."""
        await self.caught_up()

        async def is_healed() -> bool:
            self.daemon.assert_alive()
            return not await not_healed(self.database)

        await self._until(is_healed, "that all is whole", HEALING_S)

    async def same(self, *accounts: Account) -> None:
        """Every account is shown as it is held."""
        await self.healed()
        await assert_same(self.database, accounts)

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str, deadline_s: float = DEADLINE_S) -> None:
        try:
            await until(condition, what, deadline_s)
        except Exception as late:
            late.add_note(await self.told())
            raise

    async def told(self) -> str:
        """What there is to see when something went wrong."""
        async with self.database.connection() as conn:
            tables = {
                name: [dict(row) for row in await conn.fetch(f"select * from {name}")]
                for name in ("sources", "requests", "identities", "rejections", "repos", "account_status", "leases")
            }
            parked = await conn.fetch("select repo, rev, source, seq, reason from parked_commits")
        lines = [f"{name}: {row}" for name, rows in tables.items() for row in rows]
        return "\n".join([*lines, *(f"parked: {dict(row)}" for row in parked), self.daemon.log()])


@asynccontextmanager
async def open_world(
    network: Network, database: Database, database_url: str, folder: Path, *, relayed: Sequence[int] = ()
) -> AsyncGenerator[World]:
    """A world whose daemon does not run yet; `relayed` PDSes are followed through a relay too."""
    async with AsyncExitStack() as open_ones:
        proxies = [await open_ones.enter_async_context(proxy(pds.inside, door=pds.door)) for pds in network.pdses]
        relays = [await open_ones.enter_async_context(proxy(network.pdses[number].inside)) for number in relayed]
        settings = environment(
            database_url=database_url,
            plc_url=network.plc_url,
            pds_urls=[pds.url for pds in network.pdses],
            relay_urls=[relay.url for relay in relays],
        )
        daemon = Daemon(settings, folder / "daemon.log")
        of_relays = {relay.url: network.pdses[number] for relay, number in zip(relays, relayed, strict=True)}
        world = World(network, database, daemon, [*proxies, *relays], of_relays)
        await world.begin_here()
        try:
            yield world
        finally:
            await daemon.kill()


def replacing(content: str, account: Account, *rkeys: str) -> dict[str, object]:
    """A memory that replaces others of the same account."""
    return memory(content, supersedes=[f"at://{account.did}/{COLLECTION}/{rkey}" for rkey in rkeys])
