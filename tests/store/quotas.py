"""What the tests of quotas ask of a repo."""

from __future__ import annotations

from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder
from tests.feed import Feed, rkey

INVALID = {"$type": COLLECTION}


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


async def state(feed: Feed, alice: RepoBuilder) -> tuple[list[int], int]:
    """The numbers of the memories that are held, and how many are kept out; counters and edge must agree."""
    held = list(await feed.memories(alice))
    repo = await feed.repo(alice)
    records = await feed.rows("select record from memories where repo = $1", alice.did)
    edges = await feed.rows("select from memory_edges where repo = $1", alice.did)
    usage = (repo["memory_count"], repo["memory_bytes"], repo["edge_count"])
    assert usage == (len(held), sum(len(row["record"]) for row in records), len(edges))
    assert (repo["quota_edge"] is not None) == (repo["over_quota_count"] > 0)
    assert repo["quota_edge"] is None or all(rkey < repo["quota_edge"] for rkey in held)
    return [number for number in range(40) if rkey(number) in held], repo["over_quota_count"]


async def refill(feed: Feed, alice: RepoBuilder) -> bool:
    return (await feed.requests(alice)).get("fetch") == "quota_refill"
