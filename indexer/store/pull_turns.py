"""In which order repos in Spaces are pulled: Spaces take turns, hosts that keep us waiting get a part. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

# So many turns of a Space later comes what is at a host that was slow.
SLOW_TURNS: Final = 4


@dataclass(frozen=True, slots=True, repr=False)
class DuePull:
    """A repo in a Space that is to be pulled."""

    author: str
    space: str
    host: str  # '': nobody knows it yet
    pull_after: datetime


def _none(_host: str) -> bool:
    return False


@dataclass(slots=True)
class PullTurns:
    """What one process knows of whose turn it is. By itself: all hosts are quick."""

    is_quick: Callable[[str], bool] = lambda _host: True  # their answers come at once
    is_slow: Callable[[str], bool] = _none  # they kept us waiting
    under_way: Counter[str] = field(default_factory=Counter[str])  # Space → pulls of this process
    strangers_at_most: int = 0  # pulls at hosts that are not quick, of the next claim
    after_space: str = ""  # up to which Spaces were looked at, where not all that is due was


class Order(NamedTuple):
    """Who is pulled, the first first; and who cannot be now, and stands before others."""

    strangers: Sequence[DuePull]
    quick: Sequence[DuePull]
    put_off: Sequence[DuePull]


def order(due: Iterable[DuePull], turns: PullTurns, *, each_host: int, busy_hosts: Collection[str]) -> Order:
    """The order of what is due, so many of each host."""
    busy = frozenset(busy_hosts)
    quick: list[DuePull] = []
    strangers: list[DuePull] = []
    put_off: list[DuePull] = []
    for each in sorted(due, key=lambda each: (each.pull_after, each.space, each.author)):
        if each.host in busy:
            put_off.append(each)
        else:
            (quick if turns.is_quick(each.host) else strangers).append(each)
    if turns.strangers_at_most == 0:
        put_off += strangers
        strangers.clear()
    return Order(
        _some_of_each(_by_turns(strangers, turns.under_way, turns.is_slow), each_host),
        _some_of_each(_by_turns(quick, turns.under_way, _none), each_host),
        _by_turns(put_off, {}, _none),
    )


def _by_turns(due: Sequence[DuePull], under_way: Mapping[str, int], is_slow: Callable[[str], bool]) -> list[DuePull]:
    places = Counter(under_way)
    ranked: list[tuple[int, DuePull]] = []
    for each in due:
        ranked.append((places[each.space] + (SLOW_TURNS if is_slow(each.host) else 0), each))
        places[each.space] += 1
    ranked.sort(key=lambda ranked: ranked[0])  # stable: of one turn the longest due is first
    return [each for _, each in ranked]


def _some_of_each(due: Sequence[DuePull], each_host: int) -> list[DuePull]:
    hosts: Counter[str] = Counter()
    some: list[DuePull] = []
    for each in due:
        hosts[each.host] += 1
        if not each.host or hosts[each.host] <= each_host:
            some.append(each)
    return some
