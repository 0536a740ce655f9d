"""What `doctor` makes of what it was told."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from indexer.doctor.database import (
    API_ROLE,
    DISCREET,
    WRITTEN_BY_API,
    judge_erasure,
    judge_log,
    judge_migrations,
    judge_rights,
    judge_server,
    unreachable,
)
from indexer.doctor.machine import AMPLE_FREE_BYTES, MAX_SKEW_S, MIN_FREE_BYTES, judge_clock, judge_disk, judge_spool
from indexer.doctor.network import Endpoint
from indexer.doctor.outside import Followed, no_source, sources
from indexer.doctor.report import Check, Report, State, failed, passed, warned
from indexer.resync.disk import GIB, DiskBudget
from indexer.store.doctor import ServerFacts, TableRights
from indexer.store.status import ErasureStatus
from memory.errors import Misconfigured, Unavailable

GOOD = ServerFacts(180_006, "18.6", "UTF8", "memory_indexer", superuser=False)
ROLES = "Run deploy/roles.sql by psql, as the owner of the database"


def rights(
    table: str = "memories",
    *,
    ours: bool = True,
    reads: bool | None = True,
    changes: bool = False,
    writes: bool = False,
) -> TableRights:
    return TableRights(
        table, ours, reads, changes if reads is not None else None, writes if reads is not None else None
    )


# --- the report


def test_report_fails_when_one_check_does():
    fine, bad = passed("a", "well"), failed("b", "ill", "Mend it.")
    assert not Report((fine, warned("c", "so so", "Mind it."))).failed
    assert Report((fine, bad)).failed


def test_report_for_people_says_below_each_fault_what_to_do():
    report = Report(
        (passed("clock", "agrees"), warned("log", "talks", "Hush it."), failed("dns", "is mute", "Mend it."))
    )
    assert report.to_text().splitlines() == [
        "ok       clock  agrees",
        "warning  log    talks",
        "         → Hush it.",
        "failed   dns    is mute",
        "         → Mend it.",
        "",
        "Failed: 1 of 3; warnings: 1.",
    ]


@pytest.mark.parametrize(
    ("checks", "last"),
    [
        ((passed("a", "b"),), "All is well."),
        ((passed("a", "b"), warned("c", "d", "e")), "All that is needed works; warnings: 1."),
    ],
)
def test_last_line_sums_up(checks: tuple[Check, ...], last: str):
    assert Report(checks).to_text().splitlines()[-1] == last


def test_report_for_machines_is_one_line_of_json():
    text = Report((passed("clock", "agrees"), failed("dns", "is mute", "Mend it."))).to_json()
    assert "\n" not in text
    assert json.loads(text) == {
        "failed": True,
        "checks": [
            {"name": "clock", "state": "ok", "what": "agrees", "fix": None},
            {"name": "dns", "state": "failed", "what": "is mute", "fix": "Mend it."},
        ],
    }


# --- the database


def test_server_of_the_right_kind_passes():
    assert judge_server(GOOD, embedded=False) == passed("database", "Postgres 18.6, as memory_indexer")
    assert judge_server(GOOD, embedded=True).what == "Postgres 18.6, the embedded one, for development"


def test_oldest_version_that_will_do_is_15():
    assert judge_server(ServerFacts(150_000, "15.0", "UTF8", "a", False), embedded=False).state is State.OK
    old = judge_server(ServerFacts(140_012, "14.12", "UTF8", "a", False), embedded=False)
    assert (old.state, old.what, old.fix) == (State.FAILED, "Postgres 14.12 is too old", "Upgrade it to 15 or newer.")


def test_encoding_that_cannot_hold_every_text_fails():
    check = judge_server(ServerFacts(180_000, "18.0", "LATIN1", "a", False), embedded=False)
    assert check.state is State.FAILED
    assert "LATIN1" in check.what
    assert check.fix is not None
    assert "createdb --template=template0 --encoding=UTF8" in check.fix


def test_missing_migrations_fail_and_name_the_command():
    assert judge_migrations([]) == passed("migrations", "all applied")
    check = judge_migrations([Path("20260101000000_a.sql"), Path("20260102000000_b.sql")])
    assert check == failed(
        "migrations", "missing: 20260101000000_a, 20260102000000_b", "Run `python -m migrations up`."
    )


@pytest.mark.parametrize(
    ("failure", "embedded", "fix"),
    [
        (Misconfigured("No such name."), False, "Correct DATABASE_URL, which has the form postgresql://"),
        (Unavailable("Silence."), False, "Start Postgres, and let this machine reach it"),
        (Misconfigured("No room."), True, "name another folder by DATABASE_DATA_DIR"),
        (Unavailable("No start."), True, "name another folder by DATABASE_DATA_DIR"),
    ],
)
def test_database_that_cannot_be_asked_fails(failure: Misconfigured | Unavailable, embedded: bool, fix: str):
    check = unreachable(failure, embedded=embedded)
    assert (check.name, check.state, check.what) == ("database", State.FAILED, failure.message)
    assert check.fix is not None
    assert fix in check.fix


def test_rights_as_the_roles_have_them_pass():
    assert judge_rights(GOOD, [rights(), rights("identities", changes=True, writes=True)]) == passed(
        "rights", "memory_indexer writes, memory_appview reads"
    )


def test_table_that_we_may_not_write_fails():
    check = judge_rights(GOOD, [rights(), rights("repos", ours=False)])
    assert check == failed(
        "rights", "memory_indexer may not read and write repos", f"{ROLES}, and connect as memory_indexer."
    )


def test_many_tables_are_cut_short():
    check = judge_rights(GOOD, [rights(f"t{number}", ours=False) for number in range(9)])
    assert check.what.endswith("t0, t1, t2, t3, t4 and 4 more")


def test_table_that_the_api_may_not_read_fails():
    check = judge_rights(GOOD, [rights(reads=False)])
    assert check == failed("rights", f"{API_ROLE} may not read memories", f"{ROLES}, again.")


def test_table_that_the_api_may_not_write_but_should_fails():
    check = judge_rights(GOOD, [rights("identities", changes=True)])
    assert check == failed("rights", f"{API_ROLE} may not write identities", f"{ROLES}, again.")


def test_table_that_the_api_may_change_but_should_not_is_warned_of():
    check = judge_rights(GOOD, [rights(changes=True)])
    assert check == warned("rights", f"{API_ROLE} may change memories", f"{ROLES}, again: it takes that away.")


def test_api_without_a_role_of_its_own_is_warned_of():
    check = judge_rights(GOOD, [rights(reads=None), rights("identities", reads=None)])
    assert check.state is State.WARNING
    assert check.fix == f"{ROLES}, and let the API connect as memory_appview."


def test_indexer_as_a_superuser_is_warned_of():
    check = judge_rights(ServerFacts(180_006, "18.6", "UTF8", "postgres", superuser=True), [rights()])
    assert check == warned("rights", "postgres is a superuser", "Name memory_indexer in the indexer's DATABASE_URL.")


def test_log_that_quotes_nothing_passes():
    assert judge_log(DISCREET) == passed("database log", "quotes no memory")
    assert judge_log({name: DISCREET[name] for name in DISCREET if "." not in name}).state is State.OK


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("log_error_verbosity", "default"),
        ("log_parameter_max_length", "-1"),
        ("log_parameter_max_length_on_error", "64"),
        ("auto_explain.log_parameter_max_length", "-1"),
    ],
)
def test_log_that_may_quote_a_memory_is_warned_of(name: str, setting: str):
    check = judge_log({**DISCREET, name: setting})
    assert check.state is State.WARNING
    assert check.fix is not None
    assert f"Set {name} = {DISCREET[name]} in postgresql.conf" in check.fix


def test_tables_that_the_api_writes_are_those_of_the_roles():
    file = Path(__file__).parents[2] / "deploy" / "roles.sql"
    listed = next(line for line in file.read_text(encoding="utf-8").splitlines() if "'identities'" in line)
    assert set(listed.split("'")[1::2]) == WRITTEN_BY_API


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ERASED = ErasureStatus(NOON - timedelta(hours=11), NOON - timedelta(days=9), True, NOON)


def test_files_that_were_rid_of_what_was_deleted_in_time_pass():
    check = judge_erasure(ERASED)
    assert check == passed("erasure", "the files are rid of what was deleted twice a day, last at 2026-11-30 01:00 UTC")
    young = replace(ERASED, last_at=None, server_started_at=NOON)
    assert judge_erasure(young) == passed("erasure", "the files are rid of what was deleted twice a day, never yet")


@pytest.mark.parametrize(
    ("last_at", "words"),
    [(NOON - timedelta(hours=25), "rid of it last at 2026-11-29 11:00 UTC"), (None, "rid of it never yet")],
)
def test_files_that_hold_what_was_deleted_for_longer_than_a_day_are_warned_of(last_at: datetime | None, words: str):
    check = judge_erasure(replace(ERASED, last_at=last_at))
    assert (check.name, check.state) == ("erasure", State.WARNING)
    assert words in check.what
    assert check.fix is not None
    assert "`erasure_failed`" in check.fix


# --- the machine


def test_clock_that_agrees_passes():
    assert judge_clock(0.2, -1.4) == passed("clock", "agrees with the database's and the PLC directory's")
    assert judge_clock(MAX_SKEW_S, None) == passed("clock", "agrees with the database's")
    assert judge_clock(None, -MAX_SKEW_S) == passed("clock", "agrees with the PLC directory's")


def test_clock_that_is_wrong_by_the_directory_fails():
    slow, fast = judge_clock(0, 312.4), judge_clock(400, -400)
    assert (slow.state, slow.what) == (State.FAILED, "312 s behind the PLC directory's")
    assert (fast.state, fast.what) == (State.FAILED, "400 s ahead of the PLC directory's")
    assert slow.fix == "Set this machine's clock and keep it right by NTP: `timedatectl set-ntp true`."


def test_clock_of_the_database_alone_is_told_apart():
    check = judge_clock(-90, 0.5)
    assert (check.state, check.what) == (State.FAILED, "90 s ahead of the database's")
    assert check.fix is not None
    assert "the clock of the database's machine" in check.fix
    unknown = judge_clock(61, None).fix
    assert unknown is not None
    assert "the clock of one of the two" in unknown


def test_clock_without_another_is_warned_of():
    check = judge_clock(None, None)
    assert check.state is State.WARNING
    assert check.fix == "Mend the database or the PLC directory first."


@pytest.mark.parametrize(
    ("free", "state"),
    [
        (AMPLE_FREE_BYTES, State.OK),
        (AMPLE_FREE_BYTES - 1, State.WARNING),
        (MIN_FREE_BYTES, State.WARNING),
        (MIN_FREE_BYTES - 1, State.FAILED),
    ],
)
def test_disk_is_judged_by_what_is_free(free: int, state: State):
    check = judge_disk(Path(".data/postgres"), free)
    assert check.state is state
    assert "GiB free for .data/postgres" in check.what
    assert (check.fix is None) == (state is State.OK)
    assert check.fix is None or "DATABASE_DATA_DIR" in check.fix


@pytest.mark.parametrize(
    ("free", "state", "fix"),
    [
        (12, State.OK, None),
        (11, State.WARNING, "lower INDEXER_SPOOL_MAX_BYTES"),
        (3, State.WARNING, "by INDEXER_SPOOL_DIR"),
        (2, State.FAILED, "by INDEXER_SPOOL_DIR"),
        (0, State.FAILED, "Make room on that disk"),
    ],
)
def test_spool_is_judged_by_what_may_be_taken_of_it_and_what_has_to_stay(free: int, state: State, fix: str | None):
    check = judge_spool(Path("/spool"), free * GIB, DiskBudget(in_all_bytes=10 * GIB, kept_free_bytes=2 * GIB))
    assert (check.name, check.state) == ("spool", state)
    assert check.what.startswith(f"{free}.0 GiB free in /spool")
    assert check.fix is None if fix is None else fix in (check.fix or "")


# --- what is followed


def test_each_source_is_known_by_its_setting():
    assert sources(["https://a"], ["http://b:1"]) == [
        Followed("https://a", "INDEXER_RELAY_URLS"),
        Followed("http://b:1", "INDEXER_PDS_URLS"),
    ]


def test_nothing_to_follow_fails_and_names_a_relay():
    check = no_source()
    assert check.state is State.FAILED
    assert check.fix is not None
    assert check.fix.startswith("Set INDEXER_RELAY_URLS: wss://")


@pytest.mark.parametrize(
    ("url", "endpoint", "authority"),
    [
        ("https://relay.test", Endpoint("relay.test", 443, tls=True), "relay.test"),
        ("http://relay.test", Endpoint("relay.test", 80, tls=False), "relay.test"),
        ("http://127.0.0.1:2583", Endpoint("127.0.0.1", 2583, tls=False), "127.0.0.1:2583"),
        ("https://[::1]:8443", Endpoint("::1", 8443, tls=True), "[::1]:8443"),
    ],
)
def test_url_leads_to_a_host_and_port(url: str, endpoint: Endpoint, authority: str):
    assert Endpoint.of(url) == endpoint
    assert endpoint.authority == authority
