from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from appview.metrics import Metrics
from indexer.arrivals import Source, SourceKind
from indexer.books import Effect
from indexer.daemon import count_outcome
from indexer.metrics import IndexerMetrics
from indexer.store.space_counts import SpaceRepoState, SpaceState
from indexer.writer import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "operate.md"
ROW = re.compile(r"^\| `((?:indexer|appview)_\w+)` \| (.*?) ?\| (.*) \|$", re.MULTILINE)
RELAY = Source("https://relay.test", SourceKind.RELAY)


def exported() -> dict[str, tuple[set[str], str]]:
    """Name as it is scraped → labels, meaning."""
    found: dict[str, tuple[set[str], str]] = {}
    for metric in (*vars(IndexerMetrics()).values(), *vars(Metrics()).values()):
        if isinstance(metric, MetricWrapperBase):
            [described] = metric.describe()
            name = f"{described.name}_total" if described.type == "counter" else described.name
            found[name] = (set(metric._labelnames), described.documentation)
    return found


def test_page_and_program_name_the_same_metrics_labels_and_meanings():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    told = {name: (set(re.findall(r"`(\w+)`", labels)), meaning) for name, labels, meaning in rows}
    assert told == exported()
    assert len(rows) == len(told)


def test_no_metric_is_told_apart_by_repo():
    assert {label for labels, _ in exported().values() for label in labels} <= {
        "source", "reason", "effect", "kind", "outcome", "state", "model", "method", "status", "error",
    }  # fmt: skip


def test_states_of_spaces_are_told_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    tables = re.findall(r"^\| State \| Means \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    told = [re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) for table in tables]
    assert [list(SpaceState), list(SpaceRepoState)] == told


def test_what_was_applied_is_no_rejection():
    metrics = IndexerMetrics()
    outcome = Outcome()
    outcome.tally[RELAY.url, "accepted", Effect.ACCEPTED] = 2
    outcome.tally[RELAY.url, "bad_signature", Effect.UNATTRIBUTABLE] = 3
    count_outcome(metrics, outcome)
    sample = metrics.registry.get_sample_value
    assert sample("indexer_commits_applied_total") == 2
    labels = {"reason": "bad_signature", "effect": "unattributable"}
    assert sample("indexer_rejections_total", labels) == 3
    assert sample("indexer_rejections_total", {"reason": "accepted", "effect": "accepted"}) is None
