"""Every switch of the Space host of our tests does what it says; so a test that throws it proves something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import timedelta

import httpx
import pytest

from tests.builders import START, memory
from tests.fakes.space_bytes import cid_of, from_json
from tests.fakes.space_host_faults import Fault
from tests.space_calls import has_true_mac, is_signed, read_repo
from tests.space_scene import RKEYS, Scene, scene_at


@pytest.fixture
async def scene() -> AsyncGenerator[Scene]:
    async with scene_at() as made:
        yield made


# What is said


async def test_a_torn_car_is_signed_but_does_not_hold_what_it_says_and_the_next_does(scene: Scene) -> None:
    scene.away.misbehave(Fault.TORN, "getRepo", scene.bob.did, times=2)

    repos = [read_repo((await scene.read("getRepo")).content) for _ in range(3)]

    assert [repo.is_whole for repo in repos] == [False, False, True]
    assert all(is_signed(repo.commit, scene.space, scene.bob) for repo in repos)
    assert all(repo.commit["hash"] == scene.bob.repo(scene.space).digest for repo in repos)


async def test_a_wrong_hash_is_signed_all_the_same(scene: Scene) -> None:
    scene.away.misbehave(Fault.WRONG_HASH)

    repo = read_repo((await scene.read("getRepo")).content)

    assert is_signed(repo.commit, scene.space, scene.bob)
    assert has_true_mac(repo.commit, scene.space, scene.bob)
    assert not repo.is_whole


@pytest.mark.parametrize(("fault", "signed", "true"), [
    (None, True, True),
    (Fault.WRONG_SIGNATURE, False, True),
    (Fault.WRONG_MAC, True, False),
])  # fmt: skip
@pytest.mark.parametrize("method", ["getLatestCommit", "listRepoOps"])
async def test_a_commit_may_be_signed_by_a_stranger_or_have_a_wrong_mac(
    scene: Scene, method: str, fault: Fault | None, signed: bool, true: bool
) -> None:
    scene.away.misbehave(fault, method)

    commit = from_json((await scene.read(method)).json()["commit"])

    assert is_signed(commit, scene.space, scene.bob) == signed
    assert has_true_mac(commit, scene.space, scene.bob) == true


async def test_records_may_be_other_than_their_cids_say(scene: Scene) -> None:
    honest = read_repo((await scene.read("getRepo")).content)
    ops = (await scene.read("listRepoOps")).json()["ops"]
    scene.away.misbehave(Fault.WRONG_RECORDS)

    swapped = read_repo((await scene.read("getRepo")).content)
    swapped_ops = (await scene.read("listRepoOps")).json()["ops"]

    assert all(cid == cid_of(block) for cid, block in honest.blocks)
    assert not all(cid == cid_of(block) for cid, block in swapped.blocks)
    assert swapped.is_whole
    assert [op["cid"] for op in swapped_ops] == [op["cid"] for op in ops]
    assert all(one["value"] != other["value"] for one, other in zip(ops, swapped_ops, strict=True))


async def test_an_index_without_order_is_no_dag_cbor(scene: Scene) -> None:
    scene.away.misbehave(Fault.UNORDERED, "getRepo")

    with pytest.raises(ValueError, match="sorted"):
        read_repo((await scene.read("getRepo")).content)


async def test_the_answer_may_be_about_another_repo(scene: Scene) -> None:
    cleo = scene.away.add("cleo")
    cleo.create(scene.space, RKEYS[0], memory("What cleo likes is another matter."))
    scene.away.misbehave(Fault.FOREIGN, "getLatestCommit", scene.bob.did)

    commit = from_json((await scene.read("getLatestCommit")).json()["commit"])

    assert not is_signed(commit, scene.space, scene.bob)
    assert is_signed(commit, scene.space, cleo)


async def pages(scene: Scene, times: int) -> list[list[str]]:
    cursor: str | None = None
    found: list[list[str]] = []
    for _ in range(times):
        said = (await scene.read("listRepoOps", limit=1, **({} if cursor is None else {"cursor": cursor}))).json()
        found.append([op["rkey"] for op in said["ops"]])
        cursor = said.get("cursor")
    return found


async def test_a_page_may_be_missing(scene: Scene) -> None:
    assert await pages(scene, 4) == [[RKEYS[0]], [RKEYS[1]], [RKEYS[2]], []]

    scene.away.misbehave(Fault.MISSING_PAGE, "listRepoOps")

    assert await pages(scene, 2) == [[RKEYS[0]], [RKEYS[2]]]


async def test_a_list_may_go_on_for_ever(scene: Scene) -> None:
    scene.away.misbehave(Fault.SAME_CURSOR, "listRepoOps")

    assert await pages(scene, 4) == [[RKEYS[0]]] * 4


@pytest.mark.parametrize("since", ["2222222222222", "3zzzzzzzzzzzz", "compacted"])
async def test_since_what_is_unknown_ahead_or_forgotten_is_no_error_and_only_the_hash_tells(
    scene: Scene, since: str
) -> None:
    if since == "compacted":
        since = scene.bob.repo(scene.space).ops[0].rev
        scene.bob.compact(scene.space)

    answer = await scene.read("listRepoOps", since=since)

    commit = from_json(answer.json()["commit"])
    assert answer.status_code == 200
    assert commit["hash"] == scene.bob.repo(scene.space).digest
    assert len(answer.json()["ops"]) == {"2222222222222": 3, "3zzzzzzzzzzzz": 0}.get(since, 1)


async def test_a_rev_may_be_far_ahead_everywhere(scene: Scene) -> None:
    rev = scene.bob.update(scene.space, RKEYS[0], memory("From next week on."), at=START + timedelta(days=7))

    assert (await scene.listed())[scene.bob.did]["rev"] == rev
    assert (await scene.read("getLatestCommit")).json()["commit"]["rev"] == rev
    assert (await scene.read("listRepoOps")).json()["ops"][-1]["rev"] == rev
    assert scene.bob.delete(scene.space, RKEYS[0]) > rev


async def test_what_was_not_announced_is_readable_but_not_listed(scene: Scene) -> None:
    before = await scene.listed()
    rev = scene.bob.create(scene.space, RKEYS[3], memory("Told to nobody yet."), announced=False)

    assert await scene.listed() == before
    assert (await scene.read("getLatestCommit")).json()["commit"]["rev"] == rev
    scene.bob.announce(scene.space)
    assert (await scene.listed())[scene.bob.did]["rev"] == rev


# How it is said


@pytest.mark.parametrize(("fault", "status", "header"), [
    (Fault.BUSY, 429, ("retry-after", "7")),
    (Fault.BUSY_WITHOUT_A_WORD, 429, ("retry-after", None)),
    (Fault.OVERLOADED, 503, ("retry-after", "7")),
    (Fault.BROKEN, 500, ("retry-after", None)),
    (Fault.MOVED, 302, ("location", "http://10.0.0.1/")),
    (Fault.REFUSING, 400, ("location", None)),
    (Fault.GIBBERISH, 200, ("content-type", "text/html")),
])  # fmt: skip
async def test_an_answer_may_be_none(scene: Scene, fault: Fault, status: int, header: tuple[str, str | None]) -> None:
    credential = await scene.credential()
    scene.away.misbehave(fault, times=1)

    answer = await scene.read("getRepo", credential)

    assert (answer.status_code, answer.headers.get(header[0])) == (status, header[1])
    assert (await scene.read("getRepo", credential)).headers["content-type"] == "application/vnd.ipld.car"


async def test_half_an_answer_may_come_as_the_whole(scene: Scene) -> None:
    car, ops = await scene.read("getRepo"), await scene.read("listRepoOps")
    scene.away.misbehave(Fault.TRUNCATED)

    half_car, half_ops = await scene.read("getRepo"), await scene.read("listRepoOps")

    assert (half_car.status_code, len(half_car.content)) == (200, len(car.content) // 2)
    assert (half_ops.status_code, len(half_ops.content)) == (200, len(ops.content) // 2)
    with pytest.raises(json.JSONDecodeError):
        half_ops.json()


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.BOASTING, Fault.BOMB])
async def test_an_answer_may_not_be_what_http_promises(scene: Scene, fault: Fault) -> None:
    credential = await scene.credential()
    scene.away.misbehave(fault, "getRepo")

    async def read() -> bytes:
        return (await scene.read("getRepo", credential)).content

    if fault is Fault.BOMB:
        assert len(await read()) == 10_000_000
    else:
        with pytest.raises(httpx.TransportError):
            await read()


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.STALLED, Fault.HUNG])
async def test_an_answer_may_be_long_in_coming(scene: Scene, fault: Fault) -> None:
    credential = await scene.credential()
    scene.away.misbehave(fault, "getRepo")
    asking = asyncio.create_task(scene.read("getRepo", credential))
    await scene.away.until_asked("getRepo")

    # Meanwhile it answers others; who was answered after them would have been answered by now.
    assert (await scene.read("getLatestCommit", credential)).status_code == 200
    assert not asking.done()

    scene.away.faults.release.set()
    if fault is Fault.HUNG:
        assert (await scene.read("getLatestCommit", credential)).status_code == 200
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    else:
        assert read_repo((await asking).content).is_whole


async def test_an_answer_may_be_without_end(scene: Scene) -> None:
    scene.away.misbehave(Fault.ENDLESS, "getRepo")
    url = f"http://127.0.0.1:{scene.away.port}/xrpc/com.atproto.space.getRepo"
    headers = scene.mara.headers(scene.away, "GET", "getRepo", await scene.credential())
    given = {"space": str(scene.space), "repo": scene.bob.did}

    received = 0
    async with scene.mara.client.stream("GET", url, params=given, headers=headers) as answer:
        async for chunk in answer.aiter_bytes():
            received += len(chunk)
            if received > 1_000_000:
                break

    assert received > 1_000_000


async def test_the_most_particular_word_counts(scene: Scene) -> None:
    scene.away.misbehave(Fault.BROKEN)
    scene.away.misbehave(Fault.BUSY, "getRepo")
    scene.away.misbehave(Fault.OVERLOADED, "getRepo", scene.bob.did)
    credential = await scene.credential()

    assert (await scene.read("getRepo", credential)).status_code == 503
    assert (await scene.read("getRepo", credential, repo=scene.alice.did)).status_code == 429
    assert (await scene.read("getLatestCommit", credential)).status_code == 500
    assert scene.away.faults.met == {Fault.OVERLOADED: 1, Fault.BUSY: 1, Fault.BROKEN: 1}
