from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import libipld
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.frames import MAX_FRAME_BYTES
from indexer.recording import RecordingWriter, frame_seq, merge_by_seq, read_frames
from memory.errors import Misconfigured

FIREHOSE = Path(__file__).parents[1] / "recordings" / "firehose"

FRAMES = st.lists(st.binary(max_size=40), max_size=8)


def frame(body: dict[str, object], header: dict[str, object] | None = None) -> bytes:
    return libipld.encode_dag_cbor(header or {"op": 1, "t": "#identity"}) + libipld.encode_dag_cbor(body)


def record(path: Path, frames: list[bytes]) -> Path:
    with RecordingWriter(path, overwrite=True) as writer:
        for each in frames:
            writer.write(each)
    return path


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@given(FRAMES)
def test_frames_come_out_as_they_went_in_empty_ones_too(folder: Path, frames: list[bytes]) -> None:
    assert list(read_frames(record(folder / "whole.bin", frames))) == frames


@given(FRAMES, st.data())
def test_a_cut_recording_gives_its_whole_frames_and_says_where_it_is_cut(
    folder: Path, frames: list[bytes], data: st.DataObject
) -> None:
    path = record(folder / "cut.bin", frames)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    offsets = [0]
    for each in frames:
        offsets.append(offsets[-1] + 4 + len(each))
    complete = sum(offset <= cut for offset in offsets) - 1

    reading = read_frames(path)
    assert [next(reading) for _ in range(complete)] == frames[:complete]
    if cut == offsets[complete]:
        assert list(reading) == []
        return
    with pytest.raises(Misconfigured, match=r"cut\.bin: .*: at byte \d+: cut off within a frame") as refused:
        next(reading)
    assert refused.value.context["offset"] == offsets[complete]


def test_a_length_that_no_frame_has_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = record(tmp_path / "frames.bin", [b"good"])
    with path.open("ab") as file:
        file.write((MAX_FRAME_BYTES + 1).to_bytes(4, "big") + b"x")
    reading = read_frames(path)
    assert next(reading) == b"good"
    with pytest.raises(Misconfigured, match=f"at byte 8: a frame of {MAX_FRAME_BYTES + 1} bytes"):
        next(reading)


def test_a_frame_of_the_greatest_length_is_read(tmp_path: Path) -> None:
    path = record(tmp_path / "frames.bin", [bytes(MAX_FRAME_BYTES)])
    assert [len(each) for each in read_frames(path)] == [MAX_FRAME_BYTES]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "frames.json"
    path.write_text('{"frames": []}')
    with pytest.raises(Misconfigured, match="not a whole recording: at byte 0"):
        list(read_frames(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"absent\.bin: cannot be read"):
        list(read_frames(tmp_path / "absent.bin"))


@pytest.mark.parametrize("name", ["pds1-live.bin", "pds1-bulk.bin", "pds2-live.bin", "control.bin", "tampered.bin"])
def test_recorded_frames_have_the_lengths_and_seqs_of_the_manifest(name: str) -> None:
    described = json.loads((FIREHOSE / "manifest.json").read_text("utf-8"))["files"][name]
    frames = list(read_frames(FIREHOSE / name))
    assert [len(each) for each in frames] == [each["length"] for each in described]
    if name.startswith("pds"):
        assert [frame_seq(each) for each in frames] == [each.get("seq") for each in described]


@pytest.mark.parametrize(
    "unreadable",
    [
        b"",
        b"\xff",
        b"\x81" * 5_000,
        libipld.encode_dag_cbor({"seq": 1}),
        frame({}),
        frame({"seq": "1"}),
        frame({"seq": True}),
        libipld.encode_dag_cbor({"op": 1}) + libipld.encode_dag_cbor([1]),
    ],
)
def test_a_frame_without_a_readable_seq_has_none(unreadable: bytes) -> None:
    assert frame_seq(unreadable) is None


def test_recordings_of_one_stream_are_merged_by_seq() -> None:
    live, bulk = FIREHOSE / "pds1-live.bin", FIREHOSE / "pds1-bulk.bin"
    merged = list(merge_by_seq([bulk, live]))
    assert sorted(merged) == sorted([*read_frames(live), *read_frames(bulk)])
    seqs = [seq for each in merged if (seq := frame_seq(each)) is not None]
    assert seqs == sorted(seqs)


def test_a_frame_without_seq_follows_the_one_before_it_in_its_file(tmp_path: Path) -> None:
    info, broken = frame({"name": "OutdatedCursor"}, {"op": 1, "t": "#info"}), b"\xff"
    first = record(tmp_path / "1.bin", [info, frame({"seq": 1}), broken, frame({"seq": 4})])
    second = record(tmp_path / "2.bin", [frame({"seq": 2}), b"", frame({"seq": 3})])
    assert list(merge_by_seq([first, second])) == [
        info,
        frame({"seq": 1}),
        broken,
        frame({"seq": 2}),
        b"",
        frame({"seq": 3}),
        frame({"seq": 4}),
    ]


def test_of_equal_seqs_the_earlier_files_frame_comes_first_and_both_come(tmp_path: Path) -> None:
    mine, theirs = frame({"seq": 7, "did": "a"}), frame({"seq": 7, "did": "b"})
    first, second = record(tmp_path / "1.bin", [mine]), record(tmp_path / "2.bin", [theirs])
    assert list(merge_by_seq([second, first])) == [theirs, mine]


@given(st.lists(st.lists(st.integers(1, 30), max_size=6).map(sorted), min_size=1, max_size=4))
def test_merging_keeps_every_frame_and_sorts_files_that_are_sorted(folder: Path, files: list[list[int]]) -> None:
    paths = [
        record(folder / f"{index}.bin", [frame({"seq": seq, "file": index}) for seq in seqs])
        for index, seqs in enumerate(files)
    ]
    seqs = [frame_seq(each) for each in merge_by_seq(paths)]
    assert seqs == sorted(seq for file in files for seq in file)


def test_a_damaged_file_stops_a_merge(tmp_path: Path) -> None:
    first, second = record(tmp_path / "1.bin", [frame({"seq": 1})]), tmp_path / "2.bin"
    second.write_bytes(b"\x00\x00")
    with pytest.raises(Misconfigured, match=r"2\.bin"):
        list(merge_by_seq([first, second]))


def test_a_written_frame_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "frames.bin"
    with RecordingWriter(path) as writer:
        writer.write(b"one")
        assert list(read_frames(path)) == [b"one"]
        assert (writer.frames, writer.bytes) == (1, path.stat().st_size)


def test_a_recording_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = record(tmp_path / "frames.bin", [b"precious"])
    with pytest.raises(Misconfigured, match="exists already"):
        RecordingWriter(path)
    assert list(read_frames(path)) == [b"precious"]
    with RecordingWriter(path, overwrite=True) as writer:
        writer.write(b"new")
    assert list(read_frames(path)) == [b"new"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"frames\.bin: cannot be written"):
        RecordingWriter(tmp_path / "absent" / "frames.bin")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_told_as_such() -> None:
    with (
        pytest.raises(Misconfigured, match="cannot be written: No space left"),
        RecordingWriter(Path("/dev/full"), overwrite=True) as writer,
    ):
        writer.write(b"one")
