"""Altered frames of a real stream, each on the state that the untouched one meets, end as the manifest says."""

from __future__ import annotations

import pytest

from memory.database import Database
from tests.recorded import PDS1, contents, did, frames_of, replay, tampered

FRAMES = {entry["name"]: (entry, frame) for entry, frame in tampered()}
BASELINE_INDEX = 78  # alice's update in pds1-live.bin
UNCHANGED = ("memories", "edges", "versions", "invalid", "hidden", "identities")


@pytest.mark.parametrize("name", FRAMES)
async def test_altered_frame_ends_with_its_reason_and_effect(database: Database, name: str) -> None:
    entry, frame = FRAMES[name]
    await replay(database, frames_of("pds1-live.bin")[:BASELINE_INDEX], PDS1)
    before = await contents(database)
    async with database.connection() as conn:
        await conn.execute("truncate rejections, requests")
    report = await replay(database, [frame], PDS1)
    async with database.connection() as conn:
        counted = [(row["reason"], row["effect"]) for row in await conn.fetch("select * from rejections")]
        alice = await conn.fetchrow("select * from repos where repo = $1", did("alice"))
        requests = {(row["repo"], row["kind"]) for row in await conn.fetch("select * from requests")}
        quarantined = await conn.fetch("select * from quarantine")
    assert alice is not None
    if entry["effect"] == "accepted":
        assert (counted, report.commits_verified) == ([], 1)
        return
    assert counted == [(entry["reason"], entry["effect"])]
    assert report.rejected == {entry["reason"]: 1}
    assert await contents(database, UNCHANGED) == {table: before[table] for table in UNCHANGED}
    if entry["effect"] == "desynchronized":
        assert (alice["state"], alice["reason"]) == ("desynchronized", entry["reason"])
        assert (did("alice"), "fetch") in requests
    else:
        assert await contents(database, ["repos"]) == {"repos": before["repos"]}
        assert "fetch" not in {kind for _, kind in requests}
    if entry["effect"] == "quarantined":
        assert [row["frame"] for row in quarantined] == [frame]
        assert quarantined[0]["previous_seq"] == 0 or quarantined[0]["previous_seq"] == BASELINE_INDEX


async def test_forger_asks_a_host_at_most_once_an_hour(database: Database) -> None:
    await replay(database, frames_of("pds1-live.bin")[:BASELINE_INDEX], PDS1)
    forged = FRAMES["signature-bit-flipped"][1]
    await replay(database, [forged] * 3, PDS1, use_cursor=False)
    async with database.connection() as conn:
        requests = await conn.fetch("select * from requests where kind = 'latest_commit'")
        refused = await conn.fetchval("select times from rejections where reason = 'bad_signature'")
    assert [row["repo"] for row in requests] == [did("alice")]
    assert refused == 3


async def test_good_frame_after_altered_ones_is_applied(database: Database) -> None:
    await replay(database, frames_of("pds1-live.bin")[:BASELINE_INDEX], PDS1)
    harmless = [frame for entry, frame in FRAMES.values() if entry["effect"] in ("unattributable", "quarantined")]
    report = await replay(database, [*harmless, FRAMES["baseline"][1]], PDS1, use_cursor=False)
    assert report.commits_verified == 1
