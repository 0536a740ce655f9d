"""searchRecords by meaning: what shares no word is found, and every filter, mask and Space holds in that arm too."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from memory.database import Database
from memory.embedding import Embedder
from tests.api_client import Api
from tests.meaning import embed_all, embedded_model, query_models
from tests.memory_rows import ALICE, BOB, MemoryRows


@pytest.fixture
async def embedder() -> AsyncGenerator[Embedder]:
    async with embedded_model() as opened:
        yield opened


@pytest.fixture
async def api(database: Database, embedder: Embedder) -> Api:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    rows.put(ALICE, "Prefers green tea to coffee.", kind="preference", scope="home")
    rows.put(ALICE, "Her sister Ana moved to Lisbon in spring.", kind="fact")
    rows.put(ALICE, "The build of the mobile app takes eleven minutes.", kind="fact")
    rows.put(ALICE, "Walks the dog along the river every morning.")
    rows.put(BOB, "Trinkt lieber Wein als Bier.", agent="claude-code")
    rows.put(BOB, "朝はコーヒーより緑茶が好きです。")
    await rows.write(database)
    assert await embed_all(database, embedder) == 6
    return Api(database, query_models=query_models(embedder))


@pytest.mark.parametrize("where", [{}, {"repo": [ALICE, BOB]}, {"repo": ALICE}])
async def test_what_shares_no_word_is_found(api: Api, where: dict[str, str]) -> None:
    answer = await api.get("searchRecords", q="which hot beverage does she like", explain=True, **where)
    assert answer["mode"] == "hybrid"
    assert answer["records"][0]["value"]["content"] == "Prefers green tea to coffee."
    print([(r["value"]["content"], r["score"], r["scores"]) for r in answer["records"]])
