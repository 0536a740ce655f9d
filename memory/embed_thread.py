"""One thread for a model, so that the event loop goes on while it computes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class EmbeddingThread:
    """Calls one after the other, always from the same thread: engines keep their own threads per caller.

    A call that is cancelled while it waits is never made; one that runs ends by itself, so callers give little at once.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedding")
        self._process = os.getpid()

    async def call(self, function: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        """What the function gives or raises."""
        if os.getpid() != self._process:  # the thread, and those of the engine, stayed with the parent: it would hang
            raise RuntimeError("An embedder does not outlive a fork.")
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*args, **kwargs))

    async def aclose(self) -> None:
        """End, without what still waits."""
        self._executor.shutdown(wait=False, cancel_futures=True)
