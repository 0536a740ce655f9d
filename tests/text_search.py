"""Postgres's text search in plain Python: the text forms of tsvector and tsquery, and what matches what.

The parsers are strict: what they accept, Postgres accepts as the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Vector = Mapping[str, tuple[int, ...]]

_QUOTED = r"'((?:[^'\\]|''|\\\\)+)'"
_ENTRY = re.compile(_QUOTED + r":([1-9][0-9]*(?:,[1-9][0-9]*)*)(?: |$)")
_SYMBOL = re.compile(rf"{_QUOTED}(:\*)?|<([1-9][0-9]*)>|([&|()])|( )")


@dataclass(frozen=True, slots=True)
class Operand:
    lexeme: str
    is_prefix: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """`distance` is that of `<n>`; 0 for the others."""

    sign: str
    distance: int
    left: Node
    right: Node


Node = Operand | Operation


def parse_vector(text: str) -> dict[str, tuple[int, ...]]:
    """Read a tsvector whose lexemes are all quoted; ValueError when it is not well-formed."""
    vector: dict[str, tuple[int, ...]] = {}
    end = 0
    while end < len(text):
        entry = _ENTRY.match(text, end)
        if entry is None or (entry.end() == len(text) and text.endswith(" ")):
            raise ValueError(f"no tsvector at {end}")
        lexeme = _unquote(entry[1])
        if lexeme in vector:
            raise ValueError("a lexeme stands twice")
        vector[lexeme] = tuple(map(int, entry[2].split(",")))
        end = entry.end()
    return vector


def parse_tsquery(text: str) -> Node:
    """Read a tsquery whose lexemes are all quoted; ValueError when it is not well-formed, or empty."""
    symbols: list[Operand | str | int] = []
    end = 0
    while end < len(text):
        symbol = _SYMBOL.match(text, end)
        if symbol is None:
            raise ValueError(f"no tsquery at {end}")
        if symbol[1] is not None:
            symbols.append(Operand(_unquote(symbol[1]), symbol[2] is not None))
        elif symbol[3] is not None:
            symbols.append(int(symbol[3]))
        elif symbol[4] is not None:
            symbols.append(symbol[4])
        end = symbol.end()
    node = _parse_level(symbols, 0)
    if symbols:
        raise ValueError("something stands after the tsquery")
    return node


def matches(vector: Vector, query: str) -> bool:
    """`vector @@ query`; an empty query matches nothing."""
    return bool(query) and _holds(vector, parse_tsquery(query))


_LEVELS = ("|", "&", "<")


def _parse_level(symbols: list[Operand | str | int], level: int) -> Node:
    if level == len(_LEVELS):
        symbol = symbols.pop(0) if symbols else None
        if isinstance(symbol, Operand):
            return symbol
        if symbol == "(":
            node = _parse_level(symbols, 0)
            if not symbols or symbols.pop(0) != ")":
                raise ValueError("a parenthesis is left open")
            return node
        raise ValueError("an operand is missing")
    node = _parse_level(symbols, level + 1)
    while symbols and (symbols[0] == _LEVELS[level] or (level == 2 and isinstance(symbols[0], int))):
        sign = symbols.pop(0)
        distance = sign if isinstance(sign, int) else 0
        node = Operation(_LEVELS[level], distance, node, _parse_level(symbols, level + 1))
    return node


def _holds(vector: Vector, node: Node) -> bool:
    if isinstance(node, Operand) or node.sign == "<":
        return bool(_places(vector, node))
    return (any if node.sign == "|" else all)(_holds(vector, side) for side in (node.left, node.right))


def _places(vector: Vector, node: Node) -> set[int]:
    if isinstance(node, Operand):
        found = (
            places
            for lexeme, places in vector.items()
            if lexeme == node.lexeme or (node.is_prefix and lexeme.startswith(node.lexeme))
        )
        return {place for places in found for place in places}
    if node.sign != "<":
        raise ValueError("only lexemes and their neighbours have places")
    left = _places(vector, node.left)
    return {place for place in _places(vector, node.right) if place - node.distance in left}


def _unquote(lexeme: str) -> str:
    if "\0" in lexeme:
        raise ValueError("Postgres refuses NUL")
    lexeme.encode("utf-8")
    return lexeme.replace("''", "'").replace("\\\\", "\\")
