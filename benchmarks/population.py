"""People whose repos a daemon knows: the same in the process that writes for them and in the one that measures."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from benchmarks.doubles import stream_from
from benchmarks.workload import OBJECTS, SUBJECTS, VERBS
from memory.database import Database
from memory.identity import Identity
from memory.store.identities import store_identities
from tests.builders import RepoBuilder, Sequence, Write, memory, tid

# Frames are dated before they are sent, a second apart, and none may lie ahead of the clock.
_AGE: Final = timedelta(days=7)
_ALPHABET: Final = "bcfghjkmnpqtvwxz"  # no word of any language, and with no ending that a stemmer would cut
_WORD_LETTERS: Final = 7


def population(name: str, count: int, stream: Sequence | None = None) -> list[RepoBuilder]:
    """So many people, always the same of one name; null: a stream of their own."""
    stream = stream or new_stream()
    return [RepoBuilder(f"{name}{number}", stream=stream) for number in range(count)]


def new_stream() -> Sequence:
    """For builders whose frames are sent by a double."""
    return stream_from(datetime.now(UTC) - _AGE)


async def know(database: Database, people: Iterable[RepoBuilder]) -> None:
    """Everybody's key is cached, as it is after the first day."""
    now = datetime.now(UTC)
    identities = [
        Identity(each.did, each.handle, each.host, each.did_key, tombstoned=False, resolved_at=now) for each in people
    ]
    async with database.connection() as conn:
        await store_identities(conn, identities)


def settled(people: Iterable[RepoBuilder], memories: int) -> list[bytes]:
    """The frames by which they become tracked, each with so many memories in one commit."""
    frames: list[bytes] = []
    draw = random.Random(17)
    for person in people:
        frames += person.genesis()
        writes = [
            Write("create", tid(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)), memory(sentence(draw)))
            for number in range(memories)
        ]
        frames.append(person.apply(writes))
    return frames


def commits(people: list[RepoBuilder], count: int, *, first: int = 0) -> Iterator[tuple[bytes, str]]:
    """So many commits of one memory each, from the `first` on, person by person, each with a word that no other has.

    The label is the memory's DID and rkey, and the word.
    """
    draw = random.Random(first)
    for number in range(first, first + count):
        person, rkey, word = people[number % len(people)], tid(person_time(number)), unique_word(number)
        frame = person.create(rkey, memory(f"{sentence(draw)} It was noted as {word}."))
        yield frame, f"{person.did}/{rkey} {word}"


def person_time(number: int) -> datetime:
    """When the memory of that number claims to be made: all after those of `settled`."""
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=number)


def sentence(draw: random.Random) -> str:
    """A memory's content."""
    return f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}, said on day {draw.randrange(9999)}."


def unique_word(number: int) -> str:
    """A word that stands for a number, and is found by itself only."""
    letters = (_ALPHABET[number >> 4 * place & 15] for place in range(_WORD_LETTERS))
    return "".join(letters)
