"""The database: reachable, of the right kind, up to date, discreet, and who may do what with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from indexer.doctor.report import Check, failed, passed, warned
from indexer.doctor.spaces import Kept, look_at_credentials
from indexer.store.doctor import (
    ServerFacts,
    TableRights,
    server_facts,
    server_settings,
    server_time,
    table_rights,
)
from indexer.store.status import ErasureStatus, erasure_status
from memory.database import open_database
from memory.errors import MemoryAppviewError, Misconfigured, Unavailable
from memory.queries import Connection, StatementFailed
from memory.schema import pending_migrations
from memory.sealed import SealingKeys

INDEXER_ROLE: Final = "memory_indexer"
API_ROLE: Final = "memory_appview"
WRITTEN_BY_API: Final = frozenset(
    {"identities", "grants", "credentials", "access_tokens", "seen_tokens", "space_inbox"}
)
"""Tables that the API writes; all else it may only read."""

DISCREET: Final = {
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "auto_explain.log_parameter_max_length": "0",
}
"""Settings of the server that keep record text out of its log."""

TIMEOUT_S: Final = 20
_OLDEST_VERSION: Final = 15
_ENCODING: Final = "UTF8"
_GRANT: Final = "Run deploy/roles.sql by psql, as the owner of the database"
_NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Findings:
    """What one look at the database told."""

    checks: tuple[Check, ...]
    ahead_s: float | None = None  # its clock before ours; null: it was not read
    kept: Kept | None = None  # credentials of Spaces; null: they were not read


@dataclass(frozen=True, slots=True)
class Place:
    """Which database is looked at."""

    url: str = field(repr=False)
    embedded: bool  # our own: nobody but us has roles or a log there


async def check_database(place: Place, clock: Callable[[], datetime], keys: SealingKeys | None = None) -> Findings:
    """All that the database can tell; if it cannot be reached, only that. `keys`: what is to open credentials."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            open_database(place.url, application_name="doctor", connections=1) as database,
            database.connection() as conn,
        ):
            return await _look(conn, place, clock, keys)
    except TimeoutError:
        silence = Unavailable(f"It does not answer within {TIMEOUT_S} s.")
        return Findings((unreachable(silence, embedded=place.embedded),))
    except MemoryAppviewError as failure:
        return Findings((unreachable(failure, embedded=place.embedded),))


def unreachable(failure: MemoryAppviewError, *, embedded: bool) -> Check:
    """What to say of a database that could not be asked."""
    if embedded:
        fix = "Mend that, or name another folder by DATABASE_DATA_DIR, or a Postgres of your own by DATABASE_URL."
    elif isinstance(failure, Misconfigured):
        fix = "Correct DATABASE_URL, which has the form postgresql://user:password@host:5432/name."
    else:
        fix = "Start Postgres, and let this machine reach it: DATABASE_URL, firewall, pg_hba.conf."
    return failed("database", failure.message, fix)


async def _look(conn: Connection, place: Place, clock: Callable[[], datetime], keys: SealingKeys | None) -> Findings:
    facts = await server_facts(conn)
    asked_at = clock()
    told = await server_time(conn)
    ahead_s = (told - (asked_at + (clock() - asked_at) / 2)).total_seconds()
    checks = [judge_server(facts, embedded=place.embedded), await _check_migrations(conn)]
    if not place.embedded:
        rights = await table_rights(conn, api_role=API_ROLE)
        checks += [judge_rights(facts, rights), judge_log(await server_settings(conn, list(DISCREET)))]
    with suppress(StatementFailed):  # migrations or rights are missing, which is said above
        checks.append(judge_erasure(await erasure_status(conn)))
    kept = None
    with suppress(StatementFailed):  # the same
        kept = await look_at_credentials(conn, keys)
    return Findings(tuple(checks), ahead_s, kept)


def judge_server(facts: ServerFacts, *, embedded: bool) -> Check:
    """Whether the server and its database are of a kind that we can use."""
    if facts.version_number < _OLDEST_VERSION * 10_000:
        fix = f"Upgrade it to {_OLDEST_VERSION} or newer."
        return failed("database", f"Postgres {facts.version} is too old", fix)
    if facts.encoding != _ENCODING:
        fix = (
            f"Make another by `createdb --template=template0 --encoding={_ENCODING} memory`, for DATABASE_URL to name."
        )
        return failed("database", f"its encoding is {facts.encoding}, which cannot hold every text", fix)
    what = "the embedded one, for development" if embedded else f"as {facts.role}"
    return passed("database", f"Postgres {facts.version}, {what}")


def judge_migrations(pending: Sequence[Path]) -> Check:
    """By the migrations that the database lacks."""
    if pending:
        missing = ", ".join(file.stem for file in pending)
        return failed("migrations", f"missing: {missing}", "Run `python -m migrations up`.")
    return passed("migrations", "all applied")


def judge_rights(facts: ServerFacts, rights: Sequence[TableRights]) -> Check:
    """Whether we and the API may do what we have to, and the API no more."""
    name = "rights"
    if lacking := [right.table for right in rights if not right.ours]:
        fix = f"{_GRANT}, and connect as {INDEXER_ROLE}."
        return failed(name, f"{facts.role} may not read and write {_shown(lacking)}", fix)
    if unread := [right.table for right in rights if right.api_reads is False]:
        return failed(name, f"{API_ROLE} may not read {_shown(unread)}", f"{_GRANT}, again.")
    if unwritten := [right.table for right in rights if right.table in WRITTEN_BY_API and right.api_writes is False]:
        return failed(name, f"{API_ROLE} may not write {_shown(unwritten)}", f"{_GRANT}, again.")
    if changed := [right.table for right in rights if right.table not in WRITTEN_BY_API and right.api_changes]:
        return warned(name, f"{API_ROLE} may change {_shown(changed)}", f"{_GRANT}, again: it takes that away.")
    if any(right.api_reads is None for right in rights):
        fix = f"{_GRANT}, and let the API connect as {API_ROLE}."
        return warned(name, "the API has no role of its own, which can change nothing", fix)
    if facts.superuser:
        return warned(name, f"{facts.role} is a superuser", f"Name {INDEXER_ROLE} in the indexer's DATABASE_URL.")
    return passed(name, f"{facts.role} writes, {API_ROLE} reads")


def judge_log(settings: Mapping[str, str]) -> Check:
    """By those of the settings in DISCREET that the server has."""
    if telling := {name: DISCREET[name] for name, setting in settings.items() if setting != DISCREET[name]}:
        wanted = ", ".join(f"{name} = {setting}" for name, setting in telling.items())
        fix = (
            f"Set {wanted} in postgresql.conf or by `alter system`, and reload; or run deploy/roles.sql as a superuser."
        )
        return warned("database log", "an error in it can quote a memory", fix)
    return passed("database log", "quotes no memory")


def judge_erasure(erasure: ErasureStatus) -> Check:
    """By when what was deleted was last taken out of the files."""
    name = "erasure"
    last = "never yet" if erasure.last_at is None else f"last at {erasure.last_at:%Y-%m-%d %H:%M} UTC"
    if erasure.is_overdue:
        fix = (
            "Let `python -m indexer run` run, which sees to it twice a day. Where it runs, its log may have "
            "`erasure_failed`; docs/erasure.md tells what may keep it from that."
        )
        return warned(name, f"the files hold what was deleted: rid of it {last}, not within a day", fix)
    return passed(name, f"the files are rid of what was deleted twice a day, {last}")


async def _check_migrations(conn: Connection) -> Check:
    with suppress(StatementFailed):
        return judge_migrations(await pending_migrations(conn))
    return failed("migrations", "we may not read which are applied", f"{_GRANT}.")


def _shown(tables: Sequence[str]) -> str:
    more = len(tables) - _NAMES_SHOWN
    return ", ".join(tables[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
