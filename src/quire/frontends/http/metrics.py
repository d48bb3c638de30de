"""Counters and current values in the text format of Prometheus."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from quire.core.app import App
from quire.core.ops.metrics import SECONDS, Labels

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENDS = (*(f"{each:g}" for each in SECONDS), "+Inf")

HELP = {
    "quire_build_info": "The version that runs.",
    "quire_calls_total": "Calls of clients that ended, by tool and outcome.",
    "quire_call_seconds": "Seconds such a call took, by tool.",
    "quire_capability_calls_total": "Calls of capabilities by cells, by outcome.",
    "quire_capability_call_seconds": "Seconds such a call took.",
    "quire_runs_total": "Runs that ended, by outcome.",
    "quire_run_seconds": "Seconds a run took.",
    "quire_runs_active": "Runs under way.",
    "quire_runs_waiting": "Runs that wait for their turn.",
    "quire_kernels_live": "Kernels that live.",
    "quire_kernels_spare": "Kernels that are kept ready.",
    "quire_checkpoints": "Checkpoints that live kernels hold.",
    "quire_audit_lost_total": "Calls that could not be written to the audit log.",
    "quire_store_bytes": "Bytes on disk, by part; looked at every 30 seconds.",
    "quire_store_free_bytes": "Bytes that the disk has left.",
    "process_resident_memory_bytes": "Memory of the server's own process.",
    "process_cpu_seconds_total": "Processor time of the server's own process.",
    "process_open_fds": "Descriptors that it has open.",
}


def text(app: App, store_bytes: dict[str, int]) -> str:
    from prometheus_client import CollectorRegistry, generate_latest  # slow to import, so not at start-up

    registry = CollectorRegistry()
    registry.register(_Metrics(app, store_bytes))
    return generate_latest(registry).decode()


class _Metrics:
    """A collector for prometheus_client."""

    def __init__(self, app: App, store_bytes: dict[str, int]) -> None:
        self._app = app
        self._store_bytes = store_bytes

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, values in (*_counted(self._app), *_gauges(self._app, self._store_bytes), *_process()):
            make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = make(name, HELP.get(name, name), labels=_label_names(values))
            for labels, value in values.items():
                family.add_metric([text for _, text in labels], value)
            yield family
        for name, times in sorted(self._app.calls.tally.times.items()):
            timed = HistogramMetricFamily(name, HELP.get(name, name), labels=_label_names(times))
            for labels, histogram in times.items():
                buckets = list(zip(_ENDS, accumulate(histogram.buckets), strict=True))
                timed.add_metric([text for _, text in labels], buckets, histogram.total)
            yield timed


def _label_names(values: Iterable[Labels]) -> list[str]:
    return [name for name, _ in next(iter(values), ())]


def _counted(app: App) -> Iterator[tuple[str, dict[Labels, float]]]:
    yield from sorted(app.calls.tally.counts.items())
    for name, count in sorted(app.calls.tally.watched.items()):
        yield name, {(): count()}


def _gauges(app: App, store_bytes: dict[str, int]) -> Iterator[tuple[str, dict[Labels, float]]]:
    live, checkpoints, spare = app.kernels.count()
    active, waiting = app.runs.count()
    yield "quire_build_info", {(("version", app.about["quire"]),): 1}
    yield "quire_kernels_live", {(): live}
    yield "quire_kernels_spare", {(): spare}
    yield "quire_checkpoints", {(): checkpoints}
    yield "quire_runs_active", {(): active}
    yield "quire_runs_waiting", {(): waiting}
    if app.disk is not None:
        yield "quire_store_bytes", {(("part", part),): size for part, size in store_bytes.items()}
        yield "quire_store_free_bytes", {(): app.disk.free_bytes()}


def _process() -> Iterator[tuple[str, dict[Labels, float]]]:
    times = os.times()
    yield "process_cpu_seconds_total", {(): times.user + times.system}
    with contextlib.suppress(OSError):  # Linux only
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
        yield "process_resident_memory_bytes", {(): pages * mmap.PAGESIZE}
        yield "process_open_fds", {(): len(os.listdir("/proc/self/fd"))}  # noqa: PTH208 - names only
