"""What the index shows of accounts, beside what their PDSes hold: records, CIDs, values, masks, handles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from indexer.verify.car import read_car
from memory.data_model import record_json
from memory.database import Database
from memory.identifiers import cid_text
from memory.record import Memory, interpret_record
from tests.builders import block_cid
from tests.e2e.accounts import Account
from tests.index_model import ModelRepo

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Shown:
    """All that is shown of one account."""

    records: dict[str, tuple[str, Any]] = field(default_factory=dict[str, tuple[str, Any]])  # rkey → (CID, value)
    masked: set[str] = field(default_factory=set[str])
    invalid: dict[str, str] = field(default_factory=dict[str, str])  # rkey → CID


async def shown_by_index(database: Database, did: str) -> Shown:
    """What the index shows, each block held against its CID."""
    async with database.connection() as conn:
        if not await conn.fetchval("select visible from repos where repo = $1 and space = ''", did):
            return Shown()
        memories = await conn.fetch("select rkey, cid, record, masked_from from memories where repo = $1", did)
        invalid = await conn.fetch("select rkey, cid from invalid_records where repo = $1", did)
    assert all(cid_text(block_cid(row["record"])) == row["cid"] for row in memories)
    return Shown(
        {row["rkey"]: (row["cid"], record_json(row["record"])) for row in memories},
        {row["rkey"] for row in memories if row["masked_from"] is not None},
        {row["rkey"]: row["cid"] for row in invalid},
    )


async def held_by_pds(account: Account) -> Shown:
    """What the index should show: nothing of those whose PDS does not serve them."""
    if not await account.is_active():
        return Shown()
    model, held = ModelRepo(account.did), await account.records()
    blocks = {cid_text(cid): block for cid, block in read_car(await account.repo()).blocks.items()}
    for rkey, (cid, value) in held.items():
        model.write(rkey, cid, value, isinstance(interpret_record(rkey, blocks[cid]), Memory), AT)
    return Shown(
        {rkey: held[rkey] for rkey in model.memories},
        model.masked_at(None),
        {rkey: held[rkey][0] for rkey in model.invalid},
    )


async def not_healed(database: Database) -> dict[str, str]:
    """DID → why, of the accounts that are shown and not known to be whole, or that a host is still asked about."""
    async with database.connection() as conn:
        rows = await conn.fetch(
            "select q.repo, q.kind || ' ' || q.reason as why from requests q left join repos r on r.repo = q.repo"
            " where coalesce(r.visible, false) and q.kind <> 'identity' or q.kind = 'confirm_deletion'"
            " union all select repo, state || coalesce(' ' || reason, '') from repos"
            " where state <> 'active' and visible"
            " union all select source, 'gap' from sources where gap_at is not null"
        )
    return {row["repo"]: row["why"] for row in rows}


async def assert_same(database: Database, accounts: Sequence[Account]) -> None:
    """Every account is shown as its PDS holds it, record by record."""
    for account in accounts:
        shown, held = await shown_by_index(database, account.did), await held_by_pds(account)
        assert asdict(shown) == asdict(held), f"{account.did}\nshown {shown}\nheld  {held}"


async def handle_of(database: Database, did: str) -> str | None:
    """The handle that the index has verified."""
    async with database.connection() as conn:
        handle: str | None = await conn.fetchval("select handle from identities where repo = $1", did)
    return handle
