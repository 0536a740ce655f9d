"""Other processes that fetch along with a command: one verifies and writes some tens of repos a second, and no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from indexer.companion import Companion
from memory.tasks import TaskGroup

# Repos for each process: fewer would be fetched before another had begun.
WORTH_A_PROCESS: Final = 32
# Of the repos that are fetched at a time: with fewer, a process waits for hosts more than it works.
REPOS_EACH: Final = 4


def processes_for(repos_at_once: int, cores: int, repos_at_once_of_a_host: int, expected: int | None = None) -> int:
    """How many processes share the work; of one host's slots each needs one. `expected`: repos; null: any number."""
    worth = cores if expected is None else expected // WORTH_A_PROCESS
    return max(1, min(cores, repos_at_once // REPOS_EACH, repos_at_once_of_a_host, worth))


class Crew:
    """Those processes, this one excepted."""

    def __init__(self, companions: Sequence[Companion]) -> None:
        self.fetched = self.records = 0  # of those that have ended in peace
        self._companions = companions

    async def run(self) -> None:
        """Has them fetch until cancelled."""
        async with TaskGroup() as tasks:
            for companion in self._companions:
                tasks.create_task(companion.keep(lambda: None, self._hear))

    def _hear(self, said: bytes) -> None:
        """The last words of one: none, if it was killed."""
        if said:
            told = json.loads(said)
            self.fetched += told["fetched"]
            self.records += told["records"]
