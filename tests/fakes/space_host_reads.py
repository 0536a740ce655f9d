"""What an author's PDS answers about the repos of its accounts in Spaces."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tests.builders import SigningKey
from tests.fakes.space_bytes import cid_text, to_json
from tests.fakes.space_host_faults import CAR, PRIVATE, Answer, Call, Fault, in_json
from tests.fakes.space_host_gate import Gate
from tests.fakes.space_host_params import page_size
from tests.fakes.space_host_repos import HASH_BYTES, Flaws, SpaceRepo
from tests.fakes.space_host_tokens import Refused
from tests.fakes.space_host_world import Account

_SIGNED: Final = "com.atproto.space.defs#signedCommit"
_GONE: Final = {"deactivated": "RepoDeactivated", "takendown": "RepoTakendown", "suspended": "RepoSuspended"}

_Item = TypeVar("_Item")


def paged(
    call: Call, items: Sequence[_Item], cursor_of: Callable[[_Item], str]
) -> tuple[Sequence[_Item], dict[str, str]]:
    """One page, and the cursor of the next if this one is full: as recorded, also where nothing follows."""
    limit = page_size(call)
    if call.fault is Fault.MISSING_PAGE and "cursor" in call.parameters:
        items = items[limit:]
    page = items[:limit]
    goes_on = len(page) == limit or (call.fault is Fault.SAME_CURSOR and bool(page))
    return page, {"cursor": cursor_of(page[-1])} if goes_on else {}


def cursor_of(call: Call) -> str | None:
    return None if call.fault is Fault.SAME_CURSOR else call.parameters.get("cursor")


class Repos:
    """The repos of one host's accounts."""

    def __init__(self, gate: Gate, accounts: dict[str, Account]) -> None:
        self._gate = gate
        self._accounts = accounts
        self.blobs: dict[str, tuple[bytes, str]] = {}  # CID → bytes and their MIME type

    def answer(self, call: Call) -> Answer:
        """A read, for who may read: with a credential of the Space, or its author."""
        repo_of = call.parameters["repo"]
        session = self._gate.reader(call, call.parameters["space"])
        account = self._accounts.get(repo_of)
        if account is None or (session is not None and session.did != repo_of):
            raise Refused(400, "RepoNotFound", f"Could not find repo for DID: {repo_of}")
        if account.status is not None:
            raise Refused(400, _GONE[account.status], f"Repo has been {account.status}: {repo_of}")
        if call.fault is Fault.FOREIGN:
            account = self._other_than(account, call.parameters["space"])
        repo = account.repo(call.parameters["space"])
        match call.method:
            case "getLatestCommit":
                return self._latest(call, account, repo)
            case "getRepo":
                return self._whole(call, account, repo)
            case "listRepoOps":
                return self._ops(call, account, repo)
            case "listRecords":
                return self._records(call, repo)
            case "getRecord":
                return self._record(call, repo)
            case "listBlobs":
                page, cursor = paged(call, [cid for cid in repo.blobs() if cid > (cursor_of(call) or "")], str)
                return in_json({**cursor, "cids": page}, 200, *PRIVATE)
            case _:
                return self._blob(call, repo)

    def _other_than(self, account: Account, space: str) -> Account:
        return next(each for each in self._accounts.values() if each is not account and space in each.repos)

    def _commit(self, call: Call, account: Account, repo: SpaceRepo) -> tuple[dict[str, Any], Flaws]:
        if repo.rev is None:
            raise Refused(400, "RepoNotFound", f"Could not find repo for space: {repo.space}")
        flaws = _flaws(call.fault)
        return repo.commit(account.key, account.world.draw, flaws), flaws

    def _latest(self, call: Call, account: Account, repo: SpaceRepo) -> Answer:
        commit, _ = self._commit(call, account, repo)
        return in_json({"commit": {**to_json(commit), "$type": _SIGNED}}, 200, *PRIVATE)

    def _whole(self, call: Call, account: Account, repo: SpaceRepo) -> Answer:
        commit, flaws = self._commit(call, account, repo)
        return Answer(200, repo.car(commit, flaws, values=_wants_values(call)), CAR, PRIVATE)

    def _ops(self, call: Call, account: Account, repo: SpaceRepo) -> Answer:
        ops = repo.ops_from(call.parameters.get("since"), cursor_of(call))
        page, cursor = paged(call, ops, lambda op: op.cursor)
        flaws = _flaws(call.fault)
        said: dict[str, Any] = {"ops": [repo.op_json(op, flaws, values=_wants_values(call)) for op in page], **cursor}
        if not cursor and repo.rev is not None:
            said["commit"] = to_json(self._commit(call, account, repo)[0])
        return in_json(said, 200, *PRIVATE)

    def _records(self, call: Call, repo: SpaceRepo) -> Answer:
        ascending = call.parameters.get("reverse") == "true"
        found = list(repo.records(call.parameters.get("collection"), cursor_of(call), ascending=ascending))
        page, cursor = paged(call, found, lambda item: repo.uri(item[0]))
        records: list[dict[str, Any]] = []
        for path, entry in page:
            collection, _, rkey = path.partition("/")
            said = {"collection": collection, "rkey": rkey, "cid": cid_text(entry.cid)}
            records.append(said | ({"value": entry.value} if _wants_values(call) else {}))
        return in_json({**cursor, "records": records}, 200, *PRIVATE)

    def _record(self, call: Call, repo: SpaceRepo) -> Answer:
        path = f"{call.parameters['collection']}/{call.parameters['rkey']}"
        entry = repo.entries.get(path)
        if entry is None:
            raise Refused(400, "RecordNotFound", f"Could not locate record: {repo.uri(path)}")
        said = {"uri": repo.uri(path), "cid": cid_text(entry.cid), "value": entry.value}
        return in_json(said, 200, *PRIVATE)

    def _blob(self, call: Call, repo: SpaceRepo) -> Answer:
        cid = call.parameters["cid"]
        if cid not in repo.blobs() or cid not in self.blobs:
            raise Refused(400, "BlobNotFound", "Blob not found")
        data, kind = self.blobs[cid]
        headers = (
            "x-content-type-options: nosniff",
            f'content-disposition: attachment; filename="{cid}"',
            "content-security-policy: default-src 'none'; sandbox",
        )
        return Answer(200, data, kind, PRIVATE + headers)


def _wants_values(call: Call) -> bool:
    return call.parameters.get("excludeValues") != "true"


def _flaws(fault: Fault | None) -> Flaws:
    match fault:
        case Fault.WRONG_HASH:
            return Flaws(digest=hashlib.sha256(b"Mandarin").digest())
        case Fault.WRONG_SIGNATURE:
            return Flaws(signer=SigningKey("a stranger"))
        case Fault.WRONG_MAC:
            return Flaws(mac=bytes(HASH_BYTES))
        case Fault.TORN:
            return Flaws(torn=True)
        case Fault.UNORDERED:
            return Flaws(unordered=True)
        case Fault.WRONG_RECORDS:
            return Flaws(swapped=True)
        case _:
            return Flaws()
