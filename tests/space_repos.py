"""Repos in Spaces: the recorded ones, and built ones whose every byte can be changed before it is signed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from indexer.verify.space_commit import SpaceRepo
from memory.errors import Rejected
from memory.identifiers import COLLECTION
from memory.signatures import parse_did_key
from tests.builders import SigningKey, memory
from tests.fakes.space_bytes import Cid, cid_of, cid_text, encode_cbor, hash_of, signed_commit, to_json, write_car

CORE = Path(__file__).parent / "recordings" / "spaces" / "core"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
SPACE = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/dev.bastienrobert.memory.space/main"
AUTHOR = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"
REV = "3m6aaaaaaaa2a"


@cache
def recorded(name: str) -> Any:
    """A recorded JSON file."""
    return json.loads((CORE / name).read_text())


def recorded_repo(author: str) -> SpaceRepo:
    """The repo of one of the recorded people in the Space `main`."""
    account = recorded("accounts.json")[author]
    return SpaceRepo(recorded("context.json")["spaces"]["main"], account["did"], parse_did_key(account["didKey"]))


def recorded_cars() -> dict[str, tuple[SpaceRepo, bytes]]:
    """Each recorded CAR of a repo that was at rest, without the index-only ones."""
    later = recorded("context2.json")
    empty = SpaceRepo(later["emptySpace"], later["bob"]["did"], parse_did_key(later["bob"]["didKey"]))
    built = recorded("vectors-commit.json")["pythonCar"]
    repos = {
        "repo-alice": recorded_repo("alice"),
        "repo-bob": recorded_repo("bob"),
        "repo-bob-recovery": recorded_repo("bob"),
        "repo-dan": recorded_repo("dan"),
        "repo-empty": empty,
        "python-built": SpaceRepo(built["space"], built["author"], parse_did_key(built["didKey"])),
    }
    return {name: (repo, (CORE / f"{name}.car").read_bytes()) for name, repo in repos.items()}


def path(rkey: str) -> str:
    return f"{COLLECTION}/{rkey}"


@dataclass
class BuiltRepo:
    """A repo whose author signs whatever it holds."""

    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])  # by path
    rev: str = REV
    signer: SigningKey = field(default_factory=lambda: SigningKey("space author"))

    @classmethod
    def of(cls, *rkeys: str, **fields: Any) -> BuiltRepo:
        """One with a memory of its own at each of these keys."""
        return cls({path(rkey): memory(f"Holds {rkey}.") for rkey in rkeys}, **fields)

    @property
    def repo(self) -> SpaceRepo:
        return SpaceRepo(SPACE, AUTHOR, parse_did_key(self.signer.did_key))

    @property
    def blocks(self) -> dict[str, bytes]:
        """By path, in the index's order."""
        ordered = sorted(self.records, key=lambda each: (len(each), each))
        return {each: encode_cbor(self.records[each]) for each in ordered}

    @property
    def index(self) -> dict[str, Cid]:
        return {each: cid_of(block) for each, block in self.blocks.items()}

    @property
    def hash(self) -> bytes:
        return hash_of(self.index)

    def commit(self, *, digest: bytes | None = None) -> dict[str, Any]:
        """Of what it holds, or of what `digest` is the hash of."""
        ikm = sha256(self.rev.encode()).digest()
        return signed_commit(self.signer, SPACE, AUTHOR, self.rev, digest=digest or self.hash, ikm=ikm)

    def commit_json(self) -> dict[str, Any]:
        return to_json(self.commit())

    def parts(self, *, commit: bytes | None = None, index: bytes | None = None) -> list[tuple[Cid, bytes]]:
        """Commit, index and records with their CIDs, as CARs have them; the first two may be others."""
        heads = [commit or encode_cbor(self.commit()), index or encode_cbor(self.index)]
        return [(cid_of(block), block) for block in (*heads, *self.blocks.values())]

    def car(self) -> bytes:
        return car_of(self.parts())

    def op(self, at: str, *, prev: Cid | None = None, rev: str | None = None, **changes: Any) -> dict[str, Any]:
        """What `listRepoOps` says of the write that led to what is there now."""
        block = self.blocks.get(path(at))
        op: dict[str, Any] = {"rev": rev or self.rev, "collection": COLLECTION, "rkey": at}
        op |= {"cid": None if block is None else cid_text(cid_of(block)), "prev": prev and cid_text(prev)}
        if block is not None:
            op["value"] = to_json(self.records[path(at)])
        return op | changes


def car_of(parts: list[tuple[Cid, bytes]]) -> bytes:
    """A CAR whose roots are the first two parts."""
    return write_car([cid for cid, _ in parts[:2]], parts)


def reason_of(call: Any, *args: Any, **named: Any) -> str:
    """Why a call is refused."""
    with pytest.raises(Rejected) as caught:
        call(*args, **named)
    return caught.value.reason
