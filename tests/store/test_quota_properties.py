"""What is held is a function of the contents, whatever the sizes, the order of arrival and the batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.quota import QuotaLimits
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, Write, memory
from tests.feed import LONG_AGO, Feed, forget, rkey
from tests.store.quotas import INVALID, invalid, refill, state, uri

Item = TypeVar("Item")


@dataclass(frozen=True)
class Size:
    """What a memory asks for: the length of its content, and how many others it replaces."""

    content: int
    edges: int


Record = Size | Literal["invalid"]

SIZES = st.builds(Size, st.sampled_from([1, 40, 150, 400]), st.integers(0, 3))
RECORDS = SIZES | SIZES | st.just("invalid")
LIMITS = st.builds(QuotaLimits, st.integers(1, 8), st.integers(150, 2500), st.integers(0, 12), st.integers(0, 4))
CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=12)


@dataclass(frozen=True)
class Held:
    """Numbers of what is held of a repo, and how many records are only counted."""

    memories: list[int]
    invalid: list[int]
    kept_out: int


def record(alice: RepoBuilder, what: Record, *replaced: int) -> dict[str, object]:
    if what == "invalid":
        return dict(INVALID)
    targets = (*replaced, *range(30, 30 + what.edges))
    return memory("x" * what.content, supersedes=[uri(alice, number) for number in targets])


def wanted(alice: RepoBuilder, there: Mapping[int, Record], limits: QuotaLimits, *, more_edges: int = 0) -> Held:
    """The model: the longest run of memories, the first few invalid records before what does not fit, a number.

    Each memory has `more_edges` beyond those of its size.
    """
    memories: list[int] = []
    invalid: list[int] = []
    record_bytes = edges = 0
    for number, what in sorted(there.items()):
        if what == "invalid":
            invalid.append(number)
            continue
        record_bytes += len(alice.record_blocks[alice.records[f"{COLLECTION}/{rkey(number)}"]])
        edges += what.edges + more_edges
        if len(memories) == limits.max_memories or record_bytes > limits.max_bytes or edges > limits.max_edges:
            break
        memories.append(number)
    invalid = invalid[: limits.max_invalid]
    return Held(memories, invalid, len(there) - len(memories) - len(invalid))


async def held_of(feed: Feed, alice: RepoBuilder) -> Held:
    memories, kept_out = await state(feed, alice)
    return Held(memories, await invalid(feed, alice), kept_out)


def batches(items: Sequence[Item], cuts: Sequence[int]) -> Iterator[Sequence[Item]]:
    """The items, in turn as many at once as the cuts say."""
    at = 0
    for cut in cycle(cuts):
        if at >= len(items):
            return
        yield items[at : at + cut]
        at += cut


async def fresh(database: Database, alice: RepoBuilder, limits: QuotaLimits) -> Feed:
    """A feed on the stream of `alice`, who is tracked, and of whom nothing is held."""
    await forget(database, alice.did)
    feed = Feed(database, limits=limits)
    feed.stream = alice.stream
    feed.directory.announce(alice, LONG_AGO)
    await feed.send(alice.create(rkey(39), INVALID))
    await feed.send(alice.delete(rkey(39)))
    return feed


@settings(max_examples=100)
@given(limits=LIMITS, records=st.lists(RECORDS, min_size=10, max_size=10), order=st.permutations(range(10)), cuts=CUTS)
async def test_held_is_what_the_quota_lets_in_whatever_the_order_and_the_batches(
    database: Database, limits: QuotaLimits, records: list[Record], order: list[int], cuts: list[int]
):
    alice = RepoBuilder(f"{limits} {records} {order} {cuts}")
    feed = await fresh(database, alice, limits)
    there: dict[int, Record] = {}
    held = Held([], [], 0)
    for batch in batches(order, cuts):
        there |= {number: records[number] for number in batch}
        await feed.send(*(alice.create(rkey(number), record(alice, records[number], number - 1)) for number in batch))
        held = wanted(alice, there, limits, more_edges=1)
        assert await held_of(feed, alice) == held
        assert not await refill(feed, alice), "nothing became free"
    masked = await feed.rows("select rkey from memories where repo = $1 and masked_from is not null", alice.did)
    assert {row["rkey"] for row in masked} == {rkey(each) for each in held.memories if each + 1 in held.memories}


@dataclass(frozen=True)
class Step:
    """A write to one of some record keys: a memory, an invalid record, or a deletion where something is there."""

    number: int
    record: Record | Literal["deleted"]


STEPS = st.builds(Step, st.integers(0, 9), SIZES | st.sampled_from(["invalid", "deleted", "deleted"]))


def take(alice: RepoBuilder, there: dict[int, Record], step: Step) -> bytes | None:
    """The frame of one step, if there is anything to do; `there` becomes the records that it leaves."""
    exists = there.pop(step.number, None) is not None
    if step.record == "deleted":
        return alice.delete(rkey(step.number)) if exists else None
    there[step.number] = step.record
    return alice.apply([Write("update" if exists else "create", rkey(step.number), record(alice, step.record))])


def may_ask(before: Mapping[int, Record], there: Mapping[int, Record], edge: int | None) -> bool:
    """Whether a batch made a place free: something is smaller, valid or gone, or the first that is kept out changed."""
    for number, was in before.items():
        now = there.get(number)
        if now is None or (was == "invalid") != (now == "invalid") or number == edge:
            return True
        if isinstance(was, Size) and isinstance(now, Size) and (now.content < was.content or now.edges < was.edges):
            return True
    return False


async def rebuilt(
    database: Database, alice: RepoBuilder, there: Mapping[int, Record], limits: QuotaLimits
) -> tuple[RepoBuilder, Feed]:
    """What a fetch makes of the contents: all of them at once, where there was nothing."""
    again = RepoBuilder(alice.seed, stream=alice.stream)
    feed = await fresh(database, again, limits)
    writes = [Write("create", rkey(number), record(again, what)) for number, what in sorted(there.items())]
    await feed.send(again.apply(writes))
    return again, feed


@settings(max_examples=200)
@given(limits=LIMITS, steps=st.lists(STEPS, min_size=5, max_size=40), cuts=CUTS)
async def test_held_is_what_the_quota_lets_in_of_the_contents_or_a_fetch_makes_it_so(
    database: Database, limits: QuotaLimits, steps: list[Step], cuts: list[int]
):
    alice = RepoBuilder(f"{limits} {steps} {cuts}")
    feed = await fresh(database, alice, limits)
    there: dict[int, Record] = {}
    for batch in batches(steps, cuts):
        before = dict(there)
        kept_out = [number for number in sorted(before) if number not in wanted(alice, before, limits).memories]
        edge = next((number for number in kept_out if before[number] != "invalid"), None)
        frames = [frame for step in batch if (frame := take(alice, there, step))]
        await feed.send(*frames, cut=len(batch))
        held = await held_of(feed, alice)
        memories, faults = ([n for n in sorted(there) if (there[n] == "invalid") == fails] for fails in (False, True))
        assert held.memories == memories[: len(held.memories)], "none is skipped"
        assert held.invalid == faults[: len(held.invalid)], "none is skipped"
        assert held.kept_out == len(there) - len(held.memories) - len(held.invalid)
        if await refill(feed, alice):
            assert may_ask(before, there, edge), "asked without a cause"
            alice, feed = await rebuilt(database, alice, there, limits)
        assert await held_of(feed, alice) == wanted(alice, there, limits)
