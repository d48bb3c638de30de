"""What is dropped or hibernated when memory is scarce, and how much memory there is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from quire.core.kernels import memory_pressure
from quire.core.kernels.memory_pressure import DropCheckpoints, Hibernate, MemoryWatcher, next_step
from quire.core.kernels.slots import KernelSlots, KernelStatus
from quire.core.limits.quotas import Quotas
from quire.core.model import ForkReport, Notebook, NotebookId, Principal
from quire.core.ports.kernel import Kernel, Memory
from quire.runtimes.machine import LinuxMachine
from tests.support.waiting import reached


@dataclass
class FakeKernel:
    """Its checkpoints take 10 bytes each, and itself `own`."""

    checkpoints: dict[str, ForkReport]
    own: int = 100

    def forget(self, name: str) -> None:
        del self.checkpoints[name]

    def memory(self) -> int:
        return self.own + 10 * len(self.checkpoints)


@dataclass
class FakeSlots:
    """Kernels and their machine."""

    free: int
    statuses: dict[str, KernelStatus] = field(default_factory=dict)
    can_hibernate: set[str] = field(default_factory=set)
    tried: list[str] = field(default_factory=list)
    total: int = 1000

    def add(self, name: str, idle: float | None, *checkpoints: str, named: str = "", owner: str = "ann") -> None:
        kernel = FakeKernel(dict.fromkeys(checkpoints, ForkReport(quality="clean")))
        notebook = Notebook(
            id=NotebookId(name), name=name, owner=Principal(owner), runtime="python", created_at=time.time()
        )
        names = frozenset({named} if named else ())
        self.statuses[name] = KernelStatus(notebook=notebook, kernel=cast(Kernel, kernel), named=names, idle=idle)

    def list_live(self) -> list[KernelStatus]:
        return list(self.statuses.values())

    def memory(self) -> Memory:
        held = sum(each.kernel.memory() for each in self.list_live())
        return Memory(total=self.total, available=self.free - held)

    async def hibernate(self, notebook: Notebook, why: str) -> bool:
        self.tried.append(notebook.name)
        if notebook.name in self.can_hibernate:
            del self.statuses[notebook.name]
            return True
        return False


class Pauses:
    """Replaces the watcher's anyio and counts its checks."""

    move_on_after = staticmethod(anyio.move_on_after)

    def __init__(self) -> None:
        self.checks = 0

    async def sleep(self, seconds: float) -> None:
        self.checks += seconds == memory_pressure._POLL_S
        await anyio.sleep(seconds)


async def run_watcher(slots: FakeSlots, **quotas: int) -> None:
    """Let the watcher check twice."""
    with pytest.MonkeyPatch.context() as patch:
        pauses = Pauses()
        patch.setattr(memory_pressure, "anyio", pauses)
        watcher = MemoryWatcher(slots, cast(KernelSlots, slots), slots.hibernate, Quotas(**quotas))
        async with anyio.create_task_group() as group:
            group.start_soon(watcher.watch)
            await reached(lambda: pauses.checks >= 3, "two checks are over")
            group.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pressure, "_POLL_S", 0.01)
    monkeypatch.setattr(memory_pressure, "_SETTLE_S", 0.0)


def test_old_checkpoints_are_dropped_before_idle_kernels_sleep() -> None:
    slots = FakeSlots(free=0)
    slots.add("runs", None, "1", "2", "3")
    slots.add("idle", 5.0, "1", "2", named="1")
    slots.add("long", 50.0, "1")
    first = next_step(slots.list_live(), set())
    assert isinstance(first, list)
    assert [(each.kernel.id, each.names) for each in first] == [("runs", ("1", "2"))]
    for each in first:
        for name in each.names:
            each.kernel.kernel.forget(name)
    assert next_step(slots.list_live(), set()) == Hibernate(kernel=slots.statuses["long"])
    assert next_step(slots.list_live(), {NotebookId("long")}) == Hibernate(kernel=slots.statuses["idle"])
    rest = next_step(slots.list_live(), {NotebookId("long"), NotebookId("idle")})
    assert rest == [
        DropCheckpoints(kernel=slots.statuses["long"], names=("1",)),
        DropCheckpoints(kernel=slots.statuses["idle"], names=("1", "2")),
    ]
    for each in ("idle", "long"):
        cast(Any, slots.statuses[each].kernel).checkpoints.clear()
    assert next_step(slots.list_live(), {NotebookId("long"), NotebookId("idle")}) is None  # busy kernels stay


async def test_frees_only_as_much_memory_as_needed() -> None:
    slots = FakeSlots(free=400, can_hibernate={"a", "b"})
    slots.add("a", 10.0, "1", "2")
    slots.add("b", 20.0, "1")
    await run_watcher(slots, min_free_bytes=180)  # 170 are available, and 180 without the old checkpoint
    assert list(slots.statuses["a"].kernel.checkpoints) == ["2"] and slots.tried == []
    await run_watcher(slots, min_free_bytes=200)
    assert slots.tried == ["b"] and list(slots.statuses) == ["a"]


async def test_frees_nothing_with_enough_memory() -> None:
    slots = FakeSlots(free=1000, can_hibernate={"a"})
    slots.add("a", 10.0, "1", "2")
    await run_watcher(slots, min_free_bytes=100, memory_per_user=10)  # less than is in use
    assert slots.tried == ["a"]
    slots = FakeSlots(free=1000, can_hibernate={"a"})
    slots.add("a", 10.0, "1", "2")
    await run_watcher(slots, min_free_bytes=100, memory_per_user=500)
    assert slots.tried == [] and len(slots.statuses["a"].kernel.checkpoints) == 2


async def test_user_over_memory_quota_loses_only_own_kernels() -> None:
    slots = FakeSlots(free=1000, can_hibernate={"a", "b", "c"})
    slots.add("a", 10.0, "1", owner="ann")
    slots.add("b", 20.0, "1", owner="ann")
    slots.add("c", 90.0, "1", "2", owner="ben")
    await run_watcher(slots, memory_per_user=150)
    assert slots.tried == ["b"] and set(slots.statuses) == {"a", "c"}
    assert len(slots.statuses["c"].kernel.checkpoints) == 2


async def test_hibernation_is_tried_once_and_busy_kernels_stay() -> None:
    slots = FakeSlots(free=0)
    slots.add("a", 10.0, "1")
    slots.add("runs", None, "1")
    watcher = MemoryWatcher(slots, cast(KernelSlots, slots), slots.hibernate, Quotas(min_free_bytes=100))
    await watcher._relieve("", watcher._is_scarce)
    assert slots.tried == ["a"]
    assert not slots.statuses["a"].kernel.checkpoints and slots.statuses["runs"].kernel.checkpoints


MEMINFO = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("", {}, (1_024_000, 614_400)),
        (
            "0::/a/b",
            {
                "a/memory.max": "500000",
                "a/memory.current": "400000",
                "a/memory.stat": "anon 1\ninactive_file 5000\n",
                "a/b/memory.max": "max",
                "a/b/memory.current": "1",
                "a/b/memory.stat": "",
            },
            (500_000, 105_000),
        ),
        (
            "4:cpu:/x\n3:memory:/",
            {
                "memory/memory.limit_in_bytes": "200000",
                "memory/memory.usage_in_bytes": "150000",
                "memory/memory.stat": "total_inactive_file 1000\n",
            },
            (200_000, 51_000),
        ),
        ("3:memory:/", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, (1_024_000, 614_400)),
    ],
    ids=["machine", "v2", "v1", "v1 without limit"],
)
def test_lowest_limit_of_machine_and_cgroups_counts(
    tmp_path: Path, cgroup: str, files: dict[str, str], expected: tuple[int, int]
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "self/cgroup").write_text(cgroup)
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    memory = LinuxMachine(proc, groups).memory()
    assert (memory.total, memory.available) == expected


def test_machine_memory_is_read_and_unknown_is_unlimited(tmp_path: Path) -> None:
    here = LinuxMachine().memory()
    assert 0 < here.available <= here.total < 2**60
    assert LinuxMachine(tmp_path, tmp_path).memory().available > 2**60
