"""Why a Space is not opened. What its authority says reaches the caller by the authority's own name for it."""

from __future__ import annotations

from appview.refusals import Refusal


class SpacesNotConfigured(Refusal):
    """This server keeps no private Spaces."""

    error = "SpacesNotConfigured"


class InvalidDelegationToken(Refusal):
    """The delegation token is not for this viewer and this Space, or does not hold; ask your PDS for a new one."""

    error = "InvalidDelegationToken"


class SpaceNotFound(Refusal):
    """The Space's authority knows no such Space."""

    error = "SpaceNotFound"


class SpaceDeleted(Refusal):
    """The Space was deleted."""

    error = "SpaceDeleted"


class UserNotAuthorized(Refusal):
    """The Space's authority does not let this viewer read it."""

    error = "UserNotAuthorized"


class AppNotAuthorized(Refusal):
    """The Space's authority does not let this server read it, which may have to be named there first."""

    error = "AppNotAuthorized"


class NotAuthorized(Refusal):
    """The Space's authority does not let this viewer read it here."""

    error = "NotAuthorized"


class InvalidClientAttestation(Refusal):
    """The Space's authority does not believe who this server says it is."""

    error = "InvalidClientAttestation"


class AuthorityRefused(Refusal):
    """The Space's authority refuses."""

    error = "AuthorityRefused"


class SpaceHostUnavailable(Refusal):
    """The Space's host gives no usable answer at the moment; try again, with a new delegation token."""

    status = 503
    error = "SpaceHostUnavailable"
    retry_after_s = 5

    def __init__(self, message: str | None = None, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s
