"""`set_hash`: elements added to the set hash of a Space's repo, in one process, nothing read or stored."""

from __future__ import annotations

from hashlib import sha256
from time import perf_counter

from benchmarks.result import Result
from indexer.verify.set_hash import SetHash, element
from memory.identifiers import COLLECTION, cid_text

ELEMENTS, ROUNDS = 50_000, 5


async def run() -> Result:
    """Elements per second, the best of some rounds."""
    elements = [_element(number) for number in range(ELEMENTS)]
    best = 0.0
    for _ in range(ROUNDS):
        records, started = SetHash(), perf_counter()
        records.add(elements)
        best = max(best, ELEMENTS / (perf_counter() - started))
    return Result("set_hash", round(best), "elements/s", notes=(f"{ELEMENTS} elements, best of {ROUNDS}",))


def _element(number: int) -> bytes:
    """That of a memory, as long as they are."""
    cid = cid_text(b"\x01\x71\x12\x20" + sha256(number.to_bytes(8)).digest())
    return element(f"{COLLECTION}/3m{number:011d}", cid)
