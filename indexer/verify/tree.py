"""The part of a repo's Merkle search tree that a CAR carries: loaded with every rule checked, changed, hashed again.

A key's layer is the number of leading zero bit pairs in its sha-256. A node holds the keys of one layer in order and,
between them, links to nodes one layer down; a node without keys stands where a subtree skips a layer. So the same
entries have the same root, whatever was written in which order, and undoing a commit's ops leads back to the root
before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

from indexer.verify.car import Link, decode_block, encode_block
from indexer.verify.reasons import Fault, Inconsistent

MAX_KEY_BYTES: Final = 1024
# Keys of one layer in a row: more than a thousand by chance would need 10^125 records.
MAX_NODE_ENTRIES: Final = 1000

_CID_PREFIX: Final = b"\x01\x71\x12\x20"
# The sha-256 of a layer's keys is at least the layer's floor, and below that of the layer under it.
_LAYER_FLOORS: Final = tuple((1 << (254 - 2 * layer)).to_bytes(32) for layer in range(128))
_CEILING: Final = b"\xff" * 33

_MISSING: Final = object()


def key_layer(key: bytes) -> int:
    """How many layers above the lowest a key stands."""
    return (256 - int.from_bytes(sha256(key).digest()).bit_length()) // 2


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

_EMPTY_BLOCK: Final = encode_block({"e": [], "l": None})
EMPTY_TREE: Final = Link(_CID_PREFIX + sha256(_EMPTY_BLOCK).digest())


class Tree:
    """A tree that can be changed wherever its nodes are at hand.

    A method that needs another node raises Inconsistent(tree_incomplete), and one whose key is not as it must be
    Inconsistent(op_mismatch). Either leaves the tree unusable.
    """

    __slots__ = ("root",)

    def __init__(self, root: Child = None) -> None:
        self.root: Child = root

    @classmethod
    def load(cls, root: bytes, blocks: Mapping[bytes, bytes]) -> Tree:
        """All of the tree below `root` that `blocks` hold; raises Inconsistent(malformed_tree)."""
        if root == EMPTY_TREE:
            return cls()
        return cls(_load_root(Link(root), blocks))

    def replace(self, key: bytes, expected: bytes, value: bytes) -> None:
        """Give `key`, which must hold `expected`, another value."""
        node, index = self._find(key, expected)
        node.values[index] = Link(value)

    def remove(self, key: bytes, expected: bytes) -> None:
        """Take out `key`, which must hold `expected`."""
        node, index = self._find(key, expected)
        children = node.children
        children[index : index + 2] = [_merge(children[index], children[index + 1])]
        del node.keys[index], node.values[index]
        if not node.keys:
            self._prune(key)

    def insert(self, key: bytes, value: bytes) -> None:
        """Put in `key`, which must not be there."""
        layer = key_layer(key)
        root = self.root
        if isinstance(root, Link):
            raise Inconsistent(Fault.TREE_INCOMPLETE)
        if root is None or root.layer < layer:
            left, right = _split(root, key)
            if root is not None:
                left, right = _raise(left, root.layer, layer - 1), _raise(right, root.layer, layer - 1)
            self.root = Node(layer, [key], [Link(value)], [left, right])
            return
        node = root
        while node.layer > layer:
            node.cid = None
            index = bisect_left(node.keys, key)
            child = node.children[index]
            if child is None:
                child = node.children[index] = Node(node.layer - 1, [], [], [None])
            node = _at_hand(child)
        node.cid = None
        index = bisect_left(node.keys, key)
        if index < len(node.keys) and node.keys[index] == key:
            raise Inconsistent(Fault.OP_MISMATCH)
        node.keys.insert(index, key)
        node.values.insert(index, Link(value))
        node.children[index : index + 1] = _split(node.children[index], key)

    def seal(self, sink: MutableMapping[bytes, bytes] | None = None) -> Link:
        """The root's CID. Hashes what changed, and adds each block so made to `sink`."""
        if self.root is None:
            if sink is not None:
                sink[EMPTY_TREE] = _EMPTY_BLOCK
            return EMPTY_TREE
        return _seal(self.root, sink)

    def _find(self, key: bytes, expected: bytes) -> tuple[Node, int]:
        """The place of `key`; all nodes on the way to it count as changed."""
        layer = key_layer(key)
        node = _at_hand(self.root)
        while node.layer > layer:
            node.cid = None
            node = _at_hand(node.children[bisect_left(node.keys, key)])
        node.cid = None
        index = bisect_left(node.keys, key)
        if node.layer < layer or index == len(node.keys) or node.keys[index] != key or node.values[index] != expected:
            raise Inconsistent(Fault.OP_MISMATCH)
        return node, index

    def _prune(self, key: bytes) -> None:
        """Drop what the removal of `key` emptied: nodes with nothing below them, and keyless nodes at the top."""
        above: list[tuple[Node, int]] = []
        node = self.root
        while isinstance(node, Node) and not node.empty:
            index = bisect_left(node.keys, key)
            above.append((node, index))
            node = node.children[index]
        if isinstance(node, Node):
            for parent, index in reversed(above):
                parent.children[index] = None
                if not parent.empty:
                    break
        root = self.root
        while isinstance(root, Node) and not root.keys:
            root = root.children[0]
        self.root = root


def _at_hand(child: Child) -> Node:
    if isinstance(child, Node):
        return child
    raise Inconsistent(Fault.OP_MISMATCH if child is None else Fault.TREE_INCOMPLETE)


def _merge(left: Child, right: Child) -> Child:
    """Two neighbours of one layer as one, now that no key stands between them."""
    if left is None or right is None:
        return left or right
    left, right = _at_hand(left), _at_hand(right)
    return Node(
        left.layer,
        left.keys + right.keys,
        left.values + right.values,
        [*left.children[:-1], _merge(left.children[-1], right.children[0]), *right.children[1:]],
    )


def _split(child: Child, key: bytes) -> tuple[Child, Child]:
    """What stands before `key` and what stands behind it."""
    if child is None:
        return None, None
    node = _at_hand(child)
    index = bisect_left(node.keys, key)
    left, right = _split(node.children[index], key)
    before = Node(node.layer, node.keys[:index], node.values[:index], [*node.children[:index], left])
    behind = Node(node.layer, node.keys[index:], node.values[index:], [right, *node.children[index + 1 :]])
    return None if before.empty else before, None if behind.empty else behind


def _raise(child: Child, from_layer: int, to_layer: int) -> Child:
    """`child` under as many keyless nodes as reach up to `to_layer`."""
    if child is not None:
        for layer in range(from_layer + 1, to_layer + 1):
            child = Node(layer, [], [], [child])
    return child


def _seal(child: Node | Link, sink: MutableMapping[bytes, bytes] | None) -> Link:
    if isinstance(child, Link):
        return child
    if child.cid is None:
        for below in child.children:
            if type(below) is Node and below.cid is None:
                _seal(below, sink)
        block = encode_node(child)
        child.cid = Link(_CID_PREFIX + sha256(block).digest())
        if sink is not None:
            sink[child.cid] = block
    return child.cid


def encode_node(node: Node) -> bytes:
    """The block of a node, the nodes below it being sealed."""
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


def _load(cid: Link, layer: int | None, low: bytes, high: bytes | None, blocks: Mapping[bytes, bytes]) -> Child:
    """The node `cid` and all below it, with keys of `layer` between `low` and `high`; the root's keys tell its layer."""
    block = blocks.get(cid)
    if block is None:
        return cid
    keys, values, children = _parse(block)
    if layer is None:
        if not keys:
            raise Inconsistent(Fault.MALFORMED_TREE)
        layer = key_layer(keys[0])
    floor, ceiling = _LAYER_BOUNDS[layer]
    for key in keys:
        if not floor <= sha256(key).digest() < ceiling:
            raise Inconsistent(Fault.MALFORMED_TREE)
    # A node without keys must at least lead to some; one at the bottom leads nowhere.
    if any(children) != (layer > 0) if not keys else keys[0] <= low or (high is not None and keys[-1] >= high):
        raise Inconsistent(Fault.MALFORMED_TREE)
    bounds = [low, *keys, high]
    for index, child in enumerate(children):
        if child is not None:
            if layer == 0:
                raise Inconsistent(Fault.MALFORMED_TREE)
            children[index] = _load(cast(Link, child), layer - 1, cast(bytes, bounds[index]), bounds[index + 1], blocks)
    return Node(layer, keys, values, children, cid)
