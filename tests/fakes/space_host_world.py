"""Who there is: accounts with their keys and documents, and what several Space hosts know of each other."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal, Protocol

from tests.builders import Record, SigningKey, Write, tid
from tests.fakes.directory import Directory
from tests.fakes.space_bytes import Signer
from tests.fakes.space_host_repos import SpaceRepo
from tests.fakes.space_host_tokens import Token, delegation_token, judge_expiry, judge_key

MEMORY = "dev.bastienrobert.memory.record"

Curve = Literal["k256", "p256"]
Status = Literal["deactivated", "takendown", "suspended"]


class Hears(Protocol):
    """Whoever governs Spaces, and is told of what is written in them."""

    def hear(self, space: str, author: str, rev: str, digest: bytes) -> bool:
        """Whether it is listed from now on."""
        ...


@dataclass
class World:
    """What is known everywhere. All instants and all randomness come from here."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    directory: Directory | None = None  # is given the documents of all accounts
    accounts: dict[str, Account] = field(default_factory=dict[str, "Account"])
    documents: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])  # DID → fragment → did:key
    authorities: dict[str, Hears] = field(default_factory=dict[str, Hears])  # by DID of who governs
    services: dict[str, str] = field(default_factory=dict[str, str])  # `did#fragment` → URL, of those who subscribe
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])  # client id → `kid` → JWK
    clock_id: int = 0  # of revs
    _last_tid: str = ""

    def jti(self) -> str:
        return self.draw.randbytes(16).hex()

    def next_tid(self, at: datetime | None = None, after: str = "") -> str:
        """That of an instant, else of now; always a greater one than `after`."""
        made = tid(at or self.clock(), self.clock_id)
        if at is None:
            after = max(after, self._last_tid)
        made = made if made > after else _next_tid(after)
        if at is None:
            self._last_tid = made
        return made

    def judge(self, token: Token) -> None:
        """Whether its issuer signed it, and it holds still."""
        judge_expiry(token, self.clock())
        judge_key(token, self.documents.get(token.says("iss"), {}))

    def publish(self, account: Account) -> None:
        """Its document, as it is now, is what everybody sees."""
        self.documents[account.did] = account.keys
        if self.directory is not None:
            self.directory.documents[account.did] = account.document()


@dataclass
class Account:
    """Somebody with an account on a host: a user, an author, perhaps an authority too.

    The same seed has the same DID and key as a `RepoBuilder`, so that one may stand for the public repo of the other.
    `key` signs commits and tokens; `keys` are those that the DID document shows.
    """

    world: World = field(repr=False)
    did: str
    handle: str
    host: str
    key: Signer = field(repr=False)
    keys: dict[str, str] = field(default_factory=dict[str, str])  # fragment → did:key
    space_host: str | None = None  # where its document says that its Spaces are, if not on its PDS
    space_key: Signer | None = None  # signs credentials, if not `key`
    status: Status | None = None
    repos: dict[str, SpaceRepo] = field(default_factory=dict[str, SpaceRepo], repr=False)  # by Space

    def __post_init__(self) -> None:
        self.keys = self.keys or {"#atproto": self.key.did_key}
        self.world.accounts[self.did] = self
        self.world.publish(self)

    def document(self) -> dict[str, Any]:
        """Its DID document."""
        services = [("#atproto_pds", "AtprotoPersonalDataServer", self.host)]
        if self.space_host is not None:
            services.append(("#atproto_space_host", "AtprotoSpaceHost", self.space_host))
        return {
            "id": self.did,
            "alsoKnownAs": [f"at://{self.handle}"],
            "verificationMethod": [
                {"id": self.did + name, "type": "Multikey", "publicKeyMultibase": key.removeprefix("did:key:")}
                for name, key in self.keys.items()
            ],
            "service": [{"id": name, "type": kind, "serviceEndpoint": url} for name, kind, url in services],
        }

    def rotate_key(self, seed: str, curve: Curve = "k256", *, published: bool = True) -> None:
        """Signs with another key from now on; nobody knows of it unless it is published."""
        self.key = SigningKey(seed, curve)
        if published:
            self.keys["#atproto"] = self.key.did_key
            self.world.publish(self)

    def use_space_key(self, seed: str, curve: Curve = "p256") -> None:
        """Credentials of its Spaces are signed with a key of their own, `#atproto_space`."""
        self.space_key = SigningKey(seed, curve)
        self.keys["#atproto_space"] = self.space_key.did_key
        self.world.publish(self)

    def delegation(self, space: object, **changes: Any) -> str:
        """A delegation token for that Space, whether or not there is one; `changes` of its claims, or of its `typ`."""
        given = {"jti": self.world.jti()} | changes
        return delegation_token(self.key, self.did, str(space), self.world.clock(), **given)

    # Its repos

    def repo(self, space: object) -> SpaceRepo:
        """Empty, and without a commit, if it never wrote there."""
        return self.repos.get(str(space)) or SpaceRepo(str(space), self.did)

    def create(self, space: object, rkey: str, record: Record, collection: str = MEMORY, **options: Any) -> str:
        return self.apply(space, [Write("create", rkey, record, collection)], **options)

    def update(self, space: object, rkey: str, record: Record, collection: str = MEMORY, **options: Any) -> str:
        return self.apply(space, [Write("update", rkey, record, collection)], **options)

    def delete(self, space: object, rkey: str, collection: str = MEMORY, **options: Any) -> str:
        return self.apply(space, [Write("delete", rkey, None, collection)], **options)

    def apply(
        self, space: object, writes: Sequence[Write], *, at: datetime | None = None, announced: bool = True
    ) -> str:
        """One commit, and its rev: of now, or of the instant `at`, which may be far ahead.

        The authority is told of it at once, and tells who subscribed if it lists the author; `announced` says whether.
        """
        repo = self.repo(space)
        rev = self.world.next_tid(at, repo.rev or "")
        repo.apply(writes, rev)
        self.repos[repo.space] = repo
        if announced:
            self.announce(space)
        return rev

    def announce(self, space: object) -> None:
        """Tells the authority where the repo stands."""
        repo = self.repos[str(space)]
        authority = self.world.authorities.get(str(space).removeprefix("at://").partition("/")[0])
        if authority is not None and repo.rev is not None:
            authority.hear(repo.space, self.did, repo.rev, repo.digest)

    def compact(self, space: object, keep_revs: int = 1) -> None:
        """Forgets the oplog but for its last revs."""
        self.repos[str(space)].compact(keep_revs)

    def cids(self, space: object) -> Mapping[str, bytes]:
        """What the repo holds: CIDs by path."""
        return {path: entry.cid for path, entry in self.repo(space).entries.items()}


def new_account(world: World, seed: str, host: str, *, handle: str = "", curve: Curve = "k256") -> Account:
    """An account with the DID and the key that `RepoBuilder(seed, curve)` has."""
    digest = base64.b32encode(sha256(seed.encode()).digest()).decode().lower()
    did = f"did:plc:{digest[:24]}"
    return Account(world, did, handle or f"{digest[24:32]}.test", host, SigningKey(seed, curve))


def _next_tid(rev: str) -> str:
    alphabet = "234567abcdefghijklmnopqrstuvwxyz"
    number = 0
    for letter in rev:
        number = number << 5 | alphabet.index(letter)
    number += 1 << 10
    return "".join(alphabet[number >> shift & 31] for shift in range(60, -1, -5))
