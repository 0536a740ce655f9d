"""Whether the tests were kept quiet: after each, all that the project said meanwhile is searched for what is private.

What is said: events of the log in this process (those too that a test captured), what processes of the project write
to standard output and error, labels of metrics and scrapes of them, and the logs of Postgres. `tests/listening.py`
tells how it is heard, and what is private; private keys are too. A test whose words were repeated fails when it ends,
by name, with the line masked. What came later than the end of its test is searched when all are over; then the run
fails.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from memory.es256 import Es256Key, base64url
from memory.sealed import SealingKeys
from tests.listening import listen, set_up_default_logging
from tests.private_words import MASK, Pieces, PrivateWords

BEGINNINGS_MAX: Final = 300_000
LEAKS_SHOWN: Final = 10
END_SHOWN: Final = 4_000


class Said:
    """A file that takes whatever is said, and the files of others that are read along."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "said"
        # Processes get this descriptor: what they append is not mixed up within a line.
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._read_to = 0
        self._others: dict[tuple[int, int], tuple[int, int]] = {}  # inode → descriptor, offset

    def write(self, data: bytes) -> None:
        """Whole lines."""
        os.write(self.descriptor, data)

    def read_along(self, path: Path) -> None:
        """A log that somebody else writes: from now on it belongs to what is said, also after it was deleted."""
        opened = os.open(path, os.O_RDONLY)
        status = os.fstat(opened)
        if (status.st_dev, status.st_ino) in self._others:
            os.close(opened)
        else:
            self._others[status.st_dev, status.st_ino] = opened, status.st_size

    def new(self) -> str:
        """What was said since the last call."""
        for key, (opened, offset) in list(self._others.items()):
            status = os.fstat(opened)
            if status.st_size > offset:
                self.write(os.pread(opened, status.st_size - offset, offset))
                self._others[key] = opened, status.st_size
            if status.st_nlink == 0:
                os.close(opened)
                del self._others[key]
        end = os.fstat(self.descriptor).st_size
        data = os.pread(self.descriptor, end - self._read_to, self._read_to)
        self._read_to = end
        return data.decode(errors="replace")

    def end(self) -> str:
        """The end of what `new` will tell, but for what others write."""
        end = os.fstat(self.descriptor).st_size
        start = max(self._read_to, end - END_SHOWN)
        return os.pread(self.descriptor, end - start, start).decode(errors="replace")

    @property
    def read_to(self) -> int:
        """The offset behind the last of what `new` told."""
        return self._read_to

    def close(self) -> None:
        """Reads along no more. The descriptor stays: processes that are still there may write to it."""
        for opened, _ in self._others.values():
            os.close(opened)


class KeptQuiet:
    """The plugin of one run."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="memory-appview-said-"))
        self._said = Said(self._folder)
        self._words = PrivateWords()
        self._beginnings: set[str] = set()
        self._tests: list[tuple[int, str]] = [(0, "before the first test")]
        self._late: list[str] = []
        self._patches = listen(self._said, self._words)
        learn_keys(self._patches, self._words)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._said.new()  # late words of others; they are searched at the end
        self._tests.append((self._said.read_to, item.nodeid))
        self._words.forget()
        set_up_default_logging()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        yield
        if len(self._beginnings) < BEGINNINGS_MAX:
            self._words.beginnings(self._beginnings)
        said = self._said.new()
        if said and (leaks := self._words.pieces().leaks(dict.fromkeys(said.splitlines()))):
            pytest.fail(complaint(leaks), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # What processes were to write to our standard error, or nowhere, may say why.
        if report.failed and report.when != "teardown":
            end = self._said.end()
            if not self._words.pieces().leaks(end.splitlines()):
                report.sections.append(("said by the project", end))
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._said.new()
        everything = Pieces(self._beginnings)
        offset = 0
        with self._said.path.open("rb") as lines:
            for line in lines:
                if found := everything.leaks([line.decode(errors="replace").rstrip("\n")]):
                    number = bisect_right(self._tests, offset, key=lambda test: test[0]) - 1
                    # Only the beginning of the text is known by now: what follows it is of it too.
                    shown = found[0].partition(MASK)[0] + MASK
                    self._late.append(f"said during {self._tests[number][1]}: {shown}")
                offset += len(line)
        if self._late and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._late:
            terminalreporter.section("private words in the whole log", red=True)
            terminalreporter.write_line(complaint(self._late))

    def pytest_unconfigure(self) -> None:
        self._patches.undo()
        self._said.close()
        shutil.rmtree(self._folder)


def learn_keys(patch: pytest.MonkeyPatch, words: PrivateWords) -> None:
    """Private keys that are made or read in this process: those of proofs and of clients, and those that seal."""
    make, seal = Es256Key.__init__, SealingKeys.__init__

    def say(secret: bytes) -> None:
        for written in (secret.hex(), base64url(secret), b64encode(secret).decode(), repr(secret)[2:-1]):
            words.say(written)

    def made(self: Es256Key, key: EllipticCurvePrivateKey) -> None:
        make(self, key)
        say(self.to_bytes())

    def read(self: SealingKeys, keys: Mapping[str, bytes], *, random_bytes: Callable[[int], bytes]) -> None:
        for secret in keys.values():
            say(secret)
        seal(self, keys, random_bytes=random_bytes)

    patch.setattr(Es256Key, "__init__", made)
    patch.setattr(SealingKeys, "__init__", read)


def complaint(leaks: list[str]) -> str:
    """Tells of them."""
    more = [f"… and {len(leaks) - LEAKS_SHOWN} more"] if len(leaks) > LEAKS_SHOWN else []
    return "\n  ".join(["What is private was said in a log, in metrics or by a process:", *leaks[:LEAKS_SHOWN], *more])


def pytest_configure(config: pytest.Config) -> None:
    """For `-p tests.kept_quiet`, and for `tests/conftest.py`."""
    if not config.pluginmanager.has_plugin(KeptQuiet.__name__):
        config.pluginmanager.register(KeptQuiet(), KeptQuiet.__name__)
