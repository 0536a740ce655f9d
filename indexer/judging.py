"""Judging frames beside sockets that wait: how long one takes is up to its author.

A frame may bring 200 records, each with as long a text as may be, of which every word is another. To read such a one
takes 2.5 s, nearly all of it for the roots of English words; 1.5 s where they are Chinese.
"""

from __future__ import annotations

import asyncio
from typing import Final

from indexer.arrivals import Arrival, Source
from indexer.consumer import Consumer
from indexer.frames import OpenFrame, open_frame

# A smaller frame has a dozen such texts at most, and to change threads would cost most frames more than they take.
LARGE_FRAME_BYTES: Final = 32 * 1024


async def judge(consumer: Consumer, source: Source, frame: bytes) -> list[Arrival]:
    """What a frame means that is known to be whole. A large one is judged in a thread, so that others run meanwhile.

    One after another: nobody else may have the consumer judge before that is done.
    """
    if len(frame) < LARGE_FRAME_BYTES:
        return _judge(consumer, source, frame, open_frame(frame))
    return await asyncio.to_thread(_judge, consumer, source, frame, open_frame(frame))


def _judge(consumer: Consumer, source: Source, frame: bytes, opened: OpenFrame) -> list[Arrival]:
    arrivals, _ = consumer.judge(source, frame, opened)
    return arrivals
