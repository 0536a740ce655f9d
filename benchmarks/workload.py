"""One-op commits of many repos, really signed, interleaved as a stream brings them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from memory.identity import PlcExport
from tests.builders import RepoBuilder, Sequence, memory, tid
from tests.recorded import directory

SUBJECTS = ("The user", "Mara", "Her brother", "The team", "Their landlord", "The old dog", "Kenji", "A colleague")
VERBS = ("prefers", "decided on", "moved to", "no longer likes", "is allergic to", "works with", "asked about")
OBJECTS = ("green tea", "the blue flat in Porto", "Postgres", "walnuts", "the Tuesday meeting", "a night train", "jazz")


@dataclass(frozen=True, slots=True)
class Workload:
    """Frames in order of seq, and the directory that verifies them."""

    frames: list[bytes]
    export: PlcExport


def one_op_commits(repos: int, commits_each: int, seed: int = 7) -> Workload:
    """`repos` × `commits_each` commits that create one memory each, round-robin, after an empty first commit."""
    draw = random.Random(seed)
    stream = Sequence()
    builders = [RepoBuilder(f"bench{number}", stream=stream) for number in range(repos)]
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    frames: list[bytes] = [frame for builder in builders for frame in builder.genesis()]
    for _ in range(commits_each):
        for builder in builders:
            created_at += timedelta(seconds=1)
            words = (draw.choice(SUBJECTS), draw.choice(VERBS), draw.choice(OBJECTS))
            text = f"{' '.join(words)}, said on day {draw.randrange(999)}."
            record = memory(text, kind=draw.choice(("fact", "preference")), scope=draw.choice(("work", "home")))
            frames.append(builder.create(tid(created_at, draw.randrange(1024)), record))
    return Workload(frames, directory(builders))
