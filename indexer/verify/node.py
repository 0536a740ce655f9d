"""One node of a repo's tree: from its block with every rule checked, and back.

A key's layer is the number of leading zero bit pairs in its sha-256. A node holds neighbouring keys of one layer and,
between them, links to nodes one layer down; a node without keys stands where a subtree skips a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from indexer.verify.car import Link, encode_block
from indexer.verify.node_bytes import split_node
from indexer.verify.reasons import Fault, Inconsistent

_CID_PREFIX: Final = b"\x01\x71\x12\x20"


def _least_digest(layer: int) -> bytes:
    return (1 << (254 - 2 * layer)).to_bytes(32)


# The sha-256 of a layer's keys is at least the first bound and less than the second.
DIGEST_BOUNDS: Final = tuple(
    (_least_digest(layer), _least_digest(layer - 1) if layer else b"\xff" * 33) for layer in range(128)
)


@dataclass(slots=True, eq=False)
class Node:
    """One node; `children` has one place more than `keys`: before, between and behind them.

    A child is a Node, None, or the Link of one whose block is not at hand.
    """

    layer: int
    keys: list[bytes]
    values: list[Link]
    children: list[Child]
    cid: Link | None = None  # null: changed since it was hashed

    @property
    def empty(self) -> bool:
        return not self.keys and self.children[0] is None


Child = Node | Link | None

EMPTY_BLOCK: Final = encode_block({"e": [], "l": None})


def node_cid(block: bytes) -> Link:
    """The CID of a node's block."""
    return Link(_CID_PREFIX + sha256(block).digest())


def key_layer(key: bytes) -> int:
    """How many layers above the lowest a key stands."""
    return (256 - int.from_bytes(sha256(key).digest()).bit_length()) // 2


def encode_node(node: Node) -> bytes:
    """The block of a node; the nodes below it must be hashed."""
    links = [child.cid if type(child) is Node else child for child in node.children]
    entries: list[dict[str, object]] = []
    previous = b""
    for key, value, link in zip(node.keys, node.values, links[1:], strict=True):
        shared = _shared_bytes(previous, key) if previous else 0
        entries.append({"k": key[shared:], "p": shared, "t": link, "v": value})
        previous = key
    return encode_block({"e": entries, "l": links[0]})


def _shared_bytes(left: bytes, right: bytes) -> int:
    """How long a prefix two keys share."""
    length = min(len(left), len(right))
    difference = int.from_bytes(left[:length]) ^ int.from_bytes(right[:length])
    return length - (difference.bit_length() + 7) // 8


def parse_node(cid: Link, block: bytes, layer: int | None) -> Node:
    """A node that is not the root of an empty tree, links unfollowed; raises Inconsistent(malformed_tree).

    Its keys must be of `layer`; None, for a root, takes the layer of its first key.
    """
    keys, values, links = split_node(block)
    if layer is None:
        if not keys:
            raise Inconsistent(Fault.MALFORMED_TREE)
        layer = key_layer(keys[0])
    least, beyond = DIGEST_BOUNDS[layer]
    for key in keys:
        if not least <= sha256(key).digest() < beyond:
            raise Inconsistent(Fault.MALFORMED_TREE)
    leads_down = any(links)
    if (leads_down and layer == 0) or not (keys or leads_down):
        raise Inconsistent(Fault.MALFORMED_TREE)
    children: list[Child] = [None if link is None else Link(link) for link in links]
    return Node(layer, keys, [Link(value) for value in values], children, cid)
