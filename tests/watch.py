"""A consumer by itself, with the directory and the streams that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from indexer.arrivals import Arrival, Position, Source
from indexer.consumer import Consumer, frame_clock
from tests.builders import RepoBuilder, Sequence, memory
from tests.feed import LONG_AGO, PDS, RELAY, Directory, rkey


@dataclass
class Watch:
    """A consumer with what it was given, and an account that it may know."""

    admits: Callable[[str], bool] = lambda _: True
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    tracked: set[str] = field(default_factory=set[str])
    directory: Directory = field(default_factory=Directory)

    def __post_init__(self) -> None:
        self.stream = Sequence()
        self.consumer = Consumer(
            identities=self.directory,
            clock=frame_clock(LONG_AGO),
            tracked=self.tracked,
            admits=self.admits,
            cursors=self.cursors,
        )

    def account(self, seed: str = "alice", *, host: str = PDS.url, known: bool = True) -> RepoBuilder:
        builder = RepoBuilder(seed, host=host, stream=self.stream)
        if known:
            self.directory.announce(builder, LONG_AGO)
        return builder

    def take(self, frame: bytes, source: Source = RELAY) -> list[Arrival]:
        return self.consumer.take(source, frame)[0]

    def covers(self, frame: bytes, source: Source = RELAY) -> Position | None:
        return self.consumer.take(source, frame)[1]


def first_commit(watch: Watch, builder: RepoBuilder) -> bytes:
    """Tracks the builder's repo."""
    frame = builder.create(rkey(1), memory("tea"))
    watch.take(frame)
    return frame
