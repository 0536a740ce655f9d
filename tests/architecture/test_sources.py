from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.sources import PACKAGES, ROOT, docstrings, files, name_of, syntax_tree

MAX_LINES = 400
GENERATED = {ROOT / "migrations" / "schema.sql"}

PRODUCT = files(".py", *PACKAGES, "clients")
ALL = [*PRODUCT, *files(".py", "tests")]

VAGUE = re.compile(r"(^|_)(utils?|common|helpers?|managers?|handlers?)(_|$)|(Util|Common|Helper|Manager|Handler)s?$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SQL = re.compile(
    r"\s*(select\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s|with\s+\w+\s+as\s|truncate\s|lock\s+table\s"
    r"|(create|alter|drop)\s+(table|index|database|role|type|extension|function|schema)\s)",
    re.IGNORECASE,
)


def test_every_file_is_short_enough_to_hold_in_mind():
    lengths = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in [*ALL, *files(".sql", *PACKAGES)]
        if path not in GENERATED
    }
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_names_say_what_a_thing_is():
    """But for tests, whose names are sentences."""

    def names(path: Path) -> list[str]:
        definitions = [
            node.name
            for node in ast.walk(syntax_tree(path))
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("test_")
        ]
        return [*path.relative_to(ROOT).with_suffix("").parts, *definitions]

    assert [(name_of(path), name) for path in ALL for name in names(path) if VAGUE.search(name)] == []


def test_nothing_is_left_for_later():
    rules = Path(__file__)
    left = [path for path in ALL if path != rules and UNFINISHED.search(path.read_text(encoding="utf-8"))]
    assert left == []


def test_sql_is_in_sql_files_only():
    """But for the benchmarks: they ask the database what was done, and are no part of the product."""
    found = [
        (name_of(path), node.lineno)
        for path in files(".py", *PACKAGES)
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
        if node not in docstrings(path) and "benchmarks" not in path.parts
    ]
    assert found == []


def test_every_module_says_what_it_is():
    silent = [name_of(path) for path in PRODUCT if syntax_tree(path).body and not ast.get_docstring(syntax_tree(path))]
    assert silent == []


def test_annotations_are_lazy():
    eager = [
        name_of(path)
        for path in ALL
        if any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in syntax_tree(path).body
        )
        if "from __future__ import annotations" not in path.read_text(encoding="utf-8")
    ]
    assert eager == []


def test_the_rules_see_what_they_forbid():
    for text in ("select 1", "\n  INSERT INTO a values (1)", "with a as (select 1)", "update a set b = 1"):
        assert SQL.match(text)
    for text in ("selected", "update the rows", "with care", "create a database"):
        assert not SQL.match(text)
    for name in ("utils", "sql_utils", "helpers", "RequestHandler", "common", "StateManager"):
        assert VAGUE.search(name)
    for name in ("commit", "uncommonly", "handle", "handles", "manage"):
        assert not VAGUE.search(name)


def test_groups_of_tasks_are_those_that_lose_no_cancellation():
    others = [
        (name_of(path), node.lineno)
        for path in ALL
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Attribute) and node.attr == "TaskGroup"
        if isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    ]
    assert others == []
