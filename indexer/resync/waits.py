"""How long what failed waits for its next attempt. No I/O, no clock, no end: nothing is ever abandoned."""

from __future__ import annotations

import random
from typing import Final

from indexer.back_off import back_off_s
from memory.outbound_errors import HostNotAsked, HostUnavailable

FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 24 * 3600.0
SHORTEST_WAIT_S: Final = 1.0

_JITTER: Final = 0.25  # so that what failed together does not come back together


def next_wait_s(attempts: int, randomness: random.Random, *, retry_after_s: float | None = None) -> float:
    """The seconds to wait after so many attempts on end that failed, the last of which may have said how long.

    Doubles from `FIRST_WAIT_S` and stays within a day, also where a host asks for more.
    """
    wait_s = back_off_s(attempts, FIRST_WAIT_S, LONGEST_WAIT_S) * randomness.uniform(1 - _JITTER, 1.0)
    return wait_s if retry_after_s is None else max(wait_s, spread_s(retry_after_s, randomness))


def host_wait_s(failure: HostUnavailable, randomness: random.Random) -> float | None:
    """The seconds that everything at a host waits, for reasons of the host's; null: what was asked for has failed.

    Who was not asked, or was told when to come back, has made no attempt.
    """
    if failure.retry_after_s is None and not isinstance(failure, HostNotAsked):
        return None
    return spread_s(failure.retry_after_s or 0.0, randomness)


def spread_s(least_s: float, randomness: random.Random) -> float:
    """At least so long, and a little longer, so that not all come back at once; a day at most."""
    if least_s >= LONGEST_WAIT_S:
        return LONGEST_WAIT_S * randomness.uniform(1 - _JITTER, 1.0)
    least_s = max(least_s, SHORTEST_WAIT_S)
    return randomness.uniform(least_s, min(least_s * (1 + _JITTER), LONGEST_WAIT_S))
