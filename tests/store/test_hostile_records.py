"""A record that is made to harm stands between good ones: those are applied, and it is stored or told why not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from indexer.verify.car import encode_block
from memory.data_model import record_json
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, Write, decode_frame_parts, encode_frame, memory
from tests.feed import Feed, rkey

HOSTILE, BEFORE, AFTER = 5, 4, 6


@dataclass(frozen=True)
class Hostile:
    """A record, and why it is no memory; null: it is one."""

    record: dict[str, Any] | bytes
    reason: str | None = None


def with_value(value: bytes) -> bytes:
    """A memory whose property `x` is these bytes of CBOR, which no encoder needs to know."""
    properties = {name: encode_block({name: each})[1:] for name, each in memory("tea").items()}
    entries = sorted({**properties, "x": b"\x61x" + value}.items(), key=lambda entry: (len(entry[0]), entry[0]))
    return bytes([0xA0 + len(entries)]) + b"".join(entry for _, entry in entries)


def nested(levels: int) -> bytes:
    """Arrays inside one another."""
    return b"\x81" * (levels - 1) + b"\x80"


def long_token(length: int) -> str:
    """What no compression makes short."""
    return "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


NULS = "\0a\0\0b\0"
EVERY_TEXT = "'\"\\:*&|!<->() \t\r\n\x01\x7f\u0085\u2028\ufeff\ufffd\uffff{}[]%$1::tsvector;--"
FAMILY = "👨‍👩‍👧‍👦"

RECORDS: dict[str, Hostile] = {
    "1,500 nested arrays": Hostile(with_value(nested(1500)), "nestedTooDeep"),
    "as many nested arrays as are allowed": Hostile(with_value(nested(511))),
    "one nested array more": Hostile(with_value(nested(512)), "nestedTooDeep"),
    "2,000 fields": Hostile(memory("tea") | {f"field{number}": number for number in range(2000)}),
    "NULs everywhere": Hostile(
        memory(
            NULS,
            kind=NULS,
            scope=NULS,
            provenance={"agent": NULS, "client": NULS, "sourceUri": NULS, NULS: NULS},
            supersedes=[NULS, f"at://did:plc:x/{COLLECTION}/\0"],
        )
        | {NULS: [NULS, {NULS: NULS}]}
    ),
    "content of NULs only": Hostile(memory("\0" * 2500)),
    "token of 3,000 bytes": Hostile(memory(long_token(2400), other=long_token(3000))),
    "token of 3,000 bytes in few graphemes": Hostile(memory("\u0300".join(long_token(1000)))),
    "token of 2,500 pictographs": Hostile(memory("🍊" * 2500)),
    "longest tokens joined by every sign": Hostile(memory("-".join(long_token(600) for _ in range(4)))),
    "combining marks": Hostile(memory("e" + "\u0301" * 4999)),
    "more bytes of combining marks": Hostile(memory("e" + "\u0301" * 5000), "contentTooLong"),
    "right to left, overridden": Hostile(memory("\u202eمرحبا\u200f שלום\u202c \u2067עברית\u2069 " * 40)),
    "families": Hostile(memory(FAMILY * 350)),
    "too many graphemes": Hostile(memory("é" * 2501), "contentTooManyGraphemes"),
    "flags": Hostile(memory("🇫🇷" * 1250)),
    "every kind of sign": Hostile(
        memory(EVERY_TEXT, kind=EVERY_TEXT, scope=EVERY_TEXT, provenance={"client": EVERY_TEXT})
    ),
    "words of a tsvector": Hostile(memory("'a':1A,2B 'b''c':99999 \\'d\\':0 e:* f & !g | (h <2> i)")),
    "2,500 words": Hostile(memory("a " * 1250)),
    "positions beyond what Postgres keeps": Hostile(memory("".join(chr(0x4E00 + number) for number in range(2500)))),
    "noncharacters and private use": Hostile(memory("\ufdd0\U0010ffff\ue000\U000f0000 tea")),
    "empty content": Hostile(memory("")),
    "float": Hostile(with_value(b"\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00"), "undecodable"),
    "NaN": Hostile(with_value(b"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00"), "undecodable"),
    "greatest integer": Hostile(with_value(b"\x1b\x7f" + b"\xff" * 7)),
    "integer beyond 64 bits": Hostile(with_value(b"\x1b" + b"\xff" * 8), "undecodable"),
    "negative integer beyond 64 bits": Hostile(with_value(b"\x3b" + b"\xff" * 8), "undecodable"),
    "bignum": Hostile(with_value(b"\xc2\x49" + b"\xff" * 9), "undecodable"),
    "undefined": Hostile(with_value(b"\xf7"), "undecodable"),
    "text that is no UTF-8": Hostile(with_value(b"\x62\xc3\x28"), "undecodable"),
    "lone surrogate": Hostile(with_value(b"\x63\xed\xa0\x80"), "undecodable"),
    "array that claims more than there is": Hostile(with_value(b"\x9b\x00\x00\x00\x01\x00\x00\x00\x00"), "undecodable"),
    "indefinite array": Hostile(with_value(b"\x9f\xff"), "undecodable"),
    "link that is none": Hostile(with_value(b"\xd8\x2a\x41\x00"), "undecodable"),
    "no map": Hostile(b"\x80", "undecodable"),
    "no CBOR": Hostile(b"\xff", "undecodable"),
    "nothing": Hostile(b"", "undecodable"),
    "client of 900,000 bytes": Hostile(memory("tea", provenance={"client": long_token(900_000)})),
    "kind of 900,000 bytes": Hostile(memory("tea", kind=long_token(900_000))),
    "supersedes of 900,000 bytes": Hostile(memory("tea", supersedes=["at://" + long_token(45_000)] * 20)),
    "first instant": Hostile(memory("tea", "0001-01-01T00:00:00Z", updatedAt="0001-01-01T00:00:00+23:59")),
    "last instant": Hostile(memory("tea", "9999-12-31T23:59:59.999999999Z", updatedAt="9999-12-31T23:59:59-23:59")),
    "occurrence at the end of time": Hostile(
        memory(
            "tea", occurredAt={"from": "9999-12-31T23:59:59-12:00", "to": "9999-12-31T23:59:59Z", "precision": "year"}
        )
    ),
    "occurrence at the beginning of time": Hostile(
        memory("tea", occurredAt={"from": "0001-01-01T00:00:00+12:00", "precision": "year"})
    ),
    "replaces all that it may": Hostile(
        memory("tea", supersedes=[f"at://did:plc:{number:024d}/{COLLECTION}/{rkey(1)}" for number in range(20)])
    ),
}


def current(alice: RepoBuilder, number: int) -> bytes:
    """The block that stands at a record key of hers."""
    return alice.record_blocks[alice.records[f"{COLLECTION}/{rkey(number)}"]]


async def outcome_of(feed: Feed, alice: RepoBuilder) -> str | None:
    """Why the hostile record is no memory; it must be one or the other, and whole."""
    block = current(alice, HOSTILE)
    memories = await feed.rows(
        "select record, content from memories where rkey = $1 and repo = $2", rkey(HOSTILE), alice.did
    )
    invalid = await feed.rows(
        "select reason, excerpt from invalid_records where rkey = $1 and repo = $2", rkey(HOSTILE), alice.did
    )
    assert len(memories) + len(invalid) == 1
    if invalid:
        assert invalid[0]["excerpt"] == block[:4096]
        return invalid[0]["reason"]
    assert memories[0]["record"] == block
    written = record_json(block)["content"]
    assert isinstance(written, str)
    assert memories[0]["content"] == written.replace("\0", "\ufffd")
    return None


@pytest.mark.parametrize("what", RECORDS)
async def test_hostile_record_never_takes_its_batch_along(database: Database, what: str):
    feed = Feed(database)
    alice, bob = feed.account("alice"), feed.account("bob")
    frames = [
        bob.create(rkey(BEFORE), memory("good")),
        alice.create(rkey(BEFORE), memory("good")),
        alice.create(rkey(HOSTILE), RECORDS[what].record),
        alice.create(rkey(AFTER), memory("good")),
        bob.create(rkey(AFTER), memory("good")),
    ]
    await feed.send(*frames)
    assert await outcome_of(feed, alice) == RECORDS[what].reason
    for person in (alice, bob):
        repo = await feed.repo(person)
        assert (repo["state"], repo["rev"]) == ("active", person.rev)
        held = await feed.memories(person)
        assert (held[rkey(BEFORE)], held[rkey(AFTER)]) == ("good", "good")


async def test_hostile_records_in_one_commit_are_told_one_by_one(database: Database):
    """So many as a frame has room for; each key and each value of them is the wrong one somewhere."""
    feed = Feed(database)
    alice = feed.account("alice")
    small = [
        each for each in RECORDS.values() if isinstance(each.record, bytes) or len(encode_block(each.record)) < 50_000
    ]
    writes = [Write("create", rkey(100 + number), each.record) for number, each in enumerate(small)]
    await feed.send(alice.apply([*writes, Write("create", rkey(1), memory("good"))]))
    invalid = {row["rkey"]: row["reason"] for row in await feed.rows("select rkey, reason from invalid_records")}
    memories = await feed.memories(alice)
    for number, each in enumerate(small):
        assert invalid.get(rkey(100 + number)) == each.reason
        assert (rkey(100 + number) in memories) == (each.reason is None)
    assert memories[rkey(1)] == "good"


async def test_hostile_record_is_overwritten_and_deleted_like_any_other(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    for hostile in RECORDS.values():
        await feed.send(
            alice.create(rkey(HOSTILE), hostile.record),
            alice.update(rkey(HOSTILE), memory("good")),
        )
        await feed.send(alice.update(rkey(HOSTILE), hostile.record))
        assert await outcome_of(feed, alice) == hostile.reason
        await feed.send(alice.delete(rkey(HOSTILE)))
    assert (await feed.repo(alice))["state"] == "active"
    assert await feed.rows("select from memories union all select from invalid_records") == []


async def test_circle_at_the_ends_of_time_is_a_circle(database: Database):
    """Its members' times pass through the database, and are compared after."""
    feed = Feed(database)
    alice = feed.account("alice")
    times = {1: "0001-01-01T00:00:00Z", 2: "9999-12-31T23:59:59.999999Z", 3: "2026-11-01T00:00:00Z"}
    for number, time in times.items():
        entry = f"at://{alice.did}/{COLLECTION}/{rkey(number % 3 + 1)}"
        await feed.send(alice.create(rkey(number), memory("tea", time, supersedes=[entry])))
    await feed.send(
        alice.update(rkey(3), memory("coffee", times[3], supersedes=[f"at://{alice.did}/{COLLECTION}/{rkey(1)}"]))
    )
    rows = await feed.rows("select rkey, masked_from is null as shown, component from memories order by rkey")
    assert [tuple(row) for row in rows] == [
        (rkey(1), False, rkey(2)),
        (rkey(2), True, rkey(2)),
        (rkey(3), False, rkey(2)),
    ]


async def test_frame_times_at_the_ends_of_time_are_stored_as_instants(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    frames = [alice.create(rkey(number), memory("tea")) for number in (1, 2)]
    for frame, time in zip(frames, ("9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"), strict=True):
        await feed.send(at_time(frame, time))
    unknown = await feed.rows("select from memories where not isfinite(first_indexed_at) or not isfinite(effective_at)")
    assert unknown == []
    assert all(row["frame_time"].tzinfo for row in await feed.rows("select frame_time from sources"))


def at_time(frame: bytes, time: str) -> bytes:
    """The same frame with another time; it is not signed."""
    header, body = decode_frame_parts(frame)
    return encode_frame(header, body | {"time": time})
