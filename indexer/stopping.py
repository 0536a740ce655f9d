"""How a process that runs on and on is asked to stop: an exception inside its group of tasks."""

from __future__ import annotations

import asyncio
import signal


class Stopped(Exception):
    """The process is to stop: a signal asked for it, or who started it has ended."""


async def stop_at_signal() -> None:
    """Raises Stopped at SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await stop.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    raise Stopped
