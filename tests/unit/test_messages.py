from __future__ import annotations

import random

import pytest
from websockets.frames import CloseCode

from indexer.frames import MAX_FRAME_BYTES
from indexer.messages import (
    BEGINNING_BYTES,
    BUFFER_BYTES,
    CONTROLS_MAX,
    LET_BY_BYTES_MAX,
    SHORT_PART_BYTES,
    SHORT_PARTS_MAX,
    BrokenTraffic,
    Message,
    MessageCutter,
    Text,
    TooLarge,
)
from tests.websocket_frames import BINARY, CLOSE, CONT, PING, PONG, TEXT, fragments, frame


class Listener:
    """Takes all that is cut, or as many messages as are wanted."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.controls: list[bytes] = []
        self.wanted: int | None = None  # null: all
        self.goes_on = True  # after a control frame
        self.cutter = MessageCutter(self._take, self._control)

    def _take(self, message: Message) -> bool:
        self.taken.append(message)
        return self.wanted is None or len(self.taken) < self.wanted

    def _control(self, whole: bytes) -> bool:
        self.controls.append(whole)
        return self.goes_on

    def feed(self, data: bytes, *, pieces_of: int = BUFFER_BYTES) -> None:
        at = 0
        while at < len(data):
            room = self.cutter.room()
            piece = data[at : at + min(pieces_of, len(room))]
            room[: len(piece)] = piece
            at += len(piece)
            self.cutter.cut(len(piece))

    @property
    def held_bytes(self) -> int:
        return len(self.cutter._parts) + self.cutter._end


def cut(*frames: bytes) -> list[Message]:
    listener = Listener()
    listener.feed(b"".join(frames))
    return listener.taken


# Messages


@pytest.mark.parametrize(
    "size",
    [0, 1, 2, 125, 126, 65_535, 65_536, BUFFER_BYTES - 10, BUFFER_BYTES - 9, BUFFER_BYTES, 1_000_000, MAX_FRAME_BYTES],
)
@pytest.mark.parametrize("pieces_of", [1000, BUFFER_BYTES])
def test_message_of_any_size_is_cut_out_whole(size: int, pieces_of: int):
    listener, payload = Listener(), random.Random(size).randbytes(size)
    listener.feed(frame(b"before") + frame(payload) + frame(b"behind"), pieces_of=pieces_of)
    assert listener.taken == [b"before", payload, b"behind"]
    assert listener.cutter.messages == 3


def test_messages_are_the_same_in_whatever_pieces_they_come(seed: int):
    draw = random.Random(seed)
    sent: list[bytes] = []
    stream: list[bytes] = []
    for _ in range(60):
        parts = [draw.randbytes(draw.choice([0, 1, 100, 125, 126, 300, 70_000])) for _ in range(draw.randint(1, 4))]
        sent.append(b"".join(parts))
        for each in fragments(*parts):
            stream.append(each)
            if draw.random() < 0.3:
                stream.append(frame(draw.randbytes(draw.randint(0, 125)), draw.choice([PING, PONG])))
    for pieces_of in (1, 2, 3, 4096, BUFFER_BYTES):
        listener = Listener()
        listener.feed(b"".join(stream[: 40 if pieces_of < 4 else len(stream)]), pieces_of=pieces_of)
        assert listener.taken == sent[: len(listener.taken)]
        assert pieces_of < 4 or len(listener.taken) == len(sent)


def test_control_frames_between_fragments_are_handed_on_in_their_order():
    listener, order = Listener(), list[object]()
    listener.cutter = MessageCutter(
        lambda message: order.append(message) or True, lambda control: order.append(("control", control)) or True
    )
    ping, pong = frame(b"ping", PING), frame(b"", PONG)
    first, second, third = fragments(b"one ", b"two ", b"three")
    listener.feed(ping + first + ping + second + pong + third + pong)
    assert order == [("control", ping), ("control", ping), ("control", pong), b"one two three", ("control", pong)]


def test_text_is_told_from_frames_also_in_fragments():
    taken = cut(frame(b"whole", TEXT), *fragments(b"in ", b"pieces", opcode=TEXT), frame(b"\xff no UTF-8", TEXT))
    assert taken == [Text(b"whole"), Text(b"in pieces"), Text(b"\xff no UTF-8")]


def test_empty_fragments_are_part_of_a_message():
    assert cut(*fragments(b"", b"", b"x", b""), *fragments(b"", b"")) == [b"x", b""]


# Messages above the limit


def test_message_above_the_limit_is_let_by_with_its_beginning_told():
    payload = random.Random(1).randbytes(MAX_FRAME_BYTES + 1)
    listener = Listener()
    listener.feed(frame(b"before") + frame(payload)[:-1])
    [before, large] = listener.taken
    assert before == b"before"
    assert isinstance(large, TooLarge)
    assert large.beginning == payload[:BEGINNING_BYTES]
    assert not large.ended
    assert listener.held_bytes <= BEGINNING_BYTES
    listener.feed(payload[-1:] + frame(b"behind"))
    assert large.ended
    assert listener.taken[2:] == [b"behind"]


def test_fragments_that_come_to_more_than_the_limit_are_let_by_too():
    parts = [random.Random(n).randbytes(size) for n, size in enumerate([20, 100_000, MAX_FRAME_BYTES - 100_000, 50])]
    listener = Listener()
    *most, last = fragments(*parts)
    listener.feed(b"".join(most) + frame(b"?", PING))
    [large] = listener.taken
    assert isinstance(large, TooLarge)
    assert large.beginning == b"".join(parts)[:BEGINNING_BYTES]
    assert not large.ended
    assert listener.controls == [frame(b"?", PING)]
    listener.feed(last + frame(b"behind"))
    assert large.ended
    assert listener.taken[1:] == [b"behind"]


def test_fragments_that_come_to_the_limit_are_a_message():
    [message] = cut(*fragments(bytes(100), bytes(MAX_FRAME_BYTES - 100)))
    assert message == bytes(MAX_FRAME_BYTES)


def test_large_text_is_too_large_before_it_is_text():
    [large] = cut(frame(bytes(MAX_FRAME_BYTES + 1), TEXT))
    assert isinstance(large, TooLarge)


def test_nothing_is_told_of_a_large_message_before_its_beginning_is_there():
    listener = Listener()
    listener.feed(frame(bytes(BEGINNING_BYTES - 1), announced=MAX_FRAME_BYTES + 1))
    assert listener.taken == []
    listener.feed(b"\0")
    assert len(listener.taken) == 1


@pytest.mark.parametrize("announced", [LET_BY_BYTES_MAX + 1, 2**63 - 1, 2**64 - 1])
def test_message_without_end_is_told_and_then_given_up(announced: int):
    listener = Listener()
    with pytest.raises(BrokenTraffic) as broken:
        listener.feed(frame(bytes(BEGINNING_BYTES), announced=announced))
    assert broken.value.close_code == CloseCode.MESSAGE_TOO_BIG
    [large] = listener.taken
    assert isinstance(large, TooLarge)
    assert not large.ended


def test_fragments_without_end_are_given_up():
    listener, chunk = Listener(), bytes(1024 * 1024)
    with pytest.raises(BrokenTraffic) as broken:
        for n in range(LET_BY_BYTES_MAX // len(chunk) + 1):
            assert listener.held_bytes <= MAX_FRAME_BYTES
            listener.feed(frame(chunk, CONT if n else BINARY, fin=False))
    assert broken.value.close_code == CloseCode.MESSAGE_TOO_BIG
    assert len(listener.taken) == 1


# Frames that bring nothing


@pytest.mark.parametrize("part", [b"", bytes(SHORT_PART_BYTES - 1)], ids=len)
@pytest.mark.parametrize("opcode", [BINARY, TEXT])
def test_message_in_too_many_short_parts_is_given_up(part: bytes, opcode: int):
    listener, go_on = Listener(), frame(part, CONT, fin=False)
    listener.feed(frame(part, opcode, fin=False) + go_on * (SHORT_PARTS_MAX - 1))
    with pytest.raises(BrokenTraffic, match="short parts") as broken:
        listener.feed(go_on)
    assert broken.value.close_code == CloseCode.PROTOCOL_ERROR
    assert listener.taken == []


def test_message_above_the_limit_that_goes_on_with_nothing_is_given_up():
    listener, go_on = Listener(), frame(b"", CONT, fin=False)
    listener.feed(frame(bytes(MAX_FRAME_BYTES + 1), fin=False) + go_on * SHORT_PARTS_MAX)
    with pytest.raises(BrokenTraffic, match="short parts"):
        listener.feed(go_on)
    [large] = listener.taken
    assert isinstance(large, TooLarge)
    assert not large.ended


def test_message_may_come_in_as_many_short_parts_and_so_may_the_next():
    parts = [b"x"] * SHORT_PARTS_MAX
    assert cut(*fragments(*parts), *fragments(*parts)) == [b"".join(parts)] * 2


def test_message_may_come_in_any_number_of_parts_that_are_not_short():
    parts = [bytes(SHORT_PART_BYTES)] * (5 * SHORT_PARTS_MAX)
    assert cut(*fragments(*parts)) == [b"".join(parts)]


@pytest.mark.parametrize("opcode", [PING, PONG])
@pytest.mark.parametrize("payload", [b"", bytes(125)], ids=len)
def test_flood_of_control_frames_is_given_up(opcode: int, payload: bytes):
    listener = Listener()
    with pytest.raises(BrokenTraffic, match="flood") as broken:
        listener.feed(frame(b"before") + frame(payload, opcode) * (CONTROLS_MAX + 1))
    assert broken.value.close_code == CloseCode.PROTOCOL_ERROR
    assert listener.taken == [b"before"]
    assert len(listener.controls) == CONTROLS_MAX


def test_flood_of_control_frames_is_none_the_less_for_messages_in_between():
    listener = Listener()
    with pytest.raises(BrokenTraffic, match="flood"):
        listener.feed((frame(b"", PING) + frame(b"x")) * (CONTROLS_MAX + 1))
    assert len(listener.taken) == CONTROLS_MAX


def test_control_frames_may_go_on_for_ever_in_their_time():
    listener = Listener()
    for _ in range(3):
        listener.cutter.allow_controls()
        listener.feed(frame(b"", PING) * CONTROLS_MAX)
    assert len(listener.controls) == 3 * CONTROLS_MAX


# Wanted or not


def test_what_is_not_wanted_yet_waits_and_is_cut_later():
    listener = Listener()
    listener.wanted = 2
    listener.feed(b"".join(frame(b"%d" % n) for n in range(5)))
    assert listener.taken == [b"0", b"1"]
    assert listener.cutter.messages == 2
    listener.wanted = 3
    listener.cutter.cut(0)
    assert listener.taken == [b"0", b"1", b"2"]
    listener.wanted = None
    listener.cutter.cut(0)
    listener.feed(frame(b"5"))
    assert listener.taken == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("message", [frame(bytes(200_000)), b"".join(fragments(b"in ", b"pieces"))], ids=len)
def test_what_is_behind_a_message_in_pieces_waits_too(message: bytes):
    listener = Listener()
    listener.wanted = 1
    listener.feed(message[:-5])
    assert listener.taken == []
    listener.feed(message[-5:] + frame(b"behind"))
    assert len(listener.taken) == 1
    listener.cutter.cut(0)
    assert listener.taken[1:] == [b"behind"]


def test_nothing_is_cut_behind_a_control_frame_that_is_the_last():
    listener = Listener()
    listener.goes_on = False
    listener.feed(frame(b"before") + frame(b"", CLOSE) + frame(b"behind"))
    assert listener.taken == [b"before"]
    assert listener.controls == [frame(b"", CLOSE)]


# What no peer may send


@pytest.mark.parametrize(
    "broken",
    [
        frame(b"x", reserved=0x40),
        frame(b"x", reserved=0x20),
        frame(b"x", reserved=0x10),
        frame(b"x", PING, reserved=0x40),
        frame(b"x", 0x3),
        frame(b"x", 0x7),
        frame(b"x", 0xB),
        frame(b"x", 0xF),
        frame(b"x", CONT),
        frame(b"x", CONT, fin=False),
        frame(b"x", fin=False) + frame(b"another"),
        frame(b"x", fin=False) + frame(b"another", TEXT),
        frame(b"x", PING, fin=False),
        frame(bytes(126), PING),
        frame(bytes(126), CLOSE),
        frame(bytes(70_000), PONG),
        b"\x82\x81mask\x00",
        b"\x82\xfe\x00\x7emask",
        b"\x89\x80mask",
    ],
    ids=[
        "reserved bit 1", "reserved bit 2", "reserved bit 3", "reserved bit of a ping", "opcode 3", "opcode 7",
        "opcode 11", "opcode 15", "continuation of nothing", "unfinished continuation of nothing",
        "message within a message", "text within a message", "ping in pieces", "long ping", "long close", "huge pong",
        "masked", "masked and long", "masked ping",
    ],
)  # fmt: skip
def test_what_breaks_the_rules_ends_the_stream_behind_what_came_before(broken: bytes):
    listener = Listener()
    with pytest.raises(BrokenTraffic) as told:
        listener.feed(frame(b"before") + broken)
    assert told.value.close_code == CloseCode.PROTOCOL_ERROR
    assert listener.taken == [b"before"]


def test_noise_does_no_harm(seed: int):
    draw = random.Random(seed)
    for _ in range(300):
        stream = bytearray(b"".join(fragments(draw.randbytes(300), draw.randbytes(50), frame(b"", PING))))
        for _ in range(draw.randint(0, 3)):
            stream[draw.randrange(len(stream))] = draw.getrandbits(8)
        listener = Listener()
        try:
            listener.feed(bytes(stream) + draw.randbytes(1000), pieces_of=draw.choice([1, 7, 5000]))
        except BrokenTraffic:
            continue
        assert len(listener.cutter.room()) > 0
        assert listener.held_bytes <= MAX_FRAME_BYTES + BUFFER_BYTES
