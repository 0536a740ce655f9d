"""A replay beside other writers: a batch that the database rolls back for another's sake is written again."""

from __future__ import annotations

import pytest

from indexer import patience
from indexer.patience import CONFLICTS_MAX
from memory.database import Database
from memory.errors import Unavailable
from tests.recorded import PDS1, contents, frames_of, replay

DEADLOCK, SERIALIZATION, SHUTDOWN = "40P01", "40001", "57P01"
LIVE = frames_of("pds1-live.bin")
INTERRUPT = """
create sequence met;
create function interrupt() returns trigger language plpgsql as $$
begin
    if nextval('met') <= {times} then
        raise exception 'Mandarin' using errcode = '{sqlstate}';
    end if;
    return new;
end
$$;
create trigger interrupt before insert on sources for each row execute function interrupt();
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_FIRST_S", 0.001)


async def interrupt(database: Database, sqlstate: str, times: int) -> None:
    """The next so many batches that move a cursor are ended by the database."""
    async with database.connection() as conn:
        await conn.execute(INTERRUPT.format(sqlstate=sqlstate, times=times))


async def met(database: Database) -> int:
    async with database.connection() as conn:
        return await conn.fetchval("select last_value from met")


@pytest.mark.parametrize("sqlstate", [DEADLOCK, SERIALIZATION])
async def test_batch_that_was_rolled_back_is_written_again(database: Database, sqlstate: str):
    await replay(database, LIVE, PDS1)
    whole = await contents(database)
    async with database.connection() as conn:
        await conn.execute("truncate memories, memory_edges, memory_versions, invalid_records, repos, identities")
        await conn.execute("truncate account_status, requests, sources, rejections")
    await interrupt(database, sqlstate, CONFLICTS_MAX)
    report = await replay(database, LIVE, PDS1)
    assert report.frames == len(LIVE)
    assert await met(database) > CONFLICTS_MAX
    assert await contents(database) == whole


async def test_batch_that_is_rolled_back_again_and_again_is_given_up(database: Database):
    await interrupt(database, DEADLOCK, 1000)
    with pytest.raises(Unavailable) as raised:
        await replay(database, LIVE, PDS1)
    assert raised.value.context["sqlstate"] == DEADLOCK
    assert await met(database) == CONFLICTS_MAX + 1


async def test_outage_in_which_a_batch_may_have_been_written_is_told_at_once(database: Database):
    await interrupt(database, SHUTDOWN, 1)
    with pytest.raises(Unavailable):
        await replay(database, LIVE, PDS1)
    assert await met(database) == 1
