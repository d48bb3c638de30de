"""What code in a cell must not reach, tried from a cell behind all walls; each attempt names the wall that stops it.

None of these is ever run without the walls: the server of these tests refuses to start a kernel with less.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from tests.support.notebooks import Book
from tests.support.processes import alive
from tests.support.security.attacks import ATTACKS
from tests.support.security.walled_servers import named, walled
from tests.support.servers import call, text
from tests.support.waiting import reached, until, wait_until

TRY = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def system(number, *arguments):
    whole = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    got = libc.syscall(ctypes.c_long(number), *whole)
    if got == -1: raise OSError(ctypes.get_errno(), 'system call')
    return got
def number(x86, arm):
    return x86 if os.uname().machine == 'x86_64' else arm
def tried(step):
    try: step()
    except OSError as error: return errno.errorcode.get(error.errno, str(error.errno))
    except ValueError as error: return str(error)
    return 'done'
def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(5)
        sock.connect(address)
        sock.send(b'hello')
"""


@dataclass
class Outside:
    """What is there to be reached, on the machine outside."""

    secret: Path  # a file that the server's user can read
    port: int  # a service on the machine's loopback
    path: str  # a unix socket among the files
    name: str  # and one with an abstract name
    server: int  # the server's process


@pytest.fixture(scope="module")
async def outside(folder: Path, client: Client[Any]) -> AsyncIterator[Outside]:
    secret = folder / "secret"
    secret.write_text("what no cell may read")
    secret.chmod(0o644)
    name = f"quire-{secrets.token_hex(8)}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as path, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        path.bind(str(folder / "service"))
        os.chmod(folder / "service", 0o777)
        abstract.bind(f"\0{name}")
        for sock in (tcp, path, abstract):
            sock.listen()
        server = server_of(client)
        yield Outside(secret, tcp.getsockname()[1], str(folder / "service"), name, server)


def server_of(client: Client[Any]) -> int:
    """The process that answers this client: the one that has its data folder open under its name."""
    mine = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    started = [int(pid) for listed in mine for pid in listed.read_text().split()]
    return next(pid for pid in started if b"quire" in Path(f"/proc/{pid}/cmdline").read_bytes())


@dataclass(frozen=True, kw_only=True)
class Granting:
    """A server that grants folders and a variable, and limits workspaces."""

    client: Client[Any]
    read: Path  # a folder that was granted for reading
    write: Path  # and one for writing


@pytest.fixture(scope="module")
async def granting(user: str, folder: Path) -> AsyncIterator[Granting]:
    read, write = (Path(tempfile.mkdtemp(dir=folder)) for _ in range(2))
    for each in (read, write):
        (each / "file").write_text("granted")
        for inner in (each, each / "file"):
            os.chown(inner, folder.stat().st_uid, folder.stat().st_gid)
    settings = {"environment": "A_PLAIN_WORD", "workspace_bytes": 50_000_000, "toolsets": "all"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_SECRET_TOKEN", "swordfish")
        patch.setenv("A_PLAIN_WORD", "plain")
        async with walled(user, folder / "granting", mounts=f"{read},{write}:rw", **settings) as client:
            yield Granting(client=client, read=read, write=write)


@pytest.fixture(scope="module")
def shared_memory() -> Iterator[int]:
    """A segment of the machine's own, by its key."""
    import ctypes

    libc = ctypes.CDLL(None)
    key = 0x51726500 + os.getpid() % 251
    segment = libc.shmget(key, 4096, 0o1666)
    assert segment >= 0
    yield key
    libc.shmctl(segment, 0, None)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_is_stopped_by_its_wall(
    book: Book, outside: Outside, shared_memory: int, folder: Path, attack: str
) -> None:
    wall, step, expected = ATTACKS[attack]
    code = step.format(
        secret=str(outside.secret),
        data=str(folder / "data"),
        other=str(folder / "data" / "workspaces" / "another"),
        port=outside.port,
        path=outside.path,
        name=outside.name,
        server=outside.server,
        shared=shared_memory,
    )
    state = (await book.ask("state")).structured_content["sandbox"].partition("; off: ")
    standing = state[0].split(", ")
    if wall == "uid" and wall not in standing:
        wall = "user"  # only this one user's id means anything there
    assert wall in standing, state
    assert await book.value(f"{TRY}\ntried(lambda: {code})") == expected
    assert alive(outside.server)


async def test_what_is_written_beside_the_workspace_arrives_nowhere(book: Book, folder: Path) -> None:
    steps = [f"open({path!r}, 'w').write('x')" for path in ("../beside", "/tmp/beside", "~/beside")]
    for step in steps:
        await book.value(f"{TRY}\ntried(lambda: {step.replace('~', '{os.path.expanduser(chr(126))}')})")
    places = [folder / "data" / "workspaces" / "beside", folder / "beside", Path("/tmp/beside"), Path.home() / "beside"]
    assert not any(place.exists() for place in places)


SEEN = """
import os
seen = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/cmdline") as file: words = file.read().split(chr(0))
    except OSError: continue  # it has ended
    if any(words): seen.append(words)  # a process that is ending has none
seen
"""


async def test_only_its_own_processes_are_seen(book: Book) -> None:
    seen = await book.value(SEEN)
    assert seen and all(any(word.endswith("worker/__main__.py") for word in words) for words in seen)


MOUNTS = """
import glob
def mounted(file):
    try:
        with open(file) as lines: return {line.split()[4] for line in lines}
    except OSError: return set()  # it has ended
own = mounted("/proc/self/mountinfo")
sorted(set().union(*map(mounted, glob.glob("/proc/[0-9]*/mountinfo"))) - own)
"""


async def test_no_process_that_a_cell_sees_has_mounts_of_the_machine(client: Client[Any]) -> None:
    """Nor in a branch, and in one of the state that the kernel began with, whose supervisors are not process 1."""
    trunk = await named(client, "trunk")
    await trunk.run("x = 1")
    await trunk.protected()
    books = [trunk]
    for name, at in (("of now", None), ("of the beginning", "start")):
        made = await trunk.ask("branch_notebook", name=name, at=at, use=False)
        assert not made.is_error, text(made)
        books.append(Book(client=client, name=name))
        await books[-1].run("y = 1")
    for book in books:
        assert await book.value(MOUNTS) == []


HIDES = """
import ctypes, os, signal
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE: /proc does not show it any more
    for _ in range(3):
        if os.fork() == 0: os.execvp("sleep", ["sleep", SECONDS])
    while True: signal.pause()
"""


async def test_what_a_hidden_process_starts_ends_with_the_state_of_a_branch(client: Client[Any]) -> None:
    """A branch's supervisor sees of /proc what a cell sees."""
    seconds = str(secrets.randbelow(10**6) + 10**6)

    def left() -> list[int]:
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if seconds in _command(pid)]

    stem = await named(client, "stem")
    await stem.run("x = 1")
    await stem.protected()
    await stem.ask("branch_notebook", name="hider", use=False)
    hider = Book(client=client, name="hider")
    await hider.run(HIDES.replace("SECONDS", repr(seconds)))
    await reached(lambda: len(left()) == 3, "what the hidden process starts runs")
    rolled = await hider.ask("rollback", to="start")
    assert not rolled.is_error, text(rolled)
    await reached(lambda: not left(), "it has ended")


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


async def test_kill_all_kills_only_the_cell_itself(book: Book, outside: Outside) -> None:
    await book.run("x = 41")
    killed = await book.run("import os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)")
    assert killed.structured_content["state"] in ("CRASHED", "SUCCESS", "ERROR"), text(killed)
    assert alive(outside.server)
    assert await book.value("40 + 2") == 42


async def test_the_supervisor_cannot_be_killed_or_stopped(book: Book) -> None:
    kill = "x = 41\n[tried(lambda: os.kill(1, each)) for each in (9, 19, 15, 11)]"
    assert set(await book.value(f"{TRY}\n{kill}")) <= {"EPERM", "done"}  # Landlock says so, or nothing happens
    await book.protected()
    crashed = await book.run("os.abort()")
    assert crashed.structured_content["state"] == "CRASHED"
    assert await book.value("x") == 41


async def test_what_a_cell_leaves_behind_ends_with_its_kernel(client: Client[Any]) -> None:
    book = await named(client, "leaves")
    number = await book.process("__import__('subprocess').Popen(['sleep', '1000'], start_new_session=True).pid")
    assert alive(number)
    await call(client, "reset", notebook="leaves")
    wait_until(lambda: not alive(number), "the daemon is gone")


async def test_a_fork_bomb_costs_its_cell(book: Book, outside: Outside) -> None:
    await book.run("x = 41")
    bomb = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)"
    result = await book.run(bomb, timeout=5)
    assert result.structured_content["state"] in ("CRASHED", "TIMEOUT"), text(result)
    assert await book.value("x") == 41 and alive(outside.server)


COPIES = """
import os
most = len(os.listdir("/proc")) + 60
while True:
    try: len(os.listdir("/proc")) < most and os.fork()
    except OSError: pass
"""
RUNNING = """
import os
running = 0  # this one with them; checkpoints sleep, and what has ended is a zombie of the kernel's
for name in filter(str.isdecimal, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/stat") as file: running += ") R " in file.read()
    except OSError: pass
running
"""


@pytest.mark.parametrize("rounds", [2, pytest.param(8, marks=pytest.mark.soak)])
async def test_no_copy_that_a_cell_forks_as_it_is_interrupted_goes_on(book: Book, rounds: int) -> None:
    async def alone() -> bool:
        return [await book.value(RUNNING) for _ in range(3)] == [1, 1, 1]

    for _ in range(rounds):
        result = await book.run(COPIES, timeout=1)
        assert result.structured_content["state"] == "TIMEOUT", text(result)
        await until(alone, "the copies are gone")


async def test_a_memory_bomb_costs_its_cell(user: str, folder: Path) -> None:
    async with walled(user, folder, max_memory_bytes=400_000_000) as client:
        book = await named(client, "memory")
        await book.run("x = 41")
        result = await book.run("held = []\nwhile True: held.append(bytearray(10_000_000))", timeout=30)
        assert result.is_error, text(result)
        several = (
            "import os, signal\nfor _ in range(8):\n    if os.fork() == 0:\n"
            "        held = [bytes(3_000_000) for _ in range(100)]\n        signal.pause()"
        )
        await book.run(several, timeout=20)
        assert await book.value("x") == 41


async def test_the_server_s_environment_is_not_the_kernel_s(granting: Granting) -> None:
    book = await named(granting.client, "environment")
    found = await book.value(
        "import os\n[os.environ.get('A_SECRET_TOKEN'), os.environ.get('A_PLAIN_WORD'), "
        "'swordfish' in open('/proc/self/environ').read()]"
    )
    assert found == [None, "plain", False]


async def test_a_folder_that_was_granted_is_seen_as_it_was_granted(granting: Granting, folder: Path) -> None:
    read, write, book = granting.read, granting.write, await named(granting.client, "granted")
    assert await book.value(f"open('{read}/file').read(), open('{write}/file').read()") == ["granted", "granted"]
    assert await book.value(f"{TRY}\ntried(lambda: open('{read}/new', 'w'))") == "EROFS"
    assert await book.value(f"open('{write}/new', 'w').write('written')") == 7
    assert (write / "new").read_text() == "written"
    assert (write / "new").stat().st_uid == folder.stat().st_uid


async def test_two_notebooks_do_not_see_each_other(client: Client[Any]) -> None:
    one, other = await named(client, "one"), await named(client, "another one")
    place = await one.value(
        "import os, socket\nopen('mine', 'w').write('x')\nopen('/tmp/mine', 'w').write('x')\n"
        "listener = socket.socket()\nlistener.bind(('127.0.0.1', 0))\nlistener.listen()\n"
        "[os.getcwd(), listener.getsockname()[1]]"
    )
    code = (
        f"{TRY}\n[tried(lambda: os.listdir({place[0]!r})), os.path.exists('/tmp/mine'), "
        f"tried(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {place[1]})))]"
    )
    assert await other.value(code) == ["ENOENT", False, "ECONNREFUSED"]


async def test_a_file_grows_no_larger_than_a_workspace_may_be(granting: Granting) -> None:
    book = await named(granting.client, "large")
    grow = "open('large', 'wb').truncate(60_000_000)"
    assert await book.value(f"{TRY}\ntried(lambda: {grow})") == "EFBIG"
    write = "os.pwrite(os.open('wide', os.O_CREAT | os.O_WRONLY), b'x', 60_000_000)"
    assert await book.value(f"{TRY}\ntried(lambda: {write})") == "EFBIG"


async def test_the_walls_are_listed_where_they_are_asked_for(granting: Granting, user: str) -> None:
    listed = await call(granting.client, "list_runtimes")
    python, *_ = listed.structured_content["runtimes"]
    off = {name for name, state in python["layers"].items() if state != "on"}
    assert off <= ({"cgroup", "uid"} if user == "ordinary" else set())
    assert "seccomp" in text(listed) and python["why_not"] == ""
