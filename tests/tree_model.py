"""A repo's tree by its definition: built from scratch, slowly, with nothing of the program."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import count, takewhile
from typing import Any

import cbrrr


def layer_of(key: bytes) -> int:
    """Leading zero bits of the key's sha-256, in pairs."""
    bits = "".join(f"{byte:08b}" for byte in sha256(key).digest())
    return (len(bits) - len(bits.lstrip("0"))) // 2


def key_of_layer(layer: int, prefix: str = "com.example.thing/") -> bytes:
    """The first key with this prefix and a number that stands on `layer`."""
    return next(key for number in count() if layer_of(key := f"{prefix}{number:06}".encode()) == layer)


def tree_of(entries: Mapping[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """The root's CID and every node's block, by CID, all binary."""
    blocks: dict[bytes, bytes] = {}
    top = max(map(layer_of, entries), default=0)
    root = _node(top, sorted(entries.items()), blocks)
    return bytes(root), blocks


def _node(layer: int, items: list[tuple[bytes, bytes]], blocks: dict[bytes, bytes]) -> cbrrr.CID:
    gaps: list[list[tuple[bytes, bytes]]] = [[]]
    own: list[tuple[bytes, bytes]] = []
    for key, value in items:
        if layer_of(key) == layer:
            own.append((key, value))
            gaps.append([])
        else:
            gaps[-1].append((key, value))
    links = [_node(layer - 1, gap, blocks) if gap else None for gap in gaps]
    entries: list[Any] = []
    previous = b""
    for (key, value), link in zip(own, links[1:], strict=True):
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(previous, key, strict=False)))
        entries.append({"k": key[shared:], "p": shared, "t": link, "v": cbrrr.CID(value)})
        previous = key
    block = cbrrr.encode_dag_cbor({"e": entries, "l": links[0]})
    cid = cbrrr.CID.cidv1_dag_cbor_sha256_32_from(block)
    blocks[bytes(cid)] = block
    return cid
