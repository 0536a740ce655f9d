"""The index holds what a plain model of the same contents holds, whatever the order, batches, copies and crashes."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from indexer.arrivals import Batch, CommitArrived, Place, Position, Source, SourceKind
from indexer.interpret import MemoryOp, StoredMemory, interpret_block
from indexer.quota import QuotaLimits
from indexer.verify.car import encode_block
from indexer.verify.commit import VerifiedCommit
from indexer.writer import Writer
from memory.database import Database
from memory.identifiers import COLLECTION, cid_text
from memory.queries import Connection, Isolation
from memory.space import PUBLIC
from tests.builders import block_cid
from tests.index_model import ModelRepo

CASES = int(os.environ.get("TEST_INDEX_CASES", "10000"))
CASES_AT_ONCE = 100
SOURCE = Source("https://relay.test", SourceKind.RELAY)
LIMITS = QuotaLimits(max_memories=1000, max_bytes=10**9, max_edges=10**6)
# Fewer invalid records than a repo has now and then.
TIGHT = QuotaLimits(max_memories=1000, max_bytes=10**9, max_edges=10**6, max_invalid=1)
START = datetime(2026, 6, 1, tzinfo=UTC)
RKEYS = [f"3m{letter}aaaaaaaaaa" for letter in "bcdefgh"]
MINUTES = [START - timedelta(minutes=minute) for minute in (50, 40, 30, 20, 10)] + [START + timedelta(days=9)]


class Killed(Exception):
    """The process died before its transaction was committed."""


@dataclass
class Author:
    """One case: a repo with its model, and the commits that were made of it."""

    did: str
    random: random.Random
    model: ModelRepo
    commits: list[CommitArrived] = field(default_factory=list[CommitArrived])

    def commit(self, seq: int, at: datetime) -> CommitArrived:
        previous = self.commits[-1].commit if self.commits else None
        rkeys = self.random.sample(RKEYS, self.random.choice((1, 1, 1, 2, 3)))
        ops: list[MemoryOp] = []
        for rkey in rkeys:
            key = self.model.keys.get(rkey)
            held = key is not None and key.record is not None
            if held and self.random.random() < 0.3:
                self.model.write(rkey, None, None, False, at)
                ops.append(MemoryOp(rkey, None))
                continue
            record = self.record(rkey)
            block = encode_block(record)
            cid = cid_text(block_cid(block))
            entry = interpret_block(self.did, PUBLIC, rkey, cid, block)
            assert isinstance(entry, StoredMemory) == ("createdAt" in record)
            self.model.write(rkey, cid, record, isinstance(entry, StoredMemory), at)
            ops.append(MemoryOp(rkey, entry, created=not held))
        number = len(self.commits)
        commit = VerifiedCommit(
            repo=self.did,
            rev=f"3m{number:011d}".translate(str.maketrans("0123456789", "abcdefghij")),
            since=previous.rev if previous else None,
            commit_cid=f"commit{number}",
            data_cid=f"data{number}",
            prev_data=previous.data_cid if previous else None,
            from_empty=previous is None,
            fault=None,
            touches_collection=True,
            ops=(),
        )
        arrived = CommitArrived(Place(SOURCE, seq, at), commit, tuple(ops), first_sight=previous is None)
        self.commits.append(arrived)
        return arrived

    def record(self, rkey: str) -> dict[str, object]:
        draw = self.random
        record: dict[str, object] = {
            "$type": COLLECTION,
            "content": draw.choice(("tea", "coffee", "it's \x00 'quoted' \\ text", "日本語のメモ", "")) or "a",
            "createdAt": draw.choice(MINUTES).isoformat().replace("+00:00", "Z"),
        }
        if draw.random() < 0.3:
            record["updatedAt"] = draw.choice(MINUTES).isoformat().replace("+00:00", "Z")
        if draw.random() < 0.6:
            record["supersedes"] = [self.entry(rkey) for _ in range(draw.choice((1, 1, 2, 3)))]
        if draw.random() < 0.08:
            del record["createdAt"]
        return record

    def entry(self, rkey: str) -> str:
        own = f"at://{self.did}/{COLLECTION}/"
        foreign = f"at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/{COLLECTION}/{RKEYS[0]}"
        return self.random.choice([own + self.random.choice(RKEYS)] * 8 + [own + rkey, foreign, "no uri"])


def crashing(database: Database, draw: random.Random) -> Database:
    """The same database, which kills its writer before the commit, now and then."""

    class Crashing(Database):
        @asynccontextmanager
        async def transaction(
            self, *, isolation: Isolation | None = None, readonly: bool = False
        ) -> AsyncGenerator[Connection]:
            async with Database(self.pool).transaction(isolation=isolation, readonly=readonly) as conn:
                yield conn
                if draw.random() < 0.2:
                    raise Killed

    return Crashing(database.pool)


async def test_index_equals_a_plain_model(database: Database, seed: int) -> None:
    for number in range(max(1, CASES // CASES_AT_ONCE)):
        await play_round(database, random.Random(f"{seed}-{number}"), number)


async def play_round(database: Database, draw: random.Random, round_number: int) -> None:
    """Some repos side by side, from their first commit to the comparison with the model."""
    authors = [
        Author(f"did:plc:r{round_number:05d}x{number:05d}", random.Random(draw.random()), ModelRepo(""))
        for number in range(CASES_AT_ONCE)
    ]
    for author in authors:
        author.model.did = author.did
    limits = draw.choice((LIMITS, LIMITS, TIGHT))
    writer = Writer(crashing(database, draw), limits)
    seq, at = 0, START
    for _ in range(draw.randrange(3, 7)):
        batch = Batch()
        for author in draw.sample(authors, draw.randrange(1, len(authors) + 1)):
            for _ in range(draw.choice((1, 1, 2))):
                seq += 1
                at += timedelta(seconds=1)
                batch.arrivals.append(author.commit(seq, at))
                if draw.random() < 0.2:  # a second relay, or a replay, repeats an old one
                    batch.arrivals.append(draw.choice(author.commits))
        batch.positions[f"https://relay{round_number}.test"] = Position(seq, at)
        while True:
            try:
                await writer.apply(batch, at)
                break
            except Killed:
                continue
        if draw.random() < 0.3:
            await Writer(database, limits).apply(batch, at)
    async with database.connection() as conn:
        held = await conn.fetch("select * from memories where repo like $1", f"did:plc:r{round_number:05d}x%")
        spans = await conn.fetch(
            """select m.repo, m.rkey, t.at, case when m.masked_spans is null
                    then coalesce(m.masked_from <= t.at, false) else m.masked_spans @> t.at end as masked
               from memories m, unnest($2::timestamptz[]) as t (at)
               where m.repo like $1 and m.effective_at <= t.at""",
            f"did:plc:r{round_number:05d}x%",
            sorted({row["effective_at"] for row in held}),
        )
        versions = await conn.fetch(
            "select * from memory_versions where repo like $1 order by repo, rkey, number",
            f"did:plc:r{round_number:05d}x%",
        )
        invalid = await conn.fetch("select * from invalid_records where repo like $1", f"did:plc:r{round_number:05d}x%")
        edges = await conn.fetch("select * from memory_edges where repo like $1", f"did:plc:r{round_number:05d}x%")
        rows = await conn.fetch("select * from repos where repo like $1", f"did:plc:r{round_number:05d}x%")
        refills = await conn.fetch(
            "select repo from requests where kind = 'fetch' and reason = 'quota_refill' and repo like $1",
            f"did:plc:r{round_number:05d}x%",
        )
    for author in authors:
        model, context = author.model, f"round {round_number} {author.did}"
        mine = {row["rkey"]: row for row in held if row["repo"] == author.did}
        assert {rkey: row["cid"] for rkey, row in mine.items()} == {
            rkey: model.keys[rkey].cid for rkey in model.memories
        }, context
        assert {rkey for rkey, row in mine.items() if row["masked_from"]} == model.masked_at(None), context
        assert {rkey for rkey, row in mine.items() if row["component"]} == model.cyclic(), context
        for moment in {row["effective_at"] for row in mine.values()}:
            masked = {
                row["rkey"] for row in spans if row["repo"] == author.did and row["at"] == moment and row["masked"]
            }
            assert masked == model.masked_at(moment), f"{context} as of {moment}"
        for rkey in mine:
            replacers = {
                row["rkey"]
                for row in edges
                if row["repo"] == author.did and row["target"] == rkey and not row["ignored"]
            }
            assert replacers == model.replaced_by(rkey), f"{context} {rkey}"
        ignored = {row["target"] for row in edges if row["repo"] == author.did and row["ignored"]}
        assert ignored <= mine.keys(), f"{context}: an edge to what is no more is in no cycle"
        faults = sorted(row["rkey"] for row in invalid if row["repo"] == author.did)
        assert faults == model.invalid[: len(faults)], context
        if len(faults) < min(len(model.invalid), limits.max_invalid):
            assert author.did in {row["repo"] for row in refills}, f"{context}: what fits is fetched"
        assert len(faults) <= limits.max_invalid, context
        for rkey, key in model.keys.items() if limits is LIMITS else ():  # what was kept out has no versions
            seen = [row for row in versions if row["repo"] == author.did and row["rkey"] == rkey]
            assert [(row["operation"], row["cid"]) for row in seen] == [
                (version.operation, version.cid) for version in key.versions
            ], f"{context} {rkey}"
            for row, version in zip(seen, key.versions, strict=True):
                kept = version.cid is not None and not version.current
                assert (row["record"] is not None) == kept, f"{context} {rkey}"
                assert (row["redacted_at"] is not None) == (version.cid is None), f"{context} {rkey}"
        counted = [row for row in rows if row["repo"] == author.did]
        if author.commits:
            assert counted[0]["memory_count"] == len(mine), context
            assert counted[0]["memory_bytes"] == sum(len(row["record"]) for row in mine.values()), context
            entries = [row["content_bytes"] for row in mine.values() if row["masked_from"] is None]
            assert (counted[0]["entry_count"], counted[0]["entry_bytes"]) == (len(entries), sum(entries)), context
            assert counted[0]["edge_count"] == sum(1 for row in edges if row["repo"] == author.did), context
            assert counted[0]["invalid_count"] == len(faults), context
            assert counted[0]["over_quota_count"] == len(model.invalid) - len(faults), context
            assert counted[0]["state"] == "active", context
