"""A folder with a model: made here, of one table that gives each word its vector."""

from __future__ import annotations

import json
import math
import struct
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from memory.embed_onnx import MAX_TOKENS, OnnxEmbedder, OnnxFolder, open_onnx
from memory.embedders import configured_model, open_embedder
from memory.errors import Misconfigured
from memory.settings import load

WORDS = {"[PAD]": 0, "[UNK]": 1, "tea": 2, "dog": 3, "query:": 4, "passage:": 5}
VECTORS = [[9.0, 9.0, 9.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -2.0], [0.0, 0.0, 2.0]]
INT64, FLOAT = 7, 1

installed = pytest.mark.skipif(
    util.find_spec("onnxruntime") is None or util.find_spec("tokenizers") is None,
    reason="the packages of the extra `onnx` are not installed",
)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _part(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _value(name: str, kind: int, *axes: str | int) -> bytes:
    """An input or an output: its name, the type of its numbers, its shape."""
    shape = b"".join(_part(1, _number(1, axis) if isinstance(axis, int) else _part(2, axis)) for axis in axes)
    return _part(1, name) + _part(2, _part(1, _number(1, kind) + _part(2, shape)))


def _node(kind: str, inputs: list[str], output: str, *attributes: bytes) -> bytes:
    head = b"".join(_part(1, name) for name in inputs) + _part(2, output) + _part(4, kind)
    return head + b"".join(_part(5, attribute) for attribute in attributes)


def _model(*nodes: bytes, inputs: list[bytes], outputs: list[bytes]) -> bytes:
    """The bytes of an ONNX file whose nodes may use `table`, a row of `VECTORS` for each word."""
    numbers = struct.pack("<18f", *(number for row in VECTORS for number in row))
    table = _number(1, 6) + _number(1, 3) + _number(2, FLOAT) + _part(8, "table") + _part(9, numbers)
    graph = (
        b"".join(_part(1, node) for node in nodes)
        + _part(2, "words")
        + _part(5, table)
        + b"".join(_part(11, each) for each in inputs)
        + b"".join(_part(12, each) for each in outputs)
    )
    return _number(1, 8) + _part(7, graph) + _part(8, _number(2, 13))


IDS = _value("input_ids", INT64, "batch", "tokens")
MASK = _value("attention_mask", INT64, "batch", "tokens")
LOOK_UP = _node("Gather", ["table", "input_ids"], "last_hidden_state")
STATES = _value("last_hidden_state", FLOAT, "batch", "tokens", 3)
OF_TOKENS = _model(LOOK_UP, inputs=[IDS, MASK], outputs=[STATES])
POOLED = _model(
    LOOK_UP,
    # The greatest number of each column: nothing that our own pooling does.
    _node(
        "ReduceMax",
        ["last_hidden_state"],
        "sentence_embedding",
        _part(1, "axes") + _number(8, 1) + _number(20, 7),
        _part(1, "keepdims") + _number(3, 0) + _number(20, 2),
    ),
    inputs=[IDS],
    outputs=[STATES, _value("sentence_embedding", FLOAT, "batch", 3)],
)
OF_PICTURES = _model(LOOK_UP, inputs=[IDS, _value("pixels", INT64, "batch", "tokens")], outputs=[STATES])


def _tokenizer(**changes: Any) -> str:
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"},
        }
        | changes
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-words"
    path.mkdir()
    (path / "model.onnx").write_bytes(OF_TOKENS)
    (path / "tokenizer.json").write_text(_tokenizer())
    return path


async def _opened(path: Path, **changes: Any) -> OnnxEmbedder:
    return await open_onnx(OnnxFolder(path, "tiny", **changes))


def _direction(*numbers: float) -> Any:
    length = math.hypot(*numbers)
    return pytest.approx([number / length for number in numbers], abs=1e-6)


@installed
async def test_vector_is_the_mean_of_the_words(folder: Path):
    embedder = await _opened(folder)
    assert await embedder.embed_passages(["tea", "tea dog", "tea dog dog dog"]) == [
        _direction(1, 0, 0),
        _direction(1, 1, 0),
        _direction(1, 3, 0),
    ]
    assert (embedder.model, embedder.dimensions, embedder.leaves_machine) == ("tiny", 3, False)
    await embedder.aclose()


@installed
async def test_first_word_counts_if_the_model_is_made_so(folder: Path):
    embedder = await _opened(folder, pooling="cls")
    assert await embedder.embed_passages(["dog tea tea"]) == [_direction(0, 1, 0)]
    await embedder.aclose()


@installed
async def test_what_the_model_pools_by_itself_is_taken(folder: Path):
    (folder / "model.onnx").write_bytes(POOLED)
    embedder = await _opened(folder)
    assert await embedder.embed_passages(["tea dog dog dog"]) == [_direction(1, 1, 0)]
    await embedder.aclose()


@installed
async def test_query_and_passage_have_prefixes_of_their_own(folder: Path):
    embedder = await _opened(folder, query_prefix="query:", passage_prefix="passage:")
    assert await embedder.embed_query("tea") == _direction(1, 0, -2)
    assert await embedder.embed_passages(["tea"]) == [_direction(1, 0, 2)]
    await embedder.aclose()


@installed
async def test_more_texts_than_a_batch_keep_their_order(folder: Path):
    embedder = await _opened(folder)
    texts = [" ".join(["tea"] * (number % 5) + ["dog"]) for number in range(30)]
    assert await embedder.embed_passages(texts) == [_direction(number % 5, 1, 0) for number in range(30)]
    await embedder.aclose()


@installed
async def test_only_the_first_tokens_count(folder: Path):
    embedder = await _opened(folder)
    assert await embedder.embed_passages(["tea " * MAX_TOKENS + "dog " * 1_000]) == [_direction(1, 0, 0)]
    await embedder.aclose()


@installed
async def test_nul_and_lone_surrogates_are_spaces(folder: Path):
    embedder = await _opened(folder)
    assert await embedder.embed_passages(["tea\0dog\ud800"]) == [_direction(1, 1, 0)]
    await embedder.aclose()


@installed
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.onnx", None),
        ("model.onnx", b"Mandarin"),
        ("model.onnx", OF_TOKENS[:200]),
        ("model.onnx", OF_PICTURES),
        ("tokenizer.json", None),
        ("tokenizer.json", b"{}"),
        (
            "tokenizer.json",
            _tokenizer(model={"type": "WordLevel", "vocab": {"[UNK]": 99}, "unk_token": "[UNK]"}).encode(),
        ),
    ],
)
async def test_file_that_cannot_be_used_names_the_setting(folder: Path, file: str, content: bytes | None):
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(Misconfigured) as caught:
        await _opened(folder)
    assert caught.value.setting == "EMBEDDING_ONNX_DIR"
    assert "Mandarin" not in str(caught.value)


@installed
async def test_folder_is_opened_by_its_setting_and_named_after_itself(folder: Path):
    settings = load({"EMBEDDING_BACKEND": "onnx", "EMBEDDING_ONNX_DIR": str(folder)}).embedding
    opened = await open_embedder(settings)
    assert isinstance(opened, OnnxEmbedder)
    assert opened.model == configured_model(settings) == "tiny-words"
    await opened.aclose()


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
async def test_missing_package_names_the_extra(folder: Path, package: str, monkeypatch: pytest.MonkeyPatch):
    for each in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, each, None if each == package else sys)
    with pytest.raises(Misconfigured, match=rf"{package} is not installed: .*memory-appview\[onnx\]") as caught:
        await _opened(folder)
    assert caught.value.setting == "EMBEDDING_BACKEND"
