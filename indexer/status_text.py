"""`status` for people: one screen, first whether all is well, and if not, why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from indexer.resync.disk import DISK_UNAVAILABLE
from indexer.store.embedding_models import FIRST_WALKS
from indexer.store.space_counts import SpaceCounts, SpaceRepoState, SpaceState
from indexer.store.status import CursorStatus, EmbeddingStatus, ErasureStatus, IndexStatus, ReposStatus

# A stream that is followed and stands this far back is behind; an idle one looks the same, so it is only said.
LAG_WORTH_SAYING: Final = timedelta(minutes=2)
# What has been due for so long, while no host has confirmed anything for as long, nobody works on.
REQUEST_WORTH_SAYING: Final = timedelta(hours=1)

_STATE_HINTS = {
    "pending": "found, or first seen in the middle of their history: the rest waits for a fetch",
    "resyncing": "being fetched",
    "desynchronized": "missed or inconsistent commits: nothing more is applied before a fetch",
    "error": "a fetch failed and is tried again",
}
_HOSTS: Final = ("repo's host", "repos' hosts")
_TAKEN_DOWN: Final = "denied"  # the reason of a repo that an operator took down
_TAKEN_DOWN_HINT: Final = "taken down here: `python -m indexer restore` lifts that"

_NO_MODEL: Final = (
    "no model yet, so it is by words: `python -m indexer run` adds what EMBEDDING_BACKEND names, if it can"
)
_MODEL_STATES: Final = {
    "serving": "serves",
    "filling": "is being filled, and serves then",
    "standby": "is kept filled, to go back to",
    "leaving": "is being deleted",
}
# What is to be done of Spaces is done within seconds: for what has waited so long, nobody works on them.
SPACES_WORTH_SAYING: Final = timedelta(minutes=10)
# Unless the settings say otherwise. They are listed three times in that time.
SPACES_STALENESS: Final = timedelta(minutes=15)

_SPACE_STATES: Final = {
    SpaceState.READY: "ready",
    SpaceState.SYNCING: "being synced: not all of the authors' repos were pulled yet",
    SpaceState.STALE: "not served: nothing confirmed in time what is held of them",
    SpaceState.UNREACHABLE: "whose authors cannot be listed at the moment",
    SpaceState.UNREAD: "that nobody has open: not served, and deleted after SPACES_KEPT_DAYS",
    SpaceState.DELETED: "being deleted",
}
_SPACE_REPO_STATES: Final = {
    SpaceRepoState.IN_STEP: ("repo is in step", "repos are in step"),
    SpaceRepoState.BEHIND: ("repo is behind what is listed", "repos are behind what is listed"),
    SpaceRepoState.NEW: ("repo was never pulled", "repos were never pulled"),
    SpaceRepoState.STALE: (
        "repo is hidden: it was not confirmed in time",
        "repos are hidden: they were not confirmed in time",
    ),
    SpaceRepoState.UNLISTED: ("repo is hidden: it is listed no more", "repos are hidden: they are listed no more"),
    SpaceRepoState.INACTIVE: (
        "repo is hidden: its account is inactive",
        "repos are hidden: their accounts are inactive",
    ),
}


@dataclass(frozen=True, slots=True)
class SpacesSetUp:
    """What the settings, as they are here, say of Spaces."""

    kept: bool  # there is a file of keys
    syncer: str | None = None  # what hosts tell of writes; null: there is no public URL that has a DID


def problems(
    status: IndexStatus, now: datetime, set_up: SpacesSetUp | None = None, staleness: timedelta = SPACES_STALENESS
) -> list[str]:
    """What is not well, the worst first; empty: all is well. `set_up` null: nothing is known of that.

    `staleness`: for how long a Space is served after it was confirmed.
    """
    return [
        *_source_problems(status, now),
        *_repo_problems(status),
        *_fetch_problems(status),
        *_backlog_problems(status, now),
        *_embedding_problems(status.embeddings),
        *_space_problems(status.spaces, set_up, staleness),
        *_erasure_problems(status.erasure),
    ]


def _source_problems(status: IndexStatus, now: datetime) -> Iterator[str]:
    for source in status.cursors:
        if source.stopped_reason is not None:
            yield (
                f"{source.source} does not know our cursor ({source.stopped_reason}): if its numbering began anew, "
                f"`python -m indexer cursor set {source.source} 0`"
            )
        if source.followed and source.frame_time is not None and now - source.frame_time > LAG_WORTH_SAYING:
            yield f"{source.source}: nothing newer than {source.frame_time:%Y-%m-%d %H:%M:%S} UTC has come"
    for gap in status.gaps:
        yield (
            f"{gap.source} lost frames before {_minute(gap.gap_at)}: `python -m indexer run` compares repos with their "
            f"hosts, {gap.asked:,} of {gap.repos:,} so far"
        )
    if status.cursors and not any(source.followed for source in status.cursors):
        yield "no daemon is running: `python -m indexer run` follows the sources"


def _repo_problems(status: IndexStatus) -> Iterator[str]:
    failing = [group for group in status.repos if group.visible and group.state == "error"]
    if failing:
        reasons = ", ".join(f"{group.reason} {group.repos:,}" for group in failing)
        yield (
            f"{_counted(sum(group.repos for group in failing), 'repo', 'repos')} cannot be fetched ({reasons}): "
            "that is tried again, and at once by `python -m indexer resync --state error`"
        )
    over = sum(group.over_quota for group in status.repos)
    if over:
        yield f"{_counted(over, 'record is', 'records are')} over the quota of their repos"


def _fetch_problems(status: IndexStatus) -> Iterator[str]:
    if lacking := sum(failed.repos for failed in status.fetches.failed if failed.reason == DISK_UNAVAILABLE):
        yield (
            f"{_counted(lacking, 'repo', 'repos')} found no room on the disk of INDEXER_SPOOL_DIR: `python -m indexer "
            "doctor` tells why, and that is tried again"
        )
    for sweep in status.sweeps:
        if sweep.held_up_at is not None:
            yield (
                f"{sweep.origin} lists many repos of which nothing could be verified, and is read no further since "
                f"{_minute(sweep.held_up_at)}: `python -m indexer backfill` goes on once fewer of them wait"
            )


def _backlog_problems(status: IndexStatus, now: datetime) -> Iterator[str]:
    if keyless := status.parked_commits - status.parked_for_fetch:
        yield _counted(keyless, "commit waits for its author's key", "commits wait for their author's key")
    if status.quarantined_frames:
        broken = "frame of the last week was broken", "frames of the last week were broken"
        yield _counted(status.quarantined_frames, *broken)
    due_since = min((request.due_since for request in status.requests), default=now)
    last_sign = max(due_since, status.fetches.confirmed_at or due_since)
    if now - last_sign > REQUEST_WORTH_SAYING:
        yield (
            f"hosts are to be asked since {_minute(due_since)}, and none has confirmed anything for an hour: "
            "is `python -m indexer run` running, or `repair`?"
        )


def _embedding_problems(models: Sequence[EmbeddingStatus]) -> Iterator[str]:
    if models and not any(model.state == "serving" for model in models):
        yield "no model serves, so search is by words: `python -m indexer reembed --serve NAME` has one serve"
    for model in models:
        if model.failing:
            yield (
                f"{_counted(model.failing, 'memory has', 'memories have')} no vector of {model.model}, for it refused "
                "the text, or what embedded it ended: that is tried again, and found by words meanwhile"
            )


def _space_problems(spaces: SpaceCounts, set_up: SpacesSetUp | None, staleness: timedelta) -> Iterator[str]:
    if set_up is not None and not set_up.kept and spaces.in_all > spaces.spaces.get(SpaceState.UNREAD, 0):
        yield "Spaces are open, and SPACES_KEY_FILE is not set here: is it for `python -m indexer run`?"
    if stale := spaces.spaces.get(SpaceState.STALE, 0):
        served = _counted(stale, "Space is not served", "Spaces are not served")
        held = "it" if stale == 1 else "them"
        yield (
            f"{served}, for nothing confirmed in time what is held of {held}: is `python -m indexer run` running with "
            "the API's SPACES_KEY_FILE, or `spaces`? `python -m indexer doctor` tells"
        )
    elif (waited := _waited(spaces, staleness)) is not None:
        yield (
            f"Spaces have waited for {_for_long(waited)} to be looked at: is `python -m indexer run` running with "
            "the API's SPACES_KEY_FILE, or `spaces`? `python -m indexer doctor` tells"
        )
    if spaces.unlisted:
        of = _counted(sum(spaces.unlisted.values()), "Space", "Spaces")
        yield f"the authors of {of} cannot be listed ({_reasons(spaces.unlisted)}): that is tried again"
    if spaces.unpulled:
        repos = _counted(sum(spaces.unpulled.values()), "repo", "repos")
        yield f"{repos} in Spaces cannot be pulled ({_reasons(spaces.unpulled)}): that is tried again"


def _waited(spaces: SpaceCounts, staleness: timedelta) -> timedelta | None:
    """For how long nobody has worked on Spaces, if that is worth a word."""
    swept, late = timedelta(seconds=spaces.swept_s), timedelta(seconds=max(spaces.pulls_late_s, spaces.notes_late_s))
    if late > SPACES_WORTH_SAYING or swept > max(SPACES_WORTH_SAYING, staleness / 2):
        return max(swept, late)
    return None


def _erasure_problems(erasure: ErasureStatus) -> Iterator[str]:
    if erasure.is_overdue:
        last = "never" if erasure.last_at is None else f"last at {_minute(erasure.last_at)}"
        yield (
            f"what was deleted may be in the files of the database still, which were {last} rid of it: "
            "`python -m indexer run` sees to that twice a day, and says in its log if it cannot (`erasure_failed`)"
        )


def render(
    status: IndexStatus, now: datetime, set_up: SpacesSetUp | None = None, staleness: timedelta = SPACES_STALENESS
) -> str:
    """The whole screen, without a final line break; takes what `problems` does."""
    memories, wrong = status.memories, problems(status, now, set_up, staleness)
    verdict = "\n  ".join(["Not all is well", *wrong]) if wrong else "All is well"
    held = f"Memories   {memories.current:,} current, {memories.masked:,} masked, {memories.invalid:,} invalid"
    if (erased_at := status.erasure.last_at) is not None:
        held += f"\nErasure    the files were last rid of what was deleted at {_minute(erased_at)}"
    sections = [
        ("Cursors", _cursors(status) or ["none: nothing was followed or replayed yet"]),
        ("Repos", [_group(group) for group in status.repos] or ["none"]),
        ("Search by meaning", [_model(model) for model in status.embeddings] or [_NO_MODEL]),
        ("Private Spaces", _spaces(status.spaces, set_up)),
        ("Invalid records", [f"{records:>8,}  {reason}" for reason, records in status.invalid.items()]),
        ("Fetches", _fetches(status)),
        ("Gaps", _gaps(status)),
        ("Searches for repos that are not through", _sweeps(status)),
        ("To be asked of hosts", _requests(status)),
        ("Not applied", _rejections(status)),
        ("Kept aside", _backlog(status)),
    ]
    return "\n\n".join([verdict, held, *("\n  ".join([title, *lines]) for title, lines in sections if lines)])


def _spaces(spaces: SpaceCounts, set_up: SpacesSetUp | None) -> list[str]:
    counted = [
        *((spaces.spaces.get(state, 0), words, words) for state, words in _SPACE_STATES.items()),
        (spaces.told, "whose host tells of writes", "whose hosts tell of writes"),
        *((spaces.repos.get(state, 0), *words) for state, words in _SPACE_REPO_STATES.items()),
        (spaces.pulls, "repo waits to be pulled", "repos wait to be pulled"),
        (spaces.notes, "note of the API waits to be acted upon", "notes of the API wait to be acted upon"),
    ]
    lines = [_listed(number, one, several) for number, one, several in counted if number]
    if set_up is None or not (set_up.kept or lines):
        return lines
    return [_ways(set_up), *(lines or ["none is open"])]


def _ways(set_up: SpacesSetUp) -> str:
    if not set_up.kept:
        return "off: SPACES_KEY_FILE is not set here"
    if set_up.syncer is None:
        return "notifications: sweeps only, for APPVIEW_PUBLIC_URL is not set to a URL by https and a name"
    return f"notifications: on, as {set_up.syncer}"


def _reasons(failing: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in failing.items())


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _listed(number: int, one: str, several: str) -> str:
    return f"{number:>8,}  {one if number == 1 else several}"


def _for_long(waited: timedelta) -> str:
    if waited < timedelta(hours=2):
        return f"{waited // timedelta(minutes=1)} minutes"
    return f"{waited / timedelta(hours=1):,.1f} hours"


def _cursors(status: IndexStatus) -> list[str]:
    return [_cursor(cursor) for cursor in status.cursors]


def _cursor(cursor: CursorStatus) -> str:
    text = f"{cursor.source}  seq {cursor.seq}"
    if cursor.frame_time is not None:
        text += f", at {cursor.frame_time:%Y-%m-%d %H:%M:%S} UTC of its stream"
    return text + (", followed" if cursor.followed else ", not followed")


def _requests(status: IndexStatus) -> list[str]:
    return [
        f"{request.requests:>8,}  {request.kind} ({request.reason}), since {_minute(request.oldest)}"
        for request in status.requests
    ]


def _fetches(status: IndexStatus) -> list[str]:
    fetches = status.fetches
    lines = [
        _listed(repos, *words)
        for repos, *words in (
            (fetches.under_way, "under way", "under way"),
            (fetches.waiting, "waits for a first attempt", "wait for a first attempt"),
        )
        if repos
    ]
    return lines + [
        f"{failed.repos:>8,}  failed ({failed.reason}), next attempt {_minute(failed.next_attempt)}"
        for failed in fetches.failed
    ]


def _gaps(status: IndexStatus) -> list[str]:
    return [
        f"{gap.source}  before {_minute(gap.gap_at)}: {gap.asked:,} of {_counted(gap.repos, *_HOSTS)} asked"
        for gap in status.gaps
    ]


def _sweeps(status: IndexStatus) -> list[str]:
    return [
        f"{sweep.origin}  {_counted(sweep.repos_found, 'repo', 'repos')} found since {_minute(sweep.started_at)}, "
        f"the last at {_minute(sweep.updated_at)}"
        for sweep in status.sweeps
    ]


def _rejections(status: IndexStatus) -> list[str]:
    return [
        f"{rejection.times:>8,}  {rejection.reason} ({rejection.effect}) from {rejection.source}"
        for rejection in status.rejections
    ]


def _backlog(status: IndexStatus) -> list[str]:
    if not (status.parked_commits or status.quarantined_frames):
        return []
    meanwhile = f", {status.parked_for_fetch:,} of them while their repo is fetched" if status.parked_for_fetch else ""
    parked = _listed(status.parked_commits, "parked commit", "parked commits")
    return [
        f"{parked} ({status.parked_bytes:,} bytes){meanwhile}",
        _listed(status.quarantined_frames, "quarantined frame", "quarantined frames"),
    ]


def _group(group: ReposStatus) -> str:
    text = f"{group.repos:>8,}  {group.state}"
    if group.reason:
        text += f" ({group.reason})"
    if not group.visible:
        text += f", hidden: {group.status or 'inactive'}"
    elif group.reason == _TAKEN_DOWN:
        text += f": {_TAKEN_DOWN_HINT}"
    elif hint := _STATE_HINTS.get(group.state):
        text += f": {hint}"
    text += f"; {_counted(group.memories, 'memory', 'memories')}"
    if group.over_quota:
        text += f", {group.over_quota:,} over quota"
    return text


def _model(model: EmbeddingStatus) -> str:
    text = f"{model.model}  {_MODEL_STATES[model.state]}"
    if model.state != "leaving":
        wait = _counted(model.waiting, "memory waits for its vectors", "memories wait for their vectors")
        text += f", {wait}" if model.waiting else ", nothing waits"
        if model.walks < FIRST_WALKS:
            text += ", and it is looked for more"
    return text


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
