"""Rows about authors' repos in Spaces: what is to be pulled, and what was."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from indexer.store import repos as repo_rows
from indexer.store.pull_turns import DuePull, PullTurns, order
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "space_repos.sql")

# What one claim looks at: the longest due; where there are more, some repos of some Spaces.
LOOKED_AT: Final = 100
SPACES_LOOKED_AT: Final = 16
LOOKED_AT_EACH: Final = 8
# What cannot be pulled now, and stands before others, is looked at again after that.
PUT_OFF: Final = timedelta(seconds=10)
PUT_OFF_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True, repr=False)
class PullClaim:
    """A repo in a Space that nobody else pulls for a while."""

    author: str
    space: str
    token: UUID
    now: datetime  # when it was claimed, by the shared clock
    attempts: int  # this one included
    listed_rev: str | None
    listed_hash: bytes | None
    rev: str | None  # of what is held; null: nothing
    hash: bytes | None
    set_state: bytes | None
    whole: bool  # ops will not do
    account_active: bool
    state: str | None  # of its row in `repos`; null: there is none
    is_stranger: bool = False  # it is at a host that is not known to be quick

    @property
    def told(self) -> dict[str, object]:
        """What a log may say of it: not whose repo, for who is in a Space is private."""
        return {"kind": "space_repo", "attempts": self.attempts}


@dataclass(frozen=True, slots=True, repr=False)
class Pulled:
    """What a repo is at now."""

    rev: str
    hash: bytes
    set_state: bytes
    host: str
    whole_after: datetime | None = None  # when all of it is to be pulled anew; null: it needs not be
    rest: timedelta = timedelta(0)  # before the next pull
    again: timedelta = timedelta(0)  # before the next, if what was listed is something else

    def refilled(self, at: datetime) -> Pulled:
        """The same, and all of it is to be pulled anew then."""
        return replace(self, whole_after=at)


@dataclass(frozen=True, slots=True)
class AccountWord:
    """Whether an account is active, by all that is known."""

    repo: str
    active: bool
    status: str | None


async def claim(
    conn: Connection,
    token: UUID,
    for_: timedelta,
    *,
    at_most: int,
    each_host: int,
    busy_hosts: Collection[str],
    now: datetime | None,
    turns: PullTurns | None = None,
) -> list[PullClaim]:
    """Takes up to so many repos that are to be pulled, and so many of each host; there may be more.

    However many are due, a bounded number is looked at: the longest due, and those of a few Spaces, which take turns.
    """
    turns = turns or PullTurns()
    rows = await _SQL.due_pulls.fetch(
        conn,
        looked_at=LOOKED_AT,
        spaces_looked_at=SPACES_LOOKED_AT,
        looked_at_each=LOOKED_AT_EACH,
        after_space=turns.after_space,
        now=now,
    )
    if not rows:
        return []
    there_are_more = rows[0]["spaces_looked_at"] is not None
    turns.after_space = rows[0]["looked_up_to"] if rows[0]["spaces_looked_at"] == SPACES_LOOKED_AT else ""
    due = [DuePull(row["repo"], row["space"], row["host"], row["pull_after"]) for row in rows]
    strangers, quick, put_off = order(due, turns, each_host=each_host, busy_hosts=busy_hosts)
    claims = await _take(conn, token, for_, strangers, min(at_most, turns.strangers_at_most), now, is_stranger=True)
    claims += await _take(conn, token, for_, quick, at_most - len(claims), now, is_stranger=False)
    if there_are_more and put_off:
        repos, spaces = _keys(put_off[:PUT_OFF_AT_ONCE])
        await _SQL.put_off_pulls.execute(conn, repos=repos, spaces=spaces, wait=PUT_OFF, now=now)
    return claims


async def _take(
    conn: Connection,
    token: UUID,
    for_: timedelta,
    due: Sequence[DuePull],
    at_most: int,
    now: datetime | None,
    *,
    is_stranger: bool,
) -> list[PullClaim]:
    if not due or at_most <= 0:
        return []
    repos, spaces = _keys(due)
    rows = await _SQL.claim_pulls.fetch(
        conn, token=token, claim=for_, repos=repos, spaces=spaces, at_most=at_most, now=now
    )
    return [PullClaim(row[0], row[1], token, *row[2:], is_stranger=is_stranger) for row in map(tuple, rows)]


def _keys(due: Sequence[DuePull]) -> tuple[list[str], list[str]]:
    return [each.author for each in due], [each.space for each in due]


async def keep(conn: Connection, claim: PullClaim, for_: timedelta, now: datetime | None) -> None:
    """Works on it for longer."""
    await _SQL.keep_pull.execute(conn, repo=claim.author, space=claim.space, token=claim.token, claim=for_, now=now)


class Locked(NamedTuple):
    """A repo that a pull has, with the row that readers use."""

    any_denied: bool  # an operator took down something, of this repo or of others


async def lock(conn: Connection, claim: PullClaim, at: datetime) -> Locked | None:
    """Locks the repo of a pull, and makes the row that readers use if there is none; None: somebody else has it by now.

    Before anything else in a transaction.
    """
    found = await _SQL.lock_pull.fetchrow(conn, repo=claim.author, space=claim.space, token=claim.token, at=at)
    return None if found is None else Locked(found["any_denied"])


async def end(conn: Connection, claim: PullClaim, authority: str, pulled: Pulled, now: datetime | None) -> None:
    """Says what is held now, as it was confirmed when it was claimed, and has readers see it; locks the Space's row."""
    await _SQL.end_pull.execute(
        conn,
        repo=claim.author,
        space=claim.space,
        authority=authority,
        token=claim.token,
        rev=pulled.rev,
        hash=pulled.hash,
        set_state=pulled.set_state,
        host=pulled.host,
        confirmed_at=claim.now,
        whole_after=pulled.whole_after,
        rest=pulled.rest,
        again=pulled.again,
        listed_rev=claim.listed_rev,
        listed_hash=claim.listed_hash,
        now=now,
    )


async def put_back(
    conn: Connection,
    claim: PullClaim,
    wait: timedelta,
    *,
    attempted: bool,
    failure: str | None,
    whole: bool,
    host: str | None,
    now: datetime | None,
) -> None:
    """Leaves it for later, and says why; what was pulled or purged since stays."""
    await _SQL.put_back_pull.execute(
        conn,
        repo=claim.author,
        space=claim.space,
        token=claim.token,
        wait=wait,
        uncounted=int(not attempted),
        failure=failure,
        whole=whole,
        host=host,
        now=now,
    )


async def drop(conn: Connection, claim: PullClaim) -> None:
    """Leaves it to the next listing of its Space."""
    await _SQL.drop_pull.execute(conn, repo=claim.author, space=claim.space, token=claim.token)


async def held(conn: Connection, claim: PullClaim) -> dict[str, str] | None:
    """Rkey → CID of every record that is held; None: none ever was."""
    rows = await _SQL.held_in_space.fetch(conn, repo=claim.author, space=claim.space)
    return {row["rkey"]: row["cid"] for row in rows if row["cid"] is not None} if rows else None


async def show_accounts(conn: Connection, words: Sequence[AccountWord], at: datetime) -> None:
    """Serves what accounts hold in Spaces, or hides it; and nobody reads any for those that are inactive."""
    repos = [word.repo for word in words]
    actives = [word.active for word in words]
    changed = await _SQL.note_accounts.fetch(conn, repos=repos, actives=actives, at=at)
    if changed:
        await _SQL.show_repos_of_accounts.execute(
            conn, repos=repos, actives=actives, statuses=[word.status for word in words], at=at
        )
    if inactive := [word.repo for word in words if not word.active]:
        await _SQL.end_grants_of_accounts.execute(conn, repos=inactive)
        await _SQL.end_credentials_of_accounts.execute(conn, repos=inactive)


async def accounts_in_spaces(conn: Connection) -> set[str]:
    """Authors in Spaces, and viewers of them: what is said of their accounts has to be heard."""
    return {row["repo"] for row in await _SQL.accounts_in_spaces.fetch(conn)}


async def empty_accounts(conn: Connection, accounts: Iterable[str]) -> None:
    """Leaves nothing of what these accounts hold in Spaces; while they are listed there, it is pulled again."""
    emptied = await _SQL.empty_space_repos.fetch(conn, repos=sorted(accounts))
    keys = [(row["repo"], row["space"]) for row in emptied]
    if keys:
        await repo_rows.purge(conn, keys)
        repos, spaces = repo_rows.columns(keys)
        await _SQL.delete_repos_of.execute(conn, repos=repos, spaces=spaces)
