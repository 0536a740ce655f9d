"""getStats."""

from __future__ import annotations

from datetime import timedelta

import orjson

from appview.call import Call
from appview.routes.pages import resolve_repos
from appview.store.stats import (
    Counts,
    RepoSync,
    Tally,
    count_memories,
    count_memories_of,
    count_repos,
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
    async with call.resources.database.connection() as conn:
        if identifier is None:
            repos = await count_repos(conn, spaces=spaces)
            counts = await count_memories(conn, spaces=spaces)
            sync = None
        else:
            counts, sync = await _stats_of(conn, identifier, spaces)
            repos = 1 if counts.records or counts.superseded else 0
        indexed_through = await load_indexed_through(conn)
    answer: dict[str, object] = {
        "repos": repos,
        "records": counts.records,
        "superseded": counts.superseded,
        "kinds": _tally_view(counts.kinds),
        "scopes": _tally_view(counts.scopes),
        "agents": _tally_view(counts.agents),
    }
    if indexed_through is not None:
        behind = call.resources.clock() - indexed_through
        answer["indexedThrough"] = datetime_text(indexed_through)
        answer["indexingLagSeconds"] = max(0, behind // timedelta(seconds=1))
    if sync is not None:
        answer["sync"] = _sync_view(sync)
    return orjson.dumps(answer)


async def _stats_of(conn: Connection, identifier: str, spaces: ReadableSpaces) -> tuple[Counts, RepoSync | None]:
    repos = await resolve_repos(conn, [identifier])
    if not repos:
        return _NOTHING, None
    [repo] = repos
    return await count_memories_of(conn, repo, spaces=spaces), await load_repo_sync(conn, repo, spaces=spaces)


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
