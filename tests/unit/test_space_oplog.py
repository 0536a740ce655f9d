"""Pages of ops: the recorded ones, and each answer that a host must not get away with."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify import space_oplog
from indexer.verify.set_hash import SetHash
from indexer.verify.space_car import SpaceCar
from indexer.verify.space_commit import HashMismatch, SpaceRepo
from indexer.verify.space_oplog import Folded, OplogFold, parse_ops_page
from memory.identifiers import COLLECTION
from memory.space_protocol import PAGE_ITEMS_MAX
from tests.builders import SigningKey, memory, tid
from tests.fakes.space_bytes import Cid, cid_of, cid_text, encode_cbor, to_json
from tests.space_repos import NOW, BuiltRepo, path, reason_of, recorded, recorded_cars, recorded_repo

BOB = recorded_repo("bob")
PAGES: dict[str, str] = recorded("oplog.json")
LISTED = [f"D.listRepoOps.bob.limit3.page{number}" for number in range(3)]
BUILT = BuiltRepo.of("a", "b")
OTHER = cid_of(b"other")
EARLY, LATER = "3m5aaaaaaaa2a", "3m6aaaaaaaa2b"


def fold(*bodies: str, repo: SpaceRepo = BOB, **held: Any) -> Folded | None:
    adding = OplogFold(repo, **held)
    for number, body in enumerate(bodies):
        assert adding.add(parse_ops_page(body.encode())) == (number < len(bodies) - 1)
    return adding.finish(NOW)


def folded(*bodies: str, repo: SpaceRepo = BOB, **held: Any) -> Folded:
    found = fold(*bodies, repo=repo, **held)
    assert found is not None
    return found


def page(*ops: dict[str, Any], **fields: Any) -> str:
    """An answer with these ops; the last page of `BUILT` unless `fields` say otherwise."""
    body: dict[str, Any] = {"ops": list(ops), "commit": BUILT.commit_json()} | fields
    return json.dumps({name: value for name, value in body.items() if value is not None})


def refusal(*bodies: str, **held: Any) -> str:
    return reason_of(fold, *bodies, repo=BUILT.repo, **held)


def whole(name: str) -> tuple[bytes, dict[str, bytes]]:
    """The set's state and the blocks of our collection in a recorded CAR, by rkey."""
    repo, data = recorded_cars()[name]
    car = SpaceCar(repo, NOW)
    blocks = {each.rkey: each.block for each in car.feed(data) if each.collection == COLLECTION}
    return car.finish().state, blocks


def test_all_recorded_ops_lead_to_what_the_recorded_car_holds() -> None:
    found = folded(PAGES["D.listRepoOps.bob.all"])
    state, blocks = whole("repo-bob")
    assert found.state == state
    assert {op.rkey: op.block for op in found.ops} == blocks
    assert all(op.prev is None for op in found.ops)
    assert found.missing == ()


@pytest.mark.parametrize(
    "names",
    [
        LISTED,
        ["D.listRepoOps.bob.exactPage", "D.listRepoOps.bob.exactPage.next"],
        ["D.listRepoOps.bob.sinceUnknownOld"],
    ],
    ids=["pages of three", "a full page and an empty one", "since a rev that never was"],
)
def test_the_same_ops_in_other_answers_lead_there_too(names: list[str]) -> None:
    found, expected = folded(*(PAGES[name] for name in names)), folded(PAGES["D.listRepoOps.bob.all"])
    assert (found.ops, found.state, found.commit.rev) == (expected.ops, expected.state, expected.commit.rev)


def test_a_page_says_with_which_cursor_to_go_on() -> None:
    adding = OplogFold(BOB)
    assert adding.add(parse_ops_page(PAGES[LISTED[0]].encode()))
    assert adding.cursor == "3n3iexoeoa32f/0"


def test_recorded_ops_without_values_are_folded_and_their_records_missed() -> None:
    found = folded(PAGES["D.listRepoOps.bob.excludeValues"])
    assert sorted(found.missing) == sorted(op.rkey for op in found.ops) == ["b2", "note-1", "with-blob"]
    assert all(op.block is None for op in found.ops)


def test_recorded_ops_since_our_rev_lead_on_from_our_state() -> None:
    before = folded(PAGES["D.listRepoOps.bob.all"])
    after = folded(PAGES["D2.listRepoOps.bob.since"], state=before.state, since=before.commit.rev)
    assert {op.action for op in after.ops} == {"create", "update", "delete"}
    held = {op.rkey: op.cid for op in before.ops}
    assert all(op.prev == held.get(op.rkey) for op in after.ops)
    held |= {op.rkey: op.cid for op in after.ops}
    records = SetHash()
    records.add(f"{path(rkey)}/{cid}".encode() for rkey, cid in held.items() if cid)
    assert records.state() == after.state


def test_nothing_new_confirms_what_is_held() -> None:
    state, _ = whole("repo-bob")
    found = folded(PAGES["D.listRepoOps.bob.sinceHead"], state=state, since="3n3iexou3fe2f")
    assert (found.ops, found.state) == ((), state)


@pytest.mark.parametrize(
    ("name", "since"),
    [("D.listRepoOps.bob.sinceFuture", "3zzzzzzzzzzzz"), ("G.listRepoOps.sinceBeforeCompaction", "3n3iexq2ppu2f")],
)
def test_only_the_hash_tells_that_a_host_has_no_ops_since_then(name: str, since: str) -> None:
    state = whole("repo-dan")[0]
    with pytest.raises(HashMismatch) as caught:
        fold(PAGES[name], state=state, since=since)
    BOB.check(caught.value.commit, NOW)


def test_after_a_mismatch_the_whole_repo_is_where_the_ops_end() -> None:
    with pytest.raises(HashMismatch) as caught:
        fold(PAGES["G.listRepoOps.sinceBeforeCompaction"], state=whole("repo-bob")[0], since="3n3iexq2ppu2f")
    assert SetHash(whole("repo-bob-recovery")[0]).digest() == caught.value.commit.hash


def test_one_who_never_wrote_has_no_repo() -> None:
    assert fold(PAGES["D.never.listRepoOps"]) is None


def test_ops_without_a_commit_at_the_end_count_for_nothing() -> None:
    assert refusal(page(BUILT.op("a"), commit=None)) == "commit_missing"


def test_built_ops_are_folded() -> None:
    found = folded(page(BUILT.op("a"), BUILT.op("b")), repo=BUILT.repo)
    assert [(op.rkey, op.prev, op.block) for op in found.ops] == [
        (rkey, None, BUILT.blocks[path(rkey)]) for rkey in ("a", "b")
    ]


WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=40)


@given(WRITES, WRITES, st.integers(1, 7))
def test_any_history_in_any_pages_leads_to_what_is_there(
    old: list[tuple[str, int]], new: list[tuple[str, int]], size: int
) -> None:
    before, _ = history({}, old, EARLY)
    after, ops = history(before, new, BUILT.rev)
    built = BuiltRepo({path(rkey): {"n": number} for rkey, number in after.items()})
    chunks = [ops[start : start + size] for start in range(0, len(ops), size)] or [[]]
    bodies = [page(*chunk, commit=None, cursor="on") for chunk in chunks[:-1]]
    bodies.append(page(*chunks[-1], commit=built.commit_json()))
    records = SetHash()
    records.add(f"{path(rkey)}/{cid_text(block_of(number)[0])}".encode() for rkey, number in before.items())
    found = folded(*bodies, repo=built.repo, state=records.state(), since=EARLY)
    assert SetHash(found.state).digest() == built.hash
    changed = {rkey for rkey in "abcd" if before.get(rkey) != after.get(rkey)}
    assert {op.rkey for op in found.ops} == changed
    for op in found.ops:
        was, now = before.get(op.rkey), after.get(op.rkey)
        assert op.prev == (None if was is None else cid_text(block_of(was)[0]))
        assert (op.cid, op.block) == ((None, None) if now is None else (cid_text(block_of(now)[0]), block_of(now)[1]))


def block_of(number: int) -> tuple[Cid, bytes]:
    block = encode_cbor({"n": number})
    return cid_of(block), block


def history(
    held: dict[str, int], writes: list[tuple[str, int]], rev: str
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """What is there after the writes, of which 0 is a deletion, and their ops; values only where they are current."""
    now, ops = dict(held), list[dict[str, Any]]()
    for rkey, number in writes:
        prev = now.pop(rkey, None)
        if prev is None and number == 0:
            continue
        op: dict[str, Any] = {"rev": rev, "collection": COLLECTION, "rkey": rkey}
        op["prev"] = None if prev is None else cid_text(block_of(prev)[0])
        op["cid"] = None if number == 0 else cid_text(block_of(number)[0])
        if number:
            now[rkey] = number
        ops.append(op)
    for op in ops:
        number = now.get(op["rkey"])
        if number is not None and op["cid"] == cid_text(block_of(number)[0]):
            op["value"] = {"n": number}
    return now, ops


def test_records_of_other_collections_count_and_are_not_looked_into() -> None:
    block = encode_cbor({"n": 1})
    built = BuiltRepo({path("a"): memory("Ours."), "a.b.c/x": {"n": 1}})
    other = built.op("x", collection="a.b.c", cid=cid_text(cid_of(block)), value={"n": 2.5})
    found = folded(page(built.op("a"), other, commit=built.commit_json()), repo=built.repo)
    assert [op.rkey for op in found.ops] == ["a"]


def test_a_record_with_links_and_bytes_is_read_from_json() -> None:
    built = BuiltRepo({path("a"): {"link": OTHER, "bytes": b"\x00\x01", "list": [None, True, -1, {"é": 2**53}]}})
    (op,) = folded(page(built.op("a"), commit=built.commit_json()), repo=built.repo).ops
    assert op.block == built.blocks[path("a")]


@pytest.mark.parametrize(
    "value",
    [
        memory("Something else."),
        {},
        {"n": 1.5},
        {"n": 2**64},
        {"n": {"$bytes": "A"}},
        {"n": {"$link": "nothing"}},
        {"n": {"$link": None}},
    ],
    ids=str,
)
def test_a_value_that_is_not_what_its_cid_says_is_refused(value: dict[str, Any]) -> None:
    assert refusal(page(BUILT.op("a", value=value), BUILT.op("b"))) == "value_mismatch"


@pytest.mark.parametrize(
    "ops",
    [
        [BUILT.op("a", cid=None, value=None)],
        [BUILT.op("a", prev=OTHER, cid=None)],  # a deletion with a value
        [BUILT.op("a"), BUILT.op("a")],  # created twice
        [BUILT.op("a"), BUILT.op("a", prev=OTHER)],  # an update of what was not there
        [BUILT.op("a", prev=OTHER, cid=None, value=None), BUILT.op("a", prev=OTHER)],  # deleted before
        [BUILT.op("a", prev=OTHER, cid=None, value=None), BUILT.op("a", prev=OTHER, cid=None, value=None)],
    ],
    ids=["of nothing", "with a value", "created twice", "of another", "of a deleted one", "deleted twice"],
)
def test_an_op_that_contradicts_itself_or_an_earlier_one_is_refused(ops: list[dict[str, Any]]) -> None:
    assert refusal(page(*ops)) == "bad_op"
    *first, last = ops
    if first:
        assert refusal(page(*first, commit=None, cursor="on"), page(last)) == "bad_op"


def test_revs_never_go_back() -> None:
    assert refusal(page(BUILT.op("a"), BUILT.op("b", rev=EARLY))) == "rev_order"
    assert refusal(page(BUILT.op("a"), commit=None, cursor="on"), page(BUILT.op("b", rev=EARLY))) == "rev_order"


@pytest.mark.parametrize("since", [BUILT.rev, LATER])
def test_ops_that_were_not_asked_for_are_refused(since: str) -> None:
    assert refusal(page(BUILT.op("a"), BUILT.op("b")), since=since) == "rev_order"


def test_no_op_is_later_than_the_commit() -> None:
    assert refusal(page(BUILT.op("a"), BUILT.op("b", rev=LATER))) == "rev_order"


def test_a_commit_later_than_the_last_op_is_for_the_hash_to_judge() -> None:
    assert folded(page(BUILT.op("a", rev=EARLY), BUILT.op("b", rev=EARLY)), repo=BUILT.repo).commit.rev == BUILT.rev


@pytest.mark.parametrize("op", [BUILT.op("b", prev=OTHER), BUILT.op("b", rkey="c")], ids=["prev", "rkey"])
def test_ops_that_do_not_lead_to_the_commit_mismatch(op: dict[str, Any]) -> None:
    assert refusal(page(BUILT.op("a"), op)) == "hash_mismatch"


def test_an_op_left_out_mismatches() -> None:
    assert refusal(page(BUILT.op("a"))) == "hash_mismatch"


def test_a_commit_that_is_not_the_authors_counts_for_nothing() -> None:
    stranger = BuiltRepo(BUILT.records, signer=SigningKey("somebody else"))
    both = BUILT.op("a"), BUILT.op("b")
    assert refusal(page(*both, commit=stranger.commit_json())) == "bad_signature"
    assert refusal(page(*both, commit=BUILT.commit_json() | {"hash": to_json(bytes(32))})) == "bad_mac"
    ahead = replace(BUILT, rev=tid(NOW + timedelta(minutes=6)))
    assert refusal(page(*both, commit=ahead.commit_json())) == "rev_in_future"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"ops": null}',
        '{"ops": {}}',
        '{"ops": [null]}',
        '{"ops": [[]]}',
        '{"ops": [',
        "[" * 5000,
        page(cursor="on", commit=None),  # would never end
        page(BUILT.op("a"), cursor="on"),  # with a commit
        page(BUILT.op("a"), cursor="", commit=None),
        page(BUILT.op("a"), cursor=1, commit=None),
        page(*[BUILT.op("a")] * (PAGE_ITEMS_MAX + 1)),
    ],
    ids=lambda body: body[:40],
)
def test_an_answer_in_another_form_is_malformed(body: str) -> None:
    assert reason_of(parse_ops_page, body.encode()) == "malformed_page"


def test_an_answer_in_no_encoding_is_malformed() -> None:
    assert reason_of(parse_ops_page, b'{"ops": [], "cursor": "\xff"}') == "malformed_page"


@pytest.mark.parametrize("name", ["rev", "collection", "rkey", "cid", "prev"])
def test_an_op_that_lacks_a_field_is_malformed(name: str) -> None:
    op = {key: value for key, value in BUILT.op("a").items() if key != name}
    assert reason_of(parse_ops_page, page(op).encode()) == "malformed_page"


@pytest.mark.parametrize(
    "change",
    [
        {"rev": "now"},
        {"rev": None},
        {"collection": "notes"},
        {"collection": "a.b.c/x"},
        {"rkey": ""},
        {"rkey": ".."},
        {"rkey": "a/b"},
        {"cid": ""},
        {"cid": "bafkreihyxfmz7naywvr6fcbp4plevctdesxigxik3bpjk6b7sxtycukkmy"},  # raw
        {"cid": cid_text(OTHER).upper()},
        {"cid": cid_text(OTHER)[:-1] + "b"},  # bits left over
        {"cid": cid_text(OTHER) + "\n"},
        {"cid": {"$link": cid_text(OTHER)}},
        {"prev": "bafy"},
        {"prev": 0},
        {"value": []},
        {"value": "text"},
    ],
    ids=str,
)
def test_a_field_of_another_kind_is_malformed(change: dict[str, Any]) -> None:
    assert reason_of(parse_ops_page, page(BUILT.op("a") | change).encode()) == "malformed_page"


@given(st.binary(min_size=32, max_size=32))
def test_every_cid_of_a_record_is_read(digest: bytes) -> None:
    cid = cid_text(Cid(b"\x01\x71\x12\x20" + digest))
    assert parse_ops_page(page(BUILT.op("a", cid=cid)).encode()).ops[0].cid == cid


def test_more_ops_than_are_held_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_oplog, "MAX_FOLD_OPS", 2)
    assert folded(page(BUILT.op("a"), BUILT.op("b")), repo=BUILT.repo)
    monkeypatch.setattr(space_oplog, "MAX_FOLD_OPS", 1)
    assert refusal(page(BUILT.op("a"), commit=None, cursor="on"), page(BUILT.op("b"))) == "too_many_ops"


def test_more_bytes_than_are_held_are_refused_and_what_was_written_over_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = sum(map(len, BUILT.blocks.values()))
    first = memory("Written over, and a good deal longer.")
    cid = cid_of(encode_cbor(first))
    ops = BUILT.op("a", cid=cid_text(cid), value=first), BUILT.op("a", prev=cid), BUILT.op("b")
    monkeypatch.setattr(space_oplog, "MAX_FOLD_BYTES", size)
    assert folded(page(*ops), repo=BUILT.repo)
    monkeypatch.setattr(space_oplog, "MAX_FOLD_BYTES", size - 1)
    assert refusal(page(*ops)) == "too_many_ops"


def test_a_write_that_changes_nothing_is_no_change_and_keeps_the_record() -> None:
    a = BUILT.index[path("a")]
    again = BUILT.op("a", prev=a, value=None)
    found = folded(page(BUILT.op("a"), again, BUILT.op("b")), repo=BUILT.repo)
    assert found.missing == ()
    held = folded(page(BUILT.op("a"), BUILT.op("b")), repo=BUILT.repo).state
    assert folded(page(again), repo=BUILT.repo, state=held).ops == ()


def test_nothing_of_an_answer_shows_in_a_repr() -> None:
    found = parse_ops_page(page(BUILT.op("a")).encode())
    shown = repr(found) + repr(folded(page(BUILT.op("a"), BUILT.op("b")), repo=BUILT.repo))
    assert "Holds" not in shown
    assert BUILT.rev not in shown
