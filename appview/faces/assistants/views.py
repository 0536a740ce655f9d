"""One memory as the assistants' schema has it: its text and whose it is, and everything else as strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

import orjson

from appview.answers.search import MAX_DUPLICATES
from appview.keys import uri_of
from appview.search.hits import Hit
from appview.store.views import StoredMemory
from appview.views import datetime_text, supersessions
from memory.data_model import JsonValue, record_json
from memory.datetimes import parse_datetime
from memory.record import Precision
from memory.space import PUBLIC

_TRUE: Final = "true"

_Value = TypeVar("_Value")


def memory_view(memory: StoredMemory, *, as_of: datetime | None) -> bytes:
    """The JSON text of a memory that was asked for, or listed."""
    return _view(memory, as_of, more={}, score=None)


def hit_view(memory: StoredMemory, hit: Hit, score: int, *, as_of: datetime | None) -> bytes:
    """The JSON text of a memory that was searched for; `score` is of 0–1000."""
    more: dict[str, str] = {}
    if hit.duplicates:
        more["duplicates"] = _json([uri_of(key) for key in hit.duplicates[:MAX_DUPLICATES]])
        if len(hit.duplicates) > MAX_DUPLICATES:
            more["duplicatesCapped"] = _TRUE
    return _view(memory, as_of, more=more, score=score / 1000)


def _view(memory: StoredMemory, as_of: datetime | None, *, more: Mapping[str, str], score: float | None) -> bytes:
    value = record_json(memory.record)
    view = _present(
        id=uri_of(memory.key),
        memory=_text(value, "content"),
        userId=memory.key.repo,
        agentId=_text(_object(value, "provenance"), "agent"),
        appId=memory.key.space if memory.key.space != PUBLIC else None,
        runId=_text(value, "scope"),
        metadata={**_metadata(memory, value, as_of), **more},
        score=score,
        createdAt=_moment(value, "createdAt"),
        updatedAt=_moment(value, "updatedAt"),
    )
    return orjson.dumps(view)


def _metadata(memory: StoredMemory, value: Mapping[str, JsonValue], as_of: datetime | None) -> dict[str, str]:
    occurred = _object(value, "occurredAt")
    provenance = _object(value, "provenance")
    replaced = supersessions(memory, value.get("supersedes"))
    replacers = [uri_of(memory.key._replace(rkey=rkey)) for rkey in memory.replacers]
    revised = as_of is not None and memory.updated_at is not None and memory.updated_at > as_of
    return _present(
        uri=uri_of(memory.key),
        cid=memory.cid,
        handle=memory.handle,
        kind=_text(value, "kind"),
        scope=_text(value, "scope"),
        # As they are written: a year is a year where its author was, which their offset tells.
        occurredFrom=_text(occurred, "from"),
        occurredTo=_text(occurred, "to"),
        occurredPrecision=(_text(occurred, "precision") or Precision.INSTANT.value) if occurred else None,
        client=_text(provenance, "client"),
        sourceUri=_text(provenance, "sourceUri"),
        supersedes=_json(replaced) if replaced else None,
        supersededBy=_json(replacers) if replacers else None,
        supersededByCapped=_TRUE if memory.replacers_capped else None,
        revisedAfterAsOf=_TRUE if revised else None,
    )


def _object(value: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Mapping[str, JsonValue], name: str) -> str | None:
    found = value.get(name)
    return found if isinstance(found, str) else None


def _moment(value: Mapping[str, JsonValue], name: str) -> str | None:
    """A datetime of the record, in UTC: as written it may have more digits than clients of this schema can read."""
    moment = parse_datetime(_text(value, name) or "")
    return None if moment is None else datetime_text(moment)


def _json(value: Sequence[object]) -> str:
    return orjson.dumps(value).decode()


def _present(**properties: _Value | None) -> dict[str, _Value]:
    return {name: value for name, value in properties.items() if value is not None}
