"""The recorder against a real relay and a real directory, both on loopback."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from indexer import record as recorder
from indexer.frames import MAX_FRAME_BYTES, CommitEvent, decode_frame
from indexer.record import Limits, Recorded, identities_path, record
from indexer.record_identities import IdentityLookUp, fetch, fetch_public
from indexer.recording import read_frames
from memory.errors import Misconfigured, Unavailable
from memory.identity import PlcExport
from tests.builders import RepoBuilder, memory
from tests.recorded import FOLDER, did, frames_of

LIVE = frames_of("pds1-live.bin")
AUDIT_LOGS: dict[str, list[object]] = json.loads((FOLDER / "plc" / "plc-audit-logs.json").read_text())
FUTURE_CURSOR = next(frame for frame in frames_of("control.bin") if b"FutureCursor" in frame)
NOWHERE = "http://127.0.0.1:1"  # nothing listens there
MARCH = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Relay:
    """A relay that sends what it was given, to whoever subscribes, then hangs up or waits."""

    url: str
    asked: list[str] = field(default_factory=list[str])


@asynccontextmanager
async def relay(
    messages: Sequence[bytes | str | list[bytes]], *, then: Callable[[ServerConnection], Awaitable[None]] | None = None
) -> AsyncGenerator[Relay]:
    """A list is one message in fragments. `then` runs once all is sent; without it the relay closes."""

    async def subscribed(connection: ServerConnection) -> None:
        assert connection.request is not None
        running.asked.append(connection.request.path)
        for message in messages:
            await connection.send(message)
        if then is not None:
            await then(connection)

    async with serve(subscribed, "127.0.0.1", 0) as server:
        running = Relay(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield running


async def waits(connection: ServerConnection) -> None:
    await connection.wait_closed()


@asynccontextmanager
async def directory(answers: Mapping[str, tuple[HTTPStatus, bytes]]) -> AsyncGenerator[str]:
    """An HTTP server with these answers by path, 404 for all else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, body = answers.get(path, (HTTPStatus.NOT_FOUND, b"{}"))
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: {len(body)}\r\nLocation: {NOWHERE}\r\n"
        writer.write(head.encode() + b"Retry-After: 3\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def audit_log(of: str) -> tuple[HTTPStatus, bytes]:
    return HTTPStatus.OK, json.dumps(AUDIT_LOGS[of]).encode()


class Waits:
    """A sleep that takes no time and remembers how long it would have taken."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def looking_up(directory_url: str = NOWHERE) -> IdentityLookUp:
    return IdentityLookUp(directory_url, sleep=Waits())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def record_all(messages: Sequence[bytes | str | list[bytes]], out: Path) -> Recorded:
    async with relay(messages) as source:
        return await record(source.url, out, looking_up(), limits=Limits())


async def test_frames_are_recorded_byte_for_byte_with_the_identities_of_those_who_wrote_memories(
    tmp_path: Path,
) -> None:
    out = tmp_path / "frames.bin"
    authors = {
        event.did for event in map(decode_frame, LIVE) if isinstance(event, CommitEvent) if event.touches_collection
    }
    served = {f"/{author}/log/audit": audit_log(author) for author in authors}
    async with relay(LIVE, then=waits) as source, directory(served) as directory_url:
        recorded = await record(source.url, out, looking_up(directory_url), limits=Limits(frames=len(LIVE)))

    assert tuple(read_frames(out)) == LIVE
    assert recorded == Recorded(len(LIVE), out.stat().st_size, len(authors), {}, None)
    lines = [json.loads(line) for line in identities_path(out).read_text().splitlines()]
    assert sorted(map(str, lines)) == sorted(str(entry) for author in authors for entry in AUDIT_LOGS[author])
    assert [line["createdAt"] for line in lines] == sorted(line["createdAt"] for line in lines)
    assert 0 < len(authors) < len(AUDIT_LOGS)  # some wrote none: their accounts are not looked up


async def test_identities_are_what_a_replay_reads(tmp_path: Path) -> None:
    out, author = tmp_path / "frames.bin", did("alice")
    commit = next(each for each in LIVE if b"memory.record/" in each and author.encode() in each)
    async with relay([commit]) as source, directory({f"/{author}/log/audit": audit_log(author)}) as directory_url:
        await record(source.url, out, looking_up(directory_url), limits=Limits())
    alice = PlcExport.read(identities_path(out)).last(author)
    assert alice is not None
    assert alice.handle == "alice.test"


async def test_a_limit_of_frames_is_kept_exactly(tmp_path: Path) -> None:
    async with relay(LIVE, then=waits) as source:
        recorded = await record(source.url, tmp_path / "frames.bin", looking_up(), limits=Limits(frames=5))
    assert tuple(read_frames(tmp_path / "frames.bin")) == LIVE[:5]
    assert recorded.ended is None


async def test_a_limit_of_time_keeps_what_arrived(tmp_path: Path) -> None:
    async with relay(LIVE[:4], then=waits) as source:
        recorded = await record(source.url, tmp_path / "frames.bin", looking_up(), limits=Limits(seconds=0.05))
    assert tuple(read_frames(tmp_path / "frames.bin")) == LIVE[:4]
    assert recorded.ended is None


async def test_stopping_loses_nothing_that_was_sent_before(tmp_path: Path) -> None:
    stop = asyncio.Event()

    async def stops(connection: ServerConnection) -> None:
        stop.set()
        await connection.wait_closed()

    async with relay(LIVE, then=stops) as source:
        recorded = await record(source.url, tmp_path / "frames.bin", looking_up(), limits=Limits(), stop=stop)
    assert tuple(read_frames(tmp_path / "frames.bin")) == LIVE
    assert recorded.ended is None


async def test_an_interrupt_ends_the_command_cleanly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def interrupts(connection: ServerConnection) -> None:
        signal.raise_signal(signal.SIGINT)
        await connection.wait_closed()

    out, nobody = tmp_path / "frames.bin", LIVE[:2]
    async with relay(nobody, then=interrupts) as source:
        parser = argparse.ArgumentParser()
        recorder.add_arguments(parser)
        status = await recorder.run(parser.parse_args(["--relay", source.url, "--out", str(out)]), NOWHERE)
    assert status == 0
    assert tuple(read_frames(out)) == nobody
    assert identities_path(out).read_bytes() == b""
    assert "recorded 2 frames" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


async def test_the_command_says_what_went_wrong_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with relay([FUTURE_CURSOR]) as source:
        parser = argparse.ArgumentParser()
        recorder.add_arguments(parser)
        arguments = ["--relay", source.url, "--out", str(tmp_path / "frames.bin"), "--cursor", "99"]
        status = await recorder.run(parser.parse_args(arguments), NOWHERE)
    assert status == 1
    assert "FutureCursor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [(option, value) for option in ("--frames", "--seconds") for value in ("0", "-1", "many", "nan", "inf")]
    + [("--cursor", "-1"), ("--cursor", "1.5")],
)
def test_a_limit_that_is_none_is_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    recorder.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--relay", "x", "--out", "y", option, value])
    assert f"{option}: it must be" in capsys.readouterr().err


async def test_an_error_frame_is_kept_and_told(tmp_path: Path) -> None:
    recorded = await record_all([LIVE[0], FUTURE_CURSOR], tmp_path / "frames.bin")
    assert tuple(read_frames(tmp_path / "frames.bin")) == (LIVE[0], FUTURE_CURSOR)
    assert recorded.ended is not None
    assert "FutureCursor" in recorded.ended


async def test_a_relay_that_hangs_up_ends_the_recording_with_what_there_is(tmp_path: Path) -> None:
    recorded = await record_all(LIVE[:3], tmp_path / "frames.bin")
    assert tuple(read_frames(tmp_path / "frames.bin")) == LIVE[:3]
    assert recorded.ended is not None
    assert "went away" in recorded.ended


async def test_text_ends_the_recording(tmp_path: Path) -> None:
    recorded = await record_all([LIVE[0], "hello"], tmp_path / "frames.bin")
    assert recorded.frames == 1
    assert recorded.ended is not None
    assert "text" in recorded.ended


async def test_a_broken_frame_is_kept_and_told(tmp_path: Path) -> None:
    said: list[str] = []
    async with relay([b"\xff", b"", LIVE[0]]) as source:
        await record(source.url, tmp_path / "frames.bin", looking_up(), limits=Limits(frames=3), progress=said.append)
    assert list(read_frames(tmp_path / "frames.bin")) == [b"\xff", b"", LIVE[0]]
    assert sum("broken" in line for line in said) == 2


async def test_a_message_above_the_limit_is_left_out_and_told(tmp_path: Path) -> None:
    said: list[str] = []
    async with relay([LIVE[0], bytes(MAX_FRAME_BYTES + 1), LIVE[1]]) as source:
        await record(source.url, tmp_path / "frames.bin", looking_up(), limits=Limits(frames=2), progress=said.append)
    assert tuple(read_frames(tmp_path / "frames.bin")) == LIVE[:2]
    assert sum("left out" in line for line in said) == 1


async def test_a_frame_that_comes_in_fragments_is_recorded_as_one(tmp_path: Path) -> None:
    await record_all([[LIVE[0][:9], LIVE[0][9:]], LIVE[1]], tmp_path / "frames.bin")
    assert tuple(read_frames(tmp_path / "frames.bin")) == LIVE[:2]


async def test_a_frame_as_long_as_the_protocol_allows_is_recorded(tmp_path: Path) -> None:
    recorded = await record_all([bytes(5_000_000)], tmp_path / "frames.bin")
    assert recorded.frames == 1


@pytest.mark.parametrize(("cursor", "query"), [(None, ""), (0, "?cursor=0"), (41, "?cursor=41")])
async def test_the_stream_is_asked_for_from_the_cursor(tmp_path: Path, cursor: int | None, query: str) -> None:
    async with relay([]) as source:
        await record(source.url, tmp_path / "frames.bin", looking_up(), limits=Limits(), cursor=cursor)
    assert source.asked == [f"/xrpc/com.atproto.sync.subscribeRepos{query}"]


@pytest.mark.parametrize("existing", ["frames.bin", "frames.bin.identities.jsonl"])
async def test_nothing_is_overwritten_unasked_and_nothing_is_asked_for_before_that_is_known(
    tmp_path: Path, existing: str
) -> None:
    (tmp_path / existing).write_bytes(b"precious")
    with pytest.raises(Misconfigured, match="exists already"):
        await record(NOWHERE, tmp_path / "frames.bin", looking_up(), limits=Limits())
    assert contents(tmp_path) == {existing: b"precious"}


async def test_an_old_recording_is_overwritten_when_that_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "frames.bin"
    out.write_bytes(b"old and longer than what comes")
    identities_path(out).write_bytes(b"old")
    async with relay([LIVE[0]]) as source:
        await record(source.url, out, looking_up(), limits=Limits(), overwrite=True)
    assert list(read_frames(out)) == [LIVE[0]]
    assert identities_path(out).read_bytes() == b""


async def test_an_old_recording_stays_when_the_relay_cannot_be_reached(tmp_path: Path) -> None:
    out = tmp_path / "frames.bin"
    out.write_bytes(b"old")
    with pytest.raises(Unavailable, match="cannot be reached"):
        await record(NOWHERE, out, looking_up(), limits=Limits(), overwrite=True)
    assert out.read_bytes() == b"old"


async def test_a_relay_that_refuses_is_told_with_its_status(tmp_path: Path) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "later\n")

    async with serve(waits, "127.0.0.1", 0, process_request=refuse) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Unavailable, match="answered 503"):
            await record(url, tmp_path / "frames.bin", looking_up(), limits=Limits())
    assert contents(tmp_path) == {}


async def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="ftp://"):
        await record("ftp://relay.example", tmp_path / "frames.bin", looking_up(), limits=Limits())


async def test_an_author_whom_the_directory_does_not_know_is_missing_and_the_others_are_there() -> None:
    alice, bob = did("alice"), did("bob")
    async with directory({f"/{alice}/log/audit": audit_log(alice)}) as url:
        found = await IdentityLookUp(url, sleep=Waits()).find({alice: MARCH, bob: MARCH})
    assert len(found.lines) == len(AUDIT_LOGS[alice])
    assert list(found.missing) == [bob]
    assert "404" in found.missing[bob]


async def test_an_answer_that_a_replay_could_not_read_is_not_recorded() -> None:
    alice = did("alice")
    async with directory({f"/{alice}/log/audit": audit_log(did("bob"))}) as url:
        found = await IdentityLookUp(url, sleep=Waits()).find({alice: MARCH})
    assert found.lines == ()
    assert "another DID" in found.missing[alice]


async def test_a_busy_directory_is_asked_again_when_it_says() -> None:
    answers = [Unavailable("busy", retry_after_s=7.0), Unavailable("down"), Unavailable("busy", retry_after_s=900.0)]
    alice, waited = did("alice"), Waits()

    async def ask(url: str) -> bytes:
        if answers:
            raise answers.pop(0)
        return audit_log(alice)[1]

    look_up = IdentityLookUp("https://plc.example", ask_directory=ask, sleep=waited)
    assert (await look_up.find({alice: MARCH})).missing == {alice: "busy"}  # three times was enough
    assert waited.seconds[:2] == [7.0, 4.0]
    answers[:] = [Unavailable("busy", retry_after_s=900.0)]
    assert (await look_up.find({alice: MARCH})).missing == {}
    assert waited.seconds[3] == 60.0


async def test_the_document_of_a_did_web_counts_from_when_its_author_was_first_met(tmp_path: Path) -> None:
    author, asked = "did:web:mara.example", list[str]()
    builder = RepoBuilder("mara")
    builder.did = author
    commit = builder.create("3mgdj4jmxg22a", memory("Mara likes the sea."))
    event = decode_frame(commit)
    assert isinstance(event, CommitEvent)

    async def ask(url: str) -> bytes:
        asked.append(url)
        return json.dumps({"id": author, "alsoKnownAs": ["at://mara.example"]}).encode()

    out = tmp_path / "frames.bin"
    async with relay([commit, commit]) as source:
        look_up = IdentityLookUp(NOWHERE, ask_stranger=ask, sleep=Waits())
        recorded = await record(source.url, out, look_up, limits=Limits())
    assert asked == ["https://mara.example/.well-known/did.json"]
    assert recorded.missing == {}
    mara = PlcExport.read(identities_path(out)).at(author, event.time)
    assert mara is not None
    assert (mara.handle, mara.resolved_at) == ("mara.example", event.time)


async def test_a_did_of_an_unknown_method_is_missing_without_being_asked_for() -> None:
    found = await looking_up().find({"did:key:zQ3sh": MARCH})
    assert "did:web" in found.missing["did:key:zQ3sh"]


async def test_no_redirect_is_followed() -> None:
    async with directory({"/moved": (HTTPStatus.FOUND, b"")}) as url:
        with pytest.raises(Unavailable, match="answered 302"):
            await fetch(f"{url}/moved")


async def test_a_refusal_says_when_to_come_back() -> None:
    async with directory({"/busy": (HTTPStatus.TOO_MANY_REQUESTS, b"")}) as url:
        with pytest.raises(Unavailable) as refused:
            await fetch(f"{url}/busy")
    assert refused.value.context["retry_after_s"] == 3.0


async def test_an_endless_answer_is_cut_off() -> None:
    async with directory({"/endless": (HTTPStatus.OK, bytes(2_000_000))}) as url:
        with pytest.raises(Unavailable, match="too much"):
            await fetch(f"{url}/endless")


async def test_a_host_that_a_stranger_names_is_not_reached_on_a_private_address() -> None:
    async with directory({"/.well-known/did.json": (HTTPStatus.OK, b"{}")}) as url:
        assert await fetch(f"{url}/.well-known/did.json") == b"{}"
        with pytest.raises(Unavailable, match="private"):
            await fetch_public(f"{url}/.well-known/did.json")
