"""The project's own files, read once."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("memory", "indexer", "appview", "migrations", "deploy", "benchmarks")


def files(suffix: str, *folders: str) -> list[Path]:
    """All files of that suffix in those folders, `tests` among them if asked for."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@lru_cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@lru_cache
def docstrings(path: Path) -> set[ast.expr]:
    """The string nodes that are docstrings."""
    found: set[ast.expr] = set()
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(first.value)
    return found
