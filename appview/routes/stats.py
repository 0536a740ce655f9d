"""getStats."""

from __future__ import annotations

from datetime import timedelta

import orjson

from appview.answers.asked import resolve_repos
from appview.call import Call
from appview.store.stats import (
    Counts,
    RepoSync,
    Tally,
    Totals,
    count_memories_of,
    load_indexed_through,
    load_repo_sync,
)
from appview.views import datetime_text
from memory.queries import Connection
from memory.space import ReadableSpaces

_NONE = Tally((), 0)
_NOTHING = Counts(0, 0, _NONE, _NONE, _NONE)


async def get_stats(call: Call) -> bytes:
    """Answer `getStats`."""
    spaces = call.viewer.spaces
    identifier = call.parameters.text("repo")
    now = call.resources.clock()
    if identifier is None:
        totals, sync = await call.resources.totals.load(spaces=spaces), None
    else:
        async with call.resources.database.connection() as conn:
            totals, sync = await _stats_of(conn, identifier, spaces)
    async with call.resources.database.connection() as conn:
        indexed_through = await load_indexed_through(conn, now=now)
    counts = totals.counts
    answer: dict[str, object] = {
        "repos": totals.repos,
        "records": counts.records,
        "superseded": counts.superseded,
        "kinds": _tally_view(counts.kinds),
        "scopes": _tally_view(counts.scopes),
        "agents": _tally_view(counts.agents),
    }
    if indexed_through is not None:
        behind = now - indexed_through
        answer["indexedThrough"] = datetime_text(indexed_through)
        answer["indexingLagSeconds"] = max(0, behind // timedelta(seconds=1))
    if sync is not None:
        answer["sync"] = _sync_view(sync)
    return orjson.dumps(answer)


async def _stats_of(conn: Connection, identifier: str, spaces: ReadableSpaces) -> tuple[Totals, RepoSync | None]:
    repos = await resolve_repos(conn, [identifier])
    if not repos:
        return Totals(0, _NOTHING), None
    [repo] = repos
    counts = await count_memories_of(conn, repo, spaces=spaces)
    return Totals(1 if counts.records or counts.superseded else 0, counts), await load_repo_sync(conn, repo)


def _tally_view(tally: Tally) -> dict[str, object]:
    return {
        "values": [{"value": value, "records": records} for value, records in tally.values],
        "distinct": tally.distinct,
    }


def _sync_view(sync: RepoSync) -> dict[str, object]:
    view: dict[str, object] = {"repo": sync.repo}
    if sync.handle is not None:
        view["handle"] = sync.handle
    view["state"] = sync.state
    if sync.reason is not None:
        view["reason"] = sync.reason
    if sync.rev is not None:
        view["rev"] = sync.rev
    view["changedAt"] = datetime_text(sync.changed_at)
    return view
