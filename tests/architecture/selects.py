"""Statements taken apart into their selects, and the conditions in each, however they are laid out.

No parser of SQL, but enough for what `appview/store/sql` writes. Texts have no aliases and no casts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from memory.queries import Statement

Tokens: TypeAlias = "list[str | Tokens]"
"""Words and signs; what stands in parentheses, and each `case … end`, is a list of its own."""

_TOKEN = re.compile(r"--[^\n]*|::\w+(?:\[\])?|[a-z_]\w*\.(?=[\w*])|('(?:[^']|'')*'|:?\w+|[<>=!@|&]+|\S)")
_CLAUSES = frozenset({"select", "from", "where", "on", "group", "order", "limit", "offset", "cross", "left", "join"})


@dataclass(slots=True, eq=False)
class Select:
    """One `select` of a statement; `inner` are those in its parentheses, several in one where they are united."""

    tokens: Tokens
    outer: Select | None
    inner: list[tuple[Tokens, list[Select]]] = field(default_factory=list[tuple[Tokens, list["Select"]]])

    def clauses(self, *names: str) -> list[Tokens]:
        """What follows each of these words, up to the next clause."""
        found: list[Tokens] = []
        taken = False
        for token in self.tokens:
            if isinstance(token, str) and token in _CLAUSES:
                taken = token in names
                if taken:
                    found.append([])
            elif taken:
                found[-1].append(token)
        return found

    def conditions(self) -> list[Tokens]:
        """What has to hold of each of its rows."""
        return [part for clause in self.clauses("where", "on") for part in split(clause, "and")]

    def sources(self) -> list[str | list[Select]]:
        """What it reads: tables, functions with what they take, and selects of its own."""
        parts = [part for clause in self.clauses("from", "join") for part in split(clause, ",")]
        return [self._source(part[1:] if part[0] == "lateral" else part) for part in parts]

    def groups(self) -> Iterator[Tokens]:
        """All in parentheses and all `case`s, at any depth, but those of inner selects."""
        return _groups(self.tokens)

    def _source(self, part: Tokens) -> str | list[Select]:
        for group, selects in self.inner:
            if part[0] is group:
                return selects
        return text_of(part[:2] if len(part) > 1 and isinstance(part[1], list) else part[:1])


@dataclass(frozen=True, slots=True)
class Parsed:
    """All selects of one statement, and those behind each name that `with` gives."""

    selects: list[Select]
    named: dict[str, list[Select]]


def parse(statement: Statement) -> Parsed:
    """Take a statement apart."""
    named = re.sub(r"\$(\d+)", lambda found: ":" + statement.parameters[int(found[1]) - 1], statement.sql)
    parsed = Parsed([], {})
    _read(_nest(word for word in _TOKEN.findall(named) if word), None, parsed)
    return parsed


def text_of(tokens: Tokens) -> str:
    """The same for the same condition, wherever it stands."""
    return " ".join(token if isinstance(token, str) else _wrapped(token) for token in tokens)


def split(tokens: Tokens, word: str) -> list[Tokens]:
    """The parts between these words, none of which is empty."""
    parts: list[Tokens] = [[]]
    for token in tokens:
        if token == word:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def implies(condition: Tokens, fact: Callable[[str], bool]) -> bool:
    """Whether the condition holds only where some condition does of which `fact` is true by its text."""
    while len(condition) == 1 and isinstance(condition[0], list) and condition[0][0] != "case":
        condition = condition[0]
    if len(branches := split(condition, "or")) > 1:
        return all(implies(branch, fact) for branch in branches)
    if len(parts := split(condition, "and")) > 1:
        return any(implies(part, fact) for part in parts)
    match condition:
        case ["exists", [*rows]]:
            return any(implies(part, fact) for part in Select(rows, None).conditions())
        case _:
            return fact(text_of(condition))


def _nest(words: Iterator[str]) -> Tokens:
    tokens: Tokens = []
    for word in words:
        if word == "(":
            tokens.append(_nest(words))
        elif word == "case":
            tokens.append(["case", *_nest(words)])
        elif word in (")", "end"):
            break
        else:
            tokens.append(word)
    return tokens


def _read(tokens: Tokens, outer: Select | None, parsed: Parsed) -> list[Select]:
    """The united selects of a statement, or of one in parentheses."""
    if tokens[0] == "with":
        begin = tokens.index("select")
        for definition in split(tokens[1:begin], ","):
            name = next(token for token in definition if token != "recursive")
            rows = definition[-1]
            assert isinstance(name, str)
            assert isinstance(rows, list)
            parsed.named[name] = _read(rows, None, parsed)
        tokens = tokens[begin:]
    united: list[Select] = []
    for part in split(tokens, "union"):
        arm = part[1:] if part[0] == "all" else part
        if isinstance(arm[0], list):
            united += _read(arm[0], outer, parsed)
        else:
            select = Select(arm, outer)
            parsed.selects.append(select)
            united.append(select)
            _look_into(arm, select, parsed)
    return united


def _look_into(tokens: Tokens, select: Select, parsed: Parsed) -> None:
    for token in tokens:
        if isinstance(token, list) and _is_select(token):
            select.inner.append((token, _read(token, select, parsed)))
        elif isinstance(token, list):
            _look_into(token, select, parsed)


def _groups(tokens: Tokens) -> Iterator[Tokens]:
    for token in tokens:
        if isinstance(token, list) and not _is_select(token):
            yield token
            yield from _groups(token)


def _is_select(tokens: Tokens) -> bool:
    if not tokens:
        return False
    first = tokens[0]
    return _is_select(first) if isinstance(first, list) else first in ("select", "with")


def _wrapped(tokens: Tokens) -> str:
    return f"{text_of(tokens)} end" if tokens[:1] == ["case"] else f"({text_of(tokens)})"
