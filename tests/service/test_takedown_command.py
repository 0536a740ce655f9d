"""`python -m indexer takedown` and `restore` as operators call them: what they say became of it."""

from __future__ import annotations

from memory.database import Database
from memory.identifiers import COLLECTION
from tests.recorded import did
from tests.service.test_indexer_cli import FROM, LIVE, indexer, refused


async def test_takedown_and_restore_say_what_became_of_it(database: Database, database_url: str):
    async def told(command: str, subject: str) -> str:
        ended = await indexer(command, subject, DATABASE_URL=database_url)
        assert (ended.status, ended.errors) == (0, "")
        return ended.output

    await indexer("replay", LIVE, *FROM, DATABASE_URL=database_url)
    bob, stranger = did("bob"), "did:plc:" + "a" * 24
    async with database.connection() as conn:
        held = await conn.fetchval("select count(*) from memories where repo = $1", bob)
        rkey = await conn.fetchval("select min(rkey) from memories where repo = $1", bob)
    assert held > 2
    uri = f"at://{bob}/{COLLECTION}/{rkey}"
    assert await told("takedown", uri) == "taken down: the memory is erased here, and kept away\n"
    assert await told("takedown", uri) == "taken down: the memory is not held here, and kept away\n"
    rest = "erased here, and what there was in Spaces; the repo is kept away\n"
    assert await told("takedown", bob) == f"taken down: {held - 1} public memories are {rest}"
    assert await told("takedown", bob) == f"taken down: 0 public memories are {rest}"
    lifted = "restored: its takedown is lifted, if there was one"
    assert await told("restore", bob) == f"{lifted}, and its repo will be fetched\n"
    assert await told("restore", stranger) == f"{lifted}; its repo was never seen here\n"
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from memories where repo = $1", bob) == 0
        assert await conn.fetchval("select kind from requests where repo = $1", bob) == "fetch"


async def test_takedown_of_a_memory_in_a_space_is_refused():
    uri = f"at://{did('bob')}/space/com.example.group/family/{did('bob')}/{COLLECTION}/3mm5nefrpukpo"
    refused(await indexer("takedown", uri), "the at-uri of a public memory")
