"""Files of our own keys, read at the start."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from memory.errors import Misconfigured
from memory.telemetry import get_logger

MAX_FILE_BYTES: Final = 64 * 1024

# A key that was given where its file's name belongs must not be shown as one.
_HOLDS_A_KEY: Final = re.compile(r"[0-9a-fA-F]{32}|PRIVATE KEY")

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
        why = os.strerror(failure.errno) if failure.errno else "it cannot be read"
        raise unusable(setting, f"{why}{_named(file)}") from None
    if len(content) > MAX_FILE_BYTES:
        raise unusable(setting, "it is too large")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise unusable(setting, "it is no ASCII text") from None


def _named(file: Path) -> str:
    """Where it was looked for, in words that may follow; a relative path alone does not tell."""
    return "" if _HOLDS_A_KEY.search(str(file)) else f": {file.absolute()}"


def unusable(setting: str, why: str) -> Misconfigured:
    """What is raised for a key file; `why` repeats nothing that stands in it."""
    return Misconfigured(f"{setting} cannot be used: {why}.", setting=setting)
