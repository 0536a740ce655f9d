"""How far a long command is: a line that is drawn over for people, one every ten seconds for logs."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, TextIO

DRAWN_EVERY_S: Final = 0.25
LOGGED_EVERY_S: Final = 10.0
RATE_OVER_S: Final = 60.0
BAR_CHARS: Final = 20
COLUMNS: Final = 100  # where a terminal does not say

_ERASE_LINE: Final = "\r\x1b[K"


class Pace:
    """How fast something goes on, by what was done in the last minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, done: int) -> float:
        """What is done a second, now that so much is."""
        now = self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_OVER_S:
            self._seen.popleft()
        began, done_then = self._seen[0]
        return (done - done_then) / (now - began) if now > began else 0.0


class ProgressLine:
    """Writes lines to a stream; on a terminal each takes the place of the one before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = False
        self.interactive = stream.isatty()

    async def keep(self, line: Callable[[], str]) -> None:
        """Shows what `line` says, again and again, until cancelled."""
        while True:
            await asyncio.sleep(DRAWN_EVERY_S if self.interactive else LOGGED_EVERY_S)
            self._show(line())

    def _show(self, line: str) -> None:
        if self.interactive:
            self._stream.write(_ERASE_LINE + line[: _columns(self._stream) - 1])
            self._drawn = True
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def say(self, line: str) -> None:
        """A line that stays."""
        self.clear()
        self._stream.write(line + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Takes the last line away, where it was drawn."""
        if self._drawn:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
            self._drawn = False


def bar(done: int, total: int) -> str:
    """Such a part of a bar as is done."""
    full = BAR_CHARS * min(done, total) // total if total else 0
    return "█" * full + "░" * (BAR_CHARS - full)


def duration(seconds: float) -> str:
    """As people say it: `42 s`, `3 min 20 s`, `5 h 10 min`, `2 d 3 h`."""
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS
