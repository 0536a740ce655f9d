from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

import pytest

from memory.outbound import StreamLimits
from memory.outbound_errors import AnswerTooLarge, HostRefused, HostUnavailable
from tests.fakes.directory import Directory, Mood, directory
from tests.fakes.internet import plain_outbound


@pytest.fixture
async def fake() -> AsyncGenerator[Directory]:
    async with directory() as listening:
        listening.files["/hello"] = b"hello"
        yield listening


async def streamed(
    fake: Directory, limits: StreamLimits, monotonic: Callable[[], float] = time.monotonic
) -> list[bytes]:
    async with plain_outbound(monotonic=monotonic) as outbound, outbound.stream(f"{fake.url}/hello", limits) as stream:
        return [chunk async for chunk in stream]


async def test_large_answer_comes_in_chunks(fake: Directory):
    fake.files["/hello"] = bytes(3_000_000)
    chunks = await streamed(fake, StreamLimits(max_bytes=3_000_000))
    assert len(chunks) > 10
    assert b"".join(chunks) == bytes(3_000_000)


@pytest.mark.parametrize("mood", [Mood.ENDLESS, Mood.BOASTING])
async def test_stream_that_is_too_large_is_cut_off(fake: Directory, mood: Mood):
    fake.mood = mood
    with pytest.raises(AnswerTooLarge):
        await streamed(fake, StreamLimits(max_bytes=1_000_000))


async def test_stream_of_a_refusal_is_refused(fake: Directory):
    fake.mood = Mood.REFUSING
    with pytest.raises(HostRefused, match="RepoNotFound"):
        await streamed(fake, StreamLimits(max_bytes=1_000_000))


@pytest.mark.parametrize("mood", [Mood.HELD, Mood.STALLING])
async def test_stream_that_stalls_is_given_up(fake: Directory, mood: Mood):
    fake.mood = mood
    with pytest.raises(HostUnavailable, match="in time"):
        await streamed(fake, StreamLimits(max_bytes=1_000_000, grace_s=0.1))


async def test_stream_that_is_too_slow_for_its_size_is_given_up(fake: Directory):
    """By this clock each wait for the host takes a second, in which 10 MB ought to come."""
    fake.files["/hello"] = bytes(3_000_000)
    ticks = iter(range(1_000_000))
    limits = StreamLimits(max_bytes=3_000_000, grace_s=3, min_bytes_per_s=10_000_000)
    with pytest.raises(HostUnavailable, match="in time"):
        await streamed(fake, limits, lambda: float(next(ticks)))


async def test_reader_may_take_its_time(fake: Directory):
    fake.files["/hello"] = bytes(3_000_000)
    now, received = 0.0, 0
    limits = StreamLimits(max_bytes=3_000_000, grace_s=1, min_bytes_per_s=1_000_000)
    async with (
        plain_outbound(monotonic=lambda: now) as outbound,
        outbound.stream(f"{fake.url}/hello", limits) as stream,
    ):
        async for chunk in stream:
            received += len(chunk)
            now += 3600.0
    assert received == 3_000_000


async def test_stream_that_is_left_early_is_closed_and_its_host_not_blamed(fake: Directory):
    fake.mood = Mood.ENDLESS
    limits = StreamLimits(max_bytes=10**9)
    async with plain_outbound() as outbound:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with outbound.stream(f"{fake.url}/hello", limits) as stream:
                    async for _ in stream:
                        raise TimeoutError
        assert all(pool.connections == [] for pool in outbound._pools.values())
        fake.mood = Mood.HONEST
        assert await outbound.get(f"{fake.url}/hello") == b"hello"
