"""Stores, memories and versions as JSON objects."""

from __future__ import annotations

from typing import Final

from appview.faces.stores.ids import Ids
from appview.keys import uri_of
from appview.store.store_contents import StoredEntry, StoredVersion
from appview.store.stores import StoredStore, StoreKey
from appview.views import datetime_text
from memory.data_model import record_json
from memory.space import PUBLIC, parse_space_uri

JsonObject = dict[str, object]

_NO_SCOPE: Final = "default"
_REDACTED: Final = "redacted"


def store_object(store: StoredStore, ids: Ids) -> JsonObject:
    """A memory store."""
    archived_at = None if store.archived_at is None else datetime_text(store.archived_at)
    metadata = {"repo": store.key.repo}
    if store.key.space != PUBLIC:
        metadata["space"] = store.key.space
    return {
        "id": ids.of_store(store.key),
        "type": "memory_store",
        "name": _name_of(store),
        "description": "",
        "status": "active" if archived_at is None else "archived",
        "entry_count": store.entry_count,
        "total_size": store.entry_bytes,
        "metadata": metadata,
        "archived_at": archived_at,
        "created_at": datetime_text(store.created_at),
        "updated_at": datetime_text(store.changed_at),
    }


def memory_object(entry: StoredEntry, ids: Ids) -> JsonObject:
    """A memory; with its content if its block was loaded."""
    memory: JsonObject = {
        "id": ids.of_memory(entry.key),
        "type": "memory",
        "memory_store_id": ids.of_store(_store_of(entry)),
        "path": _path_of(entry.scope, entry.key.rkey),
        "content_size_bytes": entry.content_bytes,
        "content_sha256": entry.content_sha256.hex(),
        "version": entry.version,
        "metadata": _metadata_of(entry),
    }
    if entry.record is not None:
        memory["content"] = record_json(entry.record)["content"]
    created_at = datetime_text(entry.created_at)
    memory["created_at"] = created_at
    memory["updated_at"] = created_at if entry.updated_at is None else datetime_text(entry.updated_at)
    return memory


def version_object(version: StoredVersion, ids: Ids) -> JsonObject:
    """A memory's version; with its content if its block was loaded."""
    redacted = version.redacted_at is not None
    rkey = version.key.rkey
    described: JsonObject = {
        "id": ids.of_version(version.id_hash),
        "type": "memory_version",
        "memory_store_id": ids.of_store(_store_of(version)),
        "memory_id": ids.of_memory(version.key),
        "path": f"{_REDACTED}/{rkey}" if redacted else _path_of(version.scope, rkey),
        "content_size_bytes": version.content_bytes,
        "content_sha256": version.content_sha256.hex(),
        "operation": version.operation,
        "redacted": redacted,
    }
    if version.redacted_at is not None:
        described["redacted_at"] = datetime_text(version.redacted_at)
    if version.record is not None:
        described["content"] = record_json(version.record)["content"]
    described["created_at"] = datetime_text(version.observed_at)
    return described


def _name_of(store: StoredStore) -> str:
    author = store.handle or store.key.repo
    space = None if store.key.space == PUBLIC else parse_space_uri(store.key.space)
    return author if space is None else f"{author}/{space.skey}"


def _path_of(scope: str | None, rkey: str) -> str:
    return f"{scope or _NO_SCOPE}/{rkey}"


def _metadata_of(entry: StoredEntry) -> dict[str, str]:
    claimed = {"kind": entry.kind, "scope": entry.scope, "agent": entry.agent}
    return {name: text for name, text in claimed.items() if text is not None} | {
        "uri": uri_of(entry.key),
        "cid": entry.cid,
        "superseded": "true" if entry.superseded else "false",
    }


def _store_of(held: StoredEntry | StoredVersion) -> StoreKey:
    return StoreKey(held.key.repo, held.key.space)
