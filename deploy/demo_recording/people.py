"""The people of the demo and what happens to their memories, read from `people/*.toml`."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue

from memory.identifiers import COLLECTION

PEOPLE: Final = Path(__file__).parent / "people"

Record = dict[str, JsonValue]

_TID_ALPHABET: Final = "234567abcdefghijklmnopqrstuvwxyz"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Provenance(_Data):
    """An assistant of a person's."""

    agent: str
    client: str


class MemoryData(_Data):
    """One memory as written in the file."""

    id: str
    kind: str | None = None
    scope: str | None = None
    content: str
    occurred: dict[str, str] | None = None
    replaces: tuple[str, ...] = ()  # `id`, `person/id`, `missing:rkey`, or `at://…` as it stands
    source: str | None = None
    extra: dict[str, JsonValue] = {}  # properties that the lexicon does not know, or that break it
    without: tuple[str, ...] = ()  # properties left out, to break it
    rkey: str | None = None  # instead of the TID of `createdAt`


class Session(_Data):
    """What an assistant noted at one time: one commit."""

    at: str
    by: str
    memories: tuple[MemoryData, ...] = Field(min_length=1)


class Post(_Data):
    """A post elsewhere, which is none of this index's business."""

    do: Literal["post"]
    at: str
    text: str


class Update(_Data):
    """A memory is written again; what is not given stays."""

    do: Literal["update"]
    at: str
    id: str
    content: str
    replaces: tuple[str, ...] | None = None


class OfMemory(_Data):
    """A memory is deleted, created again under its key as it was, or put again without any change."""

    do: Literal["delete", "restore", "put-again"]
    at: str
    id: str


class Rename(_Data):
    """The account gets another handle."""

    do: Literal["rename"]
    at: str
    handle: str


class DeactivateAndReturn(_Data):
    """The account goes inactive and comes back."""

    do: Literal["deactivate-and-return"]
    at: str


Change = Post | Update | OfMemory | Rename | DeactivateAndReturn


class Person(_Data):
    """One file."""

    handle: str
    assistants: dict[str, Provenance]
    session: tuple[Session, ...]
    change: tuple[Annotated[Change, Discriminator("do")], ...] = ()

    @property
    def name(self) -> str:
        """The first part of the handle, by which other files refer to this person."""
        return self.handle.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory with its key and time; `name` is `person/id`."""

    name: str
    person: str
    rkey: str
    created_at: str
    provenance: Provenance
    data: MemoryData


def read_people() -> dict[str, Person]:
    """Everyone, by name."""
    people = [Person.model_validate(tomllib.loads(path.read_text("utf-8"))) for path in sorted(PEOPLE.glob("*.toml"))]
    return {person.name: person for person in people}


def events_in_order(people: dict[str, Person]) -> list[tuple[Person, Session | Change]]:
    """What everyone does, oldest first."""
    events = [(person, event) for person in people.values() for event in (*person.session, *person.change)]
    return sorted(events, key=lambda event: instant(event[1].at))


def memories_of(person: Person, session: Session) -> list[Memory]:
    """The memories of a session, each some seconds after the one before."""
    memories: list[Memory] = []
    for index, data in enumerate(session.memories):
        name = f"{person.name}/{data.id}"
        created_at = _later(session.at, timedelta(milliseconds=23_471 * index))
        rkey = data.rkey or tid(created_at, name)
        memories.append(Memory(name, person.name, rkey, created_at, person.assistants[session.by], data))
    return memories


def record_of(memory: Memory, uris: dict[str, str]) -> Record:
    """The record; `uris` are those of all memories by name."""
    data = memory.data
    provenance: Record = dict(memory.provenance.model_dump())
    if data.source is not None:
        provenance["sourceUri"] = data.source
    record: Record = {
        "$type": COLLECTION,
        "content": data.content,
        "kind": data.kind,
        "scope": data.scope,
        "createdAt": memory.created_at,
        "occurredAt": dict(data.occurred) if data.occurred is not None else None,
        "provenance": provenance,
        "supersedes": list(references(memory, data.replaces, uris)) or None,
    }
    kept = {name: value for name, value in record.items() if value is not None and name not in data.without}
    return kept | data.extra


def references(memory: Memory, replaces: tuple[str, ...], uris: dict[str, str]) -> list[JsonValue]:
    """`supersedes` entries out of the references of a file."""
    repo = uris[memory.name].partition(f"/{COLLECTION}/")[0]
    entries: list[JsonValue] = []
    for reference in replaces:
        if reference.startswith("at://"):
            entries.append(reference)
        elif reference.startswith("missing:"):
            entries.append(f"{repo}/{COLLECTION}/{reference.removeprefix('missing:')}")
        else:
            entries.append(uris[reference if "/" in reference else f"{memory.person}/{reference}"])
    return entries


def instant(text: str) -> datetime:
    """A time of a file."""
    return datetime.fromisoformat(text)


def tid(time: str, seed: str) -> str:
    """The record key of a record made at `time`; `seed` stands for the clock that made it."""
    microseconds = (instant(time) - _EPOCH) // timedelta(microseconds=1)
    clock = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:2]) & 0x3FF
    number = microseconds << 10 | clock
    return "".join(_TID_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5))


def _later(time: str, by: timedelta) -> str:
    """`time` as it is spelled, but later."""
    later = (instant(time) + by).isoformat(timespec="milliseconds")
    return later.replace("+00:00", "Z") if time.endswith("Z") else later
