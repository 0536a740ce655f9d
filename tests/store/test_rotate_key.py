"""Credentials are sealed anew by a new key; what no key opens is told, and left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from indexer.rotate_command import Rotated, rotate
from memory.database import Database
from memory.dpop import ProofKey
from memory.sealed import NotSealedHere, SealingKeys
from memory.space_credential import SpaceCredential, open_credential
from tests.memory_rows import ALICE, BOB, SPACE

OLD, NEW, OTHER = (bytes(range(first, first + 32)) for first in (0, 50, 100))
UNTIL = datetime(2030, 1, 1, tzinfo=UTC)


def keys(**given: bytes) -> SealingKeys:
    numbers = iter(range(10_000))
    return SealingKeys(given, random_bytes=lambda size: next(numbers).to_bytes(size))


def credential(text: str) -> SpaceCredential:
    return SpaceCredential(text, ProofKey.from_bytes(bytes(31) + b"\x01"))


async def put(database: Database, viewer: str, token: str, sealed: bytes, key_id: str) -> None:
    async with database.connection() as conn:
        await conn.execute(
            "insert into credentials (repo, token, space, sealed, key_id, expires_at) values ($1, $2, $3, $4, $5, $6)",
            viewer,
            token,
            SPACE,
            sealed,
            key_id,
            UNTIL + timedelta(0),
        )


async def kept(database: Database) -> list[tuple[str, str, bytes, str]]:
    async with database.connection() as conn:
        rows = await conn.fetch("select repo, token, sealed, key_id from credentials order by repo, token")
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("at_once", [1, 2, 500])
async def test_all_that_older_keys_sealed_is_sealed_by_the_current_one(
    database: Database, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("indexer.rotate_command._AT_ONCE", at_once)
    before, after = keys(old=OLD), keys(new=NEW, old=OLD)
    for viewer in (ALICE, BOB):
        for token in ("a", "b"):
            sealed = credential(f"{viewer} {token}").seal(before, space=SPACE, viewer=viewer)
            await put(database, viewer, token, sealed, "old")
    await put(database, BOB, "c", credential("new").seal(after, space=SPACE, viewer=BOB), "new")
    assert await rotate(database, after) == Rotated(resealed=4, unopened=0)
    assert await rotate(database, after) == Rotated(resealed=0, unopened=0)
    only_new = keys(new=NEW)
    texts = [
        open_credential(only_new, sealed, space=SPACE, viewer=viewer).text
        for viewer, _, sealed, _ in await kept(database)
    ]
    assert sorted(texts) == sorted([*(f"{viewer} {token}" for viewer in (ALICE, BOB) for token in "ab"), "new"])
    assert {key_id for *_, key_id in await kept(database)} == {"new"}


async def test_what_no_key_opens_is_told_and_left(database: Database) -> None:
    sealed = credential("lost").seal(keys(other=OTHER), space=SPACE, viewer=ALICE)
    await put(database, ALICE, "a", sealed, "other")
    moved = credential("of bob").seal(keys(old=OLD), space=SPACE, viewer=BOB)  # copied into another viewer's row
    await put(database, ALICE, "b", moved, "old")
    assert await rotate(database, keys(new=NEW, old=OLD)) == Rotated(resealed=0, unopened=2)
    assert [(token, kept_sealed) for _, token, kept_sealed, _ in await kept(database)] == [("a", sealed), ("b", moved)]
    with pytest.raises(NotSealedHere):
        open_credential(keys(old=OLD), moved, space=SPACE, viewer=ALICE)
