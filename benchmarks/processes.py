"""The processes that a benchmark starts beside its own, and what can be seen of them from outside.

All of them end with the block that started them, also when the benchmark is interrupted, and on Linux with its process.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import IO, Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.dense import open_to_all
from memory.cluster import Cluster
from memory.database import Database
from memory.embedded import hold_cluster
from memory.schema import apply_migrations

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0
POLL_S: Final = 0.05
LOOPBACK: Final = "127.0.0.0/8,::1/128"
_OURS: Final = re.compile("(DATABASE|INDEXER|APPVIEW|EMBEDDING)_")
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG, <sys/prctl.h>
_LOG_TAIL_CHARS: Final = 2000
_USER_TICKS: Final = 11  # behind the name of the command: utime, then stime; proc(5)


class ChildEnded(Exception):
    """A process ended before it was asked to."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder, and an embedded Postgres in it, of this benchmark's own."""

    folder: Path
    cluster: Cluster

    def database(self, name: str) -> str:
        """The URL of a new database with the schema."""
        url = self.cluster.url(name)
        apply_migrations(url)
        return url


@contextmanager
def workplace() -> Generator[Workplace]:
    """Gone at the end."""
    with (
        TemporaryDirectory(prefix="memory-bench-") as folder,
        hold_cluster(open_to_all(folder) / "postgres") as cluster,
    ):
        yield Workplace(Path(folder), cluster)


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Within it SIGTERM and SIGHUP cancel the task, as Ctrl-C does, so that every block is left regularly."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True)
class Child:
    """A process that runs."""

    name: str
    process: Process
    log: Path

    def require_running(self) -> None:
        """Raises ChildEnded, with the end of its log, if it does not."""
        if self.process.returncode is not None:
            tail = self.log.read_text("utf-8", "replace")[-_LOG_TAIL_CHARS:]
            raise ChildEnded(f"{self.name} ended by itself, with {self.process.returncode}:\n{tail}")

    def say_go(self) -> None:
        """Lets a piped one begin."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def until(
        self, condition: Callable[[], Awaitable[bool]], timeout_s: float = START_TIMEOUT_S, poll_s: float = POLL_S
    ) -> None:
        """Waits for something while it runs."""
        async with asyncio.timeout(timeout_s):
            while not await condition():
                self.require_running()
                await asyncio.sleep(poll_s)


@asynccontextmanager
async def child(
    name: str, command: list[str], folder: Path, *, environ: dict[str, str] | None = None, piped: bool = False
) -> AsyncGenerator[Child]:
    """`python -m` with that command; its stderr goes to a file."""
    log = folder / f"{name}.log"
    with log.open("wb") as stderr:
        process = await _spawn(command, environ, stderr, piped=piped)
    try:
        yield Child(name, process, log)
    finally:
        await _stop(process)


async def _spawn(command: list[str], environ: dict[str, str] | None, stderr: IO[bytes], *, piped: bool) -> Process:
    kept = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command),
        env=kept | (environ or {}),
        stdin=PIPE if piped else DEVNULL,
        stdout=PIPE if piped else DEVNULL,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Service:
    """A daemon or an API, and where it is asked."""

    child: Child
    url: str  # of a daemon: of its health port

    @property
    def resident_bytes(self) -> int:
        """How much memory is its own at the moment."""
        return _proc_bytes(f"{self.child.process.pid}/status", "VmRSS")

    @property
    def peak_resident_bytes(self) -> int:
        """The most that ever was."""
        return _proc_bytes(f"{self.child.process.pid}/status", "VmHWM")

    @property
    def bytes_with_companions(self) -> int:
        """The memory of it and of the processes that it started; of shared pages their part."""
        pids, seen = [self.child.process.pid], 0
        while pids:
            pid = pids.pop()
            seen += _proc_bytes(f"{pid}/smaps_rollup", "Pss")
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return seen

    @property
    def cpu_s(self) -> float:
        """How many seconds of a core it has taken."""
        stat = Path(f"/proc/{self.child.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[_USER_TICKS : _USER_TICKS + 2])) / os.sysconf("SC_CLK_TCK")

    async def metrics(self) -> Counter[str]:
        """Name → value, the sum over all labels."""
        text = (await asyncio.to_thread(_read, f"{self.url}/metrics")).decode()
        totals = Counter[str]()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] += sample.value  # pyright: ignore[reportArgumentType]  counts, and seconds
        return totals


@asynccontextmanager
async def daemon(database_url: str, network: Network, folder: Path, **environ: str) -> AsyncGenerator[Service]:
    """`python -m indexer run`, which follows the network's relays; returns once all are connected."""
    port = _free_port()
    settings = {
        "DATABASE_URL": database_url,
        "INDEXER_RELAY_URLS": ",".join(network.relays),
        "INDEXER_PLC_URL": network.directory,
        "INDEXER_HANDLE_RESOLVER": network.directory,
        "INDEXER_ALLOW_PRIVATE_ADDRESSES": LOOPBACK,
        "INDEXER_HEALTH_PORT": str(port),
        **environ,
    }
    async with child("daemon", ["indexer", "run"], folder, environ=settings) as started:
        service = Service(started, f"http://127.0.0.1:{port}")

        async def connected() -> bool:
            try:
                return (await service.metrics())["indexer_connected"] == len(network.relays)
            except (URLError, OSError):
                return False

        await started.until(connected)
        yield service


@asynccontextmanager
async def api(database_url: str, folder: Path) -> AsyncGenerator[Service]:
    """`python -m appview serve`; returns once it answers."""
    port = _free_port()
    settings = {"DATABASE_URL": database_url, "APPVIEW_PORT": str(port)}
    async with child("api", ["appview", "serve"], folder, environ=settings) as started:
        service = Service(started, f"http://127.0.0.1:{port}")
        await started.until(lambda: _answers(f"{service.url}/xrpc/_health"))
        yield service


@asynccontextmanager
async def bare_framework(folder: Path) -> AsyncGenerator[Service]:
    """`benchmarks.bare_app`; returns once it answers."""
    port = _free_port()
    async with child("bare", ["benchmarks.bare_app", str(port)], folder) as started:
        service = Service(started, f"http://127.0.0.1:{port}")
        await started.until(lambda: _answers(f"{service.url}/"))
        yield service


async def _answers(url: str) -> bool:
    try:
        await asyncio.to_thread(_read, url)
    except (URLError, OSError):
        return False
    return True


@dataclass
class Network:
    """The other side of `benchmarks.doubles`."""

    child: Child
    relays: list[str]
    directory: str
    heard: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue[dict[str, Any]])  # what is told of flows
    first_seqs: dict[str, int] = field(default_factory=dict[str, int])  # relay → seq of the last of what comes first
    done: asyncio.Future[dict[str, Any]] = field(default_factory=asyncio.Future[dict[str, Any]])

    def go(self) -> None:
        """Starts the flows."""
        self.child.say_go()

    async def until_first_sent(self) -> None:
        """Waits until every relay has sent what comes first."""

        async def all_sent() -> bool:
            return len(self.first_seqs) == len(self.relays)

        await self.child.until(all_sent)

    async def finished(self) -> dict[str, Any]:
        """What is told once all flows have ended."""

        async def told() -> bool:
            return self.done.done()

        await self.child.until(told)
        return self.done.result()

    async def listen(self) -> None:
        """Hears what is told, until the process ends."""
        assert self.child.process.stdout is not None
        async for line in self.child.process.stdout:
            match json.loads(line):
                case {"flow": _} as told:
                    self.heard.put_nowait(told)
                case {"first_sent": seq, "port": port}:
                    self.first_seqs[_local(port)] = seq
                case {"done": True} as told:
                    self.done.set_result(told)
                case _:
                    pass


@asynccontextmanager
async def network(module: str, *arguments: str, folder: Path) -> AsyncGenerator[Network]:
    """The network that a module makes, once it listens."""
    async with child("network", [module, *arguments], folder, piped=True) as started:
        ready = await next_told(started)
        made = Network(started, [_local(port) for port in ready["relays"]], _local(ready["directory"]))
        listening = asyncio.create_task(made.listen())
        try:
            yield made
        finally:
            listening.cancel()


async def next_told(started: Child) -> dict[str, Any]:
    """What a process says next, which is JSON; raises ChildEnded."""
    assert started.process.stdout is not None
    line = await started.process.stdout.readline()
    if not line:
        await started.process.wait()
        started.require_running()
    told: dict[str, Any] = json.loads(line)
    return told


async def until_first_written(database: Database, net: Network, indexer: Service) -> None:
    """Waits until all that comes first is in the database."""
    await net.until_first_sent()

    async def written() -> bool:
        async with database.connection() as conn:
            cursors = {row["source"]: row["seq"] for row in await conn.fetch("select source, seq from sources")}
        return all(cursors.get(relay, 0) >= seq for relay, seq in net.first_seqs.items())

    await indexer.child.until(written)


def percentile(sorted_values: list[float], share: float) -> float:
    """The smallest value that so many of all are not above; of a list that has one."""
    return sorted_values[max(0, -int(-len(sorted_values) * share // 1) - 1)]


def seconds_of(setting: str, default: float) -> float:
    """A duration that the environment may set."""
    return float(os.environ.get(setting) or default)


async def sleep_until(time: float) -> None:
    """Sleeps until `perf_counter` says that."""
    await asyncio.sleep(max(0.0, time - perf_counter()))


def _proc_bytes(file: str, name: str) -> int:
    for line in Path(f"/proc/{file}").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def _read(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        return answer.read()


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
