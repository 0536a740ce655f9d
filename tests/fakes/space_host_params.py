"""What the reference takes for a well-formed request of each method, and its words for what is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.fakes.space_host_faults import Call
from tests.fakes.space_host_tokens import Refused

LARGEST_PAGE: Final = 1000
PAGES: Final = {"listRepos": 100, "listRepoOps": 100, "listRecords": 50, "listBlobs": 500, "listSpaces": 50}

_DID: Final = re.compile(r"did:[a-z]+:[A-Za-z0-9._:%-]*[A-Za-z0-9._-]")
_NSID: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)+\.[A-Za-z][A-Za-z0-9]*")
_RKEY: Final = re.compile(r"[A-Za-z0-9._:~-]{1,512}")
_TID: Final = re.compile(r"[234567abcdefghij][2-7a-z]{12}")


def _is_space(text: str) -> bool:
    match text.removeprefix("at://").split("/"):
        case [authority, "space", kind, skey] if text.startswith("at://"):
            return all((_DID.fullmatch(authority), _NSID.fullmatch(kind), _RKEY.fullmatch(skey)))
        case _:
            return False


Form = tuple[Callable[[str], object], str]

_SPACE: Final[Form] = _is_space, "Invalid space-ref"
_REPO: Final[Form] = _DID.fullmatch, "Invalid DID"
_NAME: Final[Form] = _NSID.fullmatch, "Invalid NSID"
_KEY: Final[Form] = _RKEY.fullmatch, "Invalid record key"
_REV: Final[Form] = _TID.fullmatch, "Invalid TID string"

_FORMS: Final[Mapping[str, Form]] = {
    "space": _SPACE, "repo": _REPO, "collection": _NAME, "type": _NAME, "rkey": _KEY, "since": _REV,
}  # fmt: skip
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "getDelegationToken": ("space",),
    "listRepos": ("space",),
    "getLatestCommit": ("space", "repo"),
    "getRepo": ("space", "repo"),
    "listRepoOps": ("space", "repo"),
    "listRecords": ("space", "repo"),
    "listBlobs": ("space", "repo"),
    "getRecord": ("space", "repo", "collection", "rkey"),
    "getBlob": ("space", "repo", "cid"),
    "getSpaceCredential": ("space",),
    "registerNotify": ("space", "service"),
    "unregisterNotify": ("space", "service"),
    "notifyWrite": ("space", "repo", "rev", "hash"),
}


def judge_parameters(call: Call) -> None:
    """Whether the query is well-formed: this comes before the question of who asks."""
    if call.verb == "GET":
        prefix = f"Invalid {call.nsid} params: "
        _judge(call.method, call.parameters, prefix)
        limit = call.parameters.get("limit", "1")
        if not limit.isdecimal() or not 1 <= int(limit) <= LARGEST_PAGE:
            raise Refused(400, "InvalidRequest", f"{prefix}limit out of range")


def judged_body(call: Call) -> Mapping[str, Any]:
    """The JSON of a request, well-formed: this comes after the question of who asks."""
    try:
        body = json.loads(call.body)
    except ValueError:
        raise Refused(400, "InvalidRequest", "Request body is not valid JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "InvalidRequest", "Expected an object")
    _judge(call.method, body, "")
    if call.method == "notifyWrite" and not (isinstance(body["hash"], dict) and "$bytes" in body["hash"]):
        raise Refused(400, "InvalidRequest", f'Expected bytes value type (got "{body["hash"]}") at $.hash')
    return body


def page_size(call: Call) -> int:
    return int(call.parameters.get("limit", PAGES[call.method]))


def _judge(method: str, given: Mapping[str, Any], prefix: str) -> None:
    for name in _REQUIRED.get(method, ()):
        if name not in given:
            raise Refused(400, "InvalidRequest", f'{prefix}Missing required key "{name}"')
    for name, (is_well_formed, complaint) in _FORMS.items():
        value = given.get(name)
        if value is not None and not (isinstance(value, str) and is_well_formed(value)):
            raise Refused(400, "InvalidRequest", f'{prefix}{complaint} (got "{value}")')
