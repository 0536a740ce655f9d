"""The demo's recording, replayed as the demo does, ends as the server that it was recorded from."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from indexer.recording import read_frames
from indexer.report import ReplayReport
from memory.data_model import record_json
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.identity import PlcExport
from tests.recorded import replay

DEMO = Path(__file__).parents[1] / "recordings" / "demo"
EXPECTED: dict[str, Any] = json.loads((DEMO / "expected.json").read_text("utf-8"))
URIS: dict[str, str] = json.loads((DEMO / "names.json").read_text("utf-8"))


async def replay_demo(database: Database) -> ReplayReport:
    frames = read_frames(DEMO / "firehose.bin")
    return await replay(database, frames, plc=PlcExport.read(DEMO / "identities.jsonl"))


async def test_every_valid_memory_is_held_as_the_server_holds_it(database: Database) -> None:
    report = await replay_demo(database)
    async with database.connection() as conn:
        rows = await conn.fetch("select repo, rkey, cid, record from memories")
        invalid = await conn.fetch("select repo, rkey, cid, reason from invalid_records")
    held = {f"at://{row['repo']}/{COLLECTION}/{row['rkey']}": row for row in rows}
    refused = {f"at://{row['repo']}/{COLLECTION}/{row['rkey']}": row for row in invalid}
    expected = {uri: held for account in EXPECTED.values() for uri, held in account["records"].items()}
    assert {uri: row["cid"] for uri, row in (held | refused).items()} == {
        uri: record["cid"] for uri, record in expected.items()
    }
    assert {uri: record_json(row["record"]) for uri, row in held.items()} == {
        uri: record["value"] for uri, record in expected.items() if uri not in refused
    }
    assert report.rejected == {}
    assert report.memories.current + report.memories.masked == len(held)


async def test_one_memory_of_each_person_is_invalid_each_for_another_reason(database: Database) -> None:
    await replay_demo(database)
    async with database.connection() as conn:
        invalid = await conn.fetch("select repo, reason from invalid_records")
    assert Counter(row["repo"] for row in invalid) == Counter(EXPECTED.keys())
    assert set(Counter(row["reason"] for row in invalid).values()) == {1}


async def test_every_repo_is_complete_and_served_under_its_last_handle(database: Database) -> None:
    await replay_demo(database)
    async with database.connection() as conn:
        repos = await conn.fetch("select repo, handle, state, visible from repos join identities using (repo)")
        asked = await conn.fetchval("select count(*) from requests")
    assert {row["repo"]: row["handle"] for row in repos} == {did: held["handle"] for did, held in EXPECTED.items()}
    assert {(row["state"], row["visible"]) for row in repos} == {("active", True)}
    assert asked == 0


async def test_the_stories_that_the_demo_tells_end_with_their_last_word(database: Database) -> None:
    await replay_demo(database)
    async with database.connection() as conn:
        rows = await conn.fetch("select repo, rkey, masked_from from memories")
    masked = {f"at://{row['repo']}/{COLLECTION}/{row['rkey']}": row["masked_from"] is not None for row in rows}
    told = {
        "mara/porto": True, "mara/lisbon": True, "mara/ghent": False,
        "kenji/ramen": True, "kenji/vegetarian": True, "kenji/fish-again": False,
        "lukas/oat-milk": True, "lukas/black-coffee": False,
        "lukas/bike-chain": True, "lukas/bike-all": False,
        "sofia/first-edition": False, "kenji/hato-spring": False, "mara/wifi": False,
        "meilin/rain": False,
    }  # fmt: skip
    assert {name: masked[URIS[name]] for name in told} == told
