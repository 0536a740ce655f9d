"""What can become of a request to a host that a stranger may have named.

Nothing of an answer's body gets into a message, but the name that XRPC gives to an error, if it has the form of one.
`host` is a URL as `normalise_source` spells it.
"""

from __future__ import annotations

from memory.errors import Rejected, Unavailable


class HostUnavailable(Unavailable):
    """A host cannot be asked, or does not answer, at the moment."""

    def __init__(self, message: str, *, host: str, retry_after_s: float | None = None) -> None:
        self.host = host
        self.retry_after_s = retry_after_s  # when it may be asked again; null: nobody said
        super().__init__(message, host=host, retry_after_s=retry_after_s)


class HostNotAsked(HostUnavailable):
    """A host was not even asked: it is left alone for a while, or too many wait for it already."""


class HostUnknown(HostUnavailable):
    """A host's name stands for no address; that may change, as everything in the DNS."""


class DnsUnavailable(Unavailable):
    """No name server answers at the moment."""


class NameUnknown(Unavailable):
    """A name stands for no address."""


class HostRefused(Rejected):
    """A host answers, and the answer is no."""

    reason = "host_refused"

    def __init__(self, host: str, status: int, *, error: str | None = None, location: str | None = None) -> None:
        self.host = host
        self.status = status
        self.error = error  # XRPC's name for it, like `RepoNotFound`
        self.location = location  # where a redirect leads
        named = f": {error}" if error is not None else ""
        super().__init__(f"{host} answered {status}{named}", host=host, status=status, error=error)


class ForbiddenUrl(Rejected):
    """This is no URL that we would ask."""

    reason = "forbidden_url"


class ForbiddenAddress(Rejected):
    """A host is at an address that we do not connect to."""

    reason = "forbidden_address"


class AnswerTooLarge(Rejected):
    """A host's answer is larger than it may be."""

    reason = "answer_too_large"


class UnreadableAnswer(Rejected):
    """A host's answer is in an encoding that was not asked for."""

    reason = "unreadable_answer"
