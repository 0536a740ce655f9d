"""`python -m benchmarks.memory_network idle|replay [SECONDS]`: a relay for the memory benchmarks; see
`benchmarks.doubles`.

`idle` sends one frame of a stranger and then nothing. `replay` sends 2,000 frames a second: others' posts of 5.6
kB, 1% of 100 tracked repos, and a tenth of those with a memory. The tracked repos' commits are signed while it
runs, for each builds on the one before; the others' are a few thousand, sent again and again with another seq.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from itertools import count, cycle
from typing import Final

from benchmarks.doubles import Flow, Relay, directory_of, serve
from benchmarks.population import new_stream, person_time, population, sentence, settled
from tests.builders import RepoBuilder, memory, tid

TRACKED: Final = 100
FIRST_MEMORIES: Final = 20  # of each tracked repo
FRAMES_PER_S: Final = 2000
TRACKED_SHARE, MEMORY_SHARE = 0.01, 0.1  # of all frames; of the tracked repos' frames
_STRANGERS, _STRANGERS_FRAMES = 300, 3000
_POST: Final = "app.bsky.feed.post"
_PADDING: Final = "x" * 4500  # what embeds, facets and the covering nodes of a grown repo come to


async def main(kind: str, seconds: float) -> None:
    """Serves."""
    people = population("memory", TRACKED)
    if kind == "idle":
        await serve([Relay(population("stranger", 1)[0].genesis()[:1])], directory_of(()))
        return
    flows = [
        Flow("others", ((frame, "") for frame in cycle(strangers_frames())), FRAMES_PER_S, seconds=seconds),
        Flow("tracked", tracked_frames(people), FRAMES_PER_S * TRACKED_SHARE, seconds=seconds),
    ]
    await serve([Relay(settled(people, FIRST_MEMORIES), flows)], directory_of(people))


def strangers_frames() -> list[bytes]:
    """Posts of people who never wrote a memory."""
    strangers = population("stranger", _STRANGERS, new_stream())
    frames = [frame for stranger in strangers for frame in stranger.genesis()]
    while len(frames) < _STRANGERS_FRAMES:
        number = len(frames)
        stranger = strangers[number % _STRANGERS]
        frames.append(stranger.create(tid(person_time(number)), {"$type": _POST, "text": _PADDING}, _POST))
    return frames


def tracked_frames(people: list[RepoBuilder]) -> Iterator[tuple[bytes, str]]:
    """Posts and memories of those who are tracked, without an end."""
    draw = random.Random(31)
    for number in count():
        person, key = people[number % len(people)], tid(person_time(number))
        if draw.random() < MEMORY_SHARE:
            yield person.create(key, memory(sentence(draw))), ""
        else:
            yield person.create(key, {"$type": _POST, "text": _PADDING}, _POST), ""


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
