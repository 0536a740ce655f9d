"""At-uris of records, of both forms. Published parsers misread the form that records in Spaces have."""

from __future__ import annotations

from dataclasses import dataclass

from memory.identifiers import is_did, is_nsid, is_rkey
from memory.space import PUBLIC, SpaceRef, space_of


@dataclass(frozen=True, slots=True)
class AtUri:
    """One record: its author's DID, collection and key, and its Space unless it is public. `str()` is its at-uri."""

    did: str
    collection: str
    rkey: str
    space: SpaceRef | None = None

    @property
    def space_uri(self) -> str:
        """The Space as the index stores it: its at-uri, or `PUBLIC`."""
        return PUBLIC if self.space is None else str(self.space)

    def __str__(self) -> str:
        repo = f"at://{self.did}" if self.space is None else f"{self.space}/{self.did}"
        return f"{repo}/{self.collection}/{self.rkey}"


def parse_record_uri(text: str) -> AtUri | None:
    """The record that an at-uri names, None if it names none.

    A public record is `at://{did}/{collection}/{rkey}`, one in a Space
    `at://{spaceDid}/space/{spaceType}/{skey}/{did}/{collection}/{rkey}`. Stricter than the at-uri syntax: DIDs only,
    and no query, fragment, trailing slash or percent-encoding, not even inside a DID. So a record has exactly one
    at-uri.
    """
    if not text.startswith("at://") or "%" in text:
        return None
    match text[5:].split("/", 7):
        case [did, collection, rkey]:
            space = None
        case [authority, "space", space_type, skey, did, collection, rkey]:
            space = space_of(authority, space_type, skey)
            if space is None:
                return None
        case _:
            return None
    if is_did(did) and is_nsid(collection) and is_rkey(rkey):
        return AtUri(did, collection, rkey, space)
    return None
