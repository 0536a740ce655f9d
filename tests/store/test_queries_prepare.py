from __future__ import annotations

import asyncpg

from memory.queries import load_queries
from tests.architecture.sources import ROOT


async def test_every_statement_is_valid_on_the_migrated_schema(database_url: str):
    refused: dict[str, str] = {}
    conn = await asyncpg.connect(database_url)
    for path in sorted(ROOT.glob("*/store/sql/*.sql")):
        for statement in load_queries(path):
            try:
                prepared = await conn.prepare(statement.sql)
                assert len(prepared.get_parameters()) == len(statement.parameters)
            except asyncpg.PostgresError as error:
                refused[f"{path.parts[-4]}: {statement.name}"] = str(error)
    await conn.close()
    assert refused == {}
