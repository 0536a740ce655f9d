"""What was found, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum


class State(StrEnum):
    """How one thing is."""

    OK = "ok"
    WARNING = "warning"  # it works, and could be better
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    what: str  # was found
    fix: str | None  # a sentence on what to do; null: nothing is to be done


@dataclass(frozen=True, slots=True)
class Report:
    """All that was looked at, in the order in which to mend it."""

    checks: tuple[Check, ...]

    @property
    def failed(self) -> bool:
        """Whether something does not work."""
        return any(check.state is State.FAILED for check in self.checks)

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"failed": self.failed} | asdict(self), ensure_ascii=False)

    def to_text(self) -> str:
        """A line a check, what is to be done below it, and a last line that sums up."""
        return "\n".join([*self._lines(), "", self._summary()])

    def _lines(self) -> Iterator[str]:
        width = max(len(check.name) for check in self.checks)
        for check in self.checks:
            yield f"{check.state:<7}  {check.name:<{width}}  {check.what}"
            if check.fix is not None:
                yield f"{'':<7}  → {check.fix}"

    def _summary(self) -> str:
        failed, warned = (sum(check.state is state for check in self.checks) for state in (State.FAILED, State.WARNING))
        if not failed:
            return "All is well." if not warned else f"All that is needed works; warnings: {warned}."
        return f"Failed: {failed} of {len(self.checks)}; warnings: {warned}."


def passed(name: str, what: str) -> Check:
    """It is well."""
    return Check(name, State.OK, what, None)


def warned(name: str, what: str, fix: str) -> Check:
    """It works, and should be mended."""
    return Check(name, State.WARNING, what, fix)


def failed(name: str, what: str, fix: str) -> Check:
    """It does not work."""
    return Check(name, State.FAILED, what, fix)
