"""A pytest plugin that measures where the time of the suite goes.

`make test ARGS="-p tests.support.measure"` writes one line of JSON per test to `.measure/WORKER.jsonl`: wall time,
processor time of the test and the processes it started, and how many servers and apps it started.
`python -m tests.support.measure` sums the lines by file.
"""

from __future__ import annotations

import collections
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(".measure")
SERVER_COMMANDS = ("-m quire", "bin/quire", "jupyter-lab", "jupyter server", "jupyterlab")

_starts: collections.Counter[str] = collections.Counter()


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen":
        return
    argv = arguments[1]
    command = " ".join(map(os.fsdecode, argv)) if isinstance(argv, (list, tuple)) else str(argv)
    if any(part in command for part in SERVER_COMMANDS):
        _starts["servers"] += 1
    elif "quire.worker" in command or "worker" in command:
        _starts["workers"] += 1
    else:
        _starts["other"] += 1


def _cpu_seconds() -> float:
    """Of this process and all it started: those that ended, and those that still run with what they waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    running = Path("/proc/self/task").glob("*/children")
    pids = [pid for children in running for pid in children.read_text().split()]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_cpu_seconds_of, pids))


def _cpu_seconds_of(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER") is None and config.getoption("numprocesses", None):
        return
    from quire import compose

    open_app = compose.app

    def counted(*arguments: Any, **named: Any) -> Any:
        _starts["apps"] += 1
        return open_app(*arguments, **named)

    compose.app = counted  # type: ignore[assignment]
    sys.addaudithook(_count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    import time

    _starts.clear()
    wall, cpu = time.monotonic(), _cpu_seconds()
    yield
    row = {
        "test": item.nodeid,
        "wall": round(time.monotonic() - wall, 3),
        "cpu": round(_cpu_seconds() - cpu, 3),
        **_starts,
    }
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl").open("a") as out:
        out.write(json.dumps(row) + "\n")
    return None


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    columns = ("tests", "wall", "cpu", "servers", "apps", "workers", "other")
    files: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        for name in (row["test"].split("::")[0], "all"):
            files[name]["tests"] += 1
            files[name].update({column: row.get(column, 0) for column in columns[1:]})
    yield "".join(f"{column:>9}" for column in columns) + "  file"
    for name, sums in sorted(files.items(), key=lambda file: -file[1]["wall"]):
        yield "".join(f"{sums[column]:>9.0f}" for column in columns) + f"  {name}"


if __name__ == "__main__":
    lines = [line for path in FOLDER.glob("*.jsonl") for line in path.read_text().splitlines()]
    print("\n".join(_table([json.loads(line) for line in lines])))
