"""Spaces: where records live that not everybody may read, and which of them one viewer may read.

A Space's at-uri is as private as what it holds: nothing here shows one in a `repr`, which is what logs and tracebacks
print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from memory.identifiers import is_did, is_nsid, is_rkey

PUBLIC: Final = ""
"""The `space` of records in public repos."""


@dataclass(frozen=True, slots=True, repr=False)
class SpaceRef:
    """A Space: the DID that governs it, the NSID of its type, and its key. `str()` is its at-uri."""

    authority: str
    type: str
    skey: str

    def __str__(self) -> str:
        return f"at://{self.authority}/space/{self.type}/{self.skey}"

    def __repr__(self) -> str:
        return "SpaceRef(…)"


def space_of(authority: str, space_type: str, skey: str) -> SpaceRef | None:
    """The Space that these parts address, None unless each is valid: a DID, an NSID, a key spelt like a record key."""
    if is_did(authority) and "%" not in authority and is_nsid(space_type) and is_rkey(skey):
        return SpaceRef(authority, space_type, skey)
    return None


def parse_space_uri(text: str) -> SpaceRef | None:
    """The Space of `at://{spaceDid}/space/{spaceType}/{skey}`, None for anything else.

    DIDs only; no query, fragment, trailing slash or percent-encoding.
    """
    if not text.startswith("at://"):
        return None
    match text[5:].split("/", 4):
        case [authority, "space", space_type, skey]:
            return space_of(authority, space_type, skey)
        case _:
            return None


@dataclass(frozen=True, slots=True, repr=False)
class ReadableSpaces:
    """The Spaces that one viewer may read beside public records: a required argument of every read.

    Only access control makes one that is not empty. Holds Space at-uris, never `PUBLIC`, which everybody may read.
    """

    spaces: frozenset[str]

    def __post_init__(self) -> None:
        if PUBLIC in self.spaces:
            raise ValueError("public records need no permission")

    @classmethod
    def public_only(cls) -> ReadableSpaces:
        """What a viewer without any grant may read."""
        return cls(frozenset())

    def as_list(self) -> list[str]:
        """The Spaces' at-uris in byte order, `PUBLIC` not among them."""
        return sorted(self.spaces)

    def __contains__(self, space: str) -> bool:
        """Whether records of `space` may be read: an at-uri, or `PUBLIC`, which always may."""
        return space == PUBLIC or space in self.spaces

    def __repr__(self) -> str:
        return "ReadableSpaces(…)"
