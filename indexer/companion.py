"""Keeps another command of ours running beside this process, for as long as this one lives, and no longer.

What fetches and verifies whole repos has a process of its own, so that neither its memory nor its work is in the way of
what comes live. It holds a pipe of which this process has the other end: when this one is killed, it ends too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from indexer.back_off import back_off_s
from indexer.stopping import Stopped
from memory.telemetry import get_logger

WITH_PARENT: Final = "--with-parent"  # the option by which a command ends with its standard input

_BACK_OFF_FIRST_S: Final = 1.0
_BACK_OFF_MAX_S: Final = 60.0
_LIVED_LONG_S: Final = 60.0  # after which the next end starts with the first back-off again
_GRACE_S: Final = 10.0
_NICENESS: Final = 10


@dataclass(frozen=True, slots=True)
class Companion:
    """A command of `python -m indexer`."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None  # null: this process' own
    back_off_first_s: float = _BACK_OFF_FIRST_S

    async def keep(self, ended: Callable[[], None], heard: Callable[[bytes], None] | None = None) -> None:
        """Runs it until cancelled; each time that it ends by itself it is told, and started again.

        `heard` is told the little that it said on its standard output, whenever and however it ends.
        """
        ends = 0
        while True:
            began = monotonic()
            process = await self._start(None if heard is None else PIPE)
            try:
                code = await process.wait()
            finally:
                await _end(process)
                if heard is not None and process.stdout is not None:
                    heard(await process.stdout.read())
            ended()
            ends = 1 if monotonic() - began > _LIVED_LONG_S else ends + 1
            wait_s = back_off_s(ends, self.back_off_first_s, _BACK_OFF_MAX_S)
            get_logger().error("companion_ended", command=self.arguments[0], code=code, seconds=wait_s)
            await asyncio.sleep(wait_s)

    async def _start(self, output: int | None) -> Process:
        environment = os.environ if self.environment is None else self.environment
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "indexer", *self.arguments, WITH_PARENT, stdin=PIPE, stdout=output, env=environment
        )


async def _end(process: Process) -> None:
    """Lets it end in peace, for a while."""
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def give_way() -> None:
    """Has this process run when there is nothing else to do: what it catches up with is late already."""
    os.nice(_NICENESS)


async def stop_with_parent() -> None:
    """Raises Stopped when whoever started this process with a pipe has closed it, or was killed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(1024):
            pass
    finally:
        transport.close()
    raise Stopped
