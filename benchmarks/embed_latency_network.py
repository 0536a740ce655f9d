"""`python -m benchmarks.embed_latency_network SECONDS`: a relay for `embed_latency`; see `benchmarks.doubles`."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from benchmarks.doubles import Flow, Relay, directory_of, serve
from benchmarks.population import commits, population, settled

REPOS: Final = 100
COMMITS_PER_S: Final = 20
FIRST_MEMORIES: Final = 2  # of each repo


async def main(seconds: float) -> None:
    """Signs all commits, then serves."""
    people = population("embed", REPOS)
    first = settled(people, FIRST_MEMORIES)
    frames = list(commits(people, round(seconds * COMMITS_PER_S)))
    relay = Relay(first, [Flow("commits", frames, COMMITS_PER_S, told=True)])
    await serve([relay], directory_of(people))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
