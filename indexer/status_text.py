"""`status` for people: one screen, the worst news first."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.store.status import IndexStatus, ReposStatus

_STATE_HINTS = {
    "pending": "first seen in the middle of their history: the rest waits for a fetch",
    "resyncing": "being fetched",
    "desynchronized": "missed or inconsistent commits: nothing more is applied before a fetch",
    "error": "a fetch failed and is tried again",
}


def render(status: IndexStatus) -> str:
    """The whole screen, without a final line break."""
    return "\n".join(_lines(status))


def _lines(status: IndexStatus) -> Iterator[str]:
    memories = status.memories
    yield f"Memories   {memories.current:,} current, {memories.masked:,} masked, {memories.invalid:,} invalid"
    yield ""
    yield "Cursors"
    for cursor in status.cursors:
        claimed = f", at {cursor.frame_time:%Y-%m-%d %H:%M:%S} UTC of its stream" if cursor.frame_time else ""
        yield f"  {cursor.source}  seq {cursor.seq}{claimed}"
    if not status.cursors:
        yield "  none: nothing was followed or replayed yet"
    yield ""
    yield "Repos"
    for group in status.repos:
        yield f"  {_group(group)}"
    if not status.repos:
        yield "  none"
    if status.invalid:
        yield ""
        yield "Invalid records"
        for reason, records in status.invalid.items():
            yield f"  {records:>8,}  {reason}"
    if status.requests:
        yield ""
        yield "To be asked of hosts"
        for request in status.requests:
            yield f"  {request.requests:>8,}  {request.kind} ({request.reason}), since {request.oldest:%Y-%m-%d %H:%M} UTC"
    if status.rejections:
        yield ""
        yield "Not applied"
        for rejection in status.rejections:
            yield f"  {rejection.times:>8,}  {rejection.reason} ({rejection.effect}) from {rejection.source}"
    if status.parked_commits or status.quarantined_frames:
        yield ""
        yield (
            f"Kept aside {status.parked_commits:,} parked commits ({status.parked_bytes:,} bytes), "
            f"{status.quarantined_frames:,} quarantined frames"
        )


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
