"""The check that no log repeats what is private finds what it is to find: a test run that is not quiet fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.kept_quiet import Said
from tests.listening import learn_request
from tests.private_words import MASK, PIECE, STEP, PrivateWords

ROOT = Path(__file__).parents[2]
SECRET = "Her sister keeps a spare key under the third flowerpot"
URI = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/" + "space/com.example.group/family"
JWT = "eyJhbGciOiJFUzI1NiJ9" + ".eyJpc3MiOiJkaWQ6cGxjOmEifQ.c2ln"
TOKEN = "memat_" + "c29tZXRoaW5nIGxvbmcgZW5vdWdo"

# Each test of this run says what its name tells, but for the first ones, which say nothing private.
RUN = """
import shutil, subprocess, sys
import asyncpg, httpx, pytest, structlog
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs
from memory.embedded import hold_cluster
from memory.telemetry import get_logger, set_up_logging
from tests.builders import RepoBuilder, memory
from tests.conftest import shared_memory
from tests.store.clusters import FAST, ask, folder_in

SECRET = "Her sister keeps a spare key under the third flowerpot"
PROGRAM = "import sys; print(sys.argv[1], file=sys.stderr)"

@pytest.fixture(autouse=True)
def record():
    RepoBuilder("a").create("3kaaaaaaaaa2a", memory(SECRET))

def test_quiet():
    get_logger().info("thing_done", reason="sister", repo="did:plc:a")
    get_logger().info("thing_done", content=SECRET)
    subprocess.run([sys.executable, "-c", PROGRAM, "nothing"])

def test_event():
    get_logger().info("thing_done", reason=SECRET)

def test_part_of_it():
    get_logger().info("thing_done", reason=SECRET[9:36])

def test_own_set_up(tmp_path):
    with (tmp_path / "log").open("w") as log:
        set_up_logging(log)
        get_logger().info("thing_done", message=SECRET)
        structlog.reset_defaults()

def test_captured_event():
    with capture_logs():
        get_logger().info("thing_done", reason=SECRET)

@pytest.mark.parametrize("stream", [None, subprocess.PIPE, subprocess.DEVNULL])
def test_process(stream):
    subprocess.run([sys.executable, "-c", PROGRAM, SECRET], stderr=stream)

def test_process_with_a_file(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", PROGRAM, SECRET], stderr=log)

def test_label():
    Counter("things", "Things.", ["what"], registry=CollectorRegistry()).labels(what=SECRET).inc()

def test_scrape():
    told = f'things{{what="{SECRET}"}} 1.0'
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, text=told))) as client:
        client.get("http://a.test/metrics")

def test_postgres():
    folder = folder_in(shared_memory(), 0o711)
    with hold_cluster(folder / "postgres", FAST) as cluster, pytest.raises(asyncpg.PostgresError):
        ask(cluster, f"do $$ begin raise exception '{SECRET}'; end $$")
    shutil.rmtree(folder)

def test_query():
    answers = httpx.MockTransport(lambda _: httpx.Response(200))
    with httpx.Client(transport=answers) as client:
        client.get("http://a.test/", params={"q": "where are flowerpots"})
    get_logger().info("thing_done", reason="syntax error at or near flowerpots")
"""
LATE = """
from memory.telemetry import get_logger
from tests.builders import RepoBuilder, memory

SECRET = "Her sister keeps a spare key under the third flowerpot"

def test_record_is_made():
    RepoBuilder("a").create("3kaaaaaaaaa2a", memory(SECRET))

def test_it_is_told_when_that_is_over():
    get_logger().info("thing_done", reason=SECRET)
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    """The exit status of a test run with the check, and its report."""
    (folder / "test_run.py").write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rE", "--tb=no", "-p", "tests.kept_quiet"),
            *("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder, folder / "test_run.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_run_fails_for_each_way_in_which_a_record_may_be_told(tmp_path: Path):
    status, told = run(tmp_path, RUN)
    failed = re.findall(r"^ERROR .*::test_(\w+)(?:\[\w+\])?", told, re.MULTILINE)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert failed == [
        *("event", "part_of_it", "own_set_up", "captured_event", "process", "process", "process"),
        *("process_with_a_file", "label", "scrape", "postgres", "query"),
    ]


def test_what_is_told_later_fails_the_run(tmp_path: Path):
    status, told = run(tmp_path, LATE)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "2 passed" in told
    assert "said during test_run.py::test_it_is_told_when_that_is_over" in told
    assert "flowerpot" not in told


def test_quiet_run_passes(tmp_path: Path):
    status, _ = run(tmp_path, LATE.replace("reason=SECRET", "content=SECRET"))
    assert status == pytest.ExitCode.OK


def words(*texts: str) -> PrivateWords:
    private = PrivateWords()
    for text in texts:
        private.say(text)
    return private


@pytest.mark.parametrize(
    "line",
    [
        f'{{"reason": "{SECRET}"}}',
        f'{{"reason": "{SECRET[5:]}'[: 12 + PIECE + STEP],
        SECRET.replace(" ", "%20"),
    ],
)
def test_line_with_a_private_text_is_shown_without_it(line: str):
    [shown] = words(SECRET).pieces().leaks([line])
    assert MASK in shown
    assert "sister" not in shown
    assert "key" not in shown


@pytest.mark.parametrize(
    "text", ["Sie mag grünen Tee", 'She said: "never again!"', "彼女は緑茶がとても好きで毎朝飲みます。"]
)
def test_text_is_found_as_json_and_as_url_write_it(text: str):
    pieces = words(text).pieces()
    for line in (text, json.dumps({"reason": text}), json.dumps({"reason": text}, ensure_ascii=False), quote(text)):
        assert len(pieces.leaks([line])) == 1, line


@pytest.mark.parametrize("line", [f"reason={URI}", f"uri={URI}/did:plc:a/a.b.c/1", f"Bearer {JWT}", f"x {TOKEN} y"])
def test_uri_of_a_space_and_tokens_are_private_whoever_made_them(line: str):
    [shown] = PrivateWords().pieces().leaks([line])
    assert "family" not in shown
    assert JWT not in shown
    assert TOKEN not in shown


@pytest.mark.parametrize(
    "line",
    [
        "at://did:plc:aliceaaaaaaaaaaaaaaaaaaa/dev.bastienrobert.memory.record/3kaaaaaaaaa2a",
        '{"did": "did:plc:aliceaaaaaaaaaaaaaaaaaaa", "collection": "dev.bastienrobert.memory.record"}',
        "2026-11-01T10:00:00.000Z",
        "another sister, and her key",
    ],
)
def test_what_is_public_in_a_text_may_be_told(line: str):
    private = words(
        f"{SECRET} did:plc:aliceaaaaaaaaaaaaaaaaaaa dev.bastienrobert.memory.record 2026-11-01T10:00:00.000Z", "a" * 40
    )
    assert private.pieces().leaks([line]) == []


@pytest.mark.parametrize("field", ["q", "query"])
def test_queries_in_addresses_and_bodies_are_private_word_by_word(field: str):
    for request in (
        httpx.Request("GET", "http://a.test/", params={field: "where: flowerpots"}),
        httpx.Request("POST", "http://a.test/", json={field: "where: flowerpots"}),
    ):
        private = PrivateWords()
        learn_request(private, request)
        assert private.pieces().leaks(["no flowers", "near 'FLOWERPOTS'"]) == [f"near '{MASK * 3}'"]


def test_credentials_and_cursors_of_requests_are_private():
    private = PrivateWords()
    headers = {"Authorization": "Bearer opaque-and-long-enough"}
    learn_request(private, httpx.Request("GET", "http://a.test/?cursor=bm90IHRvIGJlIHRvbGQ", headers=headers))
    assert private.pieces().leaks(["opaque-and-long-enough"]) == [MASK * 3]
    assert private.pieces().leaks(["bm90IHRvIGJlIHRvbGQ"]) == [MASK * 3]
    assert private.pieces().leaks(["Bearer cursor"]) == []


def test_texts_of_one_test_are_forgotten_by_the_next():
    private = words(SECRET)
    private.forget()
    assert private.pieces().leaks([SECRET]) == []


def test_file_that_others_write_is_read_along_also_when_deleted(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("before\n")
    said = Said(tmp_path)
    said.read_along(log)
    said.read_along(log)
    with log.open("a") as opened:
        opened.write("one\n")
        opened.flush()
        assert said.new() == "one\n"
        opened.write("two\n")
    log.unlink()
    assert said.new() == "two\n"
    said.close()
