"""What a benchmark reports."""

from __future__ import annotations

from dataclasses import dataclass, field


class NotHere(Exception):
    """What a benchmark needs beside the checkout is not on this machine."""


@dataclass(frozen=True, slots=True)
class Result:
    """One JSON line, and notes for people."""

    name: str
    value: float
    unit: str
    peer_value: float | None = None  # what it is compared with, in the same run and unit
    ratio: float | None = None  # value / peer_value
    notes: tuple[str, ...] = ()
    beside: dict[str, float] = field(default_factory=dict[str, float])  # more figures, units in their names
