"""A group of tasks that ends as one.

`asyncio.TaskGroup` loses a cancellation from outside that meets a failure inside, before Python 3.13: the failure is
raised, whoever waits it out goes on, and a daemon that was asked to stop runs for ever. This group does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from memory.errors import MemoryAppviewError

_Result = TypeVar("_Result")


class TaskGroup:
    """Tasks that live no longer than its block; the block ends when all of them have.

    The first failure, of a task or of the block, cancels the rest, and is raised by itself once they have ended: a bug
    of ours before what may pass. A cancellation from outside outranks all of them.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failures: list[BaseException] = []
        self._ended = asyncio.Event()
        self._in_block = True
        self._interrupted = False  # by us, because a task failed while the block ran

    async def __aenter__(self) -> Self:
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("A group of tasks needs a task to belong to.")
        self._owner = owner
        self._cancellations = owner.cancelling()
        return self

    def create_task(self, coroutine: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Starts a task; in a group that is ending it is cancelled before its first step."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._note)
        if self._failures:
            task.cancel()
        return task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._in_block = False
        if self._interrupted:
            self._owner.uncancel()
        if error is not None:
            if not isinstance(error, asyncio.CancelledError):
                self._failures.insert(0, error)
            self._cancel_all()
        while self._tasks:
            self._ended.clear()
            try:
                await self._ended.wait()
            except asyncio.CancelledError:
                self._cancel_all()
        if self._owner.cancelling() > self._cancellations:
            raise asyncio.CancelledError from None
        if self._failures:
            raise _worst(self._failures) from None

    def _note(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._ended.set()
        failure = None if task.cancelled() else task.exception()
        if failure is None:
            return
        self._failures.append(failure)
        self._cancel_all()
        if self._in_block and not self._interrupted:
            self._interrupted = True
            self._owner.cancel()

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()


def _worst(failures: list[BaseException]) -> BaseException:
    return next((failure for failure in failures if not isinstance(failure, MemoryAppviewError)), failures[0])
