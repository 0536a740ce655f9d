"""What `doctor` says of the model for search by meaning."""

from __future__ import annotations

import asyncio

import pytest

from indexer.doctor.meaning import check_embedder
from indexer.doctor.report import State
from memory.embedding import Absent, Embedder, EmbedderUnavailable
from memory.errors import Misconfigured
from tests.embedding_double import Double


async def check_of(embedder: Embedder | Absent, patience_s: float = 20.0) -> tuple[State, str, str | None]:
    async def opened() -> Embedder | Absent:
        return embedder

    check = await check_embedder(opened, patience_s)
    return check.state, check.what, check.fix


async def test_model_that_answers_is_well():
    assert await check_of(Double()) == (State.OK, "double answers, with 8 dimensions", None)


async def test_absent_model_is_a_warning_that_names_a_way_out():
    state, what, fix = await check_of(Absent("this machine's CPU has no avx2"))
    assert (state, what) == (State.WARNING, "search is by words only, because this machine's CPU has no avx2")
    assert fix is not None
    assert "EMBEDDING_BACKEND=none" in fix


@pytest.mark.parametrize(
    ("failure", "setting"),
    [
        (EmbedderUnavailable("The embedding server answers 500."), "EMBEDDING_URL"),
        (Misconfigured("It does not take the key.", setting="EMBEDDING_API_KEY"), "EMBEDDING_API_KEY"),
    ],
)
async def test_model_that_fails_is_a_failure_that_names_the_setting(failure: Exception, setting: str):
    assert await check_of(Double(fails=failure)) == (
        State.FAILED, str(failure), f"Mend {setting}, or what it leads to."
    )  # fmt: skip


async def test_silent_model_is_not_waited_for():
    async def for_ever() -> None:
        await asyncio.Event().wait()

    state, what, _ = await check_of(Double(meanwhile=for_ever), patience_s=0.0)
    assert (state, what) == (State.FAILED, "the embedder does not answer in time")
