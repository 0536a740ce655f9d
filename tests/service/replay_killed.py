"""A replay that is killed (-9) at its nth word to the database; run as a program by `test_kill.py`.

    python -m tests.service.replay_killed URL N      N = 0: lives, and prints how many words there were

A word is a statement, a begin or a commit: every seam between two writes is before one and after another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from memory.database import Database, open_database
from memory.queries import Connection, Isolation
from tests.recorded import PDS1, frames_of, replay

BATCH_EVENTS = 20


class Countdown:
    """Counts words, and kills at the nth."""

    def __init__(self, kill_at: int) -> None:
        self.words = 0
        self._kill_at = kill_at

    def word(self) -> None:
        self.words += 1
        if self.words == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class CountedConnection:
    """A connection that says every word to the countdown first."""

    def __init__(self, conn: Any, countdown: Countdown) -> None:
        self._conn = conn
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        self._countdown.word()
        return getattr(self._conn, name)


class CountedDatabase(Database):
    """A database whose connections are counted."""

    countdown = Countdown(0)

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation | None = None, readonly: bool = False
    ) -> AsyncGenerator[Connection]:
        self.countdown.word()
        async with super().transaction(isolation=isolation, readonly=readonly) as conn:
            yield cast("Connection", CountedConnection(conn, self.countdown))
            self.countdown.word()
        self.countdown.word()


async def main(url: str, kill_at: int) -> None:
    """Replays the recording, up to the nth word."""
    CountedDatabase.countdown = Countdown(kill_at)
    async with open_database(url, application_name="killed", connections=2) as database:
        frames = frames_of("pds1-live.bin", "pds1-bulk.bin")
        await replay(CountedDatabase(database.pool), frames, PDS1, batch_events=BATCH_EVENTS)
    print(CountedDatabase.countdown.words)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
