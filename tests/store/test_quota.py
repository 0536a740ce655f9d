"""The smallest rkeys count, whatever the order of arrival; the rest is counted, stored nowhere and masks nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.quota import QuotaLimits
from indexer.writer import Writer
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, Write, memory
from tests.feed import LONG_AGO, Feed, rkey

INVALID = {"$type": COLLECTION}
TWO = QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6)


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


async def full(database: Database, *, kept_out: int = 2) -> tuple[Feed, RepoBuilder]:
    """Two places, taken by 1 and 2; 11, 12 … are kept out."""
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("tea")) for number in (1, 2)))
    await feed.send(*(alice.create(rkey(11 + number), memory("tea")) for number in range(kept_out)))
    assert await state(feed, alice) == ([1, 2], kept_out)
    return feed, alice


async def state(feed: Feed, alice: RepoBuilder) -> tuple[list[int], int]:
    """The numbers of the memories that are held, and how many are kept out; the counters must agree with the rows."""
    held = list(await feed.memories(alice))
    repo = await feed.repo(alice)
    records = await feed.rows("select record from memories where repo = $1", alice.did)
    edges = await feed.rows("select from memory_edges where repo = $1", alice.did)
    usage = (repo["memory_count"], repo["memory_bytes"], repo["edge_count"])
    assert usage == (len(held), sum(len(row["record"]) for row in records), len(edges))
    return [number for number in range(40) if rkey(number) in held], repo["over_quota_count"]


async def refill(feed: Feed, alice: RepoBuilder) -> bool:
    return (await feed.requests(alice)).get("fetch") == "quota_refill"


# What counts


async def test_memories_within_the_quota_are_held(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 0)


async def test_memory_behind_a_full_quota_is_kept_out_and_counted(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 3)


async def test_smaller_rkey_takes_the_place_of_the_greatest(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert await state(feed, alice) == ([0, 1], 3)


async def test_memory_that_is_kept_out_leaves_no_version(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert {row["rkey"] for row in await feed.rows("select rkey from memory_versions")} == {rkey(0), rkey(1)}


async def test_bytes_are_limited_too(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * 200)) for number in (3, 1, 2)))
    assert await state(feed, alice) == ([1, 2], 1)


async def test_update_that_outgrows_the_bytes_keeps_the_last_out(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * 100)) for number in (1, 2, 3)))
    await feed.send(alice.update(rkey(1), memory("x" * 300)))
    assert await state(feed, alice) == ([1, 2], 1)


async def test_record_that_is_too_big_by_itself_keeps_all_behind_it_out(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * size)) for number, size in ((1, 10), (2, 900), (3, 10))))
    assert await state(feed, alice) == ([1], 2)


async def test_edges_are_limited_too(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=10**6, max_edges=3))
    alice = feed.account("alice")
    replaced = [uri(alice, 20), uri(alice, 21)]
    await feed.send(*(alice.create(rkey(number), memory("tea", supersedes=replaced)) for number in (3, 1, 2)))
    assert await state(feed, alice) == ([1], 2)


async def test_limits_that_became_smaller_drop_all_that_is_behind_them(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    for start in range(0, 800, 200):
        writes = [Write("create", rkey(number), memory("tea")) for number in range(start, start + 200)]
        await feed.send(alice.apply(writes))
    feed.writer = Writer(database, TWO)
    await feed.send(alice.create(rkey(800), memory("tea")))
    assert await state(feed, alice) == ([0, 1], 799)


# What is kept out


async def test_memory_that_is_kept_out_never_masks(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), memory("newer", supersedes=[uri(alice, 1)])))
    assert await feed.rows("select from memories where masked_from is not null") == []
    assert await feed.rows("select from memory_edges") == []


async def test_memory_that_masked_and_is_kept_out_now_masks_no_more(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(
        alice.create(rkey(1), memory("old")), alice.create(rkey(2), memory("new", supersedes=[uri(alice, 1)]))
    )
    assert len(await feed.rows("select from memories where masked_from is not null")) == 1
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert await state(feed, alice) == ([0, 1], 1)
    assert await feed.rows("select from memories where masked_from is not null") == []


async def test_cycle_whose_member_is_kept_out_is_no_cycle(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=3, max_bytes=10**6, max_edges=100))
    alice = feed.account("alice")
    for number, other in ((1, 2), (2, 3), (3, 1)):
        await feed.send(alice.create(rkey(number), memory("tea", supersedes=[uri(alice, other)])))
    assert len(await feed.rows("select from memories where component is not null")) == 3
    await feed.send(alice.create(rkey(0), memory("tea")))
    rows = await feed.rows(
        "select rkey, masked_from is null as shown, component, masked_spans from memories order by rkey"
    )
    assert [tuple(row) for row in rows] == [
        (rkey(0), True, None, None),
        (rkey(1), True, None, None),
        (rkey(2), False, None, None),
    ]


async def test_update_of_a_memory_that_is_kept_out_changes_no_count(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(11), memory("coffee")))
    assert await state(feed, alice) == ([1, 2], 2)


async def test_deletion_of_a_memory_that_is_kept_out_is_counted(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.delete(rkey(12)))
    assert await state(feed, alice) == ([1, 2], 1)
    assert not await refill(feed, alice), "no place became free"


async def test_memory_that_comes_and_goes_while_kept_out_leaves_no_trace(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), memory("tea")), alice.delete(rkey(13)))
    assert await state(feed, alice) == ([1, 2], 2)
    assert await feed.rows("select from memory_versions where rkey = $1", rkey(13)) == []


async def test_invalid_record_takes_no_place_and_is_never_kept_out(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    assert await state(feed, alice) == ([1, 2], 2)
    assert [row["rkey"] for row in await feed.rows("select rkey from invalid_records")] == [rkey(13)]


async def test_memory_that_is_kept_out_and_becomes_invalid_is_counted_as_invalid(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(11), INVALID))
    assert await state(feed, alice) == ([1, 2], 1)
    assert [row["rkey"] for row in await feed.rows("select rkey from invalid_records")] == [rkey(11)]


async def test_invalid_record_that_becomes_a_memory_behind_the_quota_is_kept_out(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    await feed.send(alice.update(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 3)
    assert await feed.rows("select from invalid_records") == []


# Freed places


async def test_freed_place_asks_for_a_fetch(database: Database):
    feed, alice = await full(database)
    assert not await refill(feed, alice)
    await feed.send(alice.delete(rkey(1)))
    assert await state(feed, alice) == ([2], 2)
    assert await refill(feed, alice)


async def test_memory_that_becomes_invalid_frees_its_place(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(1), INVALID))
    assert await refill(feed, alice)


async def test_freed_bytes_ask_for_a_fetch(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * 200)) for number in (1, 2, 3)))
    await feed.send(alice.update(rkey(1), memory("tea")))
    assert await refill(feed, alice)


async def test_place_that_is_taken_at_once_asks_for_nothing(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.apply([Write("delete", rkey(1)), Write("create", rkey(0), memory("tea"))]))
    assert await state(feed, alice) == ([0, 2], 2)
    assert not await refill(feed, alice)


async def test_freed_place_asks_for_nothing_when_none_is_kept_out(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("tea")))
    await feed.send(alice.delete(rkey(1)))
    assert not await refill(feed, alice)


async def test_greater_rkey_does_not_overtake_those_that_wait_for_a_freed_place(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.delete(rkey(2)))
    await feed.send(alice.create(rkey(20), memory("tea")))
    assert await state(feed, alice) == ([1], 3)


async def test_nothing_overtakes_those_that_wait_when_all_that_was_held_is_gone(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.delete(rkey(1)), alice.delete(rkey(2)))
    await feed.send(alice.create(rkey(20), memory("tea")))
    assert await state(feed, alice) == ([], 3)
    assert await refill(feed, alice)


async def test_last_that_was_kept_out_leaves_room_for_all(database: Database):
    feed, alice = await full(database, kept_out=1)
    await feed.send(alice.delete(rkey(1)), alice.delete(rkey(11)))
    await feed.send(alice.create(rkey(20), memory("tea")))
    assert await state(feed, alice) == ([2, 20], 0)


async def test_purge_forgets_what_was_kept_out(database: Database):
    feed, alice = await full(database)
    feed.directory.bury(alice, feed.clock)
    buried = alice.identity_frame()
    feed.directory.announce(alice, feed.clock + timedelta(microseconds=1))
    await feed.send(buried, alice.identity_frame(), alice.create(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([13], 0)


async def test_quota_of_one_repo_is_not_anothers(database: Database):
    feed, _ = await full(database)
    bob = feed.account("bob")
    await feed.send(bob.create(rkey(30), memory("tea")), bob.create(rkey(31), memory("tea")))
    assert await state(feed, bob) == ([30, 31], 0)


# Whatever the order


PLACES = 5
LIMITS_OF_FIVE = {
    "memories": QuotaLimits(max_memories=PLACES, max_bytes=10**9, max_edges=10**6),
    "edges": QuotaLimits(max_memories=10**6, max_bytes=10**9, max_edges=2 * PLACES),
    "bytes": QuotaLimits(max_memories=10**6, max_bytes=0, max_edges=10**6),
}


@settings(max_examples=60)
@given(
    which=st.sampled_from(list(LIMITS_OF_FIVE)),
    order=st.permutations(range(12)),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=12),
)
async def test_held_are_the_smallest_whatever_the_order_and_the_batches(
    database: Database, which: str, order: list[int], cuts: list[int]
):
    feed = Feed(database)
    alice = RepoBuilder(f"{which} {order} {cuts}", stream=feed.stream)
    feed.directory.announce(alice, LONG_AGO)
    frames = [
        alice.create(rkey(number), memory("tea", supersedes=[uri(alice, 30), uri(alice, number - 1)]))
        for number in order
    ]
    size = len(next(iter(alice.record_blocks.values())))
    limits = LIMITS_OF_FIVE[which] if which != "bytes" else QuotaLimits(10**6, PLACES * size + size // 2, 10**6)
    feed = Feed(database, limits=limits)
    feed.stream = alice.stream
    feed.directory.announce(alice, LONG_AGO)
    at = 0
    while at < len(frames):
        cut = cuts[at % len(cuts)]
        await feed.send(*frames[at : at + cut])
        at += cut
    assert await state(feed, alice) == (list(range(PLACES)), len(order) - PLACES)
    masked = await feed.rows("select rkey from memories where repo = $1 and masked_from is not null", alice.did)
    assert {row["rkey"] for row in masked} == {rkey(number) for number in range(PLACES - 1)}


@dataclass(frozen=True)
class Step:
    """A write to one of some record keys: valid, invalid, or a deletion where something is there."""

    number: int
    content: str | None


STEPS = st.builds(Step, st.integers(0, 7), st.sampled_from(["a", "b", "", None]))


@settings(max_examples=80)
@given(steps=st.lists(STEPS, min_size=5, max_size=40), cuts=st.lists(st.integers(1, 5), min_size=1, max_size=12))
async def test_what_is_kept_out_is_counted_exactly_and_waits_for_its_place(
    database: Database, steps: list[Step], cuts: list[int]
):
    feed = Feed(database, limits=QuotaLimits(max_memories=3, max_bytes=10**9, max_edges=10**6))
    alice = RepoBuilder(f"{steps} {cuts}", stream=feed.stream)
    feed.directory.announce(alice, LONG_AGO)
    valid: set[int] = set()
    frames = [alice.create(rkey(30), INVALID)]
    for step in steps:
        there = f"{COLLECTION}/{rkey(step.number)}" in alice.records
        if step.content is None and not there:
            continue
        if step.content is None:
            frames.append(alice.delete(rkey(step.number)))
        else:
            record = memory(step.content) if step.content else INVALID
            frames.append(alice.apply([Write("update" if there else "create", rkey(step.number), record)]))
        (valid.add if step.content else valid.discard)(step.number)
    at = 0
    while at < len(frames):
        cut = cuts[at % len(cuts)]
        await feed.send(*frames[at : at + cut])
        at += cut
    held, kept_out = await state(feed, alice)
    assert set(held) <= valid
    assert kept_out == len(valid) - len(held)
    assert len(held) <= 3
    if kept_out:
        assert len(held) == 3 or await refill(feed, alice), "a free place is never forgotten"
