"""The page on memory stores names a test for every row of the document of the objects."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "memory-stores.md").read_text(encoding="utf-8")
FILES = [ROOT / "tests" / "service" / f"test_store_face_{name}.py" for name in ("stores", "memories", "versions")]
ROWS = {
    "Memory Store": "id type name description status entry_count total_size metadata archived_at created_at updated_at",
    "Status": "active archived",
    "Memory": "id type memory_store_id path content_size_bytes content_sha256 version metadata content created_at"
    " updated_at",
    "Memory Version": "id type memory_store_id memory_id path content_size_bytes content_sha256 operation redacted"
    " redacted_at content created_at",
    "Operation": "created updated deleted",
}


def test_every_row_is_there_in_order():
    listed = re.findall(
        r"^\| ([A-Z][A-Za-z ]*) `(\w+)` \| ", PAGE.partition("## Every row has its test")[2], re.MULTILINE
    )
    assert listed == [(table, name) for table, names in ROWS.items() for name in names.split()]


def test_every_test_that_is_named_exists():
    written = {name for file in FILES for name in re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8"))}
    named = set(re.findall(r"`(test_\w+[a-z0-9])`", PAGE))
    assert len(named) > 30
    assert named - written == set()
