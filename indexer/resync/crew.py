"""Other processes that fetch along with a command: one verifies and writes some tens of repos a second, and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final

from indexer.companion import Companion
from memory.tasks import TaskGroup

# Fetches that wait, for each process: fewer would be over before another had begun.
WORTH_A_PROCESS: Final = 32
# Of the repos that are fetched at a time: with fewer, a process waits for hosts more than it works.
REPOS_EACH: Final = 4
LOOK_S: Final = 0.5


def processes_for(repos_at_once: int, cores: int, repos_at_once_of_a_host: int) -> int:
    """How many processes share the work; of one host's slots each needs one."""
    return max(1, min(cores, repos_at_once // REPOS_EACH, repos_at_once_of_a_host))


class Crew:
    """Those processes, this one excepted."""

    def __init__(self, companions: Sequence[Companion]) -> None:
        self.fetched = self.records = 0  # of those that have ended in peace
        self._companions = companions

    async def run(self, left: Callable[[], int]) -> None:
        """Has them fetch until cancelled, once so much is left that it is worth while."""
        if not self._companions:
            return
        while True:
            if left() >= WORTH_A_PROCESS * (1 + len(self._companions)):
                break
            await asyncio.sleep(LOOK_S)
        async with TaskGroup() as tasks:
            for companion in self._companions:
                tasks.create_task(companion.keep(lambda: None, self._hear))

    def _hear(self, said: bytes) -> None:
        """The last words of one: none, if it was killed."""
        if said:
            told = json.loads(said)
            self.fetched += told["fetched"]
            self.records += told["records"]
