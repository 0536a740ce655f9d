"""Record views: a memory as every method of the API shows it, in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson

from appview.keys import uri_of
from appview.lexicon import JSON
from appview.store.views import StoredMemory
from memory.data_model import JsonValue, record_json
from memory.masking import Target, effect_of, resolve
from memory.space import PUBLIC


def record_view(memory: StoredMemory, *, as_of: datetime | None, more: Mapping[str, JSON] | None = None) -> bytes:
    """The JSON text of one view (`defs#recordView`); `more` are the properties that only search adds."""
    key = memory.key
    value = record_json(memory.record)
    view: dict[str, object] = {
        "uri": uri_of(key),
        "cid": memory.cid,
        "repo": key.repo,
    }
    if memory.handle is not None:
        view["handle"] = memory.handle
    if key.space != PUBLIC:
        view["space"] = key.space
    view |= {
        "value": orjson.Fragment(_encode(value)),
        "indexedAt": datetime_text(memory.indexed_at),
        "version": memory.version,
        "superseded": memory.superseded,
        "supersededBy": [uri_of(key._replace(rkey=rkey)) for rkey in memory.replacers],
    }
    if memory.replacers_capped:
        view["supersededByCapped"] = True
    view["supersedes"] = supersessions(memory, value.get("supersedes"))
    if as_of is not None and memory.updated_at is not None and memory.updated_at > as_of:
        view["revisedAfterAsOf"] = True
    if more is not None:
        view |= more
    return orjson.dumps(view)


def value_text(block: bytes) -> bytes:
    """The JSON text of a whole record."""
    return _encode(record_json(block))


def datetime_text(moment: datetime) -> str:
    """A datetime of the protocol, in UTC, to the microsecond: given back as `asOf`, it means exactly that time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def supersessions(memory: StoredMemory, entries: JsonValue) -> list[dict[str, str]]:
    """Every entry as the record has it, in its order, with its effect."""
    if not isinstance(entries, list):
        return []
    views: list[dict[str, str]] = []
    for entry in entries:
        if isinstance(entry, str):
            resolved = resolve(entry, *memory.key)
            target = resolved.rkey if isinstance(resolved, Target) else None
            effect = effect_of(
                resolved,
                target_is_current=target in memory.targets,
                edge_is_ignored=target in memory.ignored_targets,
            )
            views.append({"uri": entry, "effect": effect.value})
    return views


def _encode(value: Mapping[str, JsonValue]) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # orjson stops at 254 levels, valid records go to 512.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
