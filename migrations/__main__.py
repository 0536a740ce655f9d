"""`python -m migrations up|status|new NAME|dump`: the schema of the database at DATABASE_URL or of the embedded one."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from memory.embedded import Tuning, hold_cluster
from memory.errors import Misconfigured, Unavailable
from memory.schema import SCHEMA_DUMP, apply_migrations, dump_schema, run_dbmate
from memory.settings import DatabaseSettings, load
from memory.telemetry import set_up_logging


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; the exit code is 0, or 1 for what may pass, or 2 for what must be mended."""
    given = _parser().parse_args(arguments)
    set_up_logging()
    try:
        match given.command:
            case "new":
                return run_dbmate("", "new", given.name).returncode
            case "dump":
                _dump()
                return 0
            case "status":
                with _database_url(load(os.environ).database) as url:
                    return run_dbmate(url, "status").returncode
            case _:
                with _database_url(load(os.environ).database) as url:
                    return run_dbmate(url, "--migration-lock", "--no-dump-schema", "up").returncode
    except Misconfigured as failure:
        print(failure, file=sys.stderr)
        return 2
    except Unavailable as failure:
        print(failure, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m migrations", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="create the database if it is missing and apply what it lacks")
    commands.add_parser("status", help="list what is applied and what is not")
    commands.add_parser("new", help="start a migration").add_argument("name", help="such_as_this")
    commands.add_parser("dump", help="write migrations/schema.sql anew, from an empty database of its own")
    return parser


@contextmanager
def _database_url(settings: DatabaseSettings) -> Generator[str]:
    if settings.url is not None:
        yield settings.url.get_secret_value()
        return
    with hold_cluster(settings.data_dir) as cluster:
        run_dbmate(cluster.url(), "create", capture=True)
        yield cluster.url()


def _dump() -> None:
    folder = Path(tempfile.mkdtemp(prefix="memory-appview-dump-"))
    folder.chmod(0o711)  # as root, Postgres runs as another user
    try:
        with hold_cluster(folder / "postgres", Tuning(fsync=False)) as cluster:
            apply_migrations(cluster.url())
            SCHEMA_DUMP.write_text(dump_schema(cluster), encoding="utf-8")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
