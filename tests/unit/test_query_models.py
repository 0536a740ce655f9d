"""Models for queries: opened once, and one that cannot be opened takes no search along."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from appview.query_models import OpenedQueryModels
from memory.embedding import Absent, Embedder
from memory.errors import Misconfigured
from memory.query_embedding import NoVector


def of(answers: list[Absent | Misconfigured]) -> OpenedQueryModels:
    """Models whose embedders open with these, one after another."""

    async def opened(model: str) -> Embedder | Absent:
        answer = answers.pop(0)
        if isinstance(answer, Misconfigured):
            raise answer
        return answer

    return OpenedQueryModels(opened, allow_private=False)


async def test_a_model_is_opened_once() -> None:
    models = of([Absent("it is another machine")])
    assert await models.embed("a", "tea", private=False) is NoVector.ABSENT
    assert await models.embed("a", "tea", private=False) is NoVector.ABSENT


async def test_a_model_with_settings_that_cannot_be_used_ends_the_start() -> None:
    models = of([Misconfigured("No such file.", setting="EMBEDDING_API_KEY_FILE")])
    with pytest.raises(Misconfigured):
        await models.open("a")


async def test_a_model_that_serves_later_and_cannot_be_opened_leaves_words() -> None:
    models = of([Misconfigured("No such file.", setting="EMBEDDING_API_KEY_FILE")])
    with capture_logs() as logs:
        assert await models.embed("a", "tea", private=False) is NoVector.ABSENT
        assert await models.embed("a", "tea", private=False) is NoVector.ABSENT
    assert [log["setting"] for log in logs] == ["EMBEDDING_API_KEY_FILE"]
