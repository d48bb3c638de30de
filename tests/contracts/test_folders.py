"""Files below a folder, on every way down: the kernel's openat2, step by step, and by names."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.safe_open.by_descriptor import FdWalker
from quire.safe_open.by_name import PathWalker
from quire.stores import folders
from quire.stores.folders import DiskFolders
from tests.support.external_programs import missing

EXCHANGE = ctypes.CDLL(None).renameat2  # two names at once: there is always something there


@pytest.fixture(params=["openat2", "step by step", "by names"])
def disk(request: pytest.FixtureRequest) -> DiskFolders:
    if request.param == "openat2" and not FdWalker().openat2:
        missing("openat2", "this kernel does not have it")
    return DiskFolders(PathWalker() if request.param == "by names" else FdWalker(openat2=request.param == "openat2"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path / "outside"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert len(set(os.listdir("/proc/self/fd"))) <= len(before) + 3  # the event loop's own


async def test_written_file_is_read_and_listed(disk: DiskFolders, home: Path) -> None:
    data = bytes(range(256)) * 10
    assert await disk.write(str(home), ("a", "b.bin"), data, append=False) == 2560
    assert (await disk.read(str(home), ("a", "b.bin"), 0, 10_000)).data == data
    assert (await disk.read(str(home), ("a", "b.bin"), 2550, 100)).data == data[-10:]
    assert (await disk.read(str(home), ("a", "b.bin"), 9999, 100)).total == 2560
    (folder,) = (await disk.list(str(home), (), 10)).entries
    (file,) = (await disk.list(str(home), ("a",), 10)).entries
    assert (folder.name, folder.kind, file.name, file.kind, file.size) == ("a", "folder", "b.bin", "file", 2560)
    assert await disk.write(str(home), ("a", "b.bin"), b"end", append=True) == 2563
    assert await disk.write(str(home), ("a", "b.bin"), b"", append=False) == 0
    assert await disk.write(str(home), ("new",), b"x", append=True) == 1


async def test_missing_workspace_is_empty_and_created_by_a_write(disk: DiskFolders, tmp_path: Path) -> None:
    root = str(tmp_path / "w" / "1")
    assert (await disk.list(root, (), 10)).entries == () and (await disk.measure(root)).files == 0
    with pytest.raises(NotFound):
        await disk.read(root, ("x",), 0, 10)
    with pytest.raises(NotFound):
        await disk.list(root, ("x",), 10)
    assert await disk.write(root, ("x",), b"1", append=False) == 1


async def test_replaced_file_keeps_mode_and_owner(disk: DiskFolders, home: Path) -> None:
    (home / "run").write_text("old")
    (home / "run").chmod(0o4750)
    await disk.write(str(home), ("run",), b"new", append=False)
    assert (home / "run").stat().st_mode & 0o7777 == 0o750  # but not whose rights it runs with
    (home / "run").chmod(0o400)
    with pytest.raises(InvalidRequest, match="read-only"):
        await disk.write(str(home), ("run",), b"newer", append=False)
    assert (home / "run").read_text() == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_new_files_get_the_owner_of_their_folder(disk: DiskFolders, home: Path) -> None:
    if isinstance(disk._walker, PathWalker):
        pytest.skip("where files are reached by names, no file is its owner's by a number")
    os.chown(home, 12345, 12345)
    await disk.write(str(home), ("a", "b"), b"x", append=False)
    assert {(each.stat().st_uid, each.stat().st_gid) for each in (home / "a", home / "a" / "b")} == {(12345, 12345)}


def plant(home: Path, outside: Path, trick: str) -> tuple[str, ...]:
    """Put the trick there; the names that lead to it."""
    match trick:
        case "link to a file":
            (home / "it").symlink_to(outside / "secret")
        case "link to a folder":
            (home / "f").symlink_to(outside)
            return ("f", "secret")
        case "link inside":
            (home / "real").write_text("mine")
            (home / "it").symlink_to("real")
        case "relative link":
            (home / "it").symlink_to("../outside/secret")
        case "link to nothing":
            (home / "it").symlink_to(outside / "new")
        case "link to itself":
            (home / "it").symlink_to("it")
        case "magic link":
            (home / "it").symlink_to("/proc/self/root")
            return ("it", "etc", "passwd")
        case "hard link":
            (home / "it").hardlink_to(outside / "secret")
        case "pipe":
            os.mkfifo(home / "it")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(home / "it"))
        case "device":
            os.mknod(home / "it", 0o20666, os.makedev(1, 3))
        case "folder":
            (home / "it").mkdir()
        case "file as a folder":
            (home / "f").write_text("")
            return ("f", "it")
    return ("it",)


TRICKS = ["link to a file", "link to a folder", "link inside", "relative link", "link to nothing", "link to itself"]
TRICKS += ["magic link", "hard link", "pipe", "socket", "folder", "file as a folder"]
TRICKS += ["device"] if os.geteuid() == 0 else []


@pytest.mark.parametrize("trick", TRICKS)
async def test_only_plain_files_with_one_name_are_opened(
    disk: DiskFolders, home: Path, outside: Path, trick: str
) -> None:
    steps = plant(home, outside, trick)
    for append in (False, True):
        with pytest.raises(InvalidRequest):
            await disk.write(str(home), steps, b"overwritten", append=append)
    with pytest.raises(InvalidRequest):
        await disk.read(str(home), steps, 0, 100)
    assert (outside / "secret").read_text() == "secret" and os.listdir(outside) == ["secret"]


async def test_workspace_replaced_by_a_link_is_not_opened(disk: DiskFolders, home: Path, outside: Path) -> None:
    home.rmdir()
    home.symlink_to(outside)
    for attempt in (
        disk.read(str(home), ("secret",), 0, 100),
        disk.list(str(home), (), 10),
        disk.write(str(home), ("secret",), b"", append=False),
    ):
        with pytest.raises(QuireError):
            await attempt
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.parametrize("what", ["read", "list", "write"])
async def test_folder_replaced_by_a_link_again_and_again_is_safe(
    disk: DiskFolders, home: Path, outside: Path, what: str
) -> None:
    if isinstance(disk._walker, PathWalker):
        pytest.skip("by names a step comes after the look, as docs/limitations.md says")
    (home / "f").mkdir()
    (home / "f" / ("mine" if what == "list" else "secret")).write_text("mine")
    (home / "l").symlink_to(outside)
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            assert EXCHANGE(-100, os.fsencode(home / "f"), -100, os.fsencode(home / "l"), 2) == 0

    thread = threading.Thread(target=exchange)
    thread.start()
    reached = refused = 0
    try:
        for _ in range(2_000):
            try:
                if what == "read":
                    assert (await disk.read(str(home), ("f", "secret"), 0, 100)).data == b"mine"
                elif what == "list":
                    assert [each.name for each in (await disk.list(str(home), ("f",), 9)).entries] == ["mine"]
                else:
                    await disk.write(str(home), ("f", "secret"), b"mine", append=False)
                reached += 1
            except (InvalidRequest, NotFound, OperationFailed):
                refused += 1
            if reached > 20 and refused > 20:
                break
    finally:
        stop.set()
        thread.join()
    assert reached and refused
    assert (outside / "secret").read_text() == "secret" and os.listdir(outside) == ["secret"]


@pytest.mark.parametrize("name", ["a:b", "C:", "a\\b", "..\\up", "nul", "COM1.txt", "a.", "a ", "x*", "a\nb", "a?"])
async def test_names_with_other_meaning_on_windows_are_refused(home: Path, name: str) -> None:
    disk = DiskFolders(PathWalker())
    for steps in ((name,), (name, "x"), ("x", name)):
        with pytest.raises(InvalidRequest, match="cannot be a name of a file on this system"):
            await disk.write(str(home), steps, b"", append=False)
    with pytest.raises(InvalidRequest, match="cannot be a name"):
        await disk.read(str(home), (name,), 0, 10)
    assert [each.name for each in home.rglob("*")] in ([], ["x"])


async def test_hostile_names_are_listed_unchanged(disk: DiskFolders, home: Path) -> None:
    names = [b"a\nb", b"\x1b[31mred", b"\xff\xfe", "\u202e.txt".encode(), b" ", b"-rf", b"x" * 255]
    for name in names:
        Path(os.fsdecode(os.fsencode(home) + b"/" + name)).touch()
    found = await disk.list(str(home), (), 100)
    assert sorted(os.fsencode(each.name) for each in found.entries) == sorted(names)


async def test_long_list_is_cut_and_the_rest_counted(disk: DiskFolders, home: Path) -> None:
    for number in range(30):
        (home / f"{number:02}").touch()
    found = await disk.list(str(home), (), 10)
    assert [each.name for each in found.entries] == [f"{number:02}" for number in range(10)] and found.more == 20


async def test_folder_usage_counts_blocks_and_each_file_once(disk: DiskFolders, home: Path) -> None:
    (home / "a").mkdir()
    (home / "a" / "x").write_bytes(b"x" * 100_000)
    (home / "y").hardlink_to(home / "a" / "x")
    with (home / "sparse").open("wb") as file:
        file.truncate(10**12)
    (home / "up").symlink_to("/")
    use = await disk.measure(str(home))
    assert 100_000 <= use.bytes < 200_000 and use.files == 4 and use.whole and not use.deep


async def test_folders_nested_deeper_than_a_path_are_noticed(disk: DiskFolders, home: Path) -> None:
    here = os.open(home, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    stepwise = isinstance(disk._walker, FdWalker) and not disk._walker.openat2
    assert (await disk.measure(str(home))).deep is not stepwise  # step by step there is no path to be too long


async def test_file_deleted_during_listing_hides_no_other(
    disk: DiskFolders, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (home / name).write_text(name)
    scan = os.scandir

    class Vanishing:
        """A listing whose first file is gone by the time it is looked at."""

        def __init__(self, folder: Any) -> None:
            with scan(folder) as entries:
                self._entries = sorted(entries, key=lambda entry: entry.name)
            (home / "a").unlink(missing_ok=True)

        def __enter__(self) -> Any:
            return iter(self._entries)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Vanishing)
    assert disk.stat_files_inline(str(home)) is None  # then it is looked at again, with more time
    (home / "a").write_text("a")
    assert set(await disk.stat_files(str(home), 10)) == {"b", "c"}
    assert len(await disk.stat_files(str(home), 1)) == 1


async def test_path_of_many_folders_needs_few_descriptors(disk: DiskFolders, home: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 40, hard))
    try:
        await disk.write(str(home), ("d",) * 300 + ("x",), b"deep", append=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (await disk.read(str(home), ("d",) * 300 + ("x",), 0, 10)).data == b"deep"


async def test_measuring_deletes_old_unfinished_files_only(disk: DiskFolders, home: Path) -> None:
    for name in (".0.quire-new", ".1.quire-new", "mine.quire-new"):
        (home / name).touch()
    for name in (".0.quire-new", "mine.quire-new"):
        os.utime(home / name, (0, 0))
    await disk.measure(str(home))
    assert sorted(os.listdir(home)) == [".1.quire-new", "mine.quire-new"]


async def test_failed_write_keeps_the_old_file_and_adds_none(
    disk: DiskFolders, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "x").write_text("old")

    def full(file: int, data: bytes) -> None:
        os.write(file, data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_write_all", full)
    for append in (False, True):
        with pytest.raises(OperationFailed, match="No space left on device"):
            await disk.write(str(home), ("x",), b"new", append=append)
    assert (home / "x").read_text() == "old" and os.listdir(home) == ["x"]
