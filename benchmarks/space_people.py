"""Spaces, who governs them, and who writes there: the same for their hosts and for what measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memory.space import SpaceRef
from tests.builders import RepoBuilder

AUTHORS_EACH: Final = 10
MEMORIES_EACH: Final = 50  # of each author
_TYPE: Final = "com.example.group"


@dataclass(frozen=True, slots=True)
class Community:
    """A Space of its own authority, whose authors write nowhere else."""

    space: SpaceRef
    authority: RepoBuilder
    authors: Sequence[RepoBuilder]


@dataclass(frozen=True, slots=True)
class Writer:
    """Where one of the writes happens that are waited for."""

    community: Community
    author: RepoBuilder


def communities(count: int, hosts: Sequence[str]) -> list[Community]:
    """So many, everybody at one of these hosts in turn: those of one Space are at as many as there are authors."""
    return [_community(number, hosts) for number in range(count)]


def writers(made: Sequence[Community], count: int) -> list[Writer]:
    """Who writes, Space by Space, and nobody twice: a repo that was just pulled rests for a while."""
    by_turns = zip(*(each.authors for each in made), strict=True)
    places = [Writer(each, author) for turn in by_turns for each, author in zip(made, turn, strict=True)]
    return places[:count]


def _community(number: int, hosts: Sequence[str]) -> Community:
    authority = RepoBuilder(f"authority{number}", host=hosts[number % len(hosts)])
    authors = [
        RepoBuilder(f"author{number}.{place}", host=hosts[(number * AUTHORS_EACH + place) % len(hosts)])
        for place in range(AUTHORS_EACH)
    ]
    return Community(SpaceRef(authority.did, _TYPE, "main"), authority, authors)
