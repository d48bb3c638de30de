"""Calls of capabilities while kernels, backends and the server are interrupted, killed and lied to."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.backends import BACKENDS
from tests.support.notebooks import Book, new_book, waits_for
from tests.support.processes import alive, free_port, parent, processes_of
from tests.support.quick_backend import Quick, install, installed, misbehaving
from tests.support.servers import IN_MEMORY, NO_SANDBOX, QUICK, call, roomy_client, stdio_client, text
from tests.support.waiting import DEADLINE, reached, until, wait_until


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    """Of the server for backends that misbehave."""
    return {**IN_MEMORY, **NO_SANDBOX}


@pytest.fixture(scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Client[Any], Quick]]:
    """A server with the quick backend."""
    folder = tmp_path_factory.mktemp("relay")
    quick = Quick(journal=folder / "journal")
    async with roomy_client(folder / "data", **IN_MEMORY, patience=2 * DEADLINE, **NO_SANDBOX) as client:
        await install(client, "quick", quick.command)
        yield client, quick
    quick.is_over()


@pytest.fixture
async def book(home: tuple[Client[Any], Quick]) -> AsyncIterator[Book]:
    async with new_book(home[0]) as made:
        await made.value("x = 41\nx")
        await made.protected()
        yield made


@pytest.fixture
def quick(home: tuple[Client[Any], Quick]) -> Quick:
    """With an empty journal, but for what runs."""
    home[1].journal.write_text("".join(f"started {pid}\n" for pid in home[1].running()))
    return home[1]


@asynccontextmanager
async def running(book: Book, code: str, timeout: float = 30) -> AsyncIterator[list[Any]]:
    """The code runs meanwhile; its result is there afterwards."""
    results: list[Any] = []

    async def run() -> None:
        results.append(await book.run(code, timeout=timeout))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        yield results


async def is_as_before(book: Book) -> None:
    """The kernel has its variables, and its calls are answered."""
    after = await book.run("x, quick.echo(7)")
    assert not after.is_error, text(after)
    assert after.structured_content["return_value"] == [41, "7"]


IN_POOL = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(10) as pool:
    list(pool.map(quick.hold, 'abcdefghij'))
"""
IN_TASKS = "import asyncio\nawait asyncio.gather(*(quick.hold.aio(each) for each in 'abcdefghij'))"
IN_LOOPS = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
async def hold(name):
    return await quick.hold.aio(name)
with ThreadPoolExecutor(10) as pool:
    list(pool.map(lambda name: asyncio.run(hold(name)), 'abcdefghij'))
"""
WAYS = [
    pytest.param("quick.hold('a')", "a", id="a call"),
    pytest.param("await quick.hold.aio('a')", "a", id="a task"),
    pytest.param(IN_POOL, "abcdefghij", id="threads"),
    pytest.param(IN_TASKS, "abcdefghij", id="tasks"),
    pytest.param(IN_LOOPS, "abcdefghij", id="loops in threads"),
]


@pytest.mark.parametrize(("code", "names"), WAYS)
async def test_an_interrupt_ends_the_calls_and_the_kernel_lives(
    book: Book, quick: Quick, code: str, names: str
) -> None:
    pid = await book.value("import os\nos.getpid()")
    async with running(book, code) as results:
        await quick.is_called("hold", len(names))
        stopped = await book.ask("interrupt")
        assert stopped.structured_content["state"] == "INTERRUPTED"
    assert "Variables are kept" in results[0].structured_content["error_message"]
    await quick.is_told_to_stop(*names)
    await is_as_before(book)
    assert await book.value("os.getpid()") == pid


@pytest.mark.parametrize(("code", "names"), WAYS)
async def test_a_timeout_ends_the_calls_and_the_kernel_lives(book: Book, quick: Quick, code: str, names: str) -> None:
    pid = await book.value("import os\nos.getpid()")
    found = (await book.run(code, timeout=5)).structured_content
    assert found["state"] == "TIMEOUT" and "Stopped after 5 s" in found["error_message"], found
    assert len(quick.calls("hold")) == len(names)
    await quick.is_told_to_stop(*names)
    await is_as_before(book)
    assert await book.value("os.getpid()") == pid


async def test_code_that_catches_the_interrupt_goes_on_calling(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with stdio_client(
        tmp_path / "data", preload="", grace=30, **NO_SANDBOX
    ) as client:  # within which it is told but once
        await install(client, "quick", quick.command)
        book = Book(client=client)
        code = "try:\n    quick.hold('a')\nexcept KeyboardInterrupt:\n    said = quick.echo(5)\nsaid"
        async with running(book, code) as results:
            await quick.is_called("hold")
            await book.ask("interrupt")
        assert results[0].structured_content["return_value"] == "5", text(results[0])
        await quick.is_told_to_stop("a")


async def test_a_threads_call_outlives_the_interrupt_of_a_later_cell(book: Book, quick: Quick) -> None:
    await book.value("import threading\ngot = []\ndef wait():\n    got.append(quick.hold('early'))\n1")
    await book.value("thread = threading.Thread(target=wait)\nthread.start()")
    await quick.is_called("hold")
    async with running(book, "quick.hold('late')") as results:
        await quick.is_called("hold", 2)
        await book.ask("interrupt")
    assert results[0].structured_content["state"] == "INTERRUPTED"
    await quick.is_told_to_stop("late")
    assert await book.value("quick.release('early')\nthread.join()\ngot") == ["early"]


async def test_an_interrupt_between_any_two_words_leaves_the_relay_whole(book: Book, quick: Quick) -> None:
    pid = await book.value("import os\nos.getpid()")
    await book.value("n = 0\n1")
    for called in ("quick.echo(n)", "await quick.echo.aio(n)"):
        for _ in range(10):
            heard = len(quick.calls("echo"))
            code = f"while True:\n    n += 1\n    assert {called} == str(n)"
            async with running(book, code) as results:
                await quick.is_called("echo", heard + 5)
                await book.ask("interrupt")
            found = results[0].structured_content
            assert found["state"] == "INTERRUPTED" and "Variables are kept" in found["error_message"], found
            assert await book.value("quick.echo(-n), os.getpid()") == [f"-{await book.value('n')}", pid]


async def test_calls_without_time_are_answered_rightly_or_time_out(book: Book) -> None:
    code = """
import asyncio
async def one(n):
    try:
        return await quick.echo.aio(n, _timeout=0.001 + n % 7 / 500) == str(n)
    except ToolTimeout:
        return None
found = await asyncio.gather(*(one(n) for n in range(300)))
found.count(False), [quick.echo(n) for n in range(20)] == [str(n) for n in range(20)]
"""
    assert await book.value(code) == [0, True]


async def test_a_task_that_is_cancelled_ends_its_call_and_no_other(book: Book, quick: Quick) -> None:
    code = """
import asyncio
tasks = {name: asyncio.ensure_future(quick.hold.aio(name)) for name in 'abc'}
while len((await quick.held.aio()).json()) < 3:
    pass
tasks['b'].cancel()
while len((await quick.held.aio()).json()) > 2:
    pass
for name in 'ac':
    await quick.release.aio(name)
await asyncio.gather(*tasks.values(), return_exceptions=True)
tasks['a'].result(), tasks['b'].cancelled(), tasks['c'].result()
"""
    assert await book.value(code) == ["a", True, "c"]
    assert quick.cancelled() == ["b"]


async def test_a_task_goes_on_over_the_end_of_its_cell(book: Book, quick: Quick) -> None:
    await book.value("import asyncio\ntask = asyncio.ensure_future(quick.hold.aio('long'))\nawait asyncio.sleep(0)")
    await quick.is_called("hold")
    assert await book.value("quick.release('long')\nawait task") == "long"


# The kernel's end


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os._exit(3)", id="exit"),
        pytest.param("os.kill(os.getpid(), 9)", id="kill"),
        pytest.param("ctypes.string_at(0)", id="segfault"),
    ],
)
async def test_a_kernel_that_dies_in_the_middle_of_calls_ends_them_and_comes_back(
    book: Book, quick: Quick, end: str
) -> None:
    code = f"""
import ctypes, os, threading
x = 0
for name in 'abcde':
    threading.Thread(target=quick.hold, args=(name,)).start()
while len(quick.held().json()) < 5:
    pass
{end}
"""
    found = (await book.run(code)).structured_content
    assert found["state"] == "CRASHED", found
    await quick.is_told_to_stop(*"abcde")
    await is_as_before(book)
    assert await book.value("quick.held().json()") == []


async def test_a_rollback_ends_the_calls_of_threads(book: Book, quick: Quick) -> None:
    code = "import threading\nx = 0\nthread = threading.Thread(target=quick.hold, args=('late',))\nthread.start()"
    assert not (await book.run(code)).is_error
    await quick.is_called("hold")
    back = await book.ask("rollback", to=0)
    assert not back.is_error, text(back)
    await quick.is_told_to_stop("late")
    await is_as_before(book)


async def test_a_state_with_a_call_under_way_wakes_without_it(book: Book, quick: Quick) -> None:
    """A checkpoint is taken while a task of an earlier cell waits: in the copy it has no answer to wait for."""
    code = "import asyncio\ntask = asyncio.ensure_future(quick.hold.aio('kept'))\nawait asyncio.sleep(0)\nx = 41"
    assert not (await book.run(code)).is_error
    await quick.is_called("hold")
    await book.protected()
    crashed = (await book.run("import os\nos._exit(1)")).structured_content
    assert crashed["state"] == "CRASHED"
    await quick.is_told_to_stop("kept")
    code = (
        "try:\n    await asyncio.wait_for(task, 20)\nexcept Exception as error:\n    said = type(error).__name__\nsaid"
    )
    kind = await book.value(code)
    assert kind == "CapabilityGone"
    await is_as_before(book)


async def test_reset_and_uninstall_end_calls_under_way(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with roomy_client(tmp_path / "data", **IN_MEMORY, **NO_SANDBOX) as client:
        await install(client, "quick", quick.command)
        book = Book(client=client)
        await book.value("import threading\nthreading.Thread(target=quick.hold, args=('a',)).start()")
        await quick.is_called("hold")
        await book.ask("reset")
        await quick.is_told_to_stop("a")
        async with running(book, "quick.hold('b')") as results:
            await quick.is_called("hold", 2)
            await call(client, "uninstall_capability", name="quick")
        assert results[0].structured_content["error_type"] == "CapabilityGone", text(results[0])
        quick.is_over()


# A child process


async def test_a_forked_child_is_told_that_it_cannot_call_and_the_notebook_goes_on(book: Book, quick: Quick) -> None:
    code = """
import os, threading
waiting = threading.Thread(target=quick.hold, args=('parents',))
waiting.start()
while quick.held().json() != ['parents']:
    pass
told, tell = os.pipe()
if os.fork() == 0:
    try:
        said = quick.echo(1)
    except CapabilityGone as error:
        said = f'CapabilityGone: {error}'
    os.write(tell, str(said).encode())
    os._exit(0)
os.wait()
quick.release('parents')
waiting.join()
os.read(told, 1000).decode(), quick.echo(2)
"""
    said, own = await book.value(code)
    assert said.startswith("CapabilityGone: ") and "notebook's own process" in said and own == "2"
    assert quick.calls("echo") == [{"n": 2}]


async def test_a_program_that_a_cell_starts_has_nothing_of_the_relay(book: Book) -> None:
    code = "import subprocess\nsubprocess.run(['ls', '-l', '/proc/self/fd'], capture_output=True, text=True).stdout"
    assert "socket:" not in await book.value(code)
    code = "subprocess.run(['ls', '-l', '/proc/self/fd'], capture_output=True, text=True, close_fds=False).stdout"
    assert "socket:" not in await book.value(code)


async def test_a_pool_of_processes_is_told_that_it_cannot_call(book: Book) -> None:
    code = """
import multiprocessing
def ask(n):
    try:
        return quick.echo(n)
    except CapabilityGone as error:
        return str(error)
with multiprocessing.get_context('fork').Pool(2) as pool:
    said = pool.map(ask, range(4))
len(said), all("notebook's own process" in each for each in said), quick.echo(9)
"""
    assert await book.value(code) == [4, True, "9"]


# The backend's end


async def test_a_backend_that_is_killed_ends_all_calls_and_the_next_ones_work(book: Book, quick: Quick) -> None:
    code = """
import asyncio
first = await asyncio.gather(*(quick.hold.aio(str(n)) for n in range(50)), return_exceptions=True)
then = quick.echo(8)
[sorted({type(each).__name__ for each in first}), len(first), then]
"""
    async with running(book, code) as results:
        await quick.is_called("hold", 50)
        os.kill(quick.running()[0], signal.SIGKILL)
    assert results[0].structured_content["return_value"] == [["CapabilityGone"], 50, "8"], text(results[0])
    assert len(quick.pids()) == 2 and len(quick.running()) == 1
    assert (await installed(book.client, book.name))["quick"].endswith("connected")


async def test_the_error_of_a_killed_backend_says_what_happened(book: Book, quick: Quick) -> None:
    async with running(book, "quick.hold('a')") as results:
        await quick.is_called("hold")
        os.kill(quick.running()[0], signal.SIGKILL)
    found = results[0].structured_content
    assert found["error_type"] == "CapabilityGone"
    assert "SIGKILL" in found["error_message"] or "signal 9" in found["error_message"], found["error_message"]
    assert "caps.install('quick'" in found["error_message"]


async def test_a_backend_that_dies_again_and_again_is_not_started_without_end(
    server: Client[Any], tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    command = shlex.join(["sh", "-c", f"echo >> {starts}; exec {misbehaving('dies', '1')}"])
    async with new_book(server) as book:
        await install(server, "frail", command)
        code = """
said = []
while not (said and 'tried again in' in said[-1]):
    try:
        frail.poke()
        said.append('answered')
    except CapabilityGone as error:
        said.append(str(error))
said
"""
        found = (await book.run(code)).structured_content
        assert not any("answered" in each or "out of memory" in each or "/" in each for each in found["return_value"])
        assert 1 <= found["stderr"].count("out of memory") <= 2  # once for the reader of the cell, not with every call
        many = await book.value(
            "before = len(said)\nfor n in range(200):\n    try:\n        frail.poke()\n    except CapabilityGone:\n"
            "        pass\n1"
        )
        assert many == 1
        assert len(starts.read_text().splitlines()) < 12  # for over 200 calls


async def test_a_backend_that_cannot_start_again_is_said_and_is_back_when_it_can(
    server: Client[Any], tmp_path: Path
) -> None:
    quick, broken = Quick(journal=tmp_path / "journal"), tmp_path / "broken"
    command = shlex.join(["sh", "-c", f"test -e {broken} && echo the disk is full >&2 && exit 3; exec {quick.command}"])
    async with new_book(server) as book:
        await install(server, "weak", command)
        broken.touch()
        os.kill(quick.running()[0], signal.SIGKILL)

        async def said() -> dict[str, Any]:
            found: dict[str, Any] = (await book.run("weak.echo(1)")).structured_content
            return found

        with anyio.fail_after(DEADLINE):
            while "the disk is full" not in (found := await said())["stderr"]:
                assert found["error_type"] == "CapabilityGone", found
            assert "the disk is full" not in found["error_message"]
        assert found["error_type"] == "CapabilityGone"
        health = (await installed(server))["weak"]
        assert "lost: " in health and "the disk is full" in health
        broken.unlink()
        with anyio.fail_after(DEADLINE):
            while (await said())["return_value"] != "1":
                await anyio.sleep(0.05)
        assert (await installed(server))["weak"].endswith("connected")


async def test_a_backend_that_answers_nonsense_costs_its_call_only(server: Client[Any]) -> None:
    async with new_book(server) as book:
        await install(server, "nonsense", misbehaving("garbage"))
        code = """
kinds = []
for n in range(6):
    try:
        kinds.append(type(nonsense.poke(_timeout=3)).__name__)
    except ToolError as error:
        kinds.append('ToolError')
kinds
"""
        kinds = await book.value(code)
        assert len(kinds) == 6 and kinds.count("ToolError") >= 3
        assert await book.value("1 + 1") == 2


async def test_a_backend_over_http_that_is_restarted_is_found_again(server: Client[Any]) -> None:
    def serve(port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(BACKENDS / "good.py"), "http"]
        env = {**os.environ, "PORT": str(port)}
        return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens(port: int) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    port = free_port()
    backend = serve(port)
    try:
        wait_until(lambda: listens(port), "the backend listens")
        async with new_book(server) as book:
            done = await call(server, "install_capability", name="good", url=f"http://127.0.0.1:{port}/mcp")
            assert not done.is_error, text(done)
            assert await book.value("good.add(1)") == 2
            async with running(book, "good.sleep(1000, 'long')") as results:
                await reached_in(book.client, "good.asleep()", ["long"])
                backend.kill()
                backend.wait()
            assert results[0].structured_content["error_type"] == "CapabilityGone", text(results[0])
            down = (await book.run("good.add(1)")).structured_content
            assert down["error_type"] == "CapabilityGone", down
            backend = serve(port)
            wait_until(lambda: listens(port), "the backend listens again")
            await reached_in(server, "good.add(2)", 3)
            await call(server, "uninstall_capability", name="good")
    finally:
        backend.kill()
        backend.wait()


async def reached_in(client: Client[Any], code: str, value: Any) -> None:
    """Another notebook's cell finds this value, at last."""
    async with new_book(client) as other:

        async def there() -> bool:
            return bool((await other.run(code)).structured_content["return_value"] == value)

        await until(there, f"{code} is {value}")


# Installing


async def test_while_a_slow_backend_is_installed_everything_else_goes_on(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with stdio_client(tmp_path / "data", connect_timeout=10, **QUICK, **NO_SANDBOX) as client:
        await install(client, "quick", quick.command)
        book = Book(client=client)
        await book.value("1")
        order: list[str] = []

        async def slow() -> None:
            done = await call(client, "install_capability", name="slow", server_command=misbehaving("silent"))
            assert done.is_error
            order.append("slow")

        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await reached(lambda: any(b"silent" in command_line(pid) for pid in everyone()), "it is being connected to")
            assert (await installed(client))["quick"] == "17 methods, connected"
            order.append("state")
            assert await book.value("quick.echo(1)") == "1"
            order.append("run")
            assert "slow" not in await book.value("repr(caps), caps.search('sum')")
            other = Quick(journal=tmp_path / "other")
            await install(client, "other", other.command)
            order.append("install")
            assert await book.value("other.echo(2)") == "2"
            await call(client, "uninstall_capability", name="other")
            order.append("uninstall")
        assert order == ["state", "run", "install", "uninstall", "slow"]


async def test_an_install_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with stdio_client(tmp_path / "data", connect_timeout=50, **QUICK, **NO_SANDBOX) as client:
        async with anyio.create_task_group() as group:
            given = {"name": "new", "server_command": misbehaving("silent", "given-up")}
            group.start_soon(client.call_tool, "install_capability", given)
            await reached(lambda: any(b"given-up" in command_line(pid) for pid in everyone()), "it is started")
            group.cancel_scope.cancel()
        wait_until(lambda: not any(b"given-up" in command_line(pid) for pid in everyone()), "it is gone")
        await install(client, "new", quick.command)
        assert await installed(client) == {"new": "17 methods, connected"}


async def test_of_two_that_install_one_name_at_once_one_has_it(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    async with stdio_client(tmp_path / "data", **QUICK, **NO_SANDBOX) as client:
        done: list[Any] = []

        async def one() -> None:
            given = {"name": "quick", "server_command": quick.command}
            done.append(await client.call_tool("install_capability", given, raise_on_error=False))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        assert sorted(each.is_error for each in done) == [False, True, True, True, True]
        assert await Book(client=client).value("quick.echo(1)") == "1"
        await reached(lambda: len(quick.running()) == 1, "one process of it runs")


def everyone() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


# The server's end


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_when_the_server_ends_no_backend_is_left(tmp_path: Path, how: str) -> None:
    quick = Quick(journal=tmp_path / "journal")
    client = stdio_client(tmp_path / "data", **QUICK, **NO_SANDBOX)
    async with client:
        book = Book(client=client)
        server = await book.server()
        await install(client, "quick", quick.command)
        before = set(processes_of(server))
        await install(client, "deaf", misbehaving("deaf"))
        deaf = {pid for pid in processes_of(server) if pid not in before and b"misbehaving" in command_line(pid)}
        for pid in list(deaf):
            deaf |= set(processes_of(pid))
        assert len([pid for pid in deaf if b"time.sleep(9)" in command_line(pid)]) == 1  # the child of it
        await book.value("import threading\nthreading.Thread(target=quick.hold, args=('a',)).start()")
        await quick.is_called("hold")
        if how == "killed":
            os.kill(server, signal.SIGKILL)
            wait_until(lambda: not alive(server), "the server is gone")
    quick.is_over()
    wait_until(lambda: not any(map(alive, deaf)), "the backend that ignores being told is gone, and its child")


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# A kernel that sleeps


async def test_a_kernel_wakes_with_its_capabilities_and_published_tools(tmp_path: Path) -> None:
    quick = Quick(journal=tmp_path / "journal")
    settings = {"snapshot_interval": 0.05, "hibernate_after": 0.3, "spare_kernels": 0}
    async with roomy_client(tmp_path / "data", **settings, **NO_SANDBOX) as client:
        await install(client, "quick", quick.command)
        book = Book(client=client)
        await book.value("method = quick.echo\nkept = quick.person('Ada')\n1")
        await book.run("@capability(expose=True)\ndef double(n: int) -> int:\n    return 2 * int(quick.echo(n))\n")

        async def asleep() -> bool:
            [listed] = (await call(client, "list_notebooks")).structured_content["notebooks"]
            return bool(listed["kernel"] == "hibernated")

        await until(asleep, "the kernel sleeps")
        assert await book.value("method(3), double(4), caps.double(5), kept.home.city") == ["3", 8, 10, "Bern"]
        assert (await call(client, "double", n=6)).structured_content["return_value"] == 12
        assert len(quick.pids()) == 1


# Lies on the relay

FORGE = """
import json, os, socket, struct, time
def frame(say, parts=b'', **fields):
    header = json.dumps({'say': say, 'with': fields, 'parts': [len(parts)] if parts else []}).encode()
    return struct.pack('!2sBBII', b'QW', VERSION, 0, len(header), len(parts)) + header + parts
relay = socket.socket(fileno=os.dup(caps._known.relay.descriptors[0]))
"""


def forged(code: str) -> str:
    from quire.wire import messages

    return FORGE.replace("VERSION", str(messages.VERSION)) + code


HELD = "call=900, do='tool', capability='quick', method='hold', given={'name': 'a'}"


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param("b'hello, server' * 100", id="no frame"),
        pytest.param("struct.pack('!2sBBII', b'QW', 99, 0, 2, 0) + b'{}'", id="another version"),
        pytest.param("struct.pack('!2sBBII', b'QW', VERSION, 0, 2**31, 0)", id="a header of gigabytes"),
        pytest.param("frame('Called', call=1, do='steal')", id="no such thing to do"),
        pytest.param("frame('Called', call='one', do='tool')", id="a number that is not one"),
        pytest.param("frame('Called', call=1, do='tool', given=[1])", id="arguments that are none"),
        pytest.param("frame('Called', call=1, do='tool', given={}, more=1)", id="a field too many"),
        pytest.param("frame('Called', do='tool')", id="a field too few"),
        pytest.param("frame('Finished', run='x')", id="a word of the channel"),
        pytest.param("frame('Returned', call=1, value={})", id="the server's own word"),
        pytest.param("struct.pack('!2sBBII', b'QW', VERSION, 0, 60_000, 0) + b'[' * 60_000", id="depth"),
        pytest.param(f"frame('Called', {HELD}) + frame('Called', {HELD})", id="a number twice"),
    ],
)
async def test_a_lie_on_the_relay_ends_only_the_kernel_that_told_it(book: Book, lie: str) -> None:
    from quire.wire import messages

    async with new_book(book.client) as other:
        pid = await other.value("import os\ny = 5\nos.getpid()")
        lie = lie.replace("VERSION", str(messages.VERSION))
        result = await book.run(forged(f"x = 0\nrelay.sendall({lie})\ntime.sleep(20)"))
        found = result.structured_content
        assert (result.is_error, found["state"]) == (True, "CRASHED"), text(result)
        await is_as_before(book)
        assert await other.value("y, os.getpid(), quick.echo(1)") == [5, pid, "1"]


async def test_a_call_of_what_is_not_there_is_an_error_of_that_call(book: Book) -> None:
    code = forged("relay.sendall(frame('Called', call=-5, do='tool', capability='nothing', method='x'))\nquick.echo(3)")
    assert await book.value(code) == "3"


async def test_numbers_that_are_no_seconds_are_no_timeout(book: Book) -> None:
    for timeout in ("-1", "1e308", "float('inf')", "float('nan')"):
        code = forged(
            "relay.sendall(frame('Called', call=-5, do='tool', capability='quick', method='echo', given={'n': 1}, "
            f"timeout={timeout}))\ntime.sleep(0.1)\n1"
        )
        await book.run(code)
        await is_as_before(book)


async def test_calls_without_reading_take_a_bounded_share_of_memory(book: Book, tmp_path: Path) -> None:
    server = parent(parent(int(await book.value("import os\nos.getppid()"))))
    before = memory(server)
    go = tmp_path / "go"
    code = forged(
        f"""
relay.settimeout(3)
sent = 0
try:
    for n in range(1_000_000, 1_100_000):
        relay.sendall(frame('Called', call=n, do='tool', capability='quick', method='echo', given={{'n': n}}))
        sent += 1
except TimeoutError:
    pass
open({str(tmp_path / "sent")!r}, 'w').write(str(sent))
{waits_for(go)}
sent
"""
    )
    async with running(book, code, timeout=120), new_book(book.client) as other:
        await reached((tmp_path / "sent").exists, "the cell has sent what it can")
        assert await other.value("[quick.echo(n) for n in range(10)]") == [str(n) for n in range(10)]
        assert memory(server) - before < 300 * 2**20, f"{(memory(server) - before) / 2**20:.0f} MB more"
        go.touch()
    async with new_book(book.client) as other:
        assert await other.value("quick.echo(1)") == "1"
    assert not (await call(book.client, "list_notebooks")).is_error


async def test_large_answers_that_are_not_read_take_bounded_memory(book: Book, tmp_path: Path) -> None:
    server = parent(parent(int(await book.value("import os\nos.getppid()"))))
    before, go = memory(server), tmp_path / "go"
    code = forged(
        f"""
for n in range(1_000, 1_200):
    asked = {{'size': 900_000}}
    relay.sendall(frame('Called', call=n, do='tool', capability='quick', method='large', given=asked))
open({str(tmp_path / "sent")!r}, 'w').close()
{waits_for(go)}
"""
    )
    async with running(book, code, timeout=120), new_book(book.client) as other:
        await reached((tmp_path / "sent").exists, "the cell has sent all")
        echoed = await other.run("quick.echo(1, _timeout=110)", timeout=120)  # after the others, at the backend
        assert echoed.structured_content["return_value"] == "1", text(echoed)
        assert memory(server) - before < 140 * 2**20, f"{(memory(server) - before) / 2**20:.0f} MB more"
        go.touch()


def memory(pid: int) -> int:
    """Bytes it had at once at the most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


# All of it

BY_TASKS = """
import asyncio
async def one(n):
    try:
        return n, str(await quick.echo.aio(n))
    except ToolError as error:
        return n, type(error).__name__
answers = await asyncio.gather(*(one(n) for n in range(START, START + 50)))
answers
"""
BY_THREADS = """
from concurrent.futures import ThreadPoolExecutor
def one(n):
    try:
        return n, str(quick.echo(n))
    except ToolError as error:
        return n, type(error).__name__
with ThreadPoolExecutor(10) as pool:
    answers = list(pool.map(one, range(START, START + 50)))
answers
"""
ONE_BY_ONE = """
def one(n):
    try:
        return n, str(quick.echo(n))
    except ToolError as error:
        return n, type(error).__name__
answers = [one(n) for n in range(START, START + 50)]
answers
"""
CRASHING = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
log = os.open('LOG', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
done = []
def one(n):
    os.write(log, f'{n} {quick.echo(n)}\\n'.encode())
    done.append(n)
    if len(done) == 25:
        os.kill(os.getpid(), 9)
with ThreadPoolExecutor(10) as pool:
    list(pool.map(one, range(START, START + 50)))
"""
KILLING = """
import os, signal
async def kill():
    os.kill(int(await quick.pid.aio()), signal.SIGKILL)
killed = asyncio.ensure_future(kill())
"""


async def is_back(client: Client[Any]) -> None:
    with anyio.fail_after(DEADLINE):
        while (await installed(client))["quick"] != "17 methods, connected":
            await anyio.sleep(0.02)


async def test_calls_through_crashes_and_kills_are_answered_rightly_or_fail(
    tmp_path: Path,
) -> None:
    quick, log = Quick(journal=tmp_path / "journal"), tmp_path / "log"
    crashes, kills = {4, 9, 14}, {6, 12}
    answers: dict[int, str] = {}
    order = random.Random(5)
    async with roomy_client(tmp_path / "data", **NO_SANDBOX) as client:
        await install(client, "quick", quick.command)
        book = Book(client=client)
        await book.value("x = 41\nx")
        await book.protected()
        for cell in range(20):
            code = CRASHING if cell in crashes else order.choice([BY_TASKS, BY_THREADS, ONE_BY_ONE])
            if cell in kills:
                code = BY_TASKS.replace("answers = await", f"{KILLING}answers = await")
            result = await book.run(code.replace("START", str(cell * 50)).replace("LOG", str(log)), timeout=60)
            if cell in crashes:
                assert result.structured_content["state"] == "CRASHED", text(result)
                continue
            assert not result.is_error, text(result)
            given = await book.value("answers")
            assert [n for n, _ in given] == list(range(cell * 50, cell * 50 + 50))
            answers |= dict(given)
            if cell in kills:
                await is_back(client)
        assert await book.value("x") == 41
    logged = [tuple(line.split()) for line in log.read_text().splitlines()]
    assert [pair for pair in logged if pair[0] != pair[1]] == [] and len(logged) >= 75
    assert len(answers) == 17 * 50
    wrong = {n: said for n, said in answers.items() if said not in (str(n), "CapabilityGone")}
    assert wrong == {}
    failed = [n for n, said in answers.items() if said == "CapabilityGone"]
    assert {n // 50 for n in failed} <= kills, failed
    heard = [each["n"] for each in quick.calls("echo")]
    assert len(heard) == len(set(heard))  # no call was made twice
    assert len(quick.pids()) == 3
    quick.is_over()
    lines = [json.loads(line) for line in (tmp_path / "data" / "audit.jsonl").read_text().splitlines()]
    assert len([line for line in lines if line["tool"] == "quick.echo"]) >= len(heard)
