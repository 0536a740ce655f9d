"""A group of tasks ends as one, and never loses a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from memory.errors import Unavailable
from memory.tasks import TaskGroup


async def fail(error: Exception) -> None:
    raise error


async def fail_when_cancelled(error: Exception) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise error


async def test_failure_comes_out_by_itself_and_ends_the_others():
    async def run() -> None:
        async with TaskGroup() as tasks:
            other = tasks.create_task(asyncio.Event().wait())
            tasks.create_task(fail(Unavailable("away")))
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(other)

    ended: list[asyncio.Task[bool]] = []
    with pytest.raises(Unavailable, match="away"):
        await run()
    assert ended[0].cancelled()


async def test_bug_comes_before_what_may_pass():
    with pytest.raises(ZeroDivisionError):
        async with TaskGroup() as tasks:
            tasks.create_task(fail(Unavailable()))
            tasks.create_task(fail(ZeroDivisionError()))


async def test_failure_in_nested_groups_comes_out_by_itself():
    async def inner() -> None:
        async with TaskGroup() as tasks:
            tasks.create_task(fail(Unavailable("away")))

    with pytest.raises(Unavailable, match="away"):
        async with TaskGroup() as tasks:
            tasks.create_task(inner())


async def test_cancellation_outranks_a_failure_of_the_same_moment():
    async def run() -> None:
        async with TaskGroup() as tasks:
            tasks.create_task(fail_when_cancelled(Unavailable()))

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancellation_while_a_failed_group_still_ends_is_not_lost():
    ending = asyncio.Event()
    released = asyncio.Event()

    async def end_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await released.wait()

    async def run() -> None:
        while True:
            try:
                async with TaskGroup() as tasks:
                    tasks.create_task(end_slowly())
                    tasks.create_task(fail(Unavailable()))
            except Unavailable:
                pass

    task = asyncio.create_task(run())
    await ending.wait()
    task.cancel()
    released.set()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_block_ends_when_all_of_its_tasks_have():
    async with TaskGroup() as tasks:
        task = tasks.create_task(asyncio.sleep(0, "done"))
    assert task.result() == "done"


async def test_failure_of_the_block_ends_its_tasks():
    started: list[asyncio.Task[bool]] = []
    with pytest.raises(Unavailable, match="block"):
        async with TaskGroup() as tasks:
            started.append(tasks.create_task(asyncio.Event().wait()))
            raise Unavailable("block")
    assert started[0].cancelled()


async def test_failure_while_the_block_is_left_does_not_count_as_a_cancellation():
    current = asyncio.current_task()
    assert current is not None
    with pytest.raises(Unavailable):
        async with TaskGroup() as tasks:
            tasks.create_task(fail(Unavailable()))
    with pytest.raises(Unavailable):
        async with TaskGroup() as tasks:
            tasks.create_task(fail(Unavailable()))
            await asyncio.Event().wait()
    assert current.cancelling() == 0
    await asyncio.sleep(0)


async def test_time_limit_around_a_group_holds():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), TaskGroup() as tasks:
            tasks.create_task(fail_when_cancelled(Unavailable()))


async def test_task_of_a_group_that_ends_is_cancelled_before_its_first_step():
    async def start_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            late.append(tasks.create_task(asyncio.sleep(3600)))

    late: list[asyncio.Task[None]] = []
    with pytest.raises(Unavailable):
        async with TaskGroup() as tasks:
            tasks.create_task(start_another())
            tasks.create_task(fail(Unavailable()))
    assert late[0].cancelled()
