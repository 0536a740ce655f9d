"""A worker that embeds all there is, and is killed (-9) at its nth word to the database; run as a program by
`test_kill_embed.py`.

    python -m tests.service.embed_killed URL N      N = 0: lives, and prints how many words there were

A word is a statement, a begin or a commit: every seam between two writes is before one and after another.
"""

from __future__ import annotations

import asyncio
import sys

from memory.database import open_database
from tests.embedding_double import Double, work_off, worker_of
from tests.service.fetch_killed import Counted
from tests.service.replay_killed import Countdown


async def main(url: str, kill_at: int) -> None:
    """Embeds until nothing waits, up to the nth word."""
    async with open_database(url, application_name="killed", connections=2) as opened:
        Counted.countdown = Countdown(kill_at)
        database = Counted(opened.pool)
        await work_off(database, worker_of(database, Double("a"), Double("b", gives=5)))
    print(Counted.countdown.words)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
