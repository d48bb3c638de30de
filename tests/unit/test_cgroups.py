"""Control groups: found in what Linux says of itself, limits written as each kind of tree wants them, and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire.core.errors import OperationFailed
from quire.runtimes.sandbox import cgroups
from quire.runtimes.sandbox.cgroups import Cgroup, Cgroups
from tests.support.external_programs import missing
from tests.support.waiting import DEADLINE, wait_until

_V1 = """
24 1 0:22 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
33 24 0:29 / {root}/memory rw,nosuid shared:15 - cgroup cgroup rw,memory
34 24 0:30 / {root}/pids rw,nosuid shared:16 - cgroup cgroup rw,pids
35 24 0:31 / {root}/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
"""
_V2 = "30 24 0:26 / {root} rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
_HYBRID = _V1 + "36 24 0:32 / {root}/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate"
_CONTAINER = """
33 24 0:29 /docker/abc {root}/memory ro,nosuid master:15 - cgroup cgroup rw,memory
34 24 0:30 /docker/abc {root}/pids ro,nosuid master:16 - cgroup cgroup rw,pids
"""


def trees(own: str, mounts: str, root: Path) -> list[tuple[str, int]]:
    found = cgroups._trees(own, mounts.strip().format(root=root))
    return [(str(folder.relative_to(root)), kind) for folder, kind in found]


def test_a_tree_for_each_resource(tmp_path: Path) -> None:
    own = "4:cpu,cpuacct:/x\n3:pids:/user/me\n2:memory:/user/me\n1:name=systemd:/user/me"
    assert trees(own, _V1, tmp_path) == [("pids/user/me", 1), ("memory/user/me", 1), ("cpu,cpuacct/x", 1)]
    assert trees("4:cpu,cpuacct:/x", _V1, tmp_path) == []  # what is not counted is not walled


def test_one_tree(tmp_path: Path) -> None:
    (tmp_path / "user/me").mkdir(parents=True)
    (tmp_path / "user/me/cgroup.controllers").write_text("cpu memory pids\n")
    assert trees("0::/user/me", _V2, tmp_path) == [("user/me", 2)]
    (tmp_path / "user/me/cgroup.controllers").write_text("cpu\n")
    assert trees("0::/user/me", _V2, tmp_path) == []


def test_both_versions_at_once(tmp_path: Path) -> None:
    (tmp_path / "unified/me").mkdir(parents=True)
    (tmp_path / "unified/me/cgroup.controllers").write_text("\n")  # all are in the other trees
    own = "2:memory:/me\n1:pids:/me\n0::/me"
    assert sorted(trees(own, _HYBRID, tmp_path)) == [("memory/me", 1), ("pids/me", 1)]


def test_container_mount_shows_part_of_the_tree(tmp_path: Path) -> None:
    own = "2:memory:/docker/abc\n1:pids:/docker/abc/inner"
    assert sorted(trees(own, _CONTAINER, tmp_path)) == [("memory", 1), ("pids/inner", 1)]


def test_no_groups_without_memory_or_pids_trees(tmp_path: Path) -> None:
    assert trees("0::/me\n1:memory:/me", "24 1 0:22 / / rw,relatime shared:1 - ext4 /dev/sda1 rw", tmp_path) == []
    assert trees("", _V1, tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "memory", "processes", "written"),
    [
        (1, 5_000_000, 20, ("5000000", "520")),
        (1, 0, 0, ("-1", "max")),
        (2, 5_000_000, 20, ("5000000", "520")),
        (2, 0, 0, ("max", "max")),
    ],
)
def test_limits_are_written_for_each_version(
    tmp_path: Path, kind: int, memory: int, processes: int, written: tuple[str, str]
) -> None:
    largest = tmp_path / ("memory.limit_in_bytes" if kind == 1 else "memory.max")
    most = tmp_path / "pids.max"
    largest.touch()
    most.touch()
    Cgroup(((tmp_path, kind),)).limit(memory=memory, processes=processes)
    assert (largest.read_text(), most.read_text()) == written


def test_tree_gets_only_limits_it_supports(tmp_path: Path) -> None:
    (tmp_path / "pids.max").touch()
    Cgroup(((tmp_path, 1),)).limit(memory=1, processes=1)
    assert [each.name for each in tmp_path.iterdir()] == ["pids.max"]


def test_each_kernel_has_a_group_that_is_removed(tmp_path: Path) -> None:
    groups, own = Cgroups([(tmp_path, 1)], "quire_1_a"), tmp_path / "quire_1_a"
    one, two = groups.create_group(), groups.create_group()
    assert sorted(each.name for each in own.iterdir()) == ["kernel-1", "kernel-2"]
    busy = one.folders[0][0] / "a process that is not yet gone"
    busy.mkdir()
    groups.release(one)
    groups.release(two)
    assert [each.name for each in own.iterdir()] == ["kernel-1"]
    busy.rmdir()
    three = groups.create_group()  # looks again for those that were left
    assert [each.name for each in own.iterdir()] == ["kernel-3"]
    groups.release(three)
    groups.close()
    assert not own.exists()


def test_released_group_is_not_created_again(tmp_path: Path) -> None:
    """A start that is cancelled gives its group back while a thread still adds the kernel's process to it."""
    groups = Cgroups([(tmp_path, 1)], "quire_1_a")
    group = groups.create_group()
    groups.release(group)
    with pytest.raises(FileNotFoundError):
        groups.add(group, 4321)
    groups.close()
    assert list(tmp_path.iterdir()) == []


def test_close_removes_groups_and_waits_for_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_CLOSE_S", DEADLINE)
    groups = Cgroups([(tmp_path, 1)], "quire_1_a")
    groups.create_group()
    dying = groups.create_group().folders[0][0] / "a process that is not yet gone"
    dying.mkdir()
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(groups.close)
        wait_until(lambda: not (tmp_path / "quire_1_a" / "kernel-1").exists(), "the empty group is removed")
        dying.rmdir()
        closing.result()
    assert list(tmp_path.iterdir()) == []


def test_failed_group_creation_fails_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "trees").mkdir()
    groups = Cgroups([(tmp_path / "trees", 1)], "quire_1_a")
    shutil.rmtree(tmp_path / "trees")
    with pytest.raises(OperationFailed, match="could not be given a control group"):
        groups.create_group()
    groups.close()


@contextmanager
def held_by_another_process(group: Path) -> Iterator[None]:
    """Another server's group, as long as this lasts."""
    group.mkdir(parents=True)
    hold = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(group)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield
        finally:
            server.kill()


def test_only_unlocked_groups_are_removed(tmp_path: Path) -> None:
    """Whatever process ids they are named after: those of another container are not known here."""
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    left, held = tmp_path / "quire_1_left", tmp_path / f"quire_{ended}_held"
    (left / "kernel-7").mkdir(parents=True)
    with held_by_another_process(held):
        cgroups._remove_abandoned(tmp_path)
        assert list(tmp_path.iterdir()) == [held]
    cgroups._remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_groups_of_two_servers_in_one_process_stay(tmp_path: Path) -> None:
    servers = [Cgroups([(tmp_path, 1)], f"quire_1_{name}") for name in "ab"]
    cgroups._remove_abandoned(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["quire_1_a", "quire_1_b"]
    for server in servers:
        server.close()
    assert list(tmp_path.iterdir()) == []


def test_servers_starting_together_keep_their_groups(tmp_path: Path) -> None:
    def start(number: int) -> Cgroups:
        cgroups._remove_abandoned(tmp_path)
        return Cgroups([(tmp_path, 1)], f"quire_1_{number}")

    with ThreadPoolExecutor(20) as threads:
        servers = list(threads.map(start, range(200)))
    assert len(list(tmp_path.iterdir())) == 200
    for server in servers:
        server.create_group()


def test_removed_groups_are_created_again(tmp_path: Path) -> None:
    groups = Cgroups([(tmp_path, 1)], "quire_1_a")
    own = tmp_path / "quire_1_a"
    own.rmdir()
    group = groups.create_group()
    assert [folder for folder, _ in group.folders] == [own / "kernel-1"]
    cgroups._remove_abandoned(tmp_path)  # it is locked again
    shutil.rmtree(own)
    groups.add(group, 4321)
    assert (own / "kernel-1" / "cgroup.procs").read_text() == "4321"
    groups.close()


def test_v2_groups_lie_beside_the_servers_group(tmp_path: Path) -> None:
    own = tmp_path / "server"
    own.mkdir()
    (own / "cgroup.type").write_text("domain")
    made = tmp_path / "quire_1_a"
    made.mkdir()
    (made / "cgroup.controllers").write_text("cpu io memory pids\n")  # which the system puts there
    assert cgroups._parent_folder(own, 2) == tmp_path
    groups = Cgroups([(tmp_path, 2)], made.name)
    assert (made / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    groups.close()


def test_failed_division_leaves_the_tree_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> None:
        raise OSError(2, "No such file or directory", str(path))

    monkeypatch.setattr(cgroups, "_write", refuse)
    with pytest.raises(OSError, match="No such file"):
        Cgroups([(tmp_path, 2)], "quire_1_a")
    assert list(tmp_path.iterdir()) == []


def test_servers_in_one_process_have_separate_groups() -> None:
    if os.getuid() != 0:
        pytest.skip("this test needs root")
    one, other = Cgroups.open(), Cgroups.open()
    if isinstance(one, str) or isinstance(other, str):
        missing("control groups", str(one))
        return
    groups = one.create_group(), other.create_group()
    assert not set(groups[0].folders) & set(groups[1].folders)
    one.release(groups[0])
    one.close()
    assert all(folder.exists() for folder, _ in groups[1].folders)
    other.release(groups[1])
    other.close()
    assert not any(folder.parent.exists() for group in groups for folder, _ in group.folders)


def test_real_group_holds_a_process_and_is_removed() -> None:
    if os.getuid() != 0:
        pytest.skip("this test needs root")
    groups = Cgroups.open()
    if isinstance(groups, str):
        missing("control groups", groups)
        return
    group = groups.create_group()
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        group.limit(memory=100_000_000, processes=10)
        group.add(sleeper.pid)
        for folder, kind in group.folders:
            assert str(sleeper.pid) in (folder / "cgroup.procs").read_text().split()
            if (most := folder / "pids.max").exists():
                assert most.read_text().strip() == "510"
            largest = folder / ("memory.limit_in_bytes" if kind == 1 else "memory.max")
            if largest.exists():
                assert 99_000_000 < int(largest.read_text()) <= 100_000_000
        assert not group.remove()
    finally:
        sleeper.kill()
        sleeper.wait()
    wait_until(group.remove, "the group is gone with its last process")
    groups.close()
    assert not any(folder.parent.exists() for folder, _ in group.folders)


def test_kernel_starts_after_its_groups_were_removed() -> None:
    if os.getuid() != 0:
        pytest.skip("this test needs root")
    groups = Cgroups.open()
    if isinstance(groups, str):
        missing("control groups", groups)
        return
    first = groups.create_group()
    assert first.remove()
    for folder, _ in first.folders:
        folder.parent.rmdir()
    group = groups.create_group()
    assert group.remove()
    for folder, _ in group.folders:
        folder.parent.rmdir()
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            groups.add(group, sleeper.pid)
            for folder, _ in group.folders:
                assert str(sleeper.pid) in (folder / "cgroup.procs").read_text().split()
        finally:
            sleeper.kill()
    wait_until(group.remove, "the group is gone with its last process")
    groups.close()
