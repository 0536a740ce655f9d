"""`status` for people: one screen, the worst news first."""

from __future__ import annotations

from indexer.store.status import IndexStatus, ReposStatus

_STATE_HINTS = {
    "pending": "first seen in the middle of their history: the rest waits for a fetch",
    "resyncing": "being fetched",
    "desynchronized": "missed or inconsistent commits: nothing more is applied before a fetch",
    "error": "a fetch failed and is tried again",
}


def render(status: IndexStatus) -> str:
    """The whole screen, without a final line break."""
    memories = status.memories
    first = f"Memories   {memories.current:,} current, {memories.masked:,} masked, {memories.invalid:,} invalid"
    sections = [
        ("Cursors", _cursors(status) or ["none: nothing was followed or replayed yet"]),
        ("Repos", [_group(group) for group in status.repos] or ["none"]),
        ("Invalid records", [f"{records:>8,}  {reason}" for reason, records in status.invalid.items()]),
        ("To be asked of hosts", _requests(status)),
        ("Not applied", _rejections(status)),
        ("Kept aside", _backlog(status)),
    ]
    return "\n\n".join([first, *("\n  ".join([title, *lines]) for title, lines in sections if lines)])


def _cursors(status: IndexStatus) -> list[str]:
    return [
        f"{cursor.source}  seq {cursor.seq}"
        + (f", at {cursor.frame_time:%Y-%m-%d %H:%M:%S} UTC of its stream" if cursor.frame_time else "")
        for cursor in status.cursors
    ]


def _requests(status: IndexStatus) -> list[str]:
    return [
        f"{request.requests:>8,}  {request.kind} ({request.reason}), since {request.oldest:%Y-%m-%d %H:%M} UTC"
        for request in status.requests
    ]


def _rejections(status: IndexStatus) -> list[str]:
    return [
        f"{rejection.times:>8,}  {rejection.reason} ({rejection.effect}) from {rejection.source}"
        for rejection in status.rejections
    ]


def _backlog(status: IndexStatus) -> list[str]:
    if not (status.parked_commits or status.quarantined_frames):
        return []
    return [
        f"{status.parked_commits:>8,}  parked commits ({status.parked_bytes:,} bytes)",
        f"{status.quarantined_frames:>8,}  quarantined frames",
    ]


def _group(group: ReposStatus) -> str:
    text = f"{group.repos:>8,}  {group.state}"
    if group.reason:
        text += f" ({group.reason})"
    if not group.visible:
        text += f", hidden: {group.status or 'inactive'}"
    elif hint := _STATE_HINTS.get(group.state):
        text += f": {hint}"
    text += f"; {group.memories:,} memories"
    if group.over_quota:
        text += f", {group.over_quota:,} over quota"
    return text
