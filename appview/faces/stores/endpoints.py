"""The paths of this face, what each takes, and what answers it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from appview.faces.stores.calls import StoresCall
from appview.faces.stores.ids import IdKind
from appview.faces.stores.memories import answer_memories, answer_memory
from appview.faces.stores.parameters import (
    MAX_NAME_CHARACTERS,
    MAX_PATH_CHARACTERS,
    BooleanParameter,
    IdParameter,
    Parameter,
    TextParameter,
    TimeParameter,
    paging_parameters,
)
from appview.faces.stores.stores import answer_store, answer_stores
from appview.faces.stores.versions import answer_version, answer_versions

PREFIX: Final = "/api/v1/cloud/"

_PATH: Final = re.compile(r"memory_stores(?:/([^/]+)(?:/(memories|memory_versions)(?:/([^/]+))?)?)?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One kind of path. `path` is its form, in which `{…}` stands for an id; `shows` names what it answers with."""

    name: str
    path: str
    summary: str
    shows: str
    is_list: bool
    parameters: tuple[Parameter, ...]
    answer: Callable[[StoresCall], Awaitable[bytes]]


class Target(NamedTuple):
    """What a path asks for."""

    endpoint: Endpoint
    store_id: str | None
    object_id: str | None


STORES: Final = Endpoint(
    "listMemoryStores",
    "memory_stores",
    "Lists memory stores, newest first.",
    "memory_store",
    True,
    (
        *paging_parameters(IdKind.STORE),
        BooleanParameter("include_archived", "Also list stores whose author's account is deactivated."),
        TextParameter("name", "What the name begins with, in any case.", MAX_NAME_CHARACTERS),
        TimeParameter("created_at[gte]", "First indexed at this time or later."),
        TimeParameter("created_at[lte]", "First indexed at this time or earlier."),
    ),
    answer_stores,
)
STORE: Final = Endpoint(
    "getMemoryStore", "memory_stores/{memory_store_id}", "Shows one store.", "memory_store", False, (), answer_store
)
MEMORIES: Final = Endpoint(
    "listMemories",
    "memory_stores/{memory_store_id}/memories",
    "Lists the memories of a store, latest in effect first, without their contents.",
    "memory",
    True,
    (
        *paging_parameters(IdKind.MEMORY),
        TextParameter("path_prefix", "What the path begins with, such as `work/`.", MAX_PATH_CHARACTERS),
        BooleanParameter("include_superseded", "Also list memories that newer ones replace."),
    ),
    answer_memories,
)
MEMORY: Final = Endpoint(
    "getMemory",
    "memory_stores/{memory_store_id}/memories/{memory_id}",
    "Shows one memory with its content, replaced or not.",
    "memory",
    False,
    (),
    answer_memory,
)
VERSIONS: Final = Endpoint(
    "listMemoryVersions",
    "memory_stores/{memory_store_id}/memory_versions",
    "Lists the observed states of a store's memories, deleted ones too, latest first, without their contents.",
    "memory_version",
    True,
    (
        *paging_parameters(IdKind.VERSION),
        IdParameter("memory_id", "Only the versions of this memory, there or deleted.", IdKind.MEMORY),
    ),
    answer_versions,
)
VERSION: Final = Endpoint(
    "getMemoryVersion",
    "memory_stores/{memory_store_id}/memory_versions/{memory_version_id}",
    "Shows one version, with its content unless that is redacted.",
    "memory_version",
    False,
    (),
    answer_version,
)
ENDPOINTS: Final = (STORES, STORE, MEMORIES, MEMORY, VERSIONS, VERSION)


def find_endpoint(path: str) -> Target | None:
    """What a whole path asks for; None: nothing of this face."""
    found = _PATH.fullmatch(path.removeprefix(PREFIX))
    if found is None:
        return None
    match found.groups():
        case (None, _, _):
            return Target(STORES, None, None)
        case (store_id, None, _):
            return Target(STORE, store_id, None)
        case (store_id, "memories", None):
            return Target(MEMORIES, store_id, None)
        case (store_id, "memories", object_id):
            return Target(MEMORY, store_id, object_id)
        case (store_id, _, None):
            return Target(VERSIONS, store_id, None)
        case (store_id, _, object_id):
            return Target(VERSION, store_id, object_id)
        case _:
            return None
