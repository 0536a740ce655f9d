"""What the API counts. Labels are methods, statuses and names of errors, never what was asked."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class Metrics:
    """The counters of one API process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "appview_answers_total", "Answers by method and HTTP status.", ("method", "status"), registry=self.registry
        )
        self.refusals = Counter(
            "appview_refusals_total",
            "Answers that are errors, by method and the error's name.",
            ("method", "error"),
            registry=self.registry,
        )
        self.failures = Counter(
            "appview_failures_total", "Answers that failed by a mistake of ours.", ("method",), registry=self.registry
        )
        self.seconds = Histogram(
            "appview_answer_seconds", "How long answers took to make.", ("method",), registry=self.registry
        )
