"""How a test run hears what the project says, and learns what is private in it, whatever the test does.

Both by standing between: no test and no part of the project needs to know of it, so none can forget it.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn, Protocol, TextIO, cast

import httpx
import pytest
import structlog
import structlog.testing
from prometheus_client.metrics import MetricWrapperBase
from structlog.typing import EventDict, WrappedLogger

from memory import embedded, telemetry
from memory.cluster import Cluster
from memory.record import Memory
from tests import builders
from tests.private_words import PrivateWords

# What says private things because somebody asks for them: its words on the command line → why.
SAID_ON_PURPOSE: Final[Mapping[str, str]] = {
    "pytest": "a test run of its own, whose report shows what it compared",
    "-": "a recipe of the documents, which prints the memories that it asks for",
    "deploy.demo": "the demo shows the memories of its recording",
}
_HEALTH_PORTS: Final = ("INDEXER_HEALTH_PORT", "APPVIEW_METRICS_PORT")
_SCRAPE_S: Final = 1.0
_ASKED: Final = ("q", "query")
_CURSORS: Final = ("cursor", "page", "pageToken")
_CURSOR_TOLD: Final = re.compile(rb'"(?:cursor|next_page|nextPageToken)": ?"([^"\\]{12,})"')
_BODY_MAX: Final = 100_000


class Heard(Protocol):
    """Takes what is said."""

    descriptor: int

    def write(self, data: bytes) -> None:
        """Whole lines."""
        ...

    def read_along(self, path: Path) -> None:
        """Takes what others append to that file too."""
        ...


def listen(said: Heard, words: PrivateWords) -> pytest.MonkeyPatch:
    """Stands between, until that is undone."""
    patch = pytest.MonkeyPatch()
    _hear_logs(patch, said)
    _hear_metrics(patch, said)
    _hear_postgres(patch, said)
    _hear_processes(patch, said)
    _learn_records(patch, words)
    _learn_requests(patch, words, said)
    return patch


# What is said


def set_up_default_logging() -> None:
    """Logs as the project does, to whatever is standard output at the time, unless a test has set up its own."""
    if not structlog.is_configured():
        hook = sys.excepthook
        telemetry.set_up_logging(cast("TextIO", _StandardOutput()), level=logging.NOTSET)
        sys.excepthook = hook


class _StandardOutput:
    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


def _hear_logs(patch: pytest.MonkeyPatch, said: Heard) -> None:
    class Tee:
        def __init__(self, stream: IO[str]) -> None:
            self._stream = stream

        def write(self, text: str) -> int:
            said.write(text.encode(errors="replace"))
            return self._stream.write(text)

        def flush(self) -> None:
            self._stream.flush()

    class TeeFactory(structlog.WriteLoggerFactory):
        def __init__(self, file: TextIO | None = None) -> None:
            super().__init__(cast("TextIO", Tee(file or sys.stdout)))

    class TeeCapture(structlog.testing.LogCapture):
        """What a test captures was never made a line; here it becomes the one that it would have been."""

        def __call__(self, _: WrappedLogger, method_name: str, event_dict: EventDict) -> NoReturn:
            shown = telemetry._describe_exception(_, method_name, dict(event_dict))
            shown = telemetry._keep_safe_fields(_, method_name, shown)
            said.write(json.dumps(shown).encode() + b"\n")
            super().__call__(_, method_name, event_dict)

    patch.setattr(structlog, "WriteLoggerFactory", TeeFactory)
    patch.setattr(structlog.testing, "LogCapture", TeeCapture)


def _hear_metrics(patch: pytest.MonkeyPatch, said: Heard) -> None:
    """Labels are all that a metric can tell beside its number; the same is heard once."""
    real = MetricWrapperBase.labels
    heard: set[tuple[object, ...]] = set()

    def labels(self: MetricWrapperBase, *values: object, **named: object) -> MetricWrapperBase:
        key = (self._name, *map(str, values), *map(str, named.values()))
        if key not in heard:
            heard.add(key)
            said.write(f"labels {json.dumps(key)}\n".encode())
        return real(self, *values, **named)

    patch.setattr(MetricWrapperBase, "labels", labels)


def _hear_postgres(patch: pytest.MonkeyPatch, said: Heard) -> None:
    real = embedded._configure

    def configure(cluster: Cluster, tuning: embedded.Tuning) -> None:
        real(cluster, tuning)
        said.read_along(cluster.log)

    patch.setattr(embedded, "_configure", configure)


def _hear_processes(patch: pytest.MonkeyPatch, said: Heard) -> None:
    class HeardProcess(subprocess.Popen[Any]):
        """A process, of which all is heard if it is one of the project."""

        def __init__(
            self, args: Any, *more: Any, stdout: Any = None, stderr: Any = None, env: Any = None, **named: Any
        ) -> None:
            self._health_port = 0
            if not _is_heard(args):
                super().__init__(args, *more, stdout=stdout, stderr=stderr, env=env, **named)
                return
            ports = [int((os.environ if env is None else env).get(name) or 0) for name in _HEALTH_PORTS]
            self._health_port = max(ports)
            super().__init__(args, *more, stdout=_heard(stdout, said), stderr=_heard(stderr, said), env=env, **named)
            for asked, stream in ((stdout, self.stdout), (stderr, self.stderr)):
                if asked == subprocess.PIPE and stream is not None:
                    _tee(stream.fileno(), said)

        def send_signal(self, sig: int) -> None:
            if self._health_port and self.returncode is None and sig in (signal.SIGTERM, signal.SIGKILL):
                _scrape(self._health_port, said)
            super().send_signal(sig)

    patch.setattr(subprocess, "Popen", HeardProcess)


def _is_heard(args: object) -> bool:
    """Whether it is a program of the project, and not one that tells private things on purpose."""
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        return False
    words = [os.fspath(cast("str", word)) for word in cast("Sequence[object]", args)]
    return words[:1] == [sys.executable] and not any(word in SAID_ON_PURPOSE for word in words[1:5])


def _heard(stream: Any, said: Heard) -> Any:
    """Where a process writes, given where it was to write."""
    if stream is None or stream == subprocess.DEVNULL:
        return said.descriptor
    name = getattr(stream, "name", None)
    if isinstance(name, str):
        said.read_along(Path(name))
    return stream


def _tee(reading: int, said: Heard) -> None:
    """Puts a pipe of ours between a process and that descriptor, whose reader sees the same, and its end."""
    source = os.dup(reading)
    read_end, write_end = os.pipe()
    os.dup2(read_end, reading, inheritable=False)
    os.close(read_end)

    def pass_on() -> None:
        unfinished = b""
        with suppress(BrokenPipeError):
            while data := os.read(source, 65_536):
                lines, newline, unfinished = (unfinished + data).rpartition(b"\n")
                said.write(lines + newline)
                sent = 0
                while sent < len(data):
                    sent += os.write(write_end, data[sent:])
        if unfinished:
            said.write(unfinished + b"\n")
        os.close(source)
        os.close(write_end)

    threading.Thread(target=pass_on, daemon=True).start()


def _scrape(port: int, said: Heard) -> None:
    """Asks a process for its metrics, before it is ended."""
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SCRAPE_S)
        connection.request("GET", "/metrics")
        _hear_scrape(connection.getresponse().read(), said)
        connection.close()


def _hear_scrape(text: bytes, said: Heard) -> None:
    said.write(b"".join(line + b"\n" for line in text.splitlines() if b"{" in line))


# What is private


def _learn_records(patch: pytest.MonkeyPatch, words: PrivateWords) -> None:
    """What was read from a record in this process, and what one was made of for another."""
    read, write = Memory.__init__, builders.RepoBuilder._write

    def init(self: Memory, *values: Any, **named: Any) -> None:
        read(self, *values, **named)
        for text in (self.content, self.scope, self.agent, self.client):
            words.say(text)

    def _write(self: builders.RepoBuilder, given: builders.Write, first: bool) -> dict[str, Any]:
        words.say_all(given.record)
        return write(self, given, first)

    patch.setattr(Memory, "__init__", init)
    patch.setattr(builders.RepoBuilder, "_write", _write)


def _learn_requests(patch: pytest.MonkeyPatch, words: PrivateWords, said: Heard) -> None:
    """Queries, cursors, credentials and bodies of whatever is asked by HTTP, and cursors that are answered."""

    def learn(request: httpx.Request, response: httpx.Response) -> None:
        learn_request(words, request)
        if response.is_stream_consumed and request.url.path == "/metrics":
            _hear_scrape(response.content, said)
        elif response.is_stream_consumed and not request.url.path.startswith("/xrpc/com.atproto."):
            for cursor in _CURSOR_TOLD.findall(response.content[-_BODY_MAX:]):
                words.say(cursor.decode(errors="replace"))

    send, send_async = httpx.Client.send, httpx.AsyncClient.send

    def sent(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        response = send(self, request, **options)
        learn(request, response)
        return response

    async def sent_async(self: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        response = await send_async(self, request, **options)
        learn(request, response)
        return response

    patch.setattr(httpx.Client, "send", sent)
    patch.setattr(httpx.AsyncClient, "send", sent_async)


def learn_request(words: PrivateWords, request: httpx.Request) -> None:
    """What is private in a request."""
    for name, value in request.url.params.multi_items():
        if name in _ASKED:
            words.ask(value)
        elif name in _CURSORS:
            words.say(value)
    words.say(request.headers.get("authorization", "").rpartition(" ")[2])
    with suppress(httpx.RequestNotRead, ValueError, RecursionError):
        body = json.loads(request.content) if 0 < len(request.content) < _BODY_MAX else None
        if isinstance(body, dict):
            _learn_body(words, cast("dict[str, object]", body))


def _learn_body(words: PrivateWords, body: Mapping[str, object]) -> None:
    for name, value in body.items():
        if name in _ASKED and isinstance(value, str):
            words.ask(value)
        elif name in (*_CURSORS, "record", "password", "token"):
            words.say_all(value)
        elif name == "writes" and isinstance(value, list):
            for write in cast("list[object]", value):
                words.say_all(cast("Mapping[str, object]", write).get("value") if isinstance(write, Mapping) else None)
