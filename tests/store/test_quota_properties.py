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
from tests.store.quotas import INVALID, refill, state, uri

Item = TypeVar("Item")


@dataclass(frozen=True)
class Size:
    """What a memory asks for: the length of its content, and how many others it replaces."""

    content: int
    edges: int


SIZES = st.builds(Size, st.sampled_from([1, 40, 150, 400]), st.integers(0, 3))
LIMITS = st.builds(QuotaLimits, st.integers(1, 8), st.integers(150, 2500), st.integers(0, 12))
CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def sized(alice: RepoBuilder, size: Size, *replaced: int) -> dict[str, object]:
    targets = (*replaced, *range(30, 30 + size.edges))
    return memory("x" * size.content, supersedes=[uri(alice, number) for number in targets])


def longest_run(alice: RepoBuilder, edges: Mapping[int, int], limits: QuotaLimits) -> list[int]:
    """The model: the numbers that count, of the memories that are there with so many edges each."""
    run: list[int] = []
    record_bytes = edge_count = 0
    for number in sorted(edges):
        record_bytes += len(alice.record_blocks[alice.records[f"{COLLECTION}/{rkey(number)}"]])
        edge_count += edges[number]
        if len(run) == limits.max_memories or record_bytes > limits.max_bytes or edge_count > limits.max_edges:
            break
        run.append(number)
    return run


def batches(items: Sequence[Item], cuts: Sequence[int]) -> Iterator[Sequence[Item]]:
    """The items, in turn as many at once as the cuts say."""
    at = 0
    for cut in cycle(cuts):
        if at >= len(items):
            return
        yield items[at : at + cut]
        at += cut


async def fresh(database: Database, alice: RepoBuilder, limits: QuotaLimits) -> Feed:
    """A feed on the stream of `alice`, of whom nothing was ever seen."""
    await forget(database, alice.did)
    feed = Feed(database, limits=limits)
    feed.stream = alice.stream
    feed.directory.announce(alice, LONG_AGO)
    return feed


@settings(max_examples=100)
@given(limits=LIMITS, sizes=st.lists(SIZES, min_size=10, max_size=10), order=st.permutations(range(10)), cuts=CUTS)
async def test_held_is_the_longest_run_whatever_the_order_and_the_batches(
    database: Database, limits: QuotaLimits, sizes: list[Size], order: list[int], cuts: list[int]
):
    alice = RepoBuilder(f"{limits} {sizes} {order} {cuts}")
    feed = await fresh(database, alice, limits)
    there: dict[int, int] = {}
    held: list[int] = []
    for batch in batches(order, cuts):
        there |= {number: sizes[number].edges + 1 for number in batch}
        await feed.send(*(alice.create(rkey(number), sized(alice, sizes[number], number - 1)) for number in batch))
        held = longest_run(alice, there, limits)
        assert await state(feed, alice) == (held, len(there) - len(held))
        assert not await refill(feed, alice), "nothing became free"
    masked = await feed.rows("select rkey from memories where repo = $1 and masked_from is not null", alice.did)
    assert {row["rkey"] for row in masked} == {rkey(number) for number in range(len(held) - 1)}


@dataclass(frozen=True)
class Step:
    """A write to one of some record keys: a memory, an invalid record, or a deletion where something is there."""

    number: int
    record: Size | Literal["invalid", "deleted"]


STEPS = st.builds(Step, st.integers(0, 7), SIZES | SIZES | st.sampled_from(["invalid", "deleted", "deleted"]))


def became_smaller(before: Size, after: Size | None) -> bool:
    return after is None or after.content < before.content or after.edges < before.edges


def take(alice: RepoBuilder, there: dict[int, Size], step: Step) -> bytes | None:
    """The frame of one step, if there is anything to do; `there` becomes the memories that it leaves."""
    exists = f"{COLLECTION}/{rkey(step.number)}" in alice.records
    there.pop(step.number, None)
    if step.record == "deleted":
        return alice.delete(rkey(step.number)) if exists else None
    if isinstance(step.record, Size):
        there[step.number] = step.record
    record = sized(alice, step.record) if isinstance(step.record, Size) else INVALID
    return alice.apply([Write("update" if exists else "create", rkey(step.number), record)])


async def rebuilt(
    database: Database, alice: RepoBuilder, there: Mapping[int, Size], limits: QuotaLimits
) -> tuple[RepoBuilder, Feed]:
    """What a fetch makes of the contents: all of them at once, where there was nothing."""
    again = RepoBuilder(alice.seed, stream=alice.stream)
    feed = await fresh(database, again, limits)
    await feed.send(
        again.apply(
            [Write("create", rkey(39), INVALID)]
            + [Write("create", rkey(number), sized(again, size)) for number, size in sorted(there.items())]
        )
    )
    return again, feed


@settings(max_examples=150)
@given(limits=LIMITS, steps=st.lists(STEPS, min_size=5, max_size=40), cuts=CUTS)
async def test_held_is_the_longest_run_of_the_contents_or_a_fetch_makes_it_so(
    database: Database, limits: QuotaLimits, steps: list[Step], cuts: list[int]
):
    alice = RepoBuilder(f"{limits} {steps} {cuts}")
    feed = await fresh(database, alice, limits)
    await feed.send(alice.create(rkey(39), INVALID))
    there: dict[int, Size] = {}
    longest: list[int] = []
    for batch in batches(steps, cuts):
        before, edge = dict(there), next(iter(sorted(there)[len(longest) :]), None)
        frames = [frame for step in batch if (frame := take(alice, there, step))]
        await feed.send(*frames, cut=len(batch))
        edges = {number: size.edges for number, size in there.items()}
        held, kept_out = await state(feed, alice)
        assert held == sorted(there)[: len(held)], "none is skipped"
        assert kept_out == len(there) - len(held)
        longest = longest_run(alice, edges, limits)
        if await refill(feed, alice):
            shrunk = any(became_smaller(size, there.get(number)) for number, size in before.items())
            assert shrunk or edge in {step.number for step in batch}, "asked without a cause"
            alice, feed = await rebuilt(database, alice, there, limits)
            held, kept_out = await state(feed, alice)
        assert (held, kept_out) == (longest, len(there) - len(longest))
