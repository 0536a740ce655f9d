"""The files in `deploy/` agree with the code, with each other, and with what they promise."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appview.connections import HEAD_TIMEOUT_S, MAX_HEAD_BYTES
from appview.http import ANSWER_TIMEOUT_S, BODY_TIMEOUT_S, MAX_BODY_BYTES, MAX_URL_BYTES
from indexer.doctor.database import DISCREET
from memory.client_keys import read_client_keys
from memory.sealed import SealingKeys
from memory.settings import PARTS
from tests.architecture.sources import ROOT

DEPLOY = ROOT / "deploy"
COMMANDS = {"indexer": ["python", "-m", "indexer", "run"], "appview": ["python", "-m", "appview", "serve"]}
SETTINGS = {name for part in PARTS for name in part.variables()}
NAMING_SETTINGS = (
    *("Dockerfile", "compose.yaml", "settings.example", "tls/Caddyfile"),
    *("systemd/spaces.conf", "systemd/spaces-client.conf"),
)


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


# --- compose


def services() -> dict[str, str]:
    """The text of each service."""
    body = re.sub(r"(?m)^ *#.*\n", "", read("compose.yaml")).partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    found = re.findall(r"(?m)^  (\w+):\n((?:    .*\n|\n)*)", body + "\n")
    return dict(found)


def test_services_start_in_the_order_in_which_they_need_each_other():
    needs = {
        name: re.findall(r"(\w+): \{condition: (\w+)\}", text.partition("depends_on:")[2])
        for name, text in services().items()
    }
    assert needs == {
        "database": [],
        "migrations": [("database", "service_healthy")],
        "roles": [("migrations", "service_completed_successfully")],
        "indexer": [("roles", "service_completed_successfully")],
        "appview": [("roles", "service_completed_successfully")],
        "proxy": [("appview", "service_healthy")],
    }


def test_our_services_can_write_nothing_and_gain_nothing():
    hardened = read("compose.yaml").partition("x-ours: &ours\n")[2].partition("\n\n")[0]
    for line in ("read_only: true", "cap_drop: [ALL]", 'security_opt: ["no-new-privileges:true"]'):
        assert f"  {line}\n" in hardened
    assert {name for name, text in services().items() if "<<: *ours\n" in text} == {
        "migrations",
        "roles",
        "indexer",
        "appview",
    }


def test_services_are_built_from_the_images():
    built = {name: re.findall(r"build: .*target: (\w+)", text) for name, text in services().items()}
    assert {name: target for name, target in built.items() if target} == {
        "migrations": ["indexer"],
        "indexer": ["indexer"],
        "appview": ["appview"],
    }
    assert "command: [python, -m, migrations, up]" in services()["migrations"]
    assert set(re.findall(r"dockerfile: ([^,}]+)", read("compose.yaml"))) == {"deploy/Dockerfile"}


def test_server_keeps_memories_out_of_its_log():
    options = dict(re.findall(r"- --(\w+)=(\S+)\n", services()["database"]))
    assert options.items() >= {item for item in DISCREET.items() if "." not in item[0]}


def test_only_the_proxy_is_reached_from_outside():
    published = {name: re.findall(r"ports: \[(.*)\]", text) for name, text in services().items()}
    assert {name: ports for name, ports in published.items() if ports} == {
        "appview": ['"127.0.0.1:8600:8600"'],
        "proxy": ['"80:80", "443:443"'],
    }


def test_each_service_knows_only_its_own_password():
    known = {name: set(re.findall(r"\$\{(\w+PASSWORD)", text)) for name, text in services().items()}
    everything = {"POSTGRES_PASSWORD", "MEMORY_INDEXER_PASSWORD", "MEMORY_APPVIEW_PASSWORD"}
    assert known == {
        "database": {"POSTGRES_PASSWORD"},
        "migrations": {"POSTGRES_PASSWORD"},
        "roles": everything,
        "indexer": {"MEMORY_INDEXER_PASSWORD"},
        "appview": {"MEMORY_APPVIEW_PASSWORD"},
        "proxy": set(),
    }
    asked = set(re.findall(r"(?m)^(\w+)=$", read("secrets.example")))
    assert asked == everything
    assert set(re.findall(r"\\getenv \w+ (\w+)", read("passwords.sql"))) == everything - {"POSTGRES_PASSWORD"}


def test_secrets_and_settings_of_ones_own_are_never_committed():
    assert {".env", "settings.env"} <= set(read(".gitignore").splitlines())


def secrets() -> dict[str, str]:
    """The variable that names the file of each secret."""
    body = read("compose.yaml").partition("\nsecrets:\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"  ([\w-]+):\n    file: \$\{(\w+):-/dev/null\}", body + "\n"))


def test_keys_of_spaces_go_to_whom_they_concern_and_only_where_some_are_named():
    assert secrets() == {"space-keys": "SPACE_KEYS", "client-keys": "CLIENT_KEYS"}
    given = {name: re.findall(r"secrets: \[(.*)\]", text) for name, text in services().items()}
    assert {name: each for name, each in given.items() if each} == {
        "indexer": ["space-keys"],
        "appview": ["space-keys, client-keys"],
    }
    settings = {"space-keys": "SPACES_KEY_FILE", "client-keys": "SPACES_CLIENT_KEY_FILE"}
    for name, [each] in ((name, each) for name, each in given.items() if each):
        told = re.findall(r"(SPACES_\w+): \$\{(\w+):\+/run/secrets/([\w-]+)\}", services()[name])
        assert told == [(settings[secret], secrets()[secret], secret) for secret in each.split(", ")]
    assert set(re.findall(r"(?m)^# (\w+)=\./[\w.-]+$", read("secrets.example"))) == set(secrets().values())


def test_keys_of_ones_own_are_never_committed():
    named = re.findall(r"(?m)^# \w+=\./([\w.-]+)$", read("secrets.example"))
    assert named == ["space-keys", "client-keys.pem"]
    assert set(named) <= set(read(".gitignore").splitlines())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here to make keys")
def test_keys_that_are_made_as_the_page_says_can_be_used(tmp_path: Path):
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    commands = re.findall(r"(?m)^    (\(umask 077; .*\))$", page)
    (tmp_path / "deploy").mkdir()
    for command in commands:
        assert subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=False).returncode == 0
    made = {file.name: file for file in (tmp_path / "deploy").iterdir()}
    assert set(made) == {"space-keys", "client-keys.pem"}
    assert SealingKeys.read(made["space-keys"], random_bytes=bytes).current
    assert len(read_client_keys(made["client-keys.pem"])) == 1
    assert {file.stat().st_mode & 0o777 for file in made.values()} == {0o600}


def test_files_that_are_mounted_are_there():
    mounted = re.findall(r"- \./(\S+):\S+:ro\n", read("compose.yaml"))
    assert mounted
    assert [name for name in mounted if not (DEPLOY / name).is_file()] == []


# --- settings, units, proxy


@pytest.mark.parametrize("name", NAMING_SETTINGS)
def test_settings_that_are_named_are_settings(name: str):
    named = set(re.findall(r"\b(?:INDEXER|APPVIEW|DATABASE|EMBEDDING|SPACES)_[A-Z_]+\b", read(name)))
    assert named
    assert named - SETTINGS - {"APPVIEW_UPSTREAM"} == set()  # that is the proxy's own


class Unit(configparser.RawConfigParser):
    """A systemd unit, or what is dropped into one: keys keep their case; of one given twice, this has the last."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.text = (DEPLOY / "systemd" / name).read_text(encoding="utf-8")
        self.read_string(self.text)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


UNITS = {name: Unit(f"memory-{name}.service")["Service"] for name in COMMANDS}


@pytest.mark.parametrize("name", UNITS)
def test_unit_runs_its_deployable_and_starts_it_again(name: str):
    unit = UNITS[name]
    assert unit["ExecStart"].split()[0].startswith("/opt/memory-appview/.venv/bin/python")
    assert unit["ExecStart"].split()[1:] == COMMANDS[name][1:]
    assert unit["Restart"] == "always"
    assert unit["StandardOutput"] == unit["StandardError"] == "journal"
    assert "MemoryMax" in unit


def test_migrations_are_run_by_the_indexer_alone():
    assert UNITS["indexer"]["ExecStartPre"].endswith("/python -m migrations up")
    assert "ExecStartPre" not in UNITS["appview"]


def test_processes_beside_the_daemon_may_give_way_to_it():
    """Later filters change what earlier ones let through."""
    filters = re.findall(r"(?m)^SystemCallFilter=(.*)$", Unit("memory-indexer.service").text)
    assert filters == ["@system-service", "~@privileged @resources", "setpriority"]


@pytest.mark.parametrize("name", UNITS)
def test_unit_can_tell_whether_the_cpu_runs_the_embedded_model(name: str):
    assert UNITS[name].get("ProcSubset", "all") == "all"  # else there is no /proc/cpuinfo


@pytest.mark.parametrize("name", UNITS)
def test_unit_may_do_only_what_it_has_to(name: str):
    unit = UNITS[name]
    for key, setting in {
        "DynamicUser": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "MemoryDenyWriteExecute": "yes",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        "SystemCallArchitectures": "native",
    }.items():
        assert unit[key] == setting, key


DROP_INS = {"spaces.conf": ["indexer", "appview"], "spaces-client.conf": ["appview"]}


def test_drop_ins_hand_keys_over_as_credentials():
    for name in DROP_INS:
        drop_in = Unit(name)["Service"]
        credential, _, file = drop_in["LoadCredential"].partition(":")
        setting, _, path = drop_in["Environment"].partition("=")
        assert setting in SETTINGS
        assert path == f"%d/{credential}"
        assert file.startswith("/etc/memory-appview/")


def test_page_installs_each_drop_in_where_it_belongs_and_each_file_of_keys():
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    installed = re.findall(
        r"(?m)^    install -D -m 644 deploy/systemd/(\S+) /etc/systemd/system/memory-(\w+)\.service\.d/(\S+)$", page
    )
    assert sorted(installed) == sorted((name, unit, name) for name, units in DROP_INS.items() for unit in units)
    [moved] = re.findall(r"(?m)^    mv (.*) /etc/memory-appview/$", page)
    loaded = {Unit(name)["Service"]["LoadCredential"].rpartition("/")[2] for name in DROP_INS}
    assert {Path(file).name for file in moved.split()} == loaded
    assert sorted(path.name for path in (DEPLOY / "systemd").glob("*.conf")) == sorted(DROP_INS)


def verified(name: str, folder: Path, *drop_ins: str) -> tuple[int, str]:
    """What systemd makes of a unit with these drop-ins, in a folder of its own."""
    unit = folder / f"memory-{name}.service"
    text = Unit(unit.name).text.replace("/opt/memory-appview/.venv/bin/python", shutil.which("true") or "/bin/true")
    unit.write_text(text, encoding="utf-8")
    dropped = folder / f"{unit.name}.d"
    dropped.mkdir()
    for number, drop_in in enumerate(drop_ins):
        (dropped / f"{number}.conf").write_text(drop_in, encoding="utf-8")
    given = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    judged = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], env=given, capture_output=True, text=True, check=False
    )
    return judged.returncode, judged.stderr


NO_SYSTEMD = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here to judge its units")


@NO_SYSTEMD
@pytest.mark.parametrize("name", UNITS)
def test_unit_is_understood_by_systemd(name: str, tmp_path: Path):
    assert verified(name, tmp_path) == (0, "")


@NO_SYSTEMD
@pytest.mark.parametrize("name", UNITS)
def test_unit_with_its_drop_ins_is_understood_by_systemd(name: str, tmp_path: Path):
    drop_ins = [Unit(drop_in).text for drop_in, units in DROP_INS.items() if name in units]
    assert verified(name, tmp_path, *drop_ins) == (0, "")


@NO_SYSTEMD
def test_drop_in_that_is_wrong_would_be_seen(tmp_path: Path):
    assert "LoadCredentail" in verified("appview", tmp_path, "[Service]\nLoadCredentail=a:/b\n")[1]


def test_proxy_writes_no_queries_and_compresses_nothing():
    text = re.sub(r"(?m)^\s*#.*\n", "", read("tls/Caddyfile"))
    assert re.search(r"log default \{\s+format filter \{\s+wrap json\s+fields \{\s+request delete\s+\}", text)
    assert text.count("log ") == 1
    assert not re.search(r"\bencode\b", text)
    assert "reverse_proxy {$APPVIEW_UPSTREAM:127.0.0.1:8600}" in text


def proxy_setting(name: str) -> str:
    """The one value of a directive of the proxy."""
    [value] = re.findall(rf"(?m)^\s*{name} (\S+(?: \S+)*)$", read("tls/Caddyfile"))
    return value


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def test_proxy_gives_no_client_more_time_than_the_api_would():
    assert seconds(proxy_setting("read_header")) == HEAD_TIMEOUT_S
    assert seconds(proxy_setting("read_body")) == HEAD_TIMEOUT_S + BODY_TIMEOUT_S
    assert seconds(proxy_setting("idle")) <= 60
    # An answer may be long, but whoever reads none of it does not keep the connection for ever.
    assert ANSWER_TIMEOUT_S < seconds(proxy_setting("write")) <= 3600
    assert proxy_setting("protocols") == "h1 h2"  # another would heed none of these


def test_proxy_lets_through_what_the_api_takes_and_no_more_than_it_has_to():
    kib = {name: int(proxy_setting(name).removesuffix("KiB")) * 1024 for name in ("max_header_size", "max_size")}
    assert kib["max_header_size"] == MAX_HEAD_BYTES > MAX_URL_BYTES
    assert MAX_BODY_BYTES < kib["max_size"] <= 2 * MAX_BODY_BYTES  # so that it is the API that says what is too much


@pytest.mark.skipif(shutil.which("caddy") is None, reason="no Caddy here to judge its file")
def test_proxy_understands_its_file():
    given = {**os.environ, "APPVIEW_PUBLIC_URL": "https://memory.example"}
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "tls" / "Caddyfile")]
    judged = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stderr
