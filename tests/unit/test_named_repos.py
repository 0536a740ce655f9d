from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from indexer.resync.discovery import (
    OPERATOR,
    Found,
    Unresolved,
    parse_subject,
    read_subjects,
    resolve_subjects,
)
from memory.errors import Misconfigured, Unavailable


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("did:plc:ragtjsm2j2vknwkz3zp4oxrd", "did:plc:ragtjsm2j2vknwkz3zp4oxrd"),
        (" did:web:a.example\n", "did:web:a.example"),
        ("Mara.Example", "mara.example"),
        ("@mara.example", "mara.example"),
    ],
)
def test_did_or_handle_is_taken(text: str, subject: str):
    assert parse_subject(text) == subject


@pytest.mark.parametrize("text", ["", "mara", "@", "https://mara.example", "did:", "a b.example", "-.example"])
def test_what_is_neither_a_did_nor_a_handle_is_refused(text: str):
    with pytest.raises(ValueError, match="neither a DID nor a handle"):
        parse_subject(text)


def test_file_names_each_repo_once_in_order_and_may_have_comments(tmp_path: Path):
    file = tmp_path / "repos.txt"
    file.write_text(
        "# people\n\ndid:web:b.example # B\n  A.example\r\n@a.example\ndid:web:b.example\n#did:web:c.example"
    )
    assert read_subjects(file) == ["did:web:b.example", "a.example"]


def test_nonsense_in_a_file_is_told_with_its_line(tmp_path: Path):
    file = tmp_path / "repos.txt"
    file.write_text("did:web:b.example\n# fine\nMandarin\n")
    with pytest.raises(Misconfigured, match=r"repos\.txt, line 3: neither a DID nor a handle"):
        read_subjects(file)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None):
    file = tmp_path / "repos.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Misconfigured, match=r"repos\.txt: no readable file"):
        read_subjects(file)


class Owners:
    def __init__(self, **dids: str) -> None:
        self.dids = {f"{name}.example": did for name, did in dids.items()}

    async def owner(self, handle: str) -> str | None:
        if handle == "down.example":
            raise Unavailable
        return self.dids.get(handle)


async def test_handles_are_resolved_and_dids_taken_as_they_are():
    owners = Owners(mara="did:web:mara.test")
    subjects = ["did:web:b.example", "mara.example", "nobody.example", "down.example"]
    assert [each async for each in resolve_subjects(subjects, owners)] == [
        Found("did:web:b.example", None, OPERATOR),
        Found("did:web:mara.test", None, OPERATOR),
        Unresolved("nobody.example", "unknown_handle"),
        Unresolved("down.example", "unavailable"),
    ]


async def test_thousands_of_subjects_come_in_their_order():
    numbers = count()
    subjects = [f"did:web:{next(numbers)}.example" for _ in range(1000)]
    assert [each.did async for each in resolve_subjects(subjects, Owners()) if isinstance(each, Found)] == subjects
