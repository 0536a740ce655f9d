"""Files of our own keys, read at the start."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from memory.errors import Misconfigured
from memory.telemetry import get_logger

MAX_FILE_BYTES: Final = 64 * 1024

_log = get_logger()


def read_key_file(file: Path, setting: str) -> str:
    """The ASCII text of the file that this setting names; raises Misconfigured.

    A file that others may write is refused, for they could put a key of theirs first; of one that all may read the
    log warns.
    """
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise unusable(setting, "it is no file")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise unusable(setting, "others than its owner may write it (chmod 600)")
        if found.st_mode & stat.S_IROTH:
            _log.warning("key_file_readable_by_all", setting=setting)
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise unusable(setting, os.strerror(failure.errno) if failure.errno else "it cannot be read") from None
    if len(content) > MAX_FILE_BYTES:
        raise unusable(setting, "it is too large")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise unusable(setting, "it is no ASCII text") from None


def unusable(setting: str, why: str) -> Misconfigured:
    """What is raised for a key file; `why` repeats nothing that stands in it."""
    return Misconfigured(f"{setting} cannot be used: {why}.", setting=setting)
