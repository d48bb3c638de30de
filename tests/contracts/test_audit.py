"""One suite for every Audit; what the files of it promise; and how its lines are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quire.core.model import LOCAL
from quire.core.ops import audit
from quire.core.ops.audit import Audit, AuditFilter, Record
from quire.stores.audit import AuditFileReader, FileAudit, MemoryAudit
from tests.support.waiting import wait_until


@dataclass(frozen=True, kw_only=True)
class Log:
    audit: Audit
    lines: Callable[[], list[dict[str, Any]]]


@pytest.fixture(params=["memory", "file"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    if request.param == "memory":
        memory = MemoryAudit()
        return Log(audit=memory, lines=lambda: [json.loads(audit.format_line(each)) for each in memory.records])
    path = tmp_path / "audit.jsonl"
    return Log(audit=FileAudit(path), lines=lambda: written(path))


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def a_call(tool: str = "execute", **more: Any) -> Record:
    given: dict[str, Any] = {"at": 1.5, "kind": "call", "who": LOCAL, "via": "stdio", "outcome": "ok", "ms": 1.25}
    return Record(tool=tool, **{**given, **more})


def read(folder: Path) -> list[dict[str, Any]]:
    """All there is, the oldest first."""
    files = AuditFileReader(folder / "audit.jsonl")
    return list(files.newest(files.end(), 0))[::-1]


def test_records_are_in_order_of_calls(log: Log) -> None:
    for n in range(5):
        log.audit.record(a_call(f"m{n}", cell=n))
    assert [(each["tool"], each["cell"]) for each in log.lines()] == [(f"m{n}", n) for n in range(5)]
    assert (log.audit.trouble, log.audit.lost) == ("", 0)


def test_line_has_time_caller_call_and_outcome(log: Log) -> None:
    log.audit.record(a_call(notebook="main", digest="0" * 16, received=3, sent=4, client="c/1", era="2026-07-28"))
    assert log.lines() == [
        {
            "at": "1970-01-01T00:00:01.500Z",
            "kind": "call",
            "who": "local",
            "client": "c/1",
            "session": None,
            "via": "stdio",
            "era": "2026-07-28",
            "tool": "execute",
            "notebook": "main",
            "cell": None,
            "run": None,
            "digest": "0" * 16,
            "outcome": "ok",
            "ms": 1.25,
            "in": 3,
            "out": 4,
        }
    ]


@pytest.mark.parametrize("odd", ["line\nbreak", "ünï 𝄞", '"quoted"', "x" * 100_000, "\u2028", '{"at":"', "\r"])
def test_odd_names_are_one_record(log: Log, odd: str) -> None:
    log.audit.record(a_call(odd, notebook=odd, cell=None))
    log.audit.record(a_call())
    first, second = log.lines()
    assert (first["tool"], first["notebook"], first["cell"]) == (odd, odd, None) and second["tool"] == "execute"
    assert audit.parse_line(audit.format_line(a_call(odd))) == json.loads(audit.format_line(a_call(odd)))


def test_text_that_cannot_be_encoded_loses_no_record(log: Log) -> None:
    log.audit.record(a_call("lone \ud800 half"))
    log.audit.record(a_call())
    assert [each["who"] for each in log.lines()] == ["local", "local"]


# Files


def test_files_are_private_and_grow_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        one = FileAudit(path, max_bytes=500)
        one.record(a_call())
        one.close()
        one.close()
    assert len(read(tmp_path)) == 3 and len(list(tmp_path.glob("audit-*.jsonl"))) == 1
    assert [file for file in tmp_path.iterdir() if file.stat().st_mode & 0o077] == []


WRITER = """
import sys
from pathlib import Path
from quire.core.ops.audit import Record
from quire.stores.audit import FileAudit
audit = FileAudit(Path(sys.argv[1]), max_bytes=int(sys.argv[2]), max_files=10_000)
print("begun", flush=True)
for n in range(int(sys.argv[4])):
    audit.record(Record(at=n / 1000, kind="call", who=sys.argv[3], via="stdio", tool="execute", outcome="ok", ms=1.0,
                        notebook="x" * (n % 97), cell=n))
assert audit.lost == 0, audit.trouble
"""


def writer(path: Path, most_bytes: int, who: str, calls: int = 2_000) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(most_bytes), who, str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("most_bytes", [1 << 30, 20_000])
def test_rotation_by_several_servers_keeps_each_line_once(tmp_path: Path, most_bytes: int) -> None:
    path = tmp_path / "audit.jsonl"
    several = [writer(path, most_bytes, who) for who in "abc"]
    assert [each.wait(60) for each in several] == [0, 0, 0]
    most = most_bytes + 3 * 500  # a line of each may find room at the same moment
    assert [file.stat().st_size for file in tmp_path.glob("*.jsonl") if file.stat().st_size > most] == []
    assert len(list(tmp_path.glob("audit-*.jsonl"))) >= (most_bytes < 1 << 30) * 50
    found = read(tmp_path)
    for who in "abc":
        assert sorted(each["cell"] for each in found if each["who"] == who) == list(range(2_000))
    for each in several:
        assert each.stdout is not None
        each.stdout.close()


def test_oldest_file_is_deleted_when_there_are_too_many(tmp_path: Path) -> None:
    one = FileAudit(tmp_path / "audit.jsonl", max_bytes=1_000, max_files=3)
    for n in range(100):
        one.record(a_call(cell=n))
    cells = [each["cell"] for each in read(tmp_path)]
    assert len(list(tmp_path.glob("*.jsonl"))) == 3 and cells == list(range(cells[0], 100)) and cells[0] > 80


@pytest.mark.parametrize("n", range(5))
def test_killed_server_loses_no_line_of_another(tmp_path: Path, n: int) -> None:
    path = tmp_path / "audit.jsonl"
    killed, other = writer(path, 5_000, "killed", 10_000_000), writer(path, 5_000, "other")
    assert killed.stdout is not None and other.stdout is not None
    assert killed.stdout.readline() == "begun\n"
    wait_until(lambda: any(each["who"] == "killed" for each in read(tmp_path)), "it has written")
    wait_until(lambda: len(list(tmp_path.glob("audit-*.jsonl"))) > 3 + 5 * n, "files were put beside")
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    assert other.wait(60) == 0
    found = read(tmp_path)
    assert sorted(each["cell"] for each in found if each["who"] == "other") == list(range(2_000))
    cells = sorted(each["cell"] for each in found if each["who"] == "killed")
    assert cells == list(range(len(cells))) and len(cells) > 0
    killed.stdout.close()
    other.stdout.close()


def test_incomplete_line_loses_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    one = FileAudit(path)
    one.record(a_call("first"))
    with path.open("ab") as file:
        file.write(audit.format_line(a_call("torn"))[:100])
    assert [each["tool"] for each in read(tmp_path)] == ["first"]
    one.record(a_call("next"))
    path.write_bytes(path.read_bytes() + b"\0\0\n[]\n{}\n\xff\n")
    assert [each["tool"] for each in read(tmp_path)] == ["first", "next"]


def test_lost_records_on_a_full_disk_are_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = FileAudit(tmp_path / "nowhere" / "audit.jsonl")
    for _ in range(3):
        one.record(a_call())
    assert one.lost == 3 and one.trouble == "No such file or directory"
    (tmp_path / "nowhere").mkdir()
    one.record(a_call("later"))
    assert [each["tool"] for each in read(tmp_path / "nowhere")] == ["later"]
    assert one.lost == 3 and one.trouble == ""
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_server_follows_a_rotation_by_another(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    long_running, starting = FileAudit(path, max_bytes=600), FileAudit(path, max_bytes=600)
    long_running.record(a_call("first"))
    starting.record(a_call("second"))
    starting.record(a_call("third"))  # does not fit
    long_running.record(a_call("fourth"))
    assert [each["tool"] for each in written(path)] == ["third", "fourth"]
    assert [each["tool"] for each in read(tmp_path)] == ["first", "second", "third", "fourth"]


# Reading


def test_entries_after_the_mark_are_read_once(tmp_path: Path) -> None:
    one = FileAudit(tmp_path / "audit.jsonl", max_bytes=1_000, max_files=100)
    for n in range(7):
        one.record(a_call(cell=n))
    files = AuditFileReader(tmp_path / "audit.jsonl")
    mark = files.end()
    coming, came = files.follow(mark), list[int]()
    for n in range(7, 30):
        one.record(a_call(cell=n))
        if n % 5 == 0:
            for each in iter(lambda: next(coming), None):
                came.append(each["cell"])
    for each in iter(lambda: next(coming), None):
        came.append(each["cell"])
    assert came == list(range(7, 30))
    assert [each["cell"] for each in files.newest(mark, 0)][::-1] == list(range(7))


def test_files_older_than_requested_are_not_read(tmp_path: Path) -> None:
    one = FileAudit(tmp_path / "audit.jsonl", max_bytes=600)
    for n in range(6):
        one.record(a_call(cell=n))
    oldest = sorted(tmp_path.glob("audit-*.jsonl"))[0]
    os.utime(oldest, (1_000, 1_000))
    files = AuditFileReader(tmp_path / "audit.jsonl")
    assert [each["cell"] for each in files.newest(files.end(), 2_000)] == [5, 4, 3, 2]


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (AuditFilter(), True),
        (AuditFilter(who="ada", tool="files.read", notebook="main", outcome="ok", kind="capability", since=99.0), True),
        (AuditFilter(tool="files.*"), True),
        (AuditFilter(tool="*.read"), True),
        (AuditFilter(who="bob"), False),
        (AuditFilter(tool="files"), False),
        (AuditFilter(notebook="other"), False),
        (AuditFilter(outcome="error"), False),
        (AuditFilter(kind="call"), False),
        (AuditFilter(since=100.5), False),
        (AuditFilter(since=100.0), True),
    ],
)
def test_entries_are_filtered_by_all_criteria(wanted: AuditFilter, fits: bool) -> None:
    record = a_call("files.read", at=100.0, who="ada", notebook="main", kind="capability")
    assert wanted.matches(json.loads(audit.format_line(record))) is fits


def test_size_of_deeply_nested_values_is_known() -> None:
    deep: Any = "ab"
    for _ in range(100_000):
        deep = [deep]
    assert audit.content_bytes(deep) == 2 and audit.content_bytes({"a": "é", "b": [1.5, None, True]}) == 2 + 3 + 4
