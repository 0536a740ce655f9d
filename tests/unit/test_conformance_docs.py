"""The page of promises names every method, every error and every row, and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from appview.lexicon import load_catalogue
from appview.service import routes_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"
CATALOGUE = load_catalogue()
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
NAMED = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)


def test_every_test_that_is_named_exists() -> None:
    there = {
        (path.name, test)
        for path in TESTS.rglob("test_*.py")
        for test in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    assert len(NAMED) > 50
    assert set(NAMED) - there == set()


def test_every_method_has_a_row_and_no_other() -> None:
    methods = [route.method.nsid.rpartition(".")[2] for route in routes_of(CATALOGUE)]
    assert len(methods) == len(CATALOGUE.methods) == 11
    listed = [cell.strip("`") for cell, _, tests in ROWS if "::" in tests and cell.startswith("`")]
    assert list(dict.fromkeys(listed)) == methods


def test_every_error_of_a_method_stands_in_a_row() -> None:
    errors = {error.name for method in CATALOGUE.methods.values() for error in method.errors}
    assert {error for error in errors if f"`{error}`" not in PAGE} == set()


@pytest.mark.parametrize("page", ["memory-stores.md", "assistants.md"])
def test_rows_of_the_documents_are_led_to(page: str) -> None:
    assert f"({page}#every-row-has-its-test)" in PAGE
    assert "\n## Every row has its test\n" in (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_to_files_and_headings_that_there_are(page: str) -> None:
    path = ROOT / page
    broken: list[str] = []
    for target, heading in re.findall(r"\]\(([\w./-]*)(#[\w-]+)?\)", path.read_text(encoding="utf-8")):
        file = path.parent / target if target else path
        if not file.exists() or (heading and heading[1:] not in anchors(file)):
            broken.append(target + heading)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Headings as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - linked == set()
