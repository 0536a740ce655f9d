"""The part of a repo's Merkle search tree that a CAR carries: loaded, changed, hashed again.

The same entries have the same root, whatever was written in which order; so undoing a commit's ops on the tree after it
leads to the root of the tree before it, and the nodes around the ops are all that this takes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, MutableMapping
from typing import Final, cast

from indexer.verify.car import Link
from indexer.verify.node import EMPTY_BLOCK, Child, Node, encode_node, key_layer, node_cid, parse_node
from indexer.verify.reasons import Fault, Inconsistent

EMPTY_TREE: Final = node_cid(EMPTY_BLOCK)


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
        return cls(_load(Link(root), None, b"", None, blocks))

    def replace(self, key: bytes, expected: bytes, value: bytes) -> None:
        """Give `key`, which must hold `expected`, another value."""
        node, index = self._find(key, expected)
        node.values[index] = Link(value)

    def remove(self, key: bytes, expected: bytes) -> None:
        """Take out `key`, which must hold `expected`."""
        node, index = self._find(key, expected)
        node.children[index : index + 2] = [_merge(node.children[index], node.children[index + 1])]
        del node.keys[index], node.values[index]
        if not node.keys:
            _prune(self.root, key)
            while isinstance(self.root, Node) and not self.root.keys:
                self.root = self.root.children[0]

    def insert(self, key: bytes, value: bytes) -> None:
        """Put in `key`, which must not be there."""
        layer = key_layer(key)
        node = self.root
        if node is None or (isinstance(node, Node) and node.layer < layer):
            self.root = _grow(node, layer, key, value)
            return
        node = _at_hand(node)
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
                sink[EMPTY_TREE] = EMPTY_BLOCK
            return EMPTY_TREE
        return self.root if isinstance(self.root, Link) else _seal(self.root, sink)

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


def _load(cid: Link, layer: int | None, low: bytes, high: bytes | None, blocks: Mapping[bytes, bytes]) -> Child:
    """The node `cid` and all that is at hand below it, with keys between `low` and `high`."""
    block = blocks.get(cid)
    if block is None:
        return cid
    node = parse_node(cid, block, layer)
    keys, children = node.keys, node.children
    if keys and (keys[0] <= low or (high is not None and keys[-1] >= high)):
        raise Inconsistent(Fault.MALFORMED_TREE)
    for index, child in enumerate(children):
        if child is not None and child in blocks:
            below = keys[index - 1] if index else low
            above = keys[index] if index < len(keys) else high
            children[index] = _load(cast(Link, child), node.layer - 1, below, above, blocks)
    return node


def _at_hand(child: Child) -> Node:
    if isinstance(child, Node):
        return child
    raise Inconsistent(Fault.OP_MISMATCH if child is None else Fault.TREE_INCOMPLETE)


def _merge(left: Child, right: Child) -> Child:
    """Two neighbours of one layer as one, now that no key stands between them."""
    if left is None or right is None:
        return left or right
    left, right = _at_hand(left), _at_hand(right)
    inner = _merge(left.children[-1], right.children[0])
    children = [*left.children[:-1], inner, *right.children[1:]]
    return Node(left.layer, left.keys + right.keys, left.values + right.values, children)


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


def _grow(root: Node | None, layer: int, key: bytes, value: bytes) -> Node:
    """A root for `key`, whose layer is above all others; keyless nodes fill the layers between."""
    sides = list(_split(root, key))
    for between in range(root.layer + 1, layer) if root is not None else ():
        sides = [side and Node(between, [], [], [side]) for side in sides]
    return Node(layer, [key], [Link(value)], sides)


def _prune(child: Child, key: bytes) -> bool:
    """Drop the nodes on the way to `key` that have nothing left below them; whether `child` itself is one."""
    if not isinstance(child, Node):
        return child is None
    index = bisect_left(child.keys, key)
    if _prune(child.children[index], key):
        child.children[index] = None
    return child.empty


def _seal(node: Node, sink: MutableMapping[bytes, bytes] | None) -> Link:
    if node.cid is None:
        for child in node.children:
            if type(child) is Node and child.cid is None:
                _seal(child, sink)
        block = encode_node(node)
        node.cid = node_cid(block)
        if sink is not None:
            sink[node.cid] = block
    return node.cid
