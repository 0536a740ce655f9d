"""`python -m benchmarks.hostile_network ATTACK SECONDS`: honest people and who attacks; see `benchmarks.doubles`.

Honest people send for SECONDS undisturbed, and then for as long while the attack runs:

- `forged`: 2,000 commits a second that name our collection: 80% of DIDs that nobody registered, each its own; 10%
  of DIDs of the forger's, registered, with a signature of another key; 10% in the name of the honest. What may be
  parked of strangers is nearly full from the beginning, as after a minute of it.
- `slow`: 200 such commits a second of strangers: half of did:plc, about which the directory takes four seconds;
  half of did:web, whose hosts accept and never answer, a thousand of one site (where port 443 may be had) and 64 of
  sites of their own.
- `large`: four times a second a frame of 5 MB of one repo that is tracked, in the honest people's stream, and as
  many from a relay of the attacker's: in turn one that is refused for its size, and one with as many blocks as may
  be, validly signed.
- `large_records`: as `large`, but validly signed commits of two records, each nearly 1 MB of small things.
- `large_events`: as `large`, but with a property that no event has: millions of small things, or lists in lists.
- `nested_blocks`: as `large`, but in the name of the honest, where the commit's block is lists in lists, each of
  which claims to hold all that follows.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from benchmarks.doubles import Flow, Relay, SilentHosts, directory_of, serve, silent_hosts
from benchmarks.population import commits, new_stream, person_time, population, settled
from indexer.verify.car import encode_block
from tests.builders import (
    CommitParts,
    RepoBuilder,
    SigningKey,
    Write,
    block_cid,
    decode_frame_parts,
    encode_frame,
    memory,
    tid,
    write_car,
)

HONEST: Final = 200
HONEST_PER_S: Final = 50
CHANGERS: Final = 5  # the first of the honest, whose key changes when the attack begins
FIRST_MEMORIES: Final = 20
ATTACKS: Final = ("forged", "slow", "large", "large_records", "large_events", "nested_blocks")
_FORGED_PER_S, _SLOW_PER_S, _LARGE_PER_S = 2000, 200, 4
_FORGERS_OWN: Final = 500  # DIDs that the forger registered
_SLOW_S: Final = 4.0
_PORTS, _NAMES = 64, 1000
_LARGE_BYTES: Final = 5_000_000
_BLOCKS_BYTES: Final = 1_900_000
_SMALL_BLOCK_BYTES: Final = 32
_RECORD_THINGS: Final = 900_000


async def main(attack: str, seconds: float) -> None:
    """Signs everything, then serves."""
    honest, attacker = population("honest", HONEST), population("attacker", 1)
    relay = Relay(settled([*honest, *attacker], FIRST_MEMORIES))
    half = round(seconds * HONEST_PER_S)
    frames = list(commits(honest, half))
    for changer in honest[:CHANGERS]:
        changer.rotate_key(f"{changer.seed}, later")
    frames += commits(honest, half, first=half)
    relay.flows.append(Flow("honest", frames, HONEST_PER_S, told=True))
    async with silent_hosts(_PORTS) as hosts:
        relays, known = [relay], [*honest, *attacker]
        match attack:
            case "forged":
                own = population("forger", _FORGERS_OWN, new_stream())
                known += own
                forged = list(forgeries(honest, own, round(seconds * _FORGED_PER_S)))
                relay.flows.append(Flow("attack", forged, _FORGED_PER_S, start_s=seconds))
            case "slow":
                strange = list(strangers(hosts, round(seconds * _SLOW_PER_S)))
                relay.flows.append(Flow("attack", strange, _SLOW_PER_S, start_s=seconds))
            case _:
                large = large_frames(attack, attacker[0], honest[CHANGERS])
                relays.append(Relay(population("bystander", 1)[0].genesis()[:1]))
                for name, into in (("attack", relay), ("attack beside", relays[1])):
                    into.flows.append(Flow(name, repeated(large), _LARGE_PER_S, start_s=seconds, seconds=seconds))
        quick = {person.did for person in honest}
        await serve(relays, directory_of(known, slow_s=_SLOW_S if attack == "slow" else 0.0, quick=quick), hosts)


def forgeries(honest: list[RepoBuilder], own: list[RepoBuilder], number: int) -> Iterator[tuple[bytes, str]]:
    """Commits that are not what they claim to be."""
    wrong = SigningKey("nobody's")
    stream = new_stream()
    in_their_name = [RepoBuilder(person.seed, stream=stream) for person in honest]
    for builder in (*in_their_name, *own):
        builder.key = wrong
    template = a_commit(RepoBuilder("template", stream=stream), 0)
    for each in range(number):
        match each % 10:
            case 0:
                yield a_commit(own[each // 10 % len(own)], each), ""
            case 1:
                yield a_commit(in_their_name[each // 10 % len(in_their_name)], each), ""
            case _:
                yield in_name_of(template, RepoBuilder(f"nobody{each}").did), ""


def strangers(hosts: SilentHosts, number: int) -> Iterator[tuple[bytes, str]]:
    """Commits of people whom it takes long to ask for."""
    template = a_commit(RepoBuilder("template", stream=new_stream()), 0)
    names = [f"did:web:localhost%3A{port}" for port in hosts.ports]
    if hosts.has_site:
        names += [f"did:web:host{name}.slow.localhost" for name in range(_NAMES)]
    for each in range(number):
        did = names[each // 2 % len(names)] if each % 2 else RepoBuilder(f"stranger{each}").did
        yield in_name_of(template, did), ""


def large_frames(attack: str, attacker: RepoBuilder, honest: RepoBuilder) -> list[bytes]:
    """Two frames of some megabytes."""
    match attack:
        case "large":
            return [a_commit(attacker, 1, add_small_blocks), a_commit(attacker, 2, add_one_block)]
        case "large_records":
            record = memory("Whatever it takes.", more=[{}] * _RECORD_THINGS)
            return [
                attacker.apply([Write("create", tid(person_time(at + each)), record) for each in (0, 1)])
                for at in (1, 3)
            ]
        case "large_events":
            return [
                a_commit(attacker, 1, padded_by([{}] * (_LARGE_BYTES - 5000))),
                with_nested_lists(a_commit(attacker, 2, padded_by(bytes(_LARGE_BYTES - 5000)))),
            ]
        case _:
            forger = RepoBuilder(honest.seed, stream=new_stream())
            return [a_commit(forger, number, nest_commit_block) for number in (1, 2)]


def add_one_block(parts: CommitParts) -> None:
    """A block that makes the commit too large."""
    block = encode_block(bytes(_LARGE_BYTES - 2000))
    parts.blocks[block_cid(block)] = block


def add_small_blocks(parts: CommitParts) -> None:
    """As many blocks as may be, each of which is hashed, and bytes that make the frame large."""
    for number in range(_BLOCKS_BYTES // (_SMALL_BLOCK_BYTES + 38)):
        block = encode_block(number.to_bytes(_SMALL_BLOCK_BYTES - 2, "big"))
        parts.blocks[block_cid(block)] = block
    parts.body["padding"] = bytes(_LARGE_BYTES - _BLOCKS_BYTES - 5000)


def padded_by(padding: Any) -> Callable[[CommitParts], None]:
    """Adds a property that no event has."""

    def add(parts: CommitParts) -> None:
        parts.body["padding"] = padding

    return add


def with_nested_lists(frame: bytes) -> bytes:
    """The same with lists in lists instead of its padding, which has to be bytes."""
    at = frame.index(b"gpadding") + len(b"gpadding")
    length = int.from_bytes(frame[at + 1 : at + 5], "big")
    return frame[:at] + nested_lists(length + 5) + frame[at + 5 + length :]


def nest_commit_block(parts: CommitParts) -> None:
    """Puts another block where the signed one is."""
    block = nested_lists(_BLOCKS_BYTES)
    cid = block_cid(block)
    blocks = write_car(cid, [*parts.blocks.items(), (cid, block)])
    parts.body |= {"commit": cid, "blocks": blocks}


def nested_lists(size: int) -> bytes:
    """So many bytes of CBOR: each list claims to hold as many items as there are bytes behind it."""
    heads = bytearray()
    while size - len(heads) > 5:
        heads += b"\x9a" + (size - len(heads) - 5).to_bytes(4, "big")
    return bytes(heads) + bytes(size - len(heads))


def a_commit(builder: RepoBuilder, number: int, tamper: Callable[[CommitParts], None] | None = None) -> bytes:
    """One with a memory in it."""
    return builder.create(tid(person_time(number)), memory("Whatever it takes."), tamper=tamper)


def in_name_of(frame: bytes, did: str) -> bytes:
    """The same frame with another repo's name on it."""
    header, body = decode_frame_parts(frame)
    return encode_frame(header, {**body, "repo": did})


def repeated(frames: list[bytes]) -> Iterator[tuple[bytes, str]]:
    """In turn, without an end."""
    for number in count():
        yield frames[number % len(frames)], ""


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
