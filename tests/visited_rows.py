"""How many rows a statement goes through."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from memory.queries import Connection, Statement


async def visited_rows(conn: Connection, statement: Statement, given: Mapping[str, object]) -> float:
    """In all steps of its plan, with these parameters; it is run for that."""
    arguments = [given[name] for name in statement.parameters]
    told = await conn.fetchval(f"explain (analyze, timing off, format json) {statement.sql}", *arguments)
    [plan] = json.loads(told)
    return sum(_visited(plan["Plan"]))


def _visited(node: dict[str, Any]) -> Iterable[float]:
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    yield (rows + node.get("Rows Removed by Index Recheck", 0)) * node["Actual Loops"]
    for part in node.get("Plans", []):
        yield from _visited(part)
