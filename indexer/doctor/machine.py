"""What this machine itself has: its clock, its ports, its disk."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import tempfile
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from indexer.doctor.network import Endpoint, Network, NoAnswer
from indexer.doctor.report import Check, failed, passed, warned
from indexer.resync.disk import DiskBudget, free_bytes, spool_folder

MAX_SKEW_S: Final = 60
MIN_FREE_BYTES: Final = 1024**3
AMPLE_FREE_BYTES: Final = 5 * 1024**3

_SPOOL: Final = "spool"
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  how to reach who listens there


@dataclass(frozen=True, slots=True)
class Port:
    """Where a server of ours listens, or is going to."""

    host: str
    port: int
    path: str  # which our server, and hardly another, answers with 200
    prefix: str  # of the settings that name it: `…HOST` and `…PORT`

    @property
    def setting(self) -> str:
        return f"{self.prefix}PORT"


def judge_clock(database_ahead_s: float | None, directory_ahead_s: float | None) -> Check:
    """This machine's clock by two others, as far as they could be read. Too fast or slow, it refuses good commits."""
    name = "clock"
    if directory_ahead_s is not None and abs(directory_ahead_s) > MAX_SKEW_S:
        return failed(
            name,
            f"{_difference(-directory_ahead_s)} the PLC directory's",
            "Set this machine's clock and keep it right by NTP: `timedatectl set-ntp true`.",
        )
    if database_ahead_s is not None and abs(database_ahead_s) > MAX_SKEW_S:
        wrong = "one of the two" if directory_ahead_s is None else "the database's machine"
        return failed(
            name,
            f"{_difference(-database_ahead_s)} the database's",
            f"Set the clock of {wrong} and keep it right by NTP: `timedatectl set-ntp true`.",
        )
    known = {"the database's": database_ahead_s, "the PLC directory's": directory_ahead_s}
    compared = [whose for whose, ahead_s in known.items() if ahead_s is not None]
    if not compared:
        return warned(name, "there is no other to compare it with", "Mend the database or the PLC directory first.")
    return passed(name, f"agrees with {' and '.join(compared)}")


async def check_port(network: Network, port: Port) -> Check:
    """Whether the port is free, or one of us answers there already."""
    name = f"port {port.port}"
    try:
        with socket.create_server((port.host, port.port), family=_family(port.host)):
            return passed(name, "is free")
    except OSError as failure:
        match failure.errno:
            case errno.EADDRINUSE:
                return await _check_taken(network, port)
            case errno.EACCES:
                fix = f"Choose one above 1023 by {port.setting}, and let a proxy have this one."
                return failed(name, "needs privileges", fix)
            case _:
                fix = f"Give an address of this machine by {port.prefix}HOST."
                return failed(name, f"nothing can listen on {port.host}", fix)


async def check_disk(folder: Path) -> Check:
    """Whether there is room for the embedded database in that folder, which need not exist yet."""
    return judge_disk(folder, await asyncio.to_thread(_free_bytes, folder))


def judge_disk(folder: Path, free: int) -> Check:
    """By the bytes that are free there."""
    what = f"{_gib(free)} free for {folder}"
    fix = "Make room on that disk, or move the folder to another and name it by DATABASE_DATA_DIR."
    if free < MIN_FREE_BYTES:
        return failed("disk", what, fix)
    if free < AMPLE_FREE_BYTES:
        return warned("disk", what, fix)
    return passed("disk", what)


async def check_spool(budget: DiskBudget) -> Check:
    """Whether there is room for repos too large for memory while they are fetched."""
    return await asyncio.to_thread(_try_spool, budget)


def judge_spool(folder: Path, free: int, budget: DiskBudget) -> Check:
    """By the bytes that are free there."""
    what = f"{_gib(free)} free in {folder}"
    if free <= budget.kept_free_bytes:
        fix = "Make room on that disk, or name a folder on another by INDEXER_SPOOL_DIR."
        return failed(_SPOOL, f"{what}, and {_gib(budget.kept_free_bytes)} have to stay: no large repo has room", fix)
    if free < budget.in_all_bytes + budget.kept_free_bytes:
        fix = (
            "Make room on that disk, name a folder on another by INDEXER_SPOOL_DIR, or lower INDEXER_SPOOL_MAX_BYTES: "
            "large repos wait for one another else."
        )
        wanted = f"repos may take {_gib(budget.in_all_bytes)}, and {_gib(budget.kept_free_bytes)} have to stay"
        return warned(_SPOOL, f"{what}; {wanted}", fix)
    return passed(_SPOOL, what)


def _try_spool(budget: DiskBudget) -> Check:
    try:
        with tempfile.TemporaryFile(dir=budget.folder) as file:
            file.write(bytes(4096))
        return judge_spool(spool_folder(budget.folder), free_bytes(budget.folder), budget)
    except OSError as failure:
        where = "the system's folder for temporary files" if budget.folder is None else str(budget.folder)
        fix = "Let the indexer write there, or name another folder by INDEXER_SPOOL_DIR."
        return failed(_SPOOL, f"nothing can be written to {where}: {failure.strerror}", fix)


async def _check_taken(network: Network, port: Port) -> Check:
    name = f"port {port.port}"
    host = _EVERY_ADDRESS.get(port.host, port.host)
    try:
        answer = await network.get(Endpoint(host, port.port, tls=False), port.path)
    except NoAnswer:
        answer = None
    if answer is not None and answer.status == HTTPStatus.OK:
        return passed(name, "is answered by us")
    fix = f"Stop what listens there (`ss -ltnp 'sport = :{port.port}'` tells), or choose another by {port.setting}."
    return failed(name, "is taken by another program", fix)


def _free_bytes(folder: Path) -> int:
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def _difference(ahead_s: float) -> str:
    return f"{abs(ahead_s):,.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
