"""The one error tree, in three fates.

`Rejected`: their data is wrong; count it under its reason and go on.
`Unavailable`: something outside is not there now; retry with back-off.
`Misconfigured`: ours to mend; exit and say which setting.

A class's docstring is its default message; context goes into attributes, never record text, queries, tokens or Space
URIs.
"""

from __future__ import annotations


class MemoryAppviewError(Exception):
    """Something went wrong in the memory AppView."""

    def __init__(self, message: str | None = None, **context: object) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.context = context
        super().__init__(self.message)


class Rejected(MemoryAppviewError):
    """What was received is not acceptable."""

    reason = "rejected"

    def __init__(self, message: str | None = None, *, reason: str | None = None, **context: object) -> None:
        if reason is not None:
            self.reason = reason
        super().__init__(message, **context)


class Unavailable(MemoryAppviewError):
    """Something that is needed is not reachable at the moment."""


class Misconfigured(MemoryAppviewError):
    """A setting or an input cannot be used as it is."""

    def __init__(self, message: str | None = None, *, setting: str | None = None, **context: object) -> None:
        self.setting = setting
        super().__init__(message, **context)
