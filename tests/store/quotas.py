"""What the tests of quotas ask of a repo."""

from __future__ import annotations

from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder
from tests.feed import Feed, rkey

INVALID: dict[str, object] = {"$type": COLLECTION}


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
    entries = await feed.rows("select content_bytes from memories where repo = $1 and masked_from is null", alice.did)
    assert (repo["entry_count"], repo["entry_bytes"]) == (len(entries), sum(row["content_bytes"] for row in entries))
    edges_known = (repo["quota_edge"], repo["invalid_edge"]) != (None, None)
    assert edges_known == (repo["over_quota_count"] > 0)
    assert len(await invalid(feed, alice)) == repo["invalid_count"]
    assert repo["quota_edge"] is None or all(rkey < repo["quota_edge"] for rkey in held)
    return [number for number in range(40) if rkey(number) in held], repo["over_quota_count"]


async def invalid(feed: Feed, person: RepoBuilder | None = None) -> list[int]:
    """The numbers of the invalid records that are kept: of one repo, or of all."""
    rows = await feed.rows("select repo, rkey from invalid_records order by rkey")
    kept = {row["rkey"] for row in rows if person is None or row["repo"] == person.did}
    return [number for number in range(40) if rkey(number) in kept]


async def refill(feed: Feed, alice: RepoBuilder) -> bool:
    return (await feed.requests(alice)).get("fetch") == "quota_refill"
