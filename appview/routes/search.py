"""searchRecords."""
from __future__ import annotations
from appview.call import Call
async def search_records(call: Call) -> bytes:
    raise NotImplementedError
