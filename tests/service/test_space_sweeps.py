"""Sweeps that find nothing new, which are nearly all of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexer.spaces.sync import SpacePolicy
from indexer.store import spaces
from memory.database import Database
from tests.spaces_world import setting, spaces_world


async def test_a_sweep_that_finds_nothing_new_confirms_the_space_and_looks_no_further(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spaces_world(database) as world:
        made = await setting(world)
        await made.begin("Likes green tea.", "Reads at night.")
        before = (await world.space_row(made.space))["listed_at"]

        async def not_asked(*_: object) -> None:
            raise AssertionError("what is known of authors was loaded")

        monkeypatch.setattr(spaces, "load_listed", not_asked)

        async def is_listed_again() -> bool:
            return (await world.space_row(made.space))["listed_at"] > before

        await world.pass_time_until(is_listed_again, True)
        await world.until_idle(made.space)
        row = await world.space_row(made.space)
        assert row["fresh_until"] == row["listed_at"] + SpacePolicy().staleness
        assert row["state"] == "ready"
        assert row["due_at"] == row["sweep_after"] <= row["listed_at"] + timedelta(minutes=5)
        assert await world.contents(made.space, made.bob) == ["Likes green tea.", "Reads at night."]
