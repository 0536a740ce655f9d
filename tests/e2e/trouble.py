"""What goes wrong between a PDS and the daemon: torn streams, frames that come late, twice, spoilt, or never.

What cannot be noticed by anyone is left alone: a stream's own numbers, and statuses and identities, which nobody signs.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import libipld

from tests.fakes.proxy import Cut

LATE_S = 0.3
REMEMBERED = 30


@dataclass(frozen=True, slots=True)
class Odds:
    """How often what happens to a frame."""

    cut: float = 0.0
    truncated: float = 0.0
    late: float = 0.0
    repeated: float = 0.0
    spoilt: float = 0.0
    lost: float = 0.0


@dataclass
class Trouble:
    """What is made for all streams: the odds now, and whom it harmed: whose commits were spoilt or lost, so that they
    cannot be had from the stream again."""

    odds: Odds = Odds()
    harmed: set[str] = field(default_factory=set[str])
    made: Counter[str] = field(default_factory=Counter[str])


@dataclass
class TroubledStream:
    """Makes trouble for the frames of one stream."""

    trouble: Trouble
    draw: random.Random
    tears_left: int = 3  # each makes the daemon wait longer than the one before
    _before: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])

    async def treat(self, frame: bytes) -> Sequence[bytes]:
        """What the daemon gets instead of `frame`."""
        kind, did = _named(frame)
        if self.tears_left and self._happens("cut"):
            self.tears_left -= 1
            raise Cut
        if self.tears_left and self._happens("truncated"):
            self.tears_left -= 1
            return [frame[: self.draw.randrange(1, len(frame))]]
        if self._happens("late"):
            await asyncio.sleep(self.draw.uniform(0, LATE_S))
        if kind == "#commit" and self._happens("lost"):
            self.trouble.harmed.add(did)
            return []
        if kind == "#commit" and self._happens("spoilt"):
            self.trouble.harmed.add(did)
            return [self._spoilt(frame)]
        # A stream goes back in time when it is taken up again, but no source sends what it has not come to.
        seq = _seq(frame)
        self._before = [*(pair for pair in self._before[-REMEMBERED:] if pair[0] < seq), (seq, frame)]
        return [frame, self.draw.choice(self._before)[1]] if self._happens("repeated") else [frame]

    def _happens(self, what: str) -> bool:
        happens = self.draw.random() < getattr(self.trouble.odds, what)
        self.trouble.made[what] += happens
        return happens

    def _spoilt(self, frame: bytes) -> bytes:
        """One bit is another, and the number of the frame still its own."""
        while True:
            at = self.draw.randrange(len(frame))
            spoilt = frame[:at] + bytes([frame[at] ^ 1 << self.draw.randrange(8)]) + frame[at + 1 :]
            if _seq(spoilt) in (_seq(frame), 0):
                return spoilt


@dataclass
class Lag:
    """Holds a stream back until it may go on."""

    _may_pass: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    _over: bool = False

    def let_pass(self, frames: int) -> None:
        """So many more frames go on."""
        for _ in range(frames):
            self._may_pass.release()

    def end(self) -> None:
        """Nothing is held back any more."""
        self._over = True
        self._may_pass.release()

    async def hold(self, frame: bytes) -> Sequence[bytes]:
        """A frame when its time has come."""
        await self._may_pass.acquire()
        if self._over:
            self._may_pass.release()
        return [frame]


def _named(frame: bytes) -> tuple[str, str]:
    header, body = libipld.decode_dag_cbor_multi(frame)
    return header.get("t", ""), body.get("repo") or body.get("did") or ""


def _seq(frame: bytes) -> int:
    """0: it has none that can be read."""
    try:
        items = libipld.decode_dag_cbor_multi(frame)
    except ValueError:
        return 0
    body = items[1] if len(items) > 1 else None
    seq = body.get("seq") if isinstance(body, dict) else None
    return seq if isinstance(seq, int) else 0
