"""Servers killed, told to stop, left by their client, and two on one data directory."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from quire import compose
from quire.core.model import LOCAL, Blob, OutputType, Run
from quire.core.notebooks.current import Client as Caller
from quire.settings import load
from quire.stores.blobs import FileBlobs
from quire.stores.sql import SqlStore
from tests.support.notebooks import Book
from tests.support.processes import alive, left_over, processes_of
from tests.support.servers import QUICK, call, cut_off, http_client, http_server, server_environment, stdio_client, text
from tests.support.waiting import appears, until, wait_until

LONG = "print('started')\nimport time\ntime.sleep(1000)"


async def test_kill_9_loses_no_acknowledged_cell_and_leaves_no_process(data_dir: Path) -> None:
    async with cut_off(stdio_client(data_dir, **QUICK)) as client:
        for number in range(30):
            result = await call(client, "execute", code=f"print('cell', {number})\n{number} ** 2")
            assert result.structured_content["return_value"] == number**2
        await call(client, "execute", code="print('x' * 100_000)")
        server = await Book(client=client).server()
        await call(client, "save_state")  # so that there is something on disk, however soon it is killed
        async with a_run_in_progress(client):
            family = processes_of(server)
            assert len(family) >= 2  # the zygote and a kernel
            os.kill(server, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, [server, *family])), "every process of the server is gone")
    async with stdio_client(data_dir, **QUICK) as client:
        book = Book(client=client)
        listed = (await call(client, "list_cells")).structured_content
        assert [cell["state"] for cell in listed["cells"]] == ["SUCCESS"] * 32 + ["INTERRUPTED"]
        for number in range(30):
            assert await book.shown(number) == f"cell {number}\n{number**2}"
        assert (await book.whole(30))[0].text == "x" * 100_000 + "\n"
        shown = await book.shown(32)
        assert "The server ended while this cell ran" in shown
        assert ("started\n" in shown) == ("is kept" in shown and "nothing" not in shown)
        result = await call(client, "execute", code="40 + 2")
        assert result.structured_content["return_value"] == 42
        assert "Restored from disk" in result.structured_content["notice"]


SHOWS = """
import sys, time
print('before')
print('wrong', file=sys.stderr)
display(Picture())
print('x' * 100_000)
open({shown!r}, 'w').close()
time.sleep(1000)
"""
PICTURE = """
class Picture:
    def _repr_png_(self):
        return b'\\x89PNG\\r\\n\\x1a\\n' + b'\\0' * 1000
"""


async def test_kill_9_keeps_what_the_run_had_shown_until_shortly_before(data_dir: Path, tmp_path: Path) -> None:
    async with cut_off(stdio_client(data_dir, **QUICK)) as client:
        server = await Book(client=client).server()
        await call(client, "execute", code=PICTURE)
        shown = str(tmp_path / "shown")
        waiting = asyncio.ensure_future(call(client, "execute", code=SHOWS.format(shown=shown), timeout=1000))
        await appears(tmp_path / "shown")
        wait_until(lambda: kept(data_dir) >= 4, "what was shown is in the database")
        os.kill(server, signal.SIGKILL)
        with contextlib.suppress(Exception):
            await waiting
    async with stdio_client(data_dir, **QUICK) as client:
        book = Book(client=client)
        cell = await book.cell(2)
        assert cell["state"] == "INTERRUPTED"
        assert [output["type"] for output in cell["outputs"]] == ["stream", "stream", "image", "stream", "error"]
        assert [output.get("text") for output in cell["outputs"][:2]] == ["before\n", "wrong\n"]
        assert cell["outputs"][2]["image"]["size"] == 1008
        assert (await book.whole(2, 3))[0].text == "x" * 100_000 + "\n"
        assert "what it had shown until shortly before is kept" in cell["outputs"][4]["text"]
        assert kept(data_dir) == 0


def kept(data_dir: Path) -> int:
    """Pieces of outputs of runs under way."""
    with contextlib.closing(sqlite3.connect(data_dir / "quire.db")) as database:
        return int(
            database.execute(
                "SELECT count(DISTINCT json_extract(output, '$.type') || json_extract(output,"
                " '$.name') || (length(output) > 1000)) FROM shown"
            ).fetchone()[0]
        )


ENDS = [
    ("print('said', {n})\n{n} ** 2", "SUCCESS"),
    ("print('x' * 50_000)", "SUCCESS"),
    ("print('said', {n})\n1 / 0", "ERROR"),
    ("print('said', {n}, flush=True)\nimport os; os._exit(3)", "CRASHED"),
    ("print('said', {n})\nimport time; time.sleep(1000)", "TIMEOUT"),
    ("def f{n}(): return {n}\nimport json", "SUCCESS"),
]


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.soak(sample=False))])
async def test_server_killed_right_after_an_answer_has_recorded_it(data_dir: Path, times: int) -> None:
    for number in range(times * len(ENDS)):
        code, state = ENDS[number % len(ENDS)]
        async with cut_off(stdio_client(data_dir, **QUICK)) as client:
            book = Book(client=client, name="main" if number else None)
            server = await book.server()
            answer = await book.run(code.format(n=number), timeout=0.5 if state == "TIMEOUT" else 30)
            os.kill(server, signal.SIGKILL)
        assert answer.structured_content["state"] == state, text(answer)
        wait_until(lambda server=server: not alive(server), "the server is gone")
        journal, printed = await recorded(data_dir)
        assert [run.count for run in journal] == list(range(1, 2 * number + 3))  # one more asked who the server is
        assert [run.state.value for run in journal[1::2]] == [ENDS[n % len(ENDS)][1] for n in range(number + 1)]
        last = journal[-1]
        assert (last.source, last.author, last.cell) == (
            code.format(n=number), "agent", answer.structured_content["cell_id"],
        )  # fmt: skip
        assert printed[:1000] == answer.structured_content["stdout"][:1000]


async def recorded(data_dir: Path) -> tuple[list[Run], str]:
    """The journal as it is on disk, and what its last run printed."""
    store, blobs = SqlStore(data_dir), FileBlobs(data_dir / "blobs")
    notebook = await store.notebooks.find_notebook(LOCAL, "main")
    assert notebook is not None
    journal = await store.runs.list_runs(notebook.id)
    await store.close()
    texts = [output.bundle["text/plain"] for output in journal[-1].outputs if output.type is OutputType.STREAM]
    printed = [(await blobs.get(text)).decode() if isinstance(text, Blob) else str(text) for text in texts]
    return journal, "".join(printed)


@pytest.mark.parametrize(("told", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_server_told_to_stop_records_the_run_and_sets_its_exit_code(
    data_dir: Path, tmp_path: Path, told: signal.Signals, code: int
) -> None:
    async with cut_off(watched_client(data_dir, tmp_path / "code")) as client:
        server = await Book(client=client).server()
        async with a_run_in_progress(client):
            family = processes_of(server)
            os.kill(server, told)
            wait_until(lambda: (tmp_path / "code").exists(), "the server has ended")
    assert (tmp_path / "code").read_text() == str(code)
    wait_until(lambda: not any(map(alive, family)), "its processes are gone")
    await the_run_is_recorded(data_dir)


async def test_a_http_server_told_to_stop_records_the_run_and_ends(data_dir: Path) -> None:
    with http_server(data_dir, own_child=True, **QUICK) as (url, process):
        async with cut_off(http_client(url)) as client:
            await call(client, "execute", code="1")
            async with a_run_in_progress(client):
                family = processes_of(process.pid)
                process.terminate()
                await anyio.to_thread.run_sync(process.wait, 60)
        assert process.returncode == 143
    wait_until(lambda: not any(map(alive, family)), "its processes are gone")
    await the_run_is_recorded(data_dir)


async def test_an_idle_http_server_ends_without_a_traceback(data_dir: Path) -> None:
    with http_server(data_dir, **QUICK) as (url, process):
        async with http_client(url) as client:
            await call(client, "execute", code="1")
        process.terminate()
        await anyio.to_thread.run_sync(process.wait, 60)
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_command_told_to_stop_records_the_run_and_ends_with_143(data_dir: Path) -> None:
    command = [sys.executable, "-m", "quire", "exec", f"{LONG}"]
    with subprocess.Popen(command, env=server_environment(data_dir, **QUICK), stderr=subprocess.PIPE) as process:
        wait_until(lambda: len(processes_of(process.pid)) >= 2, "its kernel is there")
        process.terminate()
        assert process.wait(60) == 143
    wait_until(lambda: not left_over(data_dir), "its processes are gone")


async def test_a_client_that_leaves_ends_the_server_and_all_it_started(data_dir: Path, tmp_path: Path) -> None:
    async with watched_client(data_dir, tmp_path / "code") as client:
        server = await Book(client=client).server()
        await call(client, "execute", code="import subprocess\nchild = subprocess.Popen(['sleep', '1000'])")
        family = processes_of(server)
        assert len(family) >= 3  # zygote, kernel and what the cell started
    wait_until(lambda: not any(map(alive, [server, *family])), "every process is gone")
    wait_until(lambda: (tmp_path / "code").exists(), "the server has ended")
    assert (tmp_path / "code").read_text() == "0"


async def test_a_client_that_leaves_in_mid_run_has_the_run_recorded(data_dir: Path, tmp_path: Path) -> None:
    async with cut_off(watched_client(data_dir, tmp_path / "code")) as client:
        await call(client, "execute", code="1")
        leaving = a_run_in_progress(client)
        await leaving.__aenter__()
    await leaving.__aexit__(None, None, None)
    wait_until(lambda: (tmp_path / "code").exists(), "the server has ended")
    assert (tmp_path / "code").read_text() == "0"
    wait_until(lambda: not left_over(data_dir), "its processes are gone")
    async with stdio_client(data_dir, **QUICK) as client:
        cells = (await call(client, "list_cells")).structured_content["cells"]
        assert [cell["state"] for cell in cells] == ["SUCCESS", "INTERRUPTED"]


@pytest.mark.parametrize(("workers", "times"), [(2, 1), pytest.param(5, 10, marks=pytest.mark.soak)])
async def test_starts_leak_no_process_file_descriptor_or_lock(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, times: int
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    async def starts(name: str, times: int) -> None:
        for number in range(times):
            async with stdio_client(data_dir, **QUICK) as client:
                if number == 0:
                    await call(client, "create_notebook", name=name)
                result = await call(client, "execute", code=f"print({number})", notebook=name)
                assert result.structured_content["stdout"] == f"{number}\n", text(result)

    await starts("first", 1)
    wait_until(lambda: not left_over(data_dir), "the first is gone")
    descriptors = len(os.listdir("/proc/self/fd"))
    async with anyio.create_task_group() as group:
        for worker in range(workers):
            group.start_soon(starts, f"book {worker}", times)
    wait_until(lambda: not left_over(data_dir), "no process is left")
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert list(temporary.iterdir()) == []
    locks = list((data_dir / "locks").iterdir())
    assert len(locks) == workers + 2 and all(map(free, locks))  # the first notebook, and the opening of the store


@contextlib.asynccontextmanager
async def two_servers(data_dir: Path) -> AsyncIterator[tuple[Client[Any], Client[Any]]]:
    async with stdio_client(data_dir, **QUICK) as first, stdio_client(data_dir, **QUICK) as second:
        yield first, second


async def test_two_servers_on_one_data_directory_run_different_notebooks(data_dir: Path) -> None:
    async with two_servers(data_dir) as (first, second):
        mine = await call(first, "execute", code="x = 'first'\nx")
        theirs = await call(second, "execute", code="x = 'second'\nx")
        assert mine.structured_content["notebook"] == "main"
        assert theirs.structured_content["notebook"] == "main-2"
        assert (await call(first, "execute", code="x")).structured_content["return_value"] == "first"
        assert (await call(second, "execute", code="x")).structured_content["return_value"] == "second"
        for client, notebook, cells in [(first, "main", 2), (second, "main-2", 2)]:
            listed = (await call(client, "list_cells")).structured_content
            assert (listed["notebook"], listed["total"]) == (notebook, cells)


async def test_a_notebook_another_server_runs_is_refused_until_that_server_ends(data_dir: Path) -> None:
    async with stdio_client(data_dir, **QUICK) as second:
        async with stdio_client(data_dir, **QUICK) as first:
            await call(first, "execute", code="x = 1")
            refused = await call(second, "execute", code="x", notebook="main")
            assert refused.is_error
            assert "being run by another Quire server" in text(refused) and "Use another notebook" in text(refused)
            shown = await call(second, "list_cells", notebook="main")  # reading is not running
            assert [cell["state"] for cell in shown.structured_content["cells"]] == ["SUCCESS"]
        result = await call(second, "execute", code="40 + 2", notebook="main")
        assert (result.structured_content["notebook"], result.structured_content["return_value"]) == ("main", 42)
        cells = (await call(second, "list_cells", notebook="main")).structured_content["cells"]
        assert [cell["state"] for cell in cells] == ["SUCCESS", "SUCCESS"]


async def test_a_second_server_leaves_the_runs_of_the_first_alone(data_dir: Path) -> None:
    async with stdio_client(data_dir, **QUICK) as first:
        await call(first, "execute", code="1")
        async with a_run_in_progress(first):
            async with stdio_client(data_dir, **QUICK) as second:
                cells = (await call(second, "list_cells", notebook="main")).structured_content["cells"]
                assert [cell["state"] for cell in cells] == ["SUCCESS", "RUNNING"]
            stopped = await call(first, "interrupt", notebook="main")
            assert stopped.structured_content["state"] == "INTERRUPTED"


async def test_two_servers_that_write_at_once_lose_nothing(data_dir: Path) -> None:
    async def hammer(client: Client[Any], name: str) -> None:
        await call(client, "create_notebook", name=name)
        for number in range(200):
            result = await call(client, "execute", code=f"print('{name}', {number})")
            assert result.structured_content["state"] == "SUCCESS", text(result)

    async with two_servers(data_dir) as (first, second):
        async with anyio.create_task_group() as group:
            group.start_soon(hammer, first, "a")
            group.start_soon(hammer, second, "b")
        for client, name in [(first, "b"), (second, "a")]:  # each sees what the other wrote
            cells = [
                cell
                for start in (0, 100)
                for cell in (
                    await call(client, "list_cells", notebook=name, start=start, limit=100)
                ).structured_content["cells"]
            ]
            assert [(cell["cell_number"], cell["state"]) for cell in cells] == [(n, "SUCCESS") for n in range(200)]
            book = Book(client=client, name=name)
            for number in (0, 99, 199):
                assert await book.shown(number) == f"{name} {number}\n"


def test_stores_opened_at_once_on_a_new_folder_all_open(tmp_path: Path) -> None:
    for round_ in range(10):
        folder = tmp_path / str(round_)
        folder.mkdir()
        failures: list[BaseException] = []
        ready = threading.Barrier(8)
        threads = [threading.Thread(target=open_store, args=(folder, ready, failures)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_servers_whose_first_calls_meet_each_get_a_notebook(tmp_path: Path, rounds: int) -> None:
    for round_ in range(rounds):
        settings = load({"store_data_dir": tmp_path / str(round_), "kernel_preload": ()}, environ={})
        async with contextlib.AsyncExitStack() as stack:
            apps = [await stack.enter_async_context(compose.app(settings)) for _ in range(3)]
            names: list[str] = []

            async def first_call(app: Any, names: list[str] = names) -> None:
                notebook = await app.current.resolve(Caller(principal=LOCAL))
                active = await app.runs.start(notebook, "1")
                await app.runs.wait(active)
                names.append(notebook.name)

            async with anyio.create_task_group() as group:
                for app in apps:
                    group.start_soon(first_call, app)
            assert sorted(names) == ["main", "main-2", "main-3"]


def open_store(folder: Path, ready: threading.Barrier, failures: list[BaseException]) -> None:
    ready.wait()
    try:
        store = SqlStore(folder)
    except BaseException as error:
        failures.append(error)
    else:
        anyio.run(store.close)


def watched_client(data_dir: Path, code: Path) -> Client[Any]:
    """A client of a server whose exit code is written to a file when it ends: negative for a signal."""
    watch = "import subprocess, sys; code = subprocess.call([sys.executable, '-m', 'quire']); open(sys.argv[1], 'w')"
    script = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {watch}.write(str(code))"
    environment = server_environment(data_dir, **QUICK)
    return Client(StdioTransport(sys.executable, ["-c", script, str(code)], env=environment, keep_alive=False))


@contextlib.asynccontextmanager
async def a_run_in_progress(client: Client[Any]) -> AsyncIterator[None]:
    """A cell that has printed and goes on; whether its answer ever comes is not the matter."""
    waiting = asyncio.ensure_future(call(client, "execute", code=LONG, timeout=1000))
    try:
        await until(lambda: runs_now(client), "the cell runs")
        yield
    finally:
        waiting.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await waiting


async def runs_now(client: Client[Any]) -> bool:
    cells = (await call(client, "list_cells", notebook="main")).structured_content["cells"]
    if cells[-1]["state"] != "RUNNING":
        return False
    shown = await Book(client=client).shown(cells[-1]["cell_number"])
    return shown == "started\n"


async def the_run_is_recorded(data_dir: Path) -> None:
    """By the server that was stopped, with what was printed; not found unfinished by the next one."""
    journal, printed = await recorded(data_dir)
    assert [run.state.value for run in journal] == ["SUCCESS", "INTERRUPTED"]
    errors = [str(output.bundle) for output in journal[-1].outputs if output.type is OutputType.ERROR]
    assert printed == "started\n" and "The server was stopped while it ran" in "".join(errors)


def free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
