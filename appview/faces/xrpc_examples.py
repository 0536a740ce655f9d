"""Requests of the XRPC methods and what each is answered: tests send them, and hold the answers against these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appview.faces.documents import Document
from memory.identifiers import COLLECTION

_AUTHOR: Final = "did:plc:aliceaaaaaaaaaaaaaaaaaaa"
_RECORDS: Final = f"at://{_AUTHOR}/{COLLECTION}"
_URI: Final = f"{_RECORDS}/3kaaaaaaaaa2a"
_REPLACED_URI: Final = f"{_RECORDS}/3mbd354z2m222"
_SPACE: Final = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/family"

REQUESTS: Final[Mapping[str, Mapping[str, Document]]] = {
    "searchRecords": {
        "what does she drink": {"q": "green tea", "repo": ["alice.test"], "limit": 3},
        "as it was": {"q": "tea", "kind": ["preference", ""], "asOf": "2026-02-01T00:00:00Z", "explain": True},
        "why was it not found": {"q": "coffee -tea", "explainUri": _URI},
    },
    "listRecords": {
        "of one author, the latest first": {"repo": ["alice.test"], "limit": 2},
        "of one agent, replaced ones too": {
            "repo": [_AUTHOR],
            "agent": ["claude-code"],
            "order": "oldest",
            "includeSuperseded": True,
        },
    },
    "getRecord": {"by its at-uri": {"uri": _URI}},
    "getHistory": {"of one memory": {"uri": _URI, "limit": 10}},
    "getStats": {"of one author": {"repo": "alice.test"}},
    "createAccessToken": {"for a laptop": {"name": "laptop", "expiresInDays": 30}},
    "revokeAccessToken": {"one": {"id": "0123456789abcdef"}},
    "openSpace": {"of a family": {"space": _SPACE, "delegationToken": "delegation.token.of-the-viewer"}},
    "closeSpace": {"of a family": {"space": _SPACE}},
}
"""Requests by the method's name and what each asks."""

_PREFERENCE: Final[Document] = {
    "uri": _URI,
    "cid": "bafyreiaswl2mzhiorgrszzv5qg2de4t5vfko5ibwiatjqecxvtod4yrp7y",
    "repo": _AUTHOR,
    "handle": "alice.test",
    "value": {
        "$type": COLLECTION,
        "content": "Prefers green tea to coffee.",
        "kind": "preference",
        "scope": "home",
        "createdAt": "2026-01-04T00:00:00Z",
        "provenance": {"agent": "claude-code"},
        "supersedes": [_REPLACED_URI, "nonsense"],
    },
    "indexedAt": "2026-01-04T00:00:00.000000Z",
    "version": 1,
    "superseded": False,
    "supersededBy": [],
    "supersedes": [{"uri": _REPLACED_URI, "effect": "masks"}, {"uri": "nonsense", "effect": "unresolved"}],
}
_HABIT: Final[Document] = {
    "uri": f"{_RECORDS}/3mbd356w3q222",
    "cid": "bafyreig5k54gbqhm2wgk3m2bpe3b6o7niky6qgr6roufduvthhln4rjnxq",
    "repo": _AUTHOR,
    "handle": "alice.test",
    "value": {
        "$type": COLLECTION,
        "content": "Tea at five.",
        "createdAt": "2026-01-05T00:00:00Z",
        "occurredAt": {"from": "2026-01-03T17:00:00Z", "precision": "day"},
    },
    "indexedAt": "2026-01-05T00:00:00.000000Z",
    "version": 1,
    "superseded": False,
    "supersededBy": [],
    "supersedes": [],
}
_REPLACED: Final[Document] = {
    "uri": _REPLACED_URI,
    "cid": "bafyreie6xw4qjr2ua6cdr27idyq44oysg3xktvazpybcxqldczjfmy6coi",
    "repo": _AUTHOR,
    "handle": "alice.test",
    "value": {
        "$type": COLLECTION,
        "content": "Drinks coffee.",
        "createdAt": "2026-01-02T00:00:00Z",
    },
    "indexedAt": "2026-01-02T00:00:00.000000Z",
    "version": 1,
    "superseded": True,
    "supersededBy": [_URI],
    "supersedes": [],
}
_VERSION: Final[Document] = {
    "version": 1,
    "operation": "created",
    "observedAt": "2026-01-04T00:00:00.000000Z",
    "current": True,
    "cid": "bafyreiaswl2mzhiorgrszzv5qg2de4t5vfko5ibwiatjqecxvtod4yrp7y",
    "scope": "home",
    "contentBytes": 28,
    "contentSha256": "123dcff4e555b079a8e48c1994ecfa5e79a6ee31802301eddc3f839b773b3c38",
}
_TOKEN: Final[Document] = {
    "id": "0123456789abcdef01234567",
    "name": "laptop",
    "createdAt": "2027-01-01T00:00:00.000000Z",
    "expiresAt": "2027-01-31T00:00:00.000000Z",
}


def _counts(**counted: int) -> Document:
    """Counts of one kind each, of what has none first."""
    values = [{"value": value, "records": records} for value, records in ({"": 1} | counted).items()]
    return {"values": values, "distinct": len(values)}


ANSWERS: Final[Mapping[str, Mapping[str, Document]]] = {
    "searchRecords": {
        "what does she drink": {
            "records": [
                _PREFERENCE
                | {"score": 864, "highlights": [{"byteStart": 8, "byteEnd": 13}, {"byteStart": 14, "byteEnd": 17}]},
                _HABIT | {"score": 198, "highlights": [{"byteStart": 0, "byteEnd": 3}]},
            ],
            "mode": "lexical",
            "suppressed": 0,
        },
        "why was it not found": {
            "records": [],
            "mode": "lexical",
            "suppressed": 1,
            "explanation": {
                "uri": _URI,
                "recalled": False,
                "failedFilter": "exclusion",
                "score": 786,
                "scores": {"lexical": {"rank": 1, "raw": "0.416394"}, "fused": "0.785969"},
                "maskedBy": [],
            },
        },
    },
    "listRecords": {
        "of one author, the latest first": {"records": [_HABIT, _PREFERENCE]},
        "of one agent, replaced ones too": {"records": [_PREFERENCE]},
    },
    "getRecord": {"by its at-uri": _PREFERENCE},
    "getHistory": {
        "of one memory": {
            "uri": _URI,
            "record": _PREFERENCE,
            "versions": [_VERSION],
            "replaced": [_REPLACED],
            "replacedBy": [],
        },
    },
    "getStats": {
        "of one author": {
            "repos": 1,
            "records": 2,
            "superseded": 1,
            "kinds": _counts(preference=1),
            "scopes": _counts(home=1),
            "agents": _counts(**{"claude-code": 1}),
            "sync": {
                "repo": _AUTHOR,
                "handle": "alice.test",
                "state": "active",
                "rev": "3mbd3542k2222",
                "changedAt": "2026-01-01T00:00:00.000000Z",
            },
        },
    },
    "createAccessToken": {"for a laptop": {"accessToken": "memat_of-the-laptop", "token": _TOKEN}},
    "listAccessTokens": {"of the viewer": {"tokens": [_TOKEN]}},
    "revokeAccessToken": {"one": {}},
    "openSpace": {
        "of a family": {
            "status": "syncing",
            "expiresAt": "2027-01-01T02:00:00.000000Z",
            "accessToken": "memat_of-the-family",
        },
    },
    "closeSpace": {"of a family": {}},
    "listGrants": {
        "of the token": {
            "grants": [
                {
                    "space": _SPACE,
                    "status": "ready",
                    "grantedAt": "2027-01-01T00:00:00.000000Z",
                    "expiresAt": "2027-01-01T02:00:00.000000Z",
                }
            ]
        },
    },
}
"""Answers by the method's name and that of the request, on the index of the tests that hold them to be true."""
