import asyncio
from tests.service.test_reembed import *
async def test_dbg(database, feed):
    t=asyncio.create_task(reembed(database, model="new"))
    for _ in range(3):
        await asyncio.sleep(3)
        async with database.connection() as conn:
            print([dict(r) for r in await conn.fetch("select model,state,walks,walked_rkey,calibrated_at from embedding_models")])
            print([dict(r) for r in await conn.fetch("select model,lane,count(*) from embedding_requests group by 1,2")], await conn.fetchval("select count(*) from embeddings"))
            print([tuple(r) for r in await conn.fetch("select indexrelid::regclass::text, indisvalid from pg_index where indexrelid::regclass::text like '%nearest%'")])
            print([(r[0],r[1],r[2][:90]) for r in await conn.fetch("select state, wait_event, query from pg_stat_activity where datname=current_database()")])
        if t.done(): break
    t.cancel()
    try: await t
    except BaseException as e: print(repr(e))
    assert 0
