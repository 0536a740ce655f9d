"""Which part of so many places may be held by hosts that keep us waiting: the others are left to those that are quick.

A host is quick if what it was last asked came at once, and a stranger else: never asked, or waited for longer than a
moment just now. Strangers never hold more than a part of the places. Who of them was waited for longer than their trial
is broken off when somebody else's turn has come; a trial is longer with each attempt, so that whoever is slow and means
well gets through some day. Long trials never hold more than a part of strangers' places: who was never asked does not
wait for their ends. Only the waiting counts, not what is done with an answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from indexer.resync.worker import reason_of
from memory.errors import MemoryAppviewError, Rejected
from memory.outbound_errors import HostUnavailable
from memory.outbound_hosts import site_of

QUICK_S: Final = 2.0
# What is large, or comes in several answers, may take longer: for its bytes, and for each answer, up to some seconds.
QUICK_BYTES_PER_S: Final = 1024 * 1024
ANSWER_S: Final = 0.5  # about as long as our own pace may keep a question waiting
LARGE_S_MAX: Final = 8.0
STRANGERS_PART: Final = 2
LONG_TRIALS_PART: Final = 2
TRIAL_MAX_S: Final = 3600.0
HOSTS_KNOWN: Final = 10_000
QUICK_TOLD: Final = 1_000


class HostTooSlow(HostUnavailable):
    """A host was waited for while others had to wait, and is asked again later."""


def word_for(failure: MemoryAppviewError) -> str:
    """One word for it, as it is counted and shown."""
    return "host_too_slow" if isinstance(failure, HostTooSlow) else reason_of(failure)


class Turn:
    """One piece of work, which waits for `key`: a host, or whoever stands for one; null: it has not asked yet."""

    def __init__(self, key: str | None, trial_s: float, clock: Callable[[], float], *, is_trusted: bool) -> None:
        self.key = key
        self.is_trusted = is_trusted  # until it asks
        self.is_broken_off = False
        self.answers = 0
        self._is_named = key is not None
        self._has_asked = False
        self.trial_s = trial_s  # for how long it may wait though others have to
        self._clock = clock
        self._scope: asyncio.Timeout | None = None
        self._bytes = 0
        self._waited_s = 0.0
        self._since: float | None = None

    @property
    def waited_s(self) -> float:
        """How long it has waited so far."""
        return self._waited_s + (0.0 if self._since is None else self._clock() - self._since)

    @property
    def is_slow(self) -> bool:
        """Whether it has waited for longer than a quick host takes."""
        return self.waited_s > QUICK_S + self._large_s

    @property
    def is_over(self) -> bool:
        """Whether it waits now, and has for longer than its trial."""
        return self._scope is not None and self._since is not None and self.waited_s > self.trial_s + self._large_s

    @property
    def is_slow_now(self) -> bool:
        """Whether it waits now, and has for longer than a quick host takes."""
        return self._scope is not None and self._since is not None and self.is_slow

    @property
    def _large_s(self) -> float:
        if not self._has_asked:  # a directory of many is not slow for one's sake
            return LARGE_S_MAX
        return min(self._bytes / QUICK_BYTES_PER_S + self.answers * ANSWER_S, LARGE_S_MAX)

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """A block that can be broken off while it waits: until it asks somebody, and then for answers.

        Raises HostTooSlow if it is.
        """
        self.is_broken_off = False
        self._since = self._clock()
        try:
            async with asyncio.timeout(None) as self._scope:
                yield
        except TimeoutError:
            if not self.is_broken_off:
                raise
            raise HostTooSlow("others waited", host=self.key or "") from None
        finally:
            self._scope = None
            self._rest()

    @contextmanager
    def asking(self, host: str) -> Generator[None]:
        """Waits for `host` within the block; a refusal is an answer too."""
        if not self._is_named:
            self.key = host
        if not self._has_asked:
            self._has_asked, self._waited_s = True, 0.0
        self._since = self._clock()
        try:
            yield
        except Rejected:
            self.answers += 1
            raise
        finally:
            self._rest()

    def received(self, size: int, *, begins: bool = True) -> None:
        """So many bytes came, which begin an answer, or go on with one."""
        self._bytes += size
        self.answers += begins

    def break_off(self) -> None:
        """Ends what it waits for, which it does if it `is_over`."""
        if self._scope is not None:
            self.is_broken_off = True
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _rest(self) -> None:
        self._waited_s, self._since = self.waited_s, None


class Lanes:
    """The turns of one kind of work, `at_once` at a time, and what is known of whom they wait for."""

    def __init__(self, at_once: int, *, monotonic: Callable[[], float]) -> None:
        self._strangers_max = max(1, at_once // STRANGERS_PART)
        self._monotonic = monotonic
        self._turns: set[Turn] = set()
        self._quick: OrderedDict[str, bool] = OrderedDict()  # whether each was, the last that was heard last
        self._slow_sites: OrderedDict[str, None] = OrderedDict()
        self.broken_off = 0

    def is_quick(self, key: str) -> bool:
        """Whether its last answer came at once."""
        return self._quick.get(key, False)

    def is_slow(self, key: str) -> bool:
        """Whether it kept us waiting, or, where it was never asked, another host of its site did."""
        known = self._quick.get(key)
        return not known if known is not None else bool(key) and site_of(key) in self._slow_sites

    def quick(self) -> list[str]:
        """Some that are quick, those that were heard last first."""
        found = (key for key in reversed(self._quick) if self._quick[key])
        return [key for key, _ in zip(found, range(QUICK_TOLD), strict=False)]

    @property
    def free(self) -> int:
        """How many strangers more there may be."""
        return max(0, self._strangers_max - len(self._strangers()))

    @property
    def room(self) -> int:
        """The same, with the places of those whose trial is over."""
        return self.free + len(self._over(self._strangers()))

    def make_room(self, strangers: int = 0) -> None:
        """Breaks off as many as have to be for so many strangers more, if their trials are over; the longest first."""
        there = self._strangers()
        for turn in self._over(there)[: max(0, len(there) + strangers - self._strangers_max)]:
            turn.break_off()
            self.broken_off += 1

    @contextmanager
    def turn(self, attempts: int, key: str | None = None, *, is_trusted: bool = False) -> Generator[Turn]:
        """A turn, for the attempt of that number.

        Without `key` it waits for whichever host it asks, and is a stranger's until then unless it `is_trusted`.
        """
        trial_s = min(QUICK_S * 2.0 ** min(attempts - 1, 20), TRIAL_MAX_S)
        turn = Turn(key, trial_s, self._monotonic, is_trusted=is_trusted)
        self._turns.add(turn)
        try:
            yield turn
        finally:
            self._turns.discard(turn)
            self._learn(turn)

    def _strangers(self) -> list[Turn]:
        return [turn for turn in self._turns if not turn.is_broken_off and (turn.is_slow or not self._is_trusted(turn))]

    def _over(self, strangers: Iterable[Turn]) -> list[Turn]:
        """Who can be broken off, the first first: whose trial is over, then of too many long ones the longest."""
        waiting = sorted((turn for turn in strangers if turn.is_slow_now), key=lambda turn: -turn.waited_s)
        over = [turn for turn in waiting if turn.is_over]
        long = sorted((turn for turn in waiting if not turn.is_over), key=lambda turn: -turn.trial_s)
        return over + long[: max(0, len(long) - self._strangers_max // LONG_TRIALS_PART)]

    def _is_trusted(self, turn: Turn) -> bool:
        return turn.is_trusted if turn.key is None else self.is_quick(turn.key)

    def _learn(self, turn: Turn) -> None:
        if turn.key is None or not (turn.answers or turn.is_slow):
            return
        quick = not turn.is_slow
        self._quick[turn.key] = quick
        self._quick.move_to_end(turn.key)
        if not quick and (site := site_of(turn.key)):
            self._slow_sites[site] = None
            self._slow_sites.move_to_end(site)
        for known in (self._quick, self._slow_sites):
            while len(known) > HOSTS_KNOWN:
                known.popitem(last=False)
