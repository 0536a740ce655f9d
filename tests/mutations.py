"""Random damage to real bytes, as a hostile or broken sender would do it."""

from __future__ import annotations

import random

HEADS = (b"\x9f", b"\xa0", b"\xf6", b"\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00", b"\xd8\x2a", b"\x5b" + b"\xff" * 8)


def mutate(data: bytes, draw: random.Random) -> bytes:
    """`data` with one to four damages."""
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        place = draw.randrange(len(damaged) + 1)
        match draw.randrange(7):
            case 0 if damaged:
                damaged[place % len(damaged)] ^= 1 << draw.randrange(8)
            case 1 if damaged:
                damaged[place % len(damaged)] = draw.randrange(256)
            case 2:
                del damaged[place : place + draw.choice((1, 2, 8, 64))]
            case 3:
                damaged[place:place] = draw.randbytes(draw.choice((1, 4, 32)))
            case 4:
                damaged[place:place] = draw.choice(HEADS)
            case 5:
                end = place + draw.choice((1, 16, 128))
                damaged[place:place] = damaged[place:end]
            case _:
                del damaged[place:]
    return bytes(damaged)
