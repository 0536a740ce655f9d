"""What the API answers instead of a result: an HTTP status, a name of the XRPC face, and a sentence.

Each face puts them in the shape of its own document. A message never repeats a query, record text or a Space URI.
"""

from __future__ import annotations

from typing import ClassVar

from memory.errors import Rejected


class Refusal(Rejected):
    """The request cannot be answered."""

    status: ClassVar[int] = 400
    error: ClassVar[str] = "InvalidRequest"
    retry_after_s: int | None = None
    """When to ask again; None: never, or nobody knows."""


class InvalidRequest(Refusal):
    """The request is malformed."""

    @property
    def param(self) -> str | None:
        """The name of the parameter at fault; None if it is none, or not told apart."""
        param = self.context.get("param")
        return param if isinstance(param, str) else None


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


class NotEnoughResources(Refusal):
    """The index cannot answer at the moment; try again."""

    status = 503
    error = "NotEnoughResources"
    retry_after_s = 5


class TooBusy(NotEnoughResources):
    """Too many searches, or lists with such filters, are under way; try again."""


class InternalError(Refusal):
    """Something went wrong here."""

    status = 500
    error = "InternalServerError"


class RateLimited(Refusal):
    """Too many requests; `Retry-After` says when to ask again."""

    status = 429
    error = "RateLimitExceeded"

    def __init__(self, retry_after_s: int, told: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """`told`: the headers that say which limit it is."""
        super().__init__()
        self.retry_after_s = retry_after_s
        self.told = told


class AuthenticationRequired(Refusal):
    """Say who asks: this takes an `Authorization` header."""

    status = 401
    error = "AuthenticationRequired"


class BadJwt(AuthenticationRequired):
    """The JWT is malformed."""

    error = "BadJwt"


class BadJwtType(AuthenticationRequired):
    """The JWT is of another kind than service auth: its typ must be JWT, or absent."""

    error = "BadJwtType"


class JwtExpired(AuthenticationRequired):
    """The JWT has expired."""

    error = "JwtExpired"


class BadJwtAudience(AuthenticationRequired):
    """The JWT is for another service."""

    error = "BadJwtAudience"


class BadJwtLexiconMethod(AuthenticationRequired):
    """The JWT is for another method."""

    error = "BadJwtLexiconMethod"


class BadJwtIss(AuthenticationRequired):
    """The JWT's iss is no account whose key can be had."""

    error = "BadJwtIss"


class BadJwtSignature(AuthenticationRequired):
    """The JWT is not signed by the key of its iss."""

    error = "BadJwtSignature"


class JwtReplayed(AuthenticationRequired):
    """The JWT was used before, and is good once; make a new one for every call of a procedure."""

    error = "JwtReplayed"


class InvalidToken(AuthenticationRequired):
    """The access token is unknown, expired or revoked."""

    error = "InvalidToken"


class ServiceAuthRequired(Refusal):
    """This takes service auth; an access token does not do."""

    status = 403
    error = "ServiceAuthRequired"


class AccessTokenRequired(Refusal):
    """This takes an access token; service auth does not do."""

    status = 403
    error = "AccessTokenRequired"


class Forbidden(Refusal):
    """Only the Space's authority may say that."""

    status = 403
    error = "Forbidden"


class TooManyAccessTokens(Refusal):
    """There are as many access tokens as one viewer may have; revoke one, or wait until one expires."""

    error = "TooManyAccessTokens"


class TooManyGrants(Refusal):
    """There are as many Spaces open as one access token may have; close one, or wait until one expires."""

    error = "TooManyGrants"


class AccessTokenNotFound(Refusal):
    """The viewer has no access token of this id."""

    error = "AccessTokenNotFound"


class UrlTooLong(Refusal):
    """The URL is too long."""

    status = 414
