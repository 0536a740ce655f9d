"""What the validators of `@atproto/api` make of our lexicons: they take records in Spaces, unknown to them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from appview.lexicon import LEXICONS
from memory.identifiers import COLLECTION, NAMESPACE
from tests.e2e.node import NODE, OutOfReach, installed_network
from tests.proof import not_proven

ALICE = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
PUBLIC_URI = f"at://{ALICE}/{COLLECTION}/3kaaaaaaaaa2a"
SPACE = "at://did:plc:bbbbbbbbbbbbbbbbbbbbbbbb/space/com.example.team/notes"
SPACE_URI = f"{SPACE}/{ALICE}/{COLLECTION}/3kaaaaaaaaa2a"

uris = pytest.mark.parametrize("uri", [PUBLIC_URI, SPACE_URI], ids=["public", "in a Space"])


@pytest.fixture(scope="module")
def installed() -> Path:
    try:
        return installed_network()
    except OutOfReach as failure:
        not_proven(f"npm cannot be asked: {failure}")


def complaints(folder: Path, *checks: tuple[str, str, dict[str, Any]]) -> list[str | None]:
    """What is said against each parameter set or answer."""
    lexicons = [json.loads(path.read_text()) for path in sorted(LEXICONS.rglob("*.json"))]
    plan = {"lexicons": lexicons, "checks": [(part, NAMESPACE + method, value) for part, method, value in checks]}
    done = subprocess.run(
        [NODE, folder / "lexicons.mjs"], input=json.dumps(plan), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def view(uri: str) -> dict[str, Any]:
    return {
        "uri": uri,
        "cid": "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a",
        "repo": ALICE,
        "space": SPACE,
        "value": {},
        "indexedAt": "2026-01-01T00:00:00.000Z",
        "version": 1,
        "superseded": True,
        "supersededBy": [uri],
        "supersedes": [{"uri": uri, "effect": "masks"}],
        "duplicates": [uri],
    }


@uris
def test_parameters_that_name_a_record_are_taken(installed: Path, uri: str):
    assert (
        complaints(
            installed,
            ("params", "getRecord", {"uri": uri}),
            ("params", "getHistory", {"uri": uri}),
            ("params", "searchRecords", {"q": "tea", "explainUri": uri, "space": [SPACE]}),
            ("params", "listRecords", {"space": [SPACE]}),
        )
        == [None] * 4
    )


@uris
def test_answers_with_records_are_taken(installed: Path, uri: str):
    explanation = {"uri": uri, "recalled": False, "maskedBy": [uri]}
    history = {"uri": uri, "record": view(uri), "versions": [], "replaced": [view(uri)], "replacedBy": []}
    found = {"records": [view(uri)], "mode": "lexical", "suppressed": 0, "explanation": explanation}
    assert (
        complaints(
            installed,
            ("output", "getRecord", view(uri)),
            ("output", "getHistory", history),
            ("output", "searchRecords", found),
            ("output", "listRecords", {"records": [view(uri)]}),
        )
        == [None] * 4
    )


def test_what_is_no_uri_is_refused_by_the_client_already(installed: Path):
    assert complaints(installed, ("params", "getRecord", {"uri": "tea"})) == ["uri must be a uri"]
