"""`python -m benchmarks.freshness_network SECONDS`: a relay for `freshness`; see `benchmarks.doubles`."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from benchmarks.doubles import Flow, Relay, directory_of, serve
from benchmarks.population import commits, population, settled

REPOS: Final = 500
COMMITS_PER_S: Final = 200
FIRST_MEMORIES: Final = 20  # of each repo


async def main(seconds: float) -> None:
    """Signs all commits, then serves."""
    people = population("fresh", REPOS)
    first = settled(people, FIRST_MEMORIES)
    frames = list(commits(people, round(seconds * COMMITS_PER_S)))
    relay = Relay(first, [Flow("commits", frames, COMMITS_PER_S, told=True)])
    await serve([relay], directory_of(people))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
