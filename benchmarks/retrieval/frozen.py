"""What the ranking is compared with: the baseline, which nobody touches any more, and `bm25s`.

The baseline: BM25 (k1 1.2, b 0.75) over stemmed words, and cosines, each put between 0 and 1 by the least and the most
of the repo; 0.35 of the one and 0.65 of the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

Scores = NDArray[np.float64]

LEXICAL_WEIGHT = 0.35

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_THAI = re.compile(r"[\u0e00-\u0e7f]")
_RUN = re.compile(rf"{_CJK.pattern}+|{_THAI.pattern}+|(?:(?!{_CJK.pattern}|{_THAI.pattern})[\w\u0900-\u0dff])+")
_MARKS = re.compile(r"[\u0300-\u036f\u064b-\u065f\u0670]")
_STEMMER: Any = Stemmer.Stemmer("english")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_STOP_WORDS = frozenset(
    """a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
    to was will with what when where which who whom why how do does did has have had""".split()
)


def bm25(texts: Sequence[str], questions: Sequence[str], *, k1: float = 1.2, b: float = 0.75) -> Scores:
    """Score texts, one a column, for questions, one a row, by `bm25s`."""
    corpus = [_tokens(text) for text in texts]
    vocabulary = {token: number for number, token in enumerate(sorted({token for text in corpus for token in text}))}
    index: Any = bm25s.BM25(k1=k1, b=b)
    index.index(([[vocabulary[token] for token in text] for text in corpus], vocabulary), show_progress=False)
    scores = np.zeros((len(questions), len(texts)))
    for row, question in enumerate(questions):
        tokens = _tokens(question)
        known = [vocabulary[token] for token in tokens if token in vocabulary and token not in _STOP_WORDS]
        if known:
            scores[row] = index.get_scores(known)
    return scores


def fuse_by_extremes(lexical: Scores, cosines: Scores) -> Scores:
    """The baseline's fusion, of one row a question."""
    return LEXICAL_WEIGHT * _between(lexical) + (1 - LEXICAL_WEIGHT) * _between(cosines)


def _between(scores: Scores) -> Scores:
    least, most = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return (scores - least) / np.maximum(most - least, 1e-9)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    for run in _RUN.findall(_MARKS.sub("", unicodedata.normalize("NFKD", text).casefold())):
        if _CJK.match(run):
            tokens += [*run, *map("".join, pairwise(run))]
        elif _THAI.match(run):
            tokens += [run[at : at + 3] for at in range(max(1, len(run) - 2))]
        else:
            tokens.append(_STEMMER.stemWord(run) if run.isascii() else run)
    return tokens
