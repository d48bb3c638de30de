"""One suite for every Installed, and one for every Audit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from quire.core.capability import Approve, Backend, CallRecord, Capability, Offered, Tool
from quire.core.capability_ports import Audit, Installed
from quire.core.model import LOCAL, Principal
from quire.stores.audit import FileAudit, MemoryAudit
from quire.stores.memory import MemoryCapabilities
from quire.stores.sql import SqlStore

OTHER = Principal("another")


@pytest.fixture(params=["memory", "sql"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Installed]:
    if request.param == "memory":
        yield MemoryCapabilities()
        return
    store = SqlStore(tmp_path)
    yield store.capabilities
    await store.close()


def a_capability(name: str = "gmail", owner: Principal = LOCAL, at: float = 1.0, **more: Any) -> Capability:
    given: dict[str, Any] = {"backend": Backend(command=("serve", "--all")), "offered": Offered(), **more}
    return Capability(owner=owner, name=name, installed_at=at, **given)


FULL = a_capability(
    backend=Backend(
        url="https://mail.test/mcp",
        headers={"Authorization": "Bearer env:TOKEN", "X-Ünï": "‮x"},
        env={"A": ""},
        folder="/somewhere",
        config="/a/file.json",
        entry="mail",
    ),
    offered=Offered(
        tools=(
            Tool(name="search-mail", description="Finds.\nAll.", input={"type": "object", "properties": {"q": {}}}),
            Tool(name="send", output={"type": "object"}, hints={"destructiveHint": True, "title": None}),
        ),
        about="Mail, with 𝄞.",
        server="mail 1.0",
        resources=True,
        prompts=True,
    ),
    approve={"send": Approve.ALWAYS, "*": Approve.ASK},
)


async def test_what_is_kept_comes_back_the_same(kept: Installed) -> None:
    await kept.keep(FULL)
    assert await kept.of(LOCAL) == [FULL]
    [found] = await kept.of(LOCAL)
    assert type(found.approve["send"]) is Approve and type(found.backend.command) is tuple


async def test_nothing_is_kept_at_first(kept: Installed) -> None:
    assert await kept.of(LOCAL) == []


async def test_they_are_listed_oldest_first(kept: Installed) -> None:
    for name, at in (("c", 3.0), ("a", 2.0), ("b", 1.0), ("d", 2.0)):
        await kept.keep(a_capability(name, at=at))
    assert [each.name for each in await kept.of(LOCAL)] == ["b", "a", "d", "c"]


async def test_one_of_the_same_name_is_replaced(kept: Installed) -> None:
    await kept.keep(a_capability("gmail"))
    changed = replace(FULL, offered=Offered(tools=(Tool(name="new"),)))
    await kept.keep(changed)
    assert await kept.of(LOCAL) == [changed]


async def test_what_it_offers_is_renewed_only_while_it_is_the_one_that_was_installed(kept: Installed) -> None:
    old, other = a_capability(at=1.0), Offered(about="Other tools now.")
    await kept.renew(replace(old, offered=other))
    assert await kept.of(LOCAL) == []  # uninstalled is uninstalled
    await kept.keep(old)
    await kept.renew(replace(old, offered=other))
    assert [each.offered for each in await kept.of(LOCAL)] == [other]
    new = a_capability(at=2.0, backend=Backend(command=("another",)))
    await kept.keep(new)
    await kept.renew(replace(old, offered=other))
    assert await kept.of(LOCAL) == [new]


async def test_each_owner_has_their_own(kept: Installed) -> None:
    await kept.keep(a_capability("gmail"))
    await kept.keep(a_capability("gmail", OTHER, at=5.0))
    assert [(each.owner, each.installed_at) for each in await kept.of(LOCAL)] == [(LOCAL, 1.0)]
    await kept.drop(LOCAL, "gmail")
    assert await kept.of(LOCAL) == []
    assert [each.owner for each in await kept.of(OTHER)] == [OTHER]


async def test_dropping_what_is_not_there_is_nothing(kept: Installed) -> None:
    await kept.keep(a_capability("gmail"))
    await kept.drop(LOCAL, "drive")
    assert len(await kept.of(LOCAL)) == 1


async def test_what_is_kept_is_on_disk_when_it_returns_and_others_are_told(tmp_path: Path) -> None:
    one, two = SqlStore(tmp_path), SqlStore(tmp_path)
    try:
        before = two.capabilities.stamp()
        assert two.capabilities.stamp() == before
        await one.capabilities.keep(FULL)
        after = two.capabilities.stamp()
        assert after != before and await two.capabilities.of(LOCAL) == [FULL]
        await two.capabilities.drop(LOCAL, "gmail")
        assert one.capabilities.stamp() != after and await one.capabilities.of(LOCAL) == []
    finally:
        await one.close()
        await two.close()


# Audit


@dataclass(frozen=True, kw_only=True)
class Log:
    audit: Audit
    lines: Callable[[], list[dict[str, Any]]]


@pytest.fixture(params=["memory", "file"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    if request.param == "memory":
        memory = MemoryAudit()
        return Log(audit=memory, lines=lambda: [{**vars(each)} for each in memory.calls])
    path = tmp_path / "audit.jsonl"
    return Log(audit=FileAudit(path), lines=lambda: written(path))


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def a_call(method: str = "search", **more: Any) -> CallRecord:
    given: dict[str, Any] = {"at": 1.5, "who": LOCAL, "notebook": "main", "cell": 3, "capability": "gmail", **more}
    return CallRecord(method=method, digest="0" * 64, outcome="ok", ms=1.25, **given)


def test_each_call_is_a_record_in_their_order(log: Log) -> None:
    calls = [a_call(f"m{n}") for n in range(5)]
    for each in calls:
        log.audit.record(each)
    assert log.lines() == [{**vars(each)} for each in calls]


@pytest.mark.parametrize("odd", ["line\nbreak", "ünï 𝄞", '"quoted"', "x" * 100_000, "\u2028"])
def test_odd_names_stay_one_record(log: Log, odd: str) -> None:
    log.audit.record(a_call(odd, notebook=odd, cell=None))
    log.audit.record(a_call())
    first, second = log.lines()
    assert (first["method"], first["notebook"], first["cell"]) == (odd, odd, None) and second["method"] == "search"


def test_a_text_that_no_file_can_hold_costs_no_record(log: Log) -> None:
    log.audit.record(a_call("lone \ud800 half"))
    log.audit.record(a_call())
    assert [each["capability"] for each in log.lines()] == ["gmail", "gmail"]


def test_the_file_is_the_owners_alone_and_grows_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        audit = FileAudit(path)
        audit.record(a_call())
        audit.close()
        audit.close()
    assert len(written(path)) == 3 and path.stat().st_mode & 0o077 == 0


def test_lines_of_several_servers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    code = f"""
from pathlib import Path
from quire.core.capability import CallRecord
from quire.stores.audit import FileAudit
audit = FileAudit(Path({str(path)!r}))
for n in range(500):
    audit.record(CallRecord(at=1.0, who='local', notebook='x' * (n % 97), cell=n, capability='c', method='m',
                            digest='d', outcome='ok', ms=1.0))
"""
    several = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [each.wait(60) for each in several] == [0, 0, 0]
    found = written(path)
    assert sorted(each["cell"] for each in found) == sorted(list(range(500)) * 3)


def test_a_disk_that_takes_no_more_fails_no_call(tmp_path: Path) -> None:
    audit = FileAudit(tmp_path / "nowhere" / "audit.jsonl")
    audit.record(a_call())
    (tmp_path / "nowhere").mkdir()
    audit.record(a_call("later"))
    assert [each["method"] for each in written(tmp_path / "nowhere" / "audit.jsonl")] == ["later"]


def test_a_full_file_is_put_beside_and_nothing_of_a_server_that_has_it_open_is_lost(tmp_path: Path) -> None:
    path, beside = tmp_path / "audit.jsonl", tmp_path / "audit.old.jsonl"
    long_running = FileAudit(path)
    long_running.record(a_call("first"))
    for _ in range(2):  # each server that starts finds a file that is full enough
        os.truncate(path, 48 << 20)
        starting = FileAudit(path)
        starting.record(a_call("starts"))
        starting.close()
    assert beside.exists() and path.stat().st_size < 1_000
    long_running.record(a_call("still there"))
    kept = path.read_bytes() + beside.read_bytes()[-10_000:]
    assert b"still there" in kept
