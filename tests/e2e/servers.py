"""A did:plc directory and two reference PDSes, as processes of their own; and what only their operator can see."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.node import NODE, installed_network


@dataclass(frozen=True, slots=True)
class Pds:
    """One PDS. DID documents name `url`, where it is met, mostly through a proxy; `inside` it listens itself."""

    url: str
    inside: str
    domain: str  # of the handles that it gives out
    folder: Path
    admin_password: str
    door: socket.socket | None  # listens at `url`; whoever opens a proxy there takes a duplicate. None: it does itself

    def last_seq(self) -> int:
        """Of its stream: all that was answered is in it."""
        seq = self._one(self.folder / "sequencer.sqlite", "select max(seq) from repo_seq")
        return seq if isinstance(seq, int) else 0

    def mailed_token(self, did: str) -> str:
        """What it would have mailed to confirm an operation of the directory."""
        statement = "select token from email_token where did = ? and purpose = 'plc_operation'"
        return str(self._one(self.folder / "account.sqlite", statement, did))

    def _one(self, file: Path, statement: str, *arguments: str) -> object:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as conn:
            return conn.execute(statement, arguments).fetchone()[0]


@dataclass(frozen=True, slots=True)
class Network:
    """Everything that runs."""

    plc_url: str
    pdses: Sequence[Pds]

    async def set_outage(self, on: bool) -> None:
        """Lets the directory answer everything with 503, or nothing any more."""
        async with httpx.AsyncClient(timeout=30) as client:
            (await client.post(f"{self.plc_url}/_test/outage", json={"on": on})).raise_for_status()

    async def asked(self) -> int:
        """How many requests the directory had."""
        async with httpx.AsyncClient(timeout=30) as client:
            return int((await client.get(f"{self.plc_url}/_test/stats")).json()["requests"])


@contextmanager
def running_network(folder: Path, *, behind_proxies: bool = True) -> Generator[Network]:
    """A network without accounts, in `folder`; raises OutOfReach."""
    doors = [_open_door(), _open_door()] if behind_proxies else []
    ports = [str(door.getsockname()[1]) for door in doors] or ["0", "0"]
    script = installed_network() / "start.mjs"
    command = [NODE, script, "--dir", folder, "--pds-port", ports[0], "--pds2-port", ports[1]]
    if behind_proxies:
        command.append("--behind-proxies")
    with (
        (folder / "network.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (folder / "network.log").read_text()
            yield _network(json.loads(line), doors)
        finally:
            process.terminate()
            process.wait(30)
            for door in doors:
                door.close()


def _open_door() -> socket.socket:
    door = socket.create_server(("127.0.0.1", 0))
    door.setblocking(False)
    return door


def _network(told: dict[str, Any], doors: Sequence[socket.socket]) -> Network:
    pdses = [
        Pds(
            each["url"],
            each["inside"],
            "test" if number == 0 else "pds2.test",
            Path(each["dir"]),
            told["adminPassword"],
            doors[number] if doors else None,
        )
        for number, each in enumerate(told["pds"])
    ]
    return Network(told["plc"]["url"], pdses)
