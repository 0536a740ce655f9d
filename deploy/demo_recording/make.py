"""Makes the demo's recording: writes everyone's memories to a PDS, records its firehose, and asks it what it holds.

    python -m deploy.demo_recording.make --pds http://localhost:2583 --plc http://localhost:2582 --out DIR

See README.md beside this file for the network that it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import httpx

from deploy.demo_recording.people import (
    Change,
    DeactivateAndReturn,
    Memory,
    OfMemory,
    Person,
    Post,
    Record,
    Rename,
    Session,
    Update,
    events_in_order,
    memories_of,
    read_people,
    record_of,
    references,
    tid,
)
from indexer.record import Limits, identities_path, record
from indexer.record_identities import IdentityLookUp
from memory.identifiers import COLLECTION

POSTS = "app.bsky.feed.post"
RECORDING_SECONDS = 5.0  # the PDS sends all that it keeps in less


@dataclass(frozen=True, slots=True)
class Account:
    """A person's account, signed in."""

    pds: httpx.Client
    did: str
    token: str

    @classmethod
    def create(cls, pds: httpx.Client, handle: str) -> Account:
        """A new account."""
        answer = pds.post(
            "/xrpc/com.atproto.server.createAccount",
            json={"handle": handle, "email": f"{handle}@example.test", "password": "only for the demo"},
        )
        created = answer.raise_for_status().json()
        return cls(pds, created["did"], created["accessJwt"])

    def call(self, method: str, body: Record | None) -> None:
        """One procedure of this account's PDS; some take no body at all, not even an empty one."""
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self.pds.post(f"/xrpc/{method}", json=body, headers=headers)
        if answer.is_error:
            sys.exit(f"{method}: {answer.status_code} {answer.text}")


class Scribe:
    """Writes events to the PDS, and remembers what each memory says."""

    def __init__(self, accounts: dict[str, Account], uris: dict[str, str], memories: dict[str, Memory]) -> None:
        self._accounts = accounts
        self._uris = uris
        self._memories = memories
        self._records = {name: record_of(memory, uris) for name, memory in memories.items()}

    def write(self, person: Person, event: Session | Change) -> None:
        """One event: one commit, or a change of the account."""
        account = self._accounts[person.name]
        match event:
            case Session():
                creates = [self._create(memory) for memory in memories_of(person, event)]
                batch: Record = {"repo": account.did, "validate": False, "writes": list(creates)}
                account.call("com.atproto.repo.applyWrites", batch)
            case Update():
                memory = self._memories[f"{person.name}/{event.id}"]
                self._records[memory.name] |= {"content": event.content, "updatedAt": event.at}
                if event.replaces is not None:
                    self._records[memory.name]["supersedes"] = references(memory, event.replaces, self._uris)
                self._put(account, memory)
            case OfMemory():
                self._of_memory(account, event, self._memories[f"{person.name}/{event.id}"])
            case Post():
                post: Record = {"$type": POSTS, "text": event.text, "createdAt": event.at}
                rkey = tid(event.at, event.text)
                written: Record = {"repo": account.did, "collection": POSTS, "rkey": rkey, "record": post}
                account.call("com.atproto.repo.createRecord", written)
            case Rename():
                account.call("com.atproto.identity.updateHandle", {"handle": event.handle})
            case DeactivateAndReturn():
                account.call("com.atproto.server.deactivateAccount", {})
                account.call("com.atproto.server.activateAccount", None)
            case _:
                assert_never(event)

    def _of_memory(self, account: Account, event: OfMemory, memory: Memory) -> None:
        match event.do:
            case "delete":
                account.call("com.atproto.repo.deleteRecord", _place(account, memory))
            case "restore" | "put-again":
                self._put(account, memory)
            case _:
                assert_never(event.do)

    def _put(self, account: Account, memory: Memory) -> None:
        written: Record = {"record": self._records[memory.name], "validate": False}
        account.call("com.atproto.repo.putRecord", _place(account, memory) | written)

    def _create(self, memory: Memory) -> Record:
        return {
            "$type": "com.atproto.repo.applyWrites#create",
            "collection": COLLECTION,
            "rkey": memory.rkey,
            "value": self._records[memory.name],
        }


def _place(account: Account, memory: Memory) -> Record:
    return {"repo": account.did, "collection": COLLECTION, "rkey": memory.rkey}


def write_everything(pds: httpx.Client) -> tuple[dict[str, Account], dict[str, str]]:
    """Accounts by name of person, and the URI of every memory ever written by `person/id`."""
    people = read_people()
    accounts = {name: Account.create(pds, person.handle) for name, person in people.items()}
    memories = {
        memory.name: memory
        for person in people.values()
        for session in person.session
        for memory in memories_of(person, session)
    }
    uris = {
        memory.name: f"at://{accounts[memory.person].did}/{COLLECTION}/{memory.rkey}" for memory in memories.values()
    }
    scribe = Scribe(accounts, uris, memories)
    begun: set[str] = set()
    for person, event in events_in_order(people):
        # A repo whose first commit holds a memory is complete from the start: nothing has to be fetched.
        if person.name not in begun and not isinstance(event, Session):
            sys.exit(f"{person.name} must write a memory before anything else")
        begun.add(person.name)
        scribe.write(person, event)
    return accounts, uris


def held_by(pds: httpx.Client, did: str) -> Iterator[dict[str, Any]]:
    """The memories of a repo, as the PDS lists them."""
    cursor: str | None = None
    while True:
        parameters = {"repo": did, "collection": COLLECTION, "limit": "100", "reverse": "true"}
        answer = pds.get(
            "/xrpc/com.atproto.repo.listRecords", params=parameters | ({"cursor": cursor} if cursor else {})
        )
        page = answer.raise_for_status().json()
        yield from page["records"]
        cursor = page.get("cursor")
        if cursor is None:
            return


def expected(pds: httpx.Client, accounts: dict[str, Account]) -> dict[str, Any]:
    """What the PDS holds in the end: by DID, the handle and the records by URI."""
    accounts_at_end: dict[str, Any] = {}
    for account in accounts.values():
        described = (
            pds.get("/xrpc/com.atproto.repo.describeRepo", params={"repo": account.did}).raise_for_status().json()
        )
        records = {held["uri"]: {"cid": held["cid"], "value": held["value"]} for held in held_by(pds, account.did)}
        accounts_at_end[account.did] = {"handle": described["handle"], "records": records}
    return accounts_at_end


def main() -> None:
    """Writes firehose.bin, identities.jsonl, expected.json and names.json into a folder."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo_recording.make", description=main.__doc__)
    parser.add_argument(
        "--pds", required=True, metavar="URL", help="a PDS without accounts that gives out .test handles"
    )
    parser.add_argument("--plc", required=True, metavar="URL", help="its directory of identities")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the four files go")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    firehose = out / "firehose.bin"
    with httpx.Client(base_url=options.pds, timeout=60) as pds:
        accounts, uris = write_everything(pds)
        recorded = asyncio.run(
            record(
                options.pds,
                firehose,
                IdentityLookUp(options.plc),
                limits=Limits(seconds=RECORDING_SECONDS),
                cursor=0,
                overwrite=True,
                progress=_say,
            )
        )
        if recorded.missing or recorded.ended is not None:
            sys.exit(f"the recording is not whole: {recorded}")
        identities_path(firehose).replace(out / "identities.jsonl")
        _write_json(out / "expected.json", expected(pds, accounts))
    _write_json(out / "names.json", uris)
    _say(f"{recorded.frames} frames, {recorded.bytes} bytes, {len(uris)} memories")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
