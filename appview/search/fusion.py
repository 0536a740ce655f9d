"""One order out of two arms. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLOPE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Likenesses of one model: of chance pairs (`low`), and of what surely belongs together (`high`)."""

    low: float = 0.30
    high: float = 0.45


@dataclass(frozen=True, slots=True)
class Fused:
    """`order`: what hits are sorted by, descending. `score`: 0 to 1, comparable between queries."""

    order: float
    score: float


def fuse(share: float | None, likeness: float | None, calibration: Calibration) -> Fused | None:
    """One memory's place: by the share that it has of the query's words, and by its likeness. None: it is no hit."""
    if share is None and (likeness is None or likeness <= calibration.low):
        return None
    meaning = 0.0 if likeness is None else likeness - calibration.low
    semantic = min(1.0, max(0.0, meaning / (calibration.high - calibration.low)))
    order = (share or 0.0) + SLOPE * meaning
    return Fused(order, min(1.0, max(share or 0.0, semantic)))
