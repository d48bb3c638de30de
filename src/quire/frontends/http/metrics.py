"""What happened, and how things stand, as Prometheus reads it."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from quire.core.app import App
from quire.core.tally import SECONDS, Histogram, Labels

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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


def text(app: App, taken: dict[str, int]) -> str:
    lines: list[str] = []
    for name, values in (*_counted(app), *_standing(app, taken), *_process()):
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [
            *_head(name, kind),
            *(f"{name}{_labels(labels)} {_number(value)}" for labels, value in values.items()),
        ]
    for name, times in sorted(app.calls.tally.times.items()):
        lines += _head(name, "histogram")
        for labels, histogram in times.items():
            lines += _histogram(name, labels, histogram)
    return "\n".join(lines) + "\n"


def _counted(app: App) -> Iterator[tuple[str, dict[Labels, float]]]:
    yield from sorted(app.calls.tally.counts.items())
    for name, count in sorted(app.calls.tally.watched.items()):
        yield name, {(): count()}


def _standing(app: App, taken: dict[str, int]) -> Iterator[tuple[str, dict[Labels, float]]]:
    live, checkpoints, spare = app.kernels.count()
    active, waiting = app.runs.count()
    yield "quire_build_info", {(("version", app.about["quire"]),): 1}
    yield "quire_kernels_live", {(): live}
    yield "quire_kernels_spare", {(): spare}
    yield "quire_checkpoints", {(): checkpoints}
    yield "quire_runs_active", {(): active}
    yield "quire_runs_waiting", {(): waiting}
    if app.disk is not None:
        yield "quire_store_bytes", {(("part", part),): size for part, size in taken.items()}
        yield "quire_store_free_bytes", {(): app.disk.free()}


def _process() -> Iterator[tuple[str, dict[Labels, float]]]:
    times = os.times()
    yield "process_cpu_seconds_total", {(): times.user + times.system}
    with contextlib.suppress(OSError):  # only Linux says these
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
        yield "process_resident_memory_bytes", {(): pages * mmap.PAGESIZE}
        yield "process_open_fds", {(): len(os.listdir("/proc/self/fd"))}  # noqa: PTH208 - names only


def _head(name: str, kind: str) -> list[str]:
    return [f"# HELP {name} {HELP.get(name, name)}", f"# TYPE {name} {kind}"]


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    ends = [*(f"{each:g}" for each in SECONDS), "+Inf"]
    for end, count in zip(ends, accumulate(histogram.buckets), strict=True):
        yield f"{name}_bucket{_labels((*labels, ('le', end)))} {count}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.total)}"
    yield f"{name}_count{_labels(labels)} {sum(histogram.buckets)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for _, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for (name, _), value in zip(labels, escaped, strict=True)) + "}"
