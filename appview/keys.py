"""How a memory is named in the index."""

from __future__ import annotations

from typing import NamedTuple

from memory.at_uri import AtUri
from memory.identifiers import COLLECTION
from memory.space import PUBLIC


class Key(NamedTuple):
    """The primary key of one memory; `space` is a Space's at-uri, or `PUBLIC`."""

    repo: str
    space: str
    rkey: str


def key_of(uri: AtUri) -> Key | None:
    """The key of the memory at `uri`; None for records of other collections, which the index does not hold."""
    return Key(uri.did, uri.space_uri, uri.rkey) if uri.collection == COLLECTION else None


def uri_of(key: Key) -> str:
    """The at-uri of the memory with this key."""
    if key.space == PUBLIC:
        return f"at://{key.repo}/{COLLECTION}/{key.rkey}"
    return f"{key.space}/{key.repo}/{COLLECTION}/{key.rkey}"
