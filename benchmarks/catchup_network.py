"""`python -m benchmarks.catchup_network FRAMES`: a relay that has a gap to make up for; see `benchmarks.doubles`.

Whoever comes first gets the frames by which 1,000 people become tracked, with 20 memories each. Whoever comes then gets
what it missed meanwhile as fast as it is read: of a hundred frames 99 are others' posts of 6 kB, one is of the tracked
people, and a tenth of those are memories. The tracked people's are signed beforehand, each on top of the one before;
the others' are a few thousand, sent again and again with another seq.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from time import perf_counter
from typing import Final

from websockets.asyncio.server import ServerConnection

from benchmarks.doubles import Relay, directory_of, numbered, seq_place, serve, tell
from benchmarks.memory_network import strangers_frames, tracked_frames
from benchmarks.population import population, settled
from benchmarks.source import message
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder

TRACKED: Final = 1000
FIRST_MEMORIES: Final = 20  # of each
OTHERS: Final = 99  # before each frame of the tracked
_SEQ: Final = struct.Struct(">Q")


class Pack:
    """Messages of others that are sent together, again and again."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        messages = [message(numbered(frame, 0)) for frame in frames]
        self._bytes = bytearray(b"".join(messages))
        self._places: list[int] = []
        start = 0
        for each in messages:
            self._places.append(start + seq_place(each))
            start += len(each)

    def numbered(self, first_seq: int) -> bytes:
        """As they go over the wire, from that seq on."""
        for seq, place in enumerate(self._places, start=first_seq):
            _SEQ.pack_into(self._bytes, place, seq)
        return bytes(self._bytes)


@dataclass
class Backlog(Relay):
    """A relay whose second subscriber was away for so many frames, which is told when they begin."""

    others: list[Pack] = field(default_factory=list[Pack])
    tracked: list[bytes] = field(default_factory=list[bytes])
    memories: int = 0  # among them

    async def follow(self, connection: ServerConnection) -> None:
        """Sends what comes first, then what was missed."""
        if self.subscribers == 0:
            await super().follow(connection)
            return
        self.subscribers += 1
        last = self._seq + len(self.tracked) * (OTHERS + 1)
        tell({"flow": "gap", "seq": last, "at": perf_counter(), "label": str(self.memories)})
        for part in self._parts():
            await self._drained(connection)
            connection.transport.write(part)
        await connection.wait_closed()

    def _parts(self) -> Iterator[bytes]:
        seq = self._seq + 1
        for pack, frame in zip(cycle(self.others), self.tracked, strict=False):
            yield pack.numbered(seq) + message(numbered(frame, seq + OTHERS))
            seq += OTHERS + 1


def memories_of(known: Sequence[RepoBuilder]) -> int:
    """How many they hold."""
    return sum(path.startswith(COLLECTION) for person in known for path in person.records)


def people() -> list[RepoBuilder]:
    """Who is tracked."""
    return population("catchup", TRACKED)


async def main(frames: int) -> None:
    """Signs all frames, then serves."""
    known, strangers = people(), strangers_frames()
    first = settled(known, FIRST_MEMORIES)
    packs = [Pack(strangers[start : start + OTHERS]) for start in range(0, len(strangers) - OTHERS, OTHERS)]
    held = memories_of(known)
    tracked = [frame for frame, _ in islice(tracked_frames(known), frames // (OTHERS + 1))]
    backlog = Backlog(first, others=packs, tracked=tracked, memories=memories_of(known) - held)
    await serve([backlog], directory_of(known))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
