"""What goes when memory is scarce, in which order, and how much memory there is."""

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
class Held:
    """A kernel, as far as memory goes: each checkpoint holds 10, it itself `own`."""

    checkpoints: dict[str, ForkReport]
    own: int = 100

    def forget(self, name: str) -> None:
        del self.checkpoints[name]

    def memory(self) -> int:
        return self.own + 10 * len(self.checkpoints)


@dataclass
class House:
    """Kernels and the machine they are on."""

    free: int
    books: dict[str, KernelStatus] = field(default_factory=dict)
    sound: set[str] = field(default_factory=set)  # those that can sleep
    did: list[str] = field(default_factory=list)
    total: int = 1000

    def add(self, name: str, idle: float | None, *checkpoints: str, named: str = "", owner: str = "ann") -> None:
        kernel = Held(dict.fromkeys(checkpoints, ForkReport(quality="clean")))
        notebook = Notebook(
            id=NotebookId(name), name=name, owner=Principal(owner), runtime="python", created_at=time.time()
        )
        names = frozenset({named} if named else ())
        self.books[name] = KernelStatus(notebook=notebook, kernel=cast(Kernel, kernel), named=names, idle=idle)

    def list_live(self) -> list[KernelStatus]:
        return list(self.books.values())

    def memory(self) -> Memory:
        held = sum(each.kernel.memory() for each in self.list_live())
        return Memory(total=self.total, available=self.free - held)

    async def hibernate(self, notebook: Notebook, why: str) -> bool:
        self.did.append(notebook.name)
        if notebook.name in self.sound:
            del self.books[notebook.name]
            return True
        return False


class Pauses:
    """The watcher's anyio, which counts the pauses between its looks."""

    move_on_after = staticmethod(anyio.move_on_after)

    def __init__(self) -> None:
        self.between_looks = 0

    async def sleep(self, seconds: float) -> None:
        self.between_looks += seconds == memory_pressure._POLL_S
        await anyio.sleep(seconds)


async def relieved(house: House, **quotas: int) -> None:
    """Two looks of the watcher."""
    with pytest.MonkeyPatch.context() as patch:
        pauses = Pauses()
        patch.setattr(memory_pressure, "anyio", pauses)
        watcher = MemoryWatcher(house, cast(KernelSlots, house), house.hibernate, Quotas(**quotas))
        async with anyio.create_task_group() as group:
            group.start_soon(watcher.watch)
            await reached(lambda: pauses.between_looks >= 3, "two looks are over")
            group.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pressure, "_POLL_S", 0.01)
    monkeypatch.setattr(memory_pressure, "_SETTLE_S", 0.0)


def test_old_checkpoints_go_first_then_the_longest_idle_kernel() -> None:
    house = House(free=0)
    house.add("runs", None, "1", "2", "3")
    house.add("idle", 5.0, "1", "2", named="1")
    house.add("long", 50.0, "1")
    first = next_step(house.list_live(), set())
    assert isinstance(first, list)
    assert [(each.kernel.id, each.names) for each in first] == [("runs", ("1", "2"))]
    for each in first:
        for name in each.names:
            each.kernel.kernel.forget(name)
    assert next_step(house.list_live(), set()) == Hibernate(kernel=house.books["long"])
    assert next_step(house.list_live(), {NotebookId("long")}) == Hibernate(kernel=house.books["idle"])
    rest = next_step(house.list_live(), {NotebookId("long"), NotebookId("idle")})
    assert rest == [
        DropCheckpoints(kernel=house.books["long"], names=("1",)),
        DropCheckpoints(kernel=house.books["idle"], names=("1", "2")),
    ]
    for each in ("idle", "long"):
        cast(Any, house.books[each].kernel).checkpoints.clear()
    assert next_step(house.list_live(), {NotebookId("long"), NotebookId("idle")}) is None  # what runs is left alone


async def test_no_more_goes_than_is_needed() -> None:
    house = House(free=400, sound={"a", "b"})
    house.add("a", 10.0, "1", "2")
    house.add("b", 20.0, "1")
    await relieved(house, free=180)  # 170 are available, and 180 without the old checkpoint
    assert list(house.books["a"].kernel.checkpoints) == ["2"] and house.did == []
    await relieved(house, free=200)
    assert house.did == ["b"] and list(house.books) == ["a"]


async def test_with_enough_memory_nothing_goes() -> None:
    house = House(free=1000, sound={"a"})
    house.add("a", 10.0, "1", "2")
    await relieved(house, free=100, memory_each=10)  # which is nothing like what is in use
    assert house.did == ["a"]
    house = House(free=1000, sound={"a"})
    house.add("a", 10.0, "1", "2")
    await relieved(house, free=100, memory_each=500)
    assert house.did == [] and len(house.books["a"].kernel.checkpoints) == 2


async def test_a_principal_who_holds_too_much_pays_for_it_alone() -> None:
    house = House(free=1000, sound={"a", "b", "c"})
    house.add("a", 10.0, "1", owner="ann")
    house.add("b", 20.0, "1", owner="ann")
    house.add("c", 90.0, "1", "2", owner="ben")
    await relieved(house, memory_each=150)
    assert house.did == ["b"] and set(house.books) == {"a", "c"}
    assert len(house.books["c"].kernel.checkpoints) == 2


async def test_one_that_cannot_sleep_is_tried_once_and_a_run_goes_on() -> None:
    house = House(free=0)
    house.add("a", 10.0, "1")
    house.add("runs", None, "1")
    watcher = MemoryWatcher(house, cast(KernelSlots, house), house.hibernate, Quotas(free=100))
    await watcher._relieve("", watcher._is_scarce)
    assert house.did == ["a"]
    assert not house.books["a"].kernel.checkpoints and house.books["runs"].kernel.checkpoints


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
def test_the_scarcest_of_machine_and_cgroups_counts(
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


def test_memory_of_this_machine_is_read_and_unknown_memory_is_plenty(tmp_path: Path) -> None:
    here = LinuxMachine().memory()
    assert 0 < here.available <= here.total < 2**60
    assert LinuxMachine(tmp_path, tmp_path).memory().available > 2**60
