"""What `backfill` and `resync` make of their command lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from indexer import backfill_command, resync_command
from indexer.__main__ import _parser
from indexer.backfill_command import Plan
from indexer.repo_state import RepoState
from indexer.resync.discovery import OPERATOR
from memory.errors import Misconfigured

ALICE = "did:plc:" + "a" * 24
RELAYS = ("https://relay.test", "https://other.test")
PDSES = ("https://pds.test",)


def planned(
    *arguments: str, relays: Sequence[str] = (), pdses: Sequence[str] = (), listed: Collection[str] | None = None
) -> Plan:
    options = _parser().parse_args(["backfill", *arguments])
    return backfill_command.plan(options, relays=relays, pdses=pdses, listed=listed)


# backfill


@pytest.mark.parametrize(
    ("relays", "pdses", "origin", "because"),
    [
        (RELAYS, PDSES, "https://relay.test", "INDEXER_RELAY_URLS"),
        ((), PDSES, "https://pds.test", "INDEXER_PDS_URLS"),
    ],
)
def test_nobody_named_means_the_first_source(relays: Sequence[str], pdses: Sequence[str], origin: str, because: str):
    plan = planned(relays=relays, pdses=pdses)
    assert (plan.origin, plan.subjects) == (origin, [])
    assert because in plan.because


def test_nobody_named_means_the_list_of_repos_where_there_is_one():
    plan = planned(relays=RELAYS, listed={ALICE})
    assert (plan.origin, plan.listed) == (OPERATOR, {ALICE})


def test_server_that_is_named_counts_over_all_sources():
    plan = planned("--discover", "wss://Directory.test", relays=RELAYS, listed={ALICE})
    assert plan.origin == "https://directory.test"


def test_who_is_named_is_all_that_is_fetched(tmp_path: Path):
    (tmp_path / "list").write_text(f"{ALICE}\n@Bob.test # and his\n")
    plan = planned(ALICE, "@Carol.test", "--file", str(tmp_path / "list"), relays=RELAYS)
    assert (plan.subjects, plan.origin) == ([ALICE, "carol.test", "bob.test"], None)


def test_named_and_discovered_go_together():
    plan = planned(ALICE, "--discover", "relay.test")
    assert (plan.subjects, plan.origin) == ([ALICE], "https://relay.test")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("Nobody to fetch", "--discover", "INDEXER_RELAY_URLS")),
        (("alice.test", "what is this", "did:x"), ("Neither a DID nor a handle: what is this, did:x.",)),
        (("--discover", "ftp://relay.test"), ("--discover ftp://relay.test",)),
        (("--discover", "https://relay.test/path"), ("--discover",)),
        (("--file", "/no/such/file"), ("/no/such/file",)),
    ],
)
def test_backfill_of_nobody_is_refused(arguments: tuple[str, ...], words: tuple[str, ...]):
    with pytest.raises(Misconfigured) as caught:
        planned(*arguments)
    assert all(word in caught.value.message for word in words)


@pytest.mark.parametrize(
    ("content", "word"),
    [("# nobody\n", "names nobody"), ("alice.test\nwhat is this\n", "line 2"), ("\n\n-\n", "line 3")],
)
def test_file_that_names_nobody_or_nonsense_is_refused(tmp_path: Path, content: str, word: str):
    (tmp_path / "repos.txt").write_text(content)
    with pytest.raises(Misconfigured, match=word) as caught:
        planned("--file", str(tmp_path / "repos.txt"))
    assert "repos.txt" in caught.value.message


@pytest.mark.parametrize("command", ["backfill", "resync"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--concurrency", "0"),
        ("--concurrency", "65"),
        ("--concurrency", "-1"),
        ("--concurrency", "many"),
        ("--host-rate", "0"),
        ("--host-rate", "1001"),
        ("--host-rate", "inf"),
        ("--host-rate", "nan"),
        ("--host-rate", "fast"),
    ],
)
def test_number_that_cannot_be_used_is_refused(
    command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as caught:
        _parser().parse_args([command, ALICE, option, value])
    assert caught.value.code == 2
    assert f"argument {option}: it must be a" in capsys.readouterr().err


# resync


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        ((ALICE, "@Bob.test", ALICE), resync_command.Plan([ALICE, "bob.test"], None, wait=False)),
        (("--all", "--wait"), resync_command.Plan([], None, wait=True)),
        (("--state", "error"), resync_command.Plan([], RepoState.ERROR, wait=False)),
    ],
)
def test_resync_is_of_named_ones_all_or_a_state(arguments: tuple[str, ...], plan: resync_command.Plan):
    assert resync_command.plan(_parser().parse_args(["resync", *arguments])) == plan


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "One of these is needed"),
        (("alice.test", "--all"), "One of these is needed"),
        (("alice.test", "--state", "error"), "One of these is needed"),
        (("--all", "--state", "error"), "One of these is needed"),
        (("what is this",), "Neither a DID nor a handle: what is this."),
    ],
)
def test_resync_of_nobody_or_twice_is_refused(arguments: tuple[str, ...], word: str):
    with pytest.raises(Misconfigured, match=word):
        resync_command.plan(_parser().parse_args(["resync", *arguments]))


def test_state_that_needs_no_fetch_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        _parser().parse_args(["resync", "--state", "active"])
    assert caught.value.code == 2
    assert "--state" in capsys.readouterr().err
