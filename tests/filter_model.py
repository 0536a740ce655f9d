"""What lists and searches have to answer, in plain Python: one loop over all records, close to the words of the rules.

Uses nothing of the code that it judges: no SQL, no masks, no spans, no terms of theirs. It knows no language: the texts
have to be made of words that have nothing in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.masking_model import ModelMemory, World, is_masked, there_at

COLLECTION = "dev.bastienrobert.memory.record"
A_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class ModelRecord:
    """A current, valid record of a repo, as it was written, and when it was first seen."""

    repo: str
    space: str
    rkey: str
    value: Mapping[str, Any]
    first_indexed_at: datetime

    @property
    def uri(self) -> str:
        return f"at://{self.repo}/{COLLECTION}/{self.rkey}" if not self.space else f"{self.space}/{self._path}"

    @property
    def _path(self) -> str:
        return f"{self.repo}/{COLLECTION}/{self.rkey}"

    @property
    def created_at(self) -> datetime:
        return datetime.fromisoformat(self.value["createdAt"])

    @property
    def effective_at(self) -> datetime:
        return min(self.created_at, self.first_indexed_at)

    @property
    def words(self) -> list[str]:
        return self.value["content"].split()

    def property(self, name: str) -> str:
        """A label of the record; empty where it has none."""
        where = self.value.get("provenance", {}) if name in ("agent", "client") else self.value
        return where.get(name, "")

    def occurred(self) -> tuple[datetime, datetime] | None:
        """The half-open span that the record tells of."""
        stated = self.value.get("occurredAt")
        if stated is None:
            return None
        precision = stated.get("precision", "instant")
        begin = datetime.fromisoformat(stated["from"])
        to = datetime.fromisoformat(stated.get("to", stated["from"]))
        end = max(_end(begin, precision), _end(to, precision)) if to >= begin else _end(begin, precision)
        return _begin(begin, precision), end


def _begin(moment: datetime, precision: str) -> datetime:
    year, month, day = moment.timetuple()[:3]
    match precision:
        case "year":
            return datetime(year, 1, 1, tzinfo=moment.tzinfo)
        case "month":
            return datetime(year, month, 1, tzinfo=moment.tzinfo)
        case "day":
            return datetime(year, month, day, tzinfo=moment.tzinfo)
        case _:
            return moment


def _end(moment: datetime, precision: str) -> datetime:
    begin = _begin(moment, precision)
    match precision:
        case "year":
            return begin.replace(year=begin.year + 1)
        case "month":
            return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
        case "day":
            return begin + timedelta(days=1)
        case _:
            return begin + A_MICROSECOND


@dataclass
class FilterModel:
    """All records that are there, of which one may be asked about by the parameters of the API.

    `hidden`: the repos, each an author's in a Space or in public, that are not served. `handles`: DIDs by handle.
    """

    records: list[ModelRecord]
    hidden: set[tuple[str, str]]
    handles: Mapping[str, str]
    masked_then: dict[tuple[str, str, int], set[str]] = field(default_factory=dict[tuple[str, str, int], set[str]])

    def __post_init__(self) -> None:
        self.of_repo: defaultdict[tuple[str, str], list[ModelRecord]] = defaultdict(list)
        for record in self.records:
            self.of_repo[record.repo, record.space].append(record)
        self.worlds = {repo: _world(records) for repo, records in self.of_repo.items()}
        self.times = {
            repo: sorted({record.effective_at for record in records}) for repo, records in self.of_repo.items()
        }

    def is_masked(self, record: ModelRecord, as_of: datetime | None) -> bool:
        """Whether a record that is there at that time replaces this one."""
        repo = (record.repo, record.space)
        times = self.times[repo]
        last = len(times) - 1 if as_of is None else sum(1 for moment in times if moment <= as_of) - 1
        if (*repo, last) not in self.masked_then:
            there = there_at(self.worlds[repo], last)
            self.masked_then[(*repo, last)] = {rkey for rkey in there if is_masked(there, rkey)}
        return record.rkey in self.masked_then[(*repo, last)]

    def passing(self, asked: Mapping[str, Any], readable: Iterable[str]) -> list[ModelRecord]:
        """The records that a viewer of these Spaces gets, in no order."""
        tests = self._tests(asked)
        return [record for record in self.served(readable) if all(test(record) for test in tests.values())]

    def served(self, readable: Iterable[str]) -> list[ModelRecord]:
        """All that a viewer of these Spaces may read."""
        repos = [repo for repo in self.of_repo if repo[1] in {"", *readable} and repo not in self.hidden]
        return [record for repo in repos for record in self.of_repo[repo]]

    def failed(self, record: ModelRecord, asked: Mapping[str, Any]) -> str | None:
        """The first filter, in the order in which they are told, that leaves out a record; None if none does."""
        return next((name for name, test in self._tests(asked).items() if not test(record)), None)

    def _tests(self, asked: Mapping[str, Any]) -> dict[str, Callable[[ModelRecord], bool]]:
        tests: dict[str, Callable[[ModelRecord], bool]] = {}
        times = {
            name: datetime.fromisoformat(asked[name]) for name in asked if name.endswith(("After", "Before", "Of"))
        }
        if "repo" in asked:
            repos = {self.handles.get(name.lower(), name) for name in asked["repo"]}
            tests["repo"] = lambda record: record.repo in repos
        if "space" in asked:
            tests["space"] = lambda record: record.space in asked["space"]
        if asked.get("publicOnly"):
            tests["publicOnly"] = lambda record: not record.space
        for name in ("scope", "kind", "agent", "client"):
            if name in asked:
                tests[name] = lambda record, name=name: record.property(name) in asked[name]
        if (after := times.get("createdAfter")) is not None:
            tests["createdAfter"] = lambda record: record.created_at >= after
        if (before := times.get("createdBefore")) is not None:
            tests["createdBefore"] = lambda record: record.created_at < before
        if (since := times.get("occurredAfter")) is not None:
            tests["occurredAfter"] = lambda record: (span := record.occurred()) is not None and span[1] > since
        if (until := times.get("occurredBefore")) is not None:
            tests["occurredBefore"] = lambda record: (span := record.occurred()) is not None and span[0] < until
        as_of = times.get("asOf")
        if as_of is not None:
            tests["asOf"] = lambda record: record.effective_at <= as_of
        if "q" in asked:
            tests |= _word_tests(asked["q"], prefix=asked.get("prefix", False))
        if not asked.get("includeSuperseded"):
            tests["superseded"] = lambda record: not self.is_masked(record, as_of)
        return tests


def list_key(order: str) -> Callable[[ModelRecord], tuple[Any, ...]]:
    """What a list in that order is sorted by, ascending for `oldest`, else descending."""

    def place(record: ModelRecord) -> tuple[Any, ...]:
        span = record.occurred() if order == "occurred" else (record.effective_at,)
        return span is not None, (span or (record.effective_at,))[0], record.repo, record.rkey, record.space

    return place


def _word_tests(q: str, *, prefix: bool) -> dict[str, Callable[[ModelRecord], bool]]:
    """Of a query that is made of words, of two words in quotes, and of one of either with a minus."""
    phrases: list[list[str]] = []
    exclusions: list[list[str]] = []
    words: list[str] = []
    before = ""
    for number, piece in enumerate(q.split('"')):
        if number % 2:
            (exclusions if before.endswith("-") else phrases).append(piece.split())
        else:
            before = piece
            words += [word for word in piece.split() if not word.startswith("-")]
            exclusions += [[word[1:]] for word in piece.split() if word.startswith("-") and len(word) > 1]
    beginning = words.pop() if prefix and words and q.rsplit(" ", maxsplit=1)[-1] == words[-1] else None
    wanted = {*words, *(word for phrase in phrases for word in phrase)}
    return {
        "q": lambda record: any(word in wanted or _begins(word, beginning) for word in record.words),
        "phrase": lambda record: all(_has(record.words, phrase) for phrase in phrases),
        "exclusion": lambda record: not any(_has(record.words, exclusion) for exclusion in exclusions),
    }


def _begins(word: str, beginning: str | None) -> bool:
    return beginning is not None and word.startswith(beginning)


def _has(words: list[str], phrase: list[str]) -> bool:
    return any(words[start : start + len(phrase)] == phrase for start in range(len(words)))


def _world(records: Iterable[ModelRecord]) -> World:
    """One repo as masking sees it; times become ranks, so that only their order can matter."""
    there = list(records)
    ages = {
        record.rkey: datetime.fromisoformat(record.value.get("updatedAt", record.value["createdAt"]))
        for record in there
    }
    by_age = sorted(set(ages.values()))
    by_effect = sorted({record.effective_at for record in there})
    own = {record.uri: record.rkey for record in there}
    return {
        record.rkey: ModelMemory(
            record.rkey,
            by_age.index(ages[record.rkey]),
            by_effect.index(record.effective_at),
            frozenset(own[entry] for entry in record.value.get("supersedes", ()) if entry in own) - {record.rkey},
        )
        for record in there
    }
