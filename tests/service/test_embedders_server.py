from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from pydantic import SecretStr

from memory.embed_server import MAX_WAIT_S, Server, ServerEmbedder
from memory.embedding import EmbedderUnavailable, TextRefused
from memory.errors import Misconfigured
from tests.fakes.embeddings import SILENCE, WITHOUT_END, Embeddings, data, embeddings, response, vectors_of

SECRET = "Mandarin"


@pytest.fixture
async def fake() -> AsyncGenerator[Embeddings]:
    async with embeddings() as listening:
        yield listening


class _Asking:
    """An embedder whose waits end at once, and are noted."""

    def __init__(self, server: Server) -> None:
        self.waited: list[float] = []
        self.embedder = ServerEmbedder(server, sleep=self._sleep, jitter=lambda: 0.5)

    async def _sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
async def asking(fake: Embeddings) -> AsyncGenerator[_Asking]:
    started = _Asking(Server(fake.url, "some-model"))
    yield started
    await started.embedder.aclose()


def _direction(*numbers: float) -> list[float]:
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


async def test_passages_come_back_in_their_order_and_at_unit_length(asking: _Asking):
    vectors = await asking.embedder.embed_passages(["a", "bcd"])
    assert [list(vector) for vector in vectors] == [
        pytest.approx(_direction(1, 1, 2)),
        pytest.approx(_direction(3, 1, 2)),
    ]
    assert asking.embedder.dimensions == 3


async def test_question_names_model_and_texts_and_nothing_else(fake: Embeddings, asking: _Asking):
    await asking.embedder.embed_query("where is it?")
    assert fake.questions == [{"model": "some-model", "input": ["where is it?"], "encoding_format": "float"}]
    assert fake.paths == ["POST /v1/embeddings HTTP/1.1"]
    assert "authorization" not in fake.headers[0]


async def test_key_prefixes_type_and_dimensions_go_along(fake: Embeddings):
    server = Server(
        fake.url,
        "m",
        key=SecretStr(SECRET),
        dimensions=3,
        query_prefix="query:",
        passage_prefix="passage:",
        passage_type="document",
    )
    embedder = ServerEmbedder(server)
    await embedder.embed_query("a")
    await embedder.embed_passages(["b"])
    await embedder.aclose()
    assert [(asked["input"], asked["input_type"], asked["dimensions"]) for asked in fake.questions] == [
        (["query: a"], "query", 3),
        (["passage: b"], "document", 3),
    ]
    assert {headers["authorization"] for headers in fake.headers} == {f"Bearer {SECRET}"}


async def test_more_texts_than_a_batch_are_asked_in_several(fake: Embeddings):
    embedder = ServerEmbedder(Server(fake.url, "m", batch_size=2))
    assert len(await embedder.embed_passages(["a", "b", "c", "d", "e"])) == 5
    await embedder.aclose()
    assert [len(asked["input"]) for asked in fake.questions] == [2, 2, 1]


async def test_what_no_engine_takes_is_cleaned(fake: Embeddings, asking: _Asking):
    await asking.embedder.embed_passages(["a\0b\ud800c"])
    await asking.embedder.embed_query(" \0 ")
    assert [asked["input"] for asked in fake.questions] == [["a b c"], [" "]]


async def test_vectors_are_ordered_by_their_index(fake: Embeddings, asking: _Asking):
    fake.answers = [data([0.0, 1.0], [1.0, 0.0], order=[1, 0])]
    assert await asking.embedder.embed_passages(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]


async def test_vectors_in_base64_are_read(fake: Embeddings, asking: _Asking):
    fake.answers = [data(base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode())]
    assert await asking.embedder.embed_passages(["a"]) == [[0.6, 0.8]]


@pytest.mark.parametrize(
    "answer",
    [
        data(),
        data([1.0, 0.0]),
        data([1.0, 0.0], [1.0, 0.0], [1.0, 0.0]),
        data([1.0, 0.0], [1.0, 0.0], order=[0, 0]),
        data([1.0, 0.0], [1.0, 0.0], order=[1, 2]),
        data([1.0, 0.0], [1.0]),
        data([1.0, 0.0], []),
        data([], []),
        data([1.0, 0.0], [0.0, 0.0]),
        data([1.0, 0.0], [1.0, float("nan")]),
        data([1.0, 0.0], [1.0, float("inf")]),
        data([1.0, 0.0], [1e200, 1e200]),
        data([1.0, 0.0], [1.0, None]),
        data([1.0, 0.0], [1.0, "0"]),
        data([1.0, 0.0], "AAAA!"),
        data([1.0, 0.0], "AAA="),
        data([1.0] * 4_001, [1.0] * 4_001),
        response(200, b"<html>Mandarin</html>"),
        response(200, b""),
        response(200, b"[]"),
        response(200, b'{"data":{}}'),
        response(200, b'{"data":[1,2]}'),
        response(200, b'{"data":' + b"[" * 100_000),
        response(200, b"\xff\xfe"),
        WITHOUT_END,
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n{",
    ],
)
async def test_answer_that_is_no_vector_for_each_text_is_unavailable(fake: Embeddings, asking: _Asking, answer: bytes):
    fake.always = answer
    with pytest.raises(EmbedderUnavailable) as caught:
        await asking.embedder.embed_passages(["a", "b"])
    assert SECRET not in str(caught.value)
    assert len(fake.questions) == 4


async def test_server_that_is_busy_is_asked_again_after_the_time_that_it_names(fake: Embeddings, asking: _Asking):
    fake.answers = [response(429, b"", "Retry-After: 7")]
    assert len(await asking.embedder.embed_passages(["a"])) == 1
    assert asking.waited == [7.0]


async def test_server_that_fails_is_asked_again_after_longer_and_longer(fake: Embeddings, asking: _Asking):
    fake.answers = [response(503, b""), response(500, b""), response(429, b"")]
    assert len(await asking.embedder.embed_passages(["a"])) == 1
    assert asking.waited == [0.5, 1.0, 2.0]


async def test_server_that_fails_for_ever_is_unavailable(fake: Embeddings, asking: _Asking):
    fake.always = response(500, b"Mandarin")
    with pytest.raises(EmbedderUnavailable, match=r"^The embedding server answers 500\.$"):
        await asking.embedder.embed_passages(["a"])
    assert len(fake.questions) == 4


async def test_longer_wait_than_is_sensible_is_told_to_whoever_asked(fake: Embeddings, asking: _Asking):
    fake.always = response(429, b"", f"Retry-After: {int(MAX_WAIT_S) + 1}")
    with pytest.raises(EmbedderUnavailable) as caught:
        await asking.embedder.embed_passages(["a"])
    assert (caught.value.retry_after_s, asking.waited, len(fake.questions)) == (31.0, [], 1)


async def test_query_is_asked_once(fake: Embeddings, asking: _Asking):
    fake.always = response(503, b"")
    with pytest.raises(EmbedderUnavailable):
        await asking.embedder.embed_query("a")
    assert (len(fake.questions), asking.waited) == (1, [])


async def test_silent_server_is_unavailable_after_the_timeout(fake: Embeddings):
    fake.always = SILENCE
    started = _Asking(Server(fake.url, "m", timeout_s=0.05))
    with pytest.raises(EmbedderUnavailable, match="does not answer in time"):
        await started.embedder.embed_query("a")
    await started.embedder.aclose()


async def test_server_that_is_not_there_is_unavailable():
    async with embeddings() as gone:
        url = gone.url
    started = _Asking(Server(url, "m"))
    with pytest.raises(EmbedderUnavailable, match="cannot be reached"):
        await started.embedder.embed_passages(["a"])
    await started.embedder.aclose()
    assert len(started.waited) == 3


@pytest.mark.parametrize(
    ("answer", "setting"),
    [
        (response(401, b"Mandarin"), "EMBEDDING_API_KEY"),
        (response(403, b"Mandarin"), "EMBEDDING_API_KEY"),
        (response(404, b"Mandarin"), "EMBEDDING_URL"),
        (response(404, b'{"error":{"message":"The model `Mandarin` does not exist"}}'), "EMBEDDING_MODEL"),
        (response(405, b""), "EMBEDDING_URL"),
        (response(302, b"", "Location: http://127.0.0.1:1/"), "EMBEDDING_URL"),
        (response(308, b"", "Location: /v1/embeddings"), "EMBEDDING_URL"),
        (response(418, b""), "EMBEDDING_URL"),
        (response(400, b"Mandarin"), "EMBEDDING_MODEL"),
        (response(422, b"Mandarin"), "EMBEDDING_MODEL"),
    ],
)
async def test_status_that_will_not_pass_names_the_setting(
    fake: Embeddings, asking: _Asking, answer: bytes, setting: str
):
    fake.always = answer
    with pytest.raises(Misconfigured) as caught:
        await asking.embedder.embed_passages(["a"])
    assert caught.value.setting == setting
    assert SECRET not in str(caught.value)
    assert asking.waited == []


async def test_other_dimensions_than_asked_for_name_the_setting(fake: Embeddings):
    embedder = ServerEmbedder(Server(fake.url, "m", dimensions=256))
    with pytest.raises(Misconfigured, match="3 dimensions, EMBEDDING_DIMENSIONS is 256"):
        await embedder.embed_query("a")
    await embedder.aclose()


async def test_other_dimensions_than_before_are_another_model(fake: Embeddings, asking: _Asking):
    await asking.embedder.embed_query("a")
    fake.answers = [data([1.0, 0.0])]
    with pytest.raises(Misconfigured, match="2 dimensions, 3 before"):
        await asking.embedder.embed_query("a")


async def test_too_long_text_is_cut_and_its_neighbours_are_not(fake: Embeddings, asking: _Asking):
    fake.refuses = lambda texts: any(len(text) > 10 for text in texts)
    texts = ["a", "b" * 16, "cc", "d" * 40, "eee"]
    vectors = await asking.embedder.embed_passages(texts)
    assert [list(vector) for vector in vectors] == [
        pytest.approx(_direction(length, 1, 2)) for length in (1, 8, 2, 10, 3)
    ]


async def test_text_that_is_refused_however_short_is_rejected(fake: Embeddings, asking: _Asking):
    fake.refuses = lambda texts: any("x" in text for text in texts)
    with pytest.raises(TextRefused):
        await asking.embedder.embed_passages(["a", "xxxx"])


async def test_query_that_is_refused_is_rejected(fake: Embeddings, asking: _Asking):
    fake.refuses = lambda texts: True
    with pytest.raises(TextRefused):
        await asking.embedder.embed_query("a")


async def test_connection_is_kept_and_a_dead_one_replaced(fake: Embeddings, asking: _Asking):
    fake.answers = [vectors_of(["a"]), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"]
    await asking.embedder.embed_passages(["a"])
    assert len(await asking.embedder.embed_passages(["b"])) == 1


async def test_cancelled_question_ends(fake: Embeddings, asking: _Asking):
    fake.always = SILENCE
    task = asyncio.create_task(asking.embedder.embed_passages(["a"]))
    await fake.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("host", "leaves"),
    [
        ("127.0.0.1", False),
        ("127.8.9.1", False),
        ("[::1]", False),
        ("localhost", False),
        ("10.0.0.1", True),
        ("[::ffff:10.0.0.1]", True),
        ("tei", True),
        ("localhost.example", True),
        ("127.0.0.1.example", True),
    ],
)
async def test_only_loopback_is_this_machine(host: str, leaves: bool):
    embedder = ServerEmbedder(replace(Server("", "m"), url=f"http://{host}:8080/v1/embeddings"))
    assert embedder.leaves_machine is leaves
    await embedder.aclose()
