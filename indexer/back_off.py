"""How long to wait for what fails again and again. No I/O, no clock."""

from __future__ import annotations

from typing import Final

_DOUBLINGS_MAX: Final = 40


def back_off_s(failures: int, first_s: float, longest_s: float) -> float:
    """The seconds to wait after so many failures on end: twice as long each time."""
    return min(first_s * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS_MAX), longest_s)
