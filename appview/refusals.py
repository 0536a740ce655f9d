"""What the API answers instead of a result: errors of XRPC, `{error, message}` under an HTTP status.

A message never repeats a query, record text or a Space URI.
"""

from __future__ import annotations

from typing import ClassVar

from memory.errors import Rejected


class Refusal(Rejected):
    """The request cannot be answered."""

    status: ClassVar[int] = 400
    error: ClassVar[str] = "InvalidRequest"


class InvalidRequest(Refusal):
    """The request is malformed."""


class InvalidCursor(Refusal):
    """The cursor was not made here, or for other parameters; start again without one."""

    error = "InvalidCursor"


class RecordNotFound(Refusal):
    """No readable memory has this at-uri."""

    error = "RecordNotFound"


class SpaceNotReadable(Refusal):
    """A Space that was asked for cannot be read by this viewer."""

    error = "SpaceNotReadable"


class ModeUnavailable(Refusal):
    """No embedding model is set up here; use mode lexical or hybrid."""

    error = "ModeUnavailable"


class ResultWindowExceeded(Refusal):
    """A search ends after 1,000 memories; narrow it, or go through all with dev.bastienrobert.memory.listRecords."""

    error = "ResultWindowExceeded"


class MethodNotImplemented(Refusal):
    """There is no such method."""

    status = 501
    error = "MethodNotImplemented"


class MethodNotAllowed(Refusal):
    """This path does not answer that HTTP method."""

    status = 405

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This path answers {allowed} only.")
        self.allowed = allowed


class RequestTooLarge(Refusal):
    """The request is too large."""

    status = 413
    error = "PayloadTooLarge"


class RequestTooSlow(Refusal):
    """The body took too long to come."""

    status = 408


class TooBusy(Refusal):
    """Too many searches are under way; try again."""

    status = 503
    error = "NotEnoughResources"


class UrlTooLong(Refusal):
    """The URL is too long."""

    status = 414
