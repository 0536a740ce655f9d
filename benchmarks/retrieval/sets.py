"""The sets: memories of one repo, and questions whose answers among them are known.

They are read from a folder beside the checkout (`../shared/eval`, or `RETRIEVAL_SETS`), never copied: LoCoMo is
licensed for evaluation only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from benchmarks.result import NotHere

LANGUAGES = ("en", "de", "es", "ru", "zh", "ar", "hi", "th")
ANSWERABLE = (1, 2, 3, 4)
ADVERSARIAL = 5

_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the places of the memories that answer it."""

    name: str
    text: str
    relevant: frozenset[int]
    category: int


@dataclass(frozen=True, slots=True)
class Group:
    """One repo: its memories with the times of recording, and what is asked of it."""

    name: str
    ids: Sequence[str]
    texts: Sequence[str]
    times: Sequence[datetime]
    questions: Sequence[Question]


def locomo(kind: str, categories: Sequence[int] = ANSWERABLE) -> list[Group]:
    """LoCoMo's conversations, as `obs` or `turns`; a memory is recorded when its session took place."""
    return [
        _group(name, docs, questions, _session_times(kind, name))
        for name, docs, questions in _loader().locomo(kind, categories)
    ]


def xquad(question_language: str, document_language: str) -> list[Group]:
    """Questions of one language to the sentences of another, all recorded at once; answers by the documents' list."""
    ((name, docs, questions),) = _loader().xquad_r(question_language, document_language)
    ((_, _, own),) = _loader().xquad_r(document_language)
    answers = {number: relevant for number, _, relevant, _ in own}
    answered = [(number, text, answers[number], 0) for number, text, _, _ in questions]
    return [_group(name, docs, answered, [_LONG_AGO] * len(docs))]


def pooled(groups: Sequence[Group], size: int) -> Group:
    """The first memories of several groups as one repo, with the questions that are answered among them."""
    ids: list[str] = []
    texts: list[str] = []
    times: list[datetime] = []
    questions: list[Question] = []
    for group in groups:
        first, room = len(ids), size - len(ids)
        ids += [f"{group.name}/{each}" for each in group.ids[:room]]
        texts += group.texts[:room]
        times += group.times[:room]
        questions += [
            Question(each.name, each.text, frozenset(first + place for place in each.relevant), each.category)
            for each in group.questions
            if max(each.relevant) < room
        ]
    return Group(f"pooled-{size}", ids, texts, times, questions)


def parts(group: Group, size: int) -> Iterator[tuple[Group, Sequence[int]]]:
    """A group cut into repos of `size` neighbours, with their places in it; questions answered in one part only."""
    for first in range(0, len(group.ids), size):
        places = range(first, min(first + size, len(group.ids)))
        questions = [
            Question(each.name, each.text, frozenset(place - first for place in each.relevant), each.category)
            for each in group.questions
            if all(place in places for place in each.relevant)
        ]
        cut = slice(first, first + size)
        yield Group(f"{group.name}-{first}", group.ids[cut], group.texts[cut], group.times[cut], questions), places


def _group(name: str, docs: Mapping[str, str], questions: Sequence[Any], times: Sequence[datetime]) -> Group:
    places = {doc: place for place, doc in enumerate(docs)}
    asked = [
        Question(number, text, frozenset(places[doc] for doc in relevant), category)
        for number, text, relevant, category in questions
    ]
    return Group(name, list(docs), list(docs.values()), times, asked)


def _folder() -> Path:
    folder = Path(os.environ.get("RETRIEVAL_SETS", Path(__file__).parents[3] / "shared" / "eval"))
    if not (folder / "load.py").is_file():
        raise NotHere(f"the sets of retrieval are not at {folder}; RETRIEVAL_SETS says where else")
    return folder


@lru_cache
def _loader() -> Any:
    spec = spec_from_file_location("retrieval_sets", _folder() / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache
def _chats() -> dict[str, Any]:
    return {chat["sample_id"]: chat for chat in json.loads((_folder() / "locomo10.json").read_text(encoding="utf-8"))}


def _session_times(kind: str, name: str) -> list[datetime]:
    """The times of a conversation's memories, in the loader's order; those of one session a second apart."""
    conversation = _chats()[name]["conversation"]
    counts: list[tuple[str, int]]
    if kind == "turns":
        counts = [(key, len(turns)) for key, turns in conversation.items() if re.fullmatch(r"session_\d+", key)]
    else:
        observed = _chats()[name]["observation"].items()
        counts = [(key.removesuffix("_observation"), sum(map(len, said.values()))) for key, said in observed]
    return [
        _read_time(conversation[f"{session}_date_time"]) + timedelta(seconds=number)
        for session, count in counts
        for number in range(count)
    ]


def _read_time(written: str) -> datetime:
    return datetime.strptime(written, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
