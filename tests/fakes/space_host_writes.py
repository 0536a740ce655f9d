"""What an account may ask of its own PDS: delegation tokens, its Spaces, and writes into them, members only or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from tests.builders import Write
from tests.fakes.space_bytes import cid_text
from tests.fakes.space_host_faults import PRIVATE, Answer, Call, in_json
from tests.fakes.space_host_gate import Gate
from tests.fakes.space_host_params import judged_body
from tests.fakes.space_host_tokens import Refused
from tests.fakes.space_host_world import Account

_WRITES: Final = "com.atproto.space.applyWrites"
_ACTIONS: Final[Mapping[str, Literal["create", "update", "delete"]]] = {
    f"{_WRITES}#create": "create",
    f"{_WRITES}#update": "update",
    f"{_WRITES}#delete": "delete",
}
_UNKNOWN: Final = {"validationStatus": "unknown"}


class Own:
    """What sessions ask for."""

    def __init__(self, gate: Gate, accounts: dict[str, Account]) -> None:
        self._gate = gate
        self._accounts = accounts

    def delegation(self, call: Call) -> Answer:
        session = self._gate.session(call)
        if session.app_password:
            raise Refused(400, "InvalidToken", "Bad token scope")
        token = self._accounts[session.did].delegation(call.parameters["space"])
        return in_json({"token": token}, 200, *PRIVATE)

    def spaces(self, call: Call) -> Answer:
        session = self._gate.session(call)
        wanted = call.parameters.get("type")
        uris = [uri for uri in sorted(self._accounts[session.did].repos) if wanted in (None, uri.split("/")[4])]
        return in_json({"spaces": [{"uri": uri} for uri in uris]}, 200, *PRIVATE)

    def write(self, call: Call) -> Answer:
        session = self._gate.session(call)
        body = judged_body(call)
        if body["repo"] != session.did:
            raise Refused(403, "Forbidden", "repo must match authenticated user")
        account = self._accounts[session.did]
        space = body["space"]
        if call.method == "applyWrites":
            return in_json({"results": _apply(account, space, body["writes"])}, 200, *PRIVATE)
        path = f"{body['collection']}/{body.get('rkey')}"
        is_there = path in account.repo(space).entries
        if call.method == "deleteRecord":
            if is_there:
                account.apply(space, [Write("delete", body["rkey"], None, body["collection"])])
            return in_json({}, 200, *PRIVATE)
        _judge_record(body)
        action = "update" if call.method == "putRecord" and is_there else "create"
        rkey = body.get("rkey") or account.world.next_tid()
        account.apply(space, [Write(action, rkey, body["record"], body["collection"])])
        return in_json({**_written(account, space, body["collection"], rkey), **_UNKNOWN}, 200, *PRIVATE)


def _apply(account: Account, space: str, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not given:
        return []
    writes = [Write(_ACTIONS[each["$type"]], each["rkey"], each.get("value"), each["collection"]) for each in given]
    account.apply(space, writes)
    results: list[dict[str, Any]] = []
    repo = account.repo(space)
    for write, op in zip(writes, repo.ops[-len(writes) :], strict=True):
        result: dict[str, Any] = {"$type": f"{_WRITES}#{write.action}Result"}
        if op.cid is not None:
            result |= {"uri": repo.uri(write.path), "cid": cid_text(op.cid), **_UNKNOWN}
        results.append(result)
    return results


def _judge_record(body: Mapping[str, Any]) -> None:
    collection, kind = body["collection"], body["record"].get("$type")
    if kind != collection:
        raise Refused(400, "InvalidRequest", f"Invalid $type: expected {collection}, got {kind}")
    if body.get("validate"):
        raise Refused(400, "InvalidRequest", f"Unknown lexicon type: {collection}")


def _written(account: Account, space: str, collection: str, rkey: str) -> dict[str, str]:
    repo, path = account.repo(space), f"{collection}/{rkey}"
    return {"uri": repo.uri(path), "cid": cid_text(repo.entries[path].cid)}
