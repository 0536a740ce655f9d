from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

from memory.queries import load_queries
from tests.architecture.sources import ROOT, files, name_of, syntax_tree

SQL_FILES = sorted(ROOT.glob("*/store/sql/*.sql"))
STATEMENTS = [(path, statement) for path in SQL_FILES for statement in load_queries(path)]
CONTENT = re.compile(r"\b(memories|memory_versions|memory_edges|invalid_records)\b")

# Reads of nothing that is in a repo: handles, which are public whatever their repos hold, how far streams and public
# repos are followed, secrets of the index, a setting of the transaction; tokens; and grants, by which it is told what
# may be read. `appview/store/__init__.py` names them too.
READS_NO_REPO = {
    *("find_repos", "load_indexed_through", "load_repo_sync", "load_repo_rev"),
    *("load_page_cursor_key", "load_id_key", "plan_anew", "plan_as_ever"),
    *("load_model", "share_snapshot", "take_snapshot"),
    *("is_token_kept", "list_access_tokens", "use_service_token", "add_access_token", "delete_access_token"),
    *("load_readable_spaces", "list_grants", "is_held", "is_authority", "hold_token"),
    *("add_grant", "delete_grant", "delete_grants_of_token", "put_write", "put_deletion"),
}


def test_there_are_statements():
    assert len(STATEMENTS) > 10


def test_every_statement_begins_with_a_line_on_its_purpose():
    silent = [
        (name_of(path), line)
        for path in SQL_FILES
        for line, next_line in pairwise(path.read_text(encoding="utf-8").splitlines())
        if line.startswith("-- name:") and not re.match(r"-- \S", next_line)
    ]
    assert silent == []


def test_every_statement_is_used_by_its_package():
    code = {
        package: "".join(source.read_text(encoding="utf-8") for source in files(".py", package))
        for package in {_package(path) for path in SQL_FILES}
    }
    unused = [
        (name_of(path), statement.name)
        for path, statement in STATEMENTS
        if not re.search(rf"\.{statement.name}\b", code[_package(path)])
    ]
    assert unused == []


def test_appview_reads_content_only_by_readable_spaces():
    blind = [
        (name_of(path), statement.name)
        for path, statement in STATEMENTS
        if _package(path) == "appview" and CONTENT.search(statement.sql)
        if "spaces" not in statement.parameters and "space = ''" not in statement.sql
    ]
    assert blind == []


def test_every_read_demands_the_readable_spaces():
    undemanding = [
        (name_of(path), function.name)
        for path in files(".py", "appview/store")
        for function in syntax_tree(path).body
        if isinstance(function, ast.AsyncFunctionDef) and not function.name.startswith("_")
        if function.name not in READS_NO_REPO and "ReadableSpaces" not in _required_types(function)
    ]
    assert undemanding == []


def test_the_exceptions_are_told_where_the_rule_is():
    told = ast.get_docstring(syntax_tree(ROOT / "appview/store/__init__.py")) or ""
    assert set(re.findall(r"`(\w+)`", told)) == READS_NO_REPO


def test_appview_writes_by_one_file_only():
    writes = re.compile(r"\b(insert\s+into|update|delete\s+from|truncate|copy|merge)\b(?!\s+skip)", re.IGNORECASE)
    writing = {
        name_of(path) for path, statement in STATEMENTS if _package(path) == "appview" and writes.search(statement.sql)
    }
    assert writing == {"appview/store/sql/requests.sql"}


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def _required_types(function: ast.AsyncFunctionDef) -> set[str]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    required = positional[: len(positional) - len(given.defaults)]
    required += [arg for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return {ast.unparse(arg.annotation) for arg in required if arg.annotation is not None}
