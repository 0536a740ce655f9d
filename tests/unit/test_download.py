"""From what a host sends to the memories of a repo: all of them, exactly, or nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from indexer.interpret import InvalidMemory, StoredMemory, interpret_block
from indexer.resync.download import FetchedRepo, download
from indexer.resync.spool import MEMORY_BYTES
from indexer.verify.car import Link, encode_block, read_car
from indexer.verify.signed import check_signature
from memory.errors import Rejected, Unavailable
from memory.identifiers import COLLECTION, cid_text
from memory.record import RECORD_BYTES_MAX, InvalidReason
from memory.signatures import parse_did_key
from memory.space import PUBLIC
from tests.builders import CommitParts, RepoBuilder, Write, block_cid, memory, write_car
from tests.mutations import mutate
from tests.recorded import FOLDER, did, expected_memories
from tests.unit.test_spool import open_files

Blocks = list[tuple[bytes, bytes]]

OTHERS = ("app.bsky.feed.post", "zz.other.thing", COLLECTION + "s", COLLECTION[:-1])


async def chunks(car: bytes, cuts: Iterable[int] = (), *, failure: Exception | None = None) -> AsyncGenerator[bytes]:
    """A body in pieces, which may end in a failure."""
    start = 0
    for end in [*sorted(cuts), len(car)]:
        yield car[start:end]
        start = end
    if failure is not None:
        raise failure


async def fetched(
    car: bytes, did: str, *, cuts: Iterable[int] = (), folder: Path | None = None, memory_bytes: int = MEMORY_BYTES
) -> tuple[FetchedRepo, dict[str, tuple[str, bytes]]]:
    """The repo, and its memories by key."""
    async with download(chunks(car, cuts), did, folder, memory_bytes=memory_bytes) as repo:
        memories = list(repo.memories())
        assert [found.rkey for found in memories] == sorted(found.rkey for found in memories)
        assert [(rkey, cid_text(cid), repo.block(cid)) for rkey, cid in repo.leaves()] == memories
        return repo, {rkey: (cid, block) for rkey, cid, block in memories}


async def refused(car: bytes, did: str, **options: Any) -> str:
    with pytest.raises(Rejected) as caught:
        await fetched(car, did, **options)
    return caught.value.reason


def expected(repo: RepoBuilder) -> dict[str, tuple[str, bytes]]:
    """What the repo holds in our collection."""
    return {
        path.removeprefix(COLLECTION + "/"): (cid_text(cid), repo.record_blocks[cid])
        for path, cid in repo.records.items()
        if path.startswith(COLLECTION + "/")
    }


def record_of_any_shape(draw: random.Random) -> dict[str, Any] | bytes:
    return draw.choice(
        (
            memory(f"Said on day {draw.randrange(999)}."),
            memory("Like others' records.") | {"$type": draw.choice(OTHERS)},
            {"e": [], "l": None},  # a node
            {"did": "did:plc:a", "version": 3},
            b"",
            b"\xff",
            draw.randbytes(draw.randrange(200)),
            b"\x81" * 1500 + b"\x01",
        )
    )


def random_repo(draw: random.Random, writes: int) -> RepoBuilder:
    """A repo with a history: records of ours and of others, changed and deleted again."""
    repo = RepoBuilder(f"random{draw.random()}")
    repo.apply()
    for number in range(writes):
        if repo.records and draw.random() < 0.2:
            collection, rkey = draw.choice(sorted(repo.records)).split("/")
            action = draw.choice(("update", "delete"))
            repo.apply([Write(action, rkey, record_of_any_shape(draw) if action == "update" else None, collection)])
        else:
            collection = draw.choice((COLLECTION, *OTHERS))
            repo.apply([Write("create", f"{draw.randrange(10**6)}-{number}", record_of_any_shape(draw), collection)])
    return repo


def blocks_of(car: bytes) -> Blocks:
    return list(read_car(car).blocks.items())


def built(count: int = 60) -> RepoBuilder:
    """A repo of some layers, half of it ours."""
    repo = RepoBuilder("built")
    repo.apply(
        Write("create", f"{number:04}", memory(f"{number}"), (COLLECTION, OTHERS[0])[number % 2])
        for number in range(count)
    )
    return repo


def changed(repo: RepoBuilder, change: Callable[[Blocks], Blocks], root: bytes | None = None) -> bytes:
    """The repo's CAR with other blocks."""
    assert repo.commit is not None
    return write_car(root or repo.commit[0], change(blocks_of(repo.car())))


# What is legal


@pytest.mark.parametrize("memory_bytes", [0, 5000, MEMORY_BYTES])
async def test_a_repo_gives_exactly_its_memories_in_any_order_and_any_pieces(seed: int, memory_bytes: int) -> None:
    draw = random.Random(seed)
    for _ in range(25):
        repo = random_repo(draw, draw.randrange(60))
        assert repo.commit is not None
        extra = [(block_cid(block), block) for block in (draw.randbytes(draw.randrange(90)) for _ in range(9))]
        raw = draw.randbytes(40)
        blocks = blocks_of(repo.car())
        blocks += [*draw.choices(blocks, k=5), *extra, (Link(block_cid(raw).replace(b"\x71", b"\x55", 1)), raw)]
        draw.shuffle(blocks)
        car = write_car(repo.commit[0], blocks)
        cuts = [draw.randrange(len(car) + 1) for _ in range(draw.choice((0, 3, 300)))]
        found, memories = await fetched(car, repo.did, cuts=cuts, memory_bytes=memory_bytes)
        assert memories == expected(repo)
        assert (found.commit.rev, found.commit.data) == (repo.rev, repo.data)
        assert (found.blocks, found.records, found.car_bytes) == (len(blocks), len(repo.records), len(car))
        check_signature(found.commit, parse_did_key(repo.did_key))


@pytest.mark.parametrize("kept", [0, 29, 30])
async def test_a_repo_of_more_memories_than_are_kept_in_mind_gives_all_of_them(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexer.resync.download.KEPT_LEAVES", kept)
    repo = built(60)
    _, memories = await fetched(repo.car(), repo.did)
    assert len(memories) == 30
    assert memories == expected(repo)


async def test_every_way_to_cut_a_small_repo_in_two_gives_the_same() -> None:
    repo = built(3)
    car = repo.car()
    for cut in range(len(car) + 1):
        assert (await fetched(car, repo.did, cuts=[cut]))[1] == expected(repo)


async def test_an_empty_repo_has_no_memories() -> None:
    repo = RepoBuilder("empty")
    repo.apply()
    found, memories = await fetched(repo.car(), repo.did)
    assert (found.records, memories) == (0, {})


@pytest.mark.parametrize("account", ["alice", "bob", "carol", "dave", "erin", "grace", "heidi"])
@pytest.mark.parametrize("memory_bytes", [0, MEMORY_BYTES])
async def test_recorded_repos_give_what_their_servers_held(account: str, memory_bytes: int) -> None:
    car = (FOLDER / "repos" / f"{account}.car").read_bytes()
    held = expected_memories()[did(account)]
    found, memories = await fetched(car, did(account), memory_bytes=memory_bytes)
    assert {f"{COLLECTION}/{rkey}": cid for rkey, (cid, _) in memories.items()} == {
        path: listed["cid"] for path, listed in held["memories"].items()
    }
    assert (found.commit.commit_cid, found.commit.rev, found.commit.data_cid) == (
        held["commit"], held["rev"], held["data"],
    )  # fmt: skip


async def test_records_of_others_need_not_be_sent() -> None:
    repo = built()
    others = {cid for path, cid in repo.records.items() if not path.startswith(COLLECTION + "/")}
    car = changed(repo, lambda blocks: [pair for pair in blocks if pair[0] not in others])
    found, memories = await fetched(car, repo.did)
    assert memories == expected(repo)
    assert found.records == len(repo.records)


async def test_the_same_record_under_several_keys_is_sent_once() -> None:
    repo = RepoBuilder("same")
    repo.apply(Write("create", f"{number}", memory("x")) for number in range(9))
    assert len((await fetched(repo.car(), repo.did))[1]) == 9


# Records that are too large


def padded(size: int) -> bytes:
    """A record of so many bytes that is fine otherwise."""
    short = encode_block(memory("x", more=b"y" * 500_000))
    return encode_block(memory("x", more=b"y" * (500_000 + size - len(short))))


@pytest.mark.parametrize(("surplus", "reason"), [(0, None), (1, "recordTooBig"), (4_000_000, "recordTooBig")])
@pytest.mark.parametrize("memory_bytes", [0, MEMORY_BYTES])
async def test_a_record_has_a_million_bytes_at_most(surplus: int, reason: str | None, memory_bytes: int) -> None:
    repo, rkey, record = RepoBuilder("large"), "3kaaaaaaaaa2a", padded(RECORD_BYTES_MAX + surplus)
    repo.apply([Write("create", rkey, record), Write("create", "3kaaaaaaaab2a", memory("beside it"))])
    _, memories = await fetched(repo.car(), repo.did, memory_bytes=memory_bytes)
    assert memories.keys() == expected(repo).keys()
    cid, block = memories[rkey]
    assert cid == cid_text(block_cid(record))
    entry = interpret_block(repo.did, PUBLIC, rkey, cid, block)
    if reason is None:
        assert isinstance(entry, StoredMemory)
        assert entry.record == record
    else:
        assert entry == InvalidMemory(cid, InvalidReason(reason), record[:4096])


async def test_a_large_record_of_another_collection_is_no_matter() -> None:
    repo = built()
    repo.create("large", b"z" * 5_000_000, OTHERS[0])
    assert (await fetched(repo.car(), repo.did))[1] == expected(repo)


# What is not


async def test_a_car_that_ends_early_is_never_taken() -> None:
    repo = built(5)
    car = repo.car()
    reasons = {await refused(car[:length], repo.did) for length in range(len(car))}
    assert reasons == {"truncated_car", "commit_missing", "repo_incomplete"}


async def test_the_repo_of_somebody_else_is_refused_before_it_is_read() -> None:
    repo = built()
    failure = RuntimeError("read on")
    with pytest.raises(Rejected) as caught:
        async with download(chunks(repo.car(), [2000], failure=failure), "did:plc:another", None):
            pass
    assert caught.value.reason == "did_mismatch"


async def test_a_block_that_is_not_what_it_is_called_is_refused() -> None:
    repo = built()
    for place in (0, 1, -1):

        def swap(blocks: Blocks, place: int = place) -> Blocks:
            blocks[place] = (blocks[place][0], blocks[place][1] + b"\x00")
            return blocks

        assert await refused(changed(repo, swap), repo.did) == "block_hash"


async def test_every_block_but_others_records_is_needed() -> None:
    repo = built()
    assert repo.commit is not None
    for cid, _ in blocks_of(repo.car()):
        car = changed(repo, lambda blocks, cid=cid: [pair for pair in blocks if pair[0] != cid])
        if any(path.startswith(OTHERS[0]) for path, held in repo.records.items() if held == cid):
            assert (await fetched(car, repo.did))[1] == expected(repo)
        else:
            assert await refused(car, repo.did) == ("commit_missing" if cid == repo.commit[0] else "repo_incomplete")


async def test_what_is_no_repo_is_refused() -> None:
    repo = built(3)
    node = next(cid for cid, block in blocks_of(repo.car()) if block.startswith(b"\xa2ae"))
    no_roots = encode_block({"roots": [], "version": 1})
    pragma = encode_block({"version": 2})
    for car, reason in (
        (b"", "truncated_car"),
        (b"<!doctype html>" * 100, "malformed_car"),
        (bytes([len(no_roots)]) + no_roots, "malformed_car"),
        (bytes([len(pragma)]) + pragma + bytes(40), "malformed_car"),
        (repo.car() + b"\xff" * 9, "malformed_car"),
        (changed(repo, lambda blocks: blocks, root=node), "malformed_commit"),
        (changed(repo, lambda blocks: blocks, root=block_cid(b"nothing")), "commit_missing"),
    ):
        assert await refused(car, repo.did) == reason


def with_commit(change: Callable[[CommitParts], None]) -> tuple[RepoBuilder, bytes]:
    """A repo, and its CAR with a commit that is signed as rightly as another."""
    repo = built(3)
    assert repo.rev is not None
    parts = CommitParts(
        repo.key, {"did": repo.did, "version": 3, "rev": repo.rev, "data": repo.data, "prev": None}, {}, {}
    )
    change(parts)
    commit = parts.sign()
    return repo, changed(repo, lambda blocks: [*blocks[1:], *parts.blocks.items(), commit], root=commit[0])


async def test_a_commit_of_another_version_is_refused() -> None:
    repo, car = with_commit(lambda parts: parts.commit.update(version=2))
    assert await refused(car, repo.did) == "malformed_commit"


async def test_a_signed_tree_that_is_malformed_is_refused() -> None:
    def point_at_record(parts: CommitParts) -> None:
        block = encode_block(memory("no node"))
        parts.blocks[block_cid(block)] = block
        parts.commit["data"] = block_cid(block)

    repo, car = with_commit(point_at_record)
    assert await refused(car, repo.did) == "malformed_tree"


async def test_a_signed_tree_that_holds_less_is_another_repo() -> None:
    """Nothing is told apart by what else is in the CAR."""
    repo, car = with_commit(lambda parts: parts.commit.update(data=RepoBuilder("empty").tree.seal()))
    assert (await fetched(car, repo.did))[1] == {}


async def test_a_damaged_car_gives_the_same_memories_or_none(seed: int) -> None:
    draw = random.Random(seed)
    repo = built(8)
    car = repo.car()
    for _ in range(1500):
        damaged = mutate(car, draw)
        try:
            _, memories = await fetched(damaged, repo.did, memory_bytes=draw.choice((0, MEMORY_BYTES)))
        except Rejected:
            continue
        assert memories == expected(repo)


# Ends


async def test_what_the_host_does_wrong_is_passed_on_and_nothing_is_left(tmp_path: Path) -> None:
    repo = built()
    failure = Unavailable("the host went silent")
    with pytest.raises(Unavailable) as caught:
        async with download(chunks(repo.car(), failure=failure), repo.did, tmp_path, memory_bytes=0):
            pass
    assert caught.value is failure
    assert open_files(tmp_path) == []


async def test_blocks_are_on_disk_until_the_context_is_left(tmp_path: Path) -> None:
    repo = built(3000)
    async with download(chunks(repo.car()), repo.did, tmp_path, memory_bytes=0) as fetched:
        assert len(open_files(tmp_path)) == 1
        assert sum(1 for _ in fetched.memories()) == 1500
        assert sum(1 for _ in fetched.memories()) == 1500
    assert open_files(tmp_path) == []


async def test_a_cancelled_download_ends_and_leaves_nothing(tmp_path: Path) -> None:
    repo, halfway = built(3000), asyncio.Event()

    async def stuck() -> AsyncGenerator[bytes]:
        yield repo.car()[:-1]
        halfway.set()
        await asyncio.Event().wait()

    async def fetch() -> None:
        async with aclosing(stuck()) as body, download(body, repo.did, tmp_path, memory_bytes=0):
            raise AssertionError

    task = asyncio.create_task(fetch())
    await halfway.wait()
    assert len(open_files(tmp_path)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert open_files(tmp_path) == []


async def test_a_disk_that_cannot_be_used_passes(tmp_path: Path) -> None:
    repo = built()
    with pytest.raises(Unavailable, match="disk"):
        await fetched(repo.car(), repo.did, folder=tmp_path / "not there", memory_bytes=0)


async def test_others_get_their_turn_while_a_repo_is_read() -> None:
    """Here all of it comes at once."""
    repo, turns = built(4000), 0
    car = repo.car()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await fetched(car, repo.did)
    counting.cancel()
    assert turns >= len(car) // (64 * 1024) + 4
