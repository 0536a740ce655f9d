"""What the semantic arm brings: memories whose vectors are near to a query's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appview.keys import Key
from appview.search.candidates import Candidate


@dataclass(frozen=True, slots=True, repr=False)
class Near:
    """What the semantic arm found: candidates, nearest first, and how near each is.

    `capped`: others that pass the filters are farther than the last of these.
    """

    memories: Sequence[Candidate]
    likeness: Mapping[Key, float]
    capped: bool
