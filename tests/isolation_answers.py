"""Requests of tests of isolation, and what may be wrong with how they are answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

import httpx

from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.stores.endpoints import PREFIX as STORES
from appview.faces.xrpc import PREFIX as XRPC
from tests.service_tokens import SEARCH

BUSY: Final = 503
_SPACE: Final = re.compile(r"at://[^/]+/space/[^/]+/[^/]+")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, without who asks."""

    verb: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def face(self) -> str:
        return next(prefix for prefix in (XRPC, STORES, ASSISTANTS) if self.path.startswith(prefix))

    @property
    def named(self) -> set[str]:
        """The Spaces that it names, by themselves or by what is in them."""
        given = [*self.query, *(self.body or {}).items(), *(self.body or {}).get("filters", {}).items()]
        texts = [text for _, value in given for text in (value if isinstance(value, list) else [value])]
        found = (_SPACE.match(text) for text in texts if isinstance(text, str))
        return {match[0] for match in found if match is not None}

    @property
    def lxm(self) -> str:
        """What service auth has to name for it."""
        return self.path.removeprefix(XRPC) if self.face == XRPC else SEARCH

    def on_from(self, name: str, cursor: str) -> Ask:
        """The next page."""
        if self.body is not None:
            return replace(self, body={**self.body, name: cursor})
        return replace(self, query=(*(pair for pair in self.query if pair[0] != name), (name, cursor)))


class Why(Enum):
    """What is wrong with an answer."""

    SHOWN = auto()  # something by which a memory is known that may not be read
    DIFFERS = auto()  # from what is answered where there is no such thing
    KEPT = auto()  # what is private, where others may keep or measure it
    TAKEN = auto()  # a page cursor of somebody else
    TAKEN_FOR_NOTHING = auto()  # a Space was named that may not be read, and that was not refused, or not like others
    DONE = auto()  # what somebody did was answered, or ended, in another way than it should be
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong answer. `ask` is null where it was an act."""

    why: Why
    ask: Ask | None
    answer: str
    instead: str


@dataclass
class Refusals:
    """How Spaces are refused that may not be read: in the same words, whichever is meant, whatever is asked of it."""

    said: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])  # by face

    def has(self, ask: Ask, answer: httpx.Response) -> bool:
        """Whether an answer is one, or says what else is wrong with the request; never that there is no such memory."""
        if b"SpaceNotReadable" not in answer.content:
            return answer.status_code >= 400 and b"NotFound" not in answer.content
        said = answer.status_code, answer.text.replace(answer.headers["request-id"], "")
        return self.said.setdefault(ask.face, said) == said


def bytes_of(answer: httpx.Response) -> bytes:
    """All of an answer but its id, which is random."""
    own = answer.headers["request-id"].encode()
    headers = b"\n".join(b": ".join(pair) for pair in answer.headers.raw if pair[0].lower() != b"request-id")
    return str(answer.status_code).encode() + b"\n" + headers + b"\n" + answer.content.replace(own, b"")


def is_kept_private(answer: httpx.Response) -> bool:
    """Whether nobody on the way keeps it, and its length tells nothing of what is in it."""
    headers = answer.headers
    varies = [name.strip().lower() for name in headers.get("vary", "").split(",")]
    return (
        headers.get("cache-control") == "private, no-store"
        and "authorization" in varies
        and "content-encoding" not in headers
    )
