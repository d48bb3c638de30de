"""Counters and histograms since the server started. No label is a name that a user chose."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from quire.core.model import Run

Labels = tuple[tuple[str, str], ...]
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of a histogram's buckets; a last bucket has no bound."""


@dataclass
class Histogram:
    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class Tally:
    def __init__(self) -> None:
        self.counts: dict[str, dict[Labels, float]] = {}
        self.times: dict[str, dict[Labels, Histogram]] = {}
        self.watched: dict[str, Callable[[], float]] = {}  # read when metrics are collected

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        counts, key = self.counts.setdefault(name, {}), tuple(labels.items())
        counts[key] = counts.get(key, 0) + by

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self.times.setdefault(name, {}).setdefault(tuple(labels.items()), Histogram()).add(seconds)

    def run(self, run: Run) -> None:
        self.count("quire_runs_total", outcome=run.state.value.lower())
        self.observe("quire_run_seconds", run.seconds or 0.0)

    def watch(self, name: str, count: Callable[[], float]) -> None:
        self.watched[name] = count
