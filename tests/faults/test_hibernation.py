"""Idle kernels sleep on disk and wake with everything. State that would be lost keeps one awake, and is named."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, asleep, good, info, kernel, made, new_book, notice, waits_for
from tests.support.processes import alive, parent, processes_of, server_of
from tests.support.servers import NO_SANDBOX, SLEEPY, cut_off, end, roomy_client, text
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {**SLEEPY, **NO_SANDBOX}


def below_the_zygote(data_dir: Path) -> list[int]:
    """Supervisors, and all they keep."""
    server = server_of(data_dir)
    (zygote,) = [pid for pid in processes_of(server) if parent(pid) == server]
    return processes_of(zygote)


async def test_an_idle_kernel_ends_and_wakes_with_everything(data_dir: Path) -> None:
    async with roomy_client(data_dir, **SLEEPY, **NO_SANDBOX) as client:
        book = await made(client, "main")
        await good(book, "import random\nitems = [1]\nboth = items\ndef f(a):\n    'Say it.'\n    return items")
        await good(book, "class A:\n    n = 1\na = A()\nrandom.seed(3)")
        first = await book.value("__import__('os').getpid()")
        for round_ in range(3):
            await asleep(book)
            wait_until(lambda: not below_the_zygote(data_dir), "no kernel is left, nor what it kept")
            found = await info(book)
            assert found["wake_seconds"] >= 0 and found["cells"] == 3 + 2 * round_
            state = (await book.ask("state")).structured_content
            assert state["kernel"] == "hibernated"
            assert state["variables"]["items"] == f"list of {1 + round_}" and "a" in state["variables"]
            assert [each["name"] for each in state["defined_functions"]] == ["f"]
            assert state["defined_functions"][0]["docstring"] == "Say it."
            assert "sleep" in text(await book.ask("state")) or "on disk" in text(await book.ask("state"))
            assert await kernel(book) == "hibernated"  # to look did not wake it
            answer = await good(book, "items is both, f(1) is items, a.n, isinstance(a, A), len(items)")
            assert answer.structured_content["return_value"] == [True, True, 1, True, 1 + round_]
            assert "Restored from disk" in notice(answer) and "Not restored" not in notice(answer)
            assert "not in it" not in notice(answer)
            assert await kernel(book) in ("idle", "hibernated")
            await good(book, "items.append(len(items))")
        assert not alive(first)


async def test_a_kernel_at_work_is_not_put_to_sleep(server: Client[Any], book: Book, tmp_path: Path) -> None:
    async with new_book(server) as other:
        await good(book, "x = 1")
        waiting = waits_for(tmp_path / "go") + "x += 1"
        running = asyncio.ensure_future(book.run(waiting))
        for _ in range(3):  # as long as it takes another to fall asleep three times
            await good(other, "1")
            await asleep(other)
            assert await kernel(book) == "running"
        (tmp_path / "go").touch()
        assert not (await running).is_error
        assert await book.value("x") == 2


KEEPS_AWAKE = {
    "generator": "g = (n for n in range(9))\nnext(g)",
    "thread": "import threading, time\ng = threading.Thread(target=time.sleep, args=(1000,), daemon=True)\ng.start()",
    "child": "import subprocess\ng = subprocess.Popen(['sleep', '1000'])",
    "socket": "import socket\ng = socket.create_server(('127.0.0.1', 0))",
    "task": "import asyncio\ng = asyncio.get_running_loop().create_task(asyncio.sleep(1000))\nawait asyncio.sleep(0)",
    "coroutine": "class Once:\n    def __await__(self): yield\nasync def f(): await Once()\ng = f()\ng.send(None)",
}


async def test_what_cannot_be_saved_keeps_a_kernel_awake(server: Client[Any]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        books = {}
        for what, code in KEEPS_AWAKE.items():
            books[what] = await stack.enter_async_context(new_book(server))
            await good(books[what], "x = 1\n" + code)
        other = await stack.enter_async_context(new_book(server))
        for round_ in range(3):
            await good(other, "1")
            await asleep(other)
            awake = {what: await kernel(book) for what, book in books.items()}
            assert awake == dict.fromkeys(KEEPS_AWAKE, "idle"), round_
        assert await books["generator"].value("next(g)") == 1
        assert await books["thread"].value("g.is_alive()") is True
        assert await books["child"].value("g.poll()") is None


async def test_idle_timeout_saves_and_closes_any_and_names_the_loss(data_dir: Path) -> None:
    settings = {**SLEEPY, "hibernate_after": 0, "idle_timeout": 0.5}
    async with roomy_client(data_dir, **settings, **NO_SANDBOX) as client:
        books = {}
        for what, code in KEEPS_AWAKE.items():
            books[what] = await made(client, what)
            await good(books[what], "x = [1]")
            await good(books[what], code)
        for what, book in books.items():
            await asleep(book)
            answer = await good(book, "x")
            assert answer.structured_content["return_value"] == [1], what
            said = notice(answer)
            assert "Not restored: " in said and "g (" in said and "; cell 1 makes it)" in said, (what, said)


async def test_with_both_times_zero_nothing_sleeps(data_dir: Path) -> None:
    settings = {**SLEEPY, "hibernate_after": 0, "idle_timeout": 0}
    async with roomy_client(data_dir, **settings, **NO_SANDBOX) as client:
        book = await made(client, "main")
        pid = await book.value("__import__('os').getpid()")
        await anyio.sleep(1)
        assert await kernel(book) == "idle" and await book.value("__import__('os').getpid()") == pid


@pytest.mark.parametrize("count", [4, pytest.param(30, marks=pytest.mark.soak(sample=True))])
async def test_many_notebooks_sleep_and_all_come_back(data_dir: Path, count: int) -> None:
    async with roomy_client(data_dir, **SLEEPY, **NO_SANDBOX) as client:
        books = [await made(client, f"book {number}") for number in range(count)]
        for number, book in enumerate(books):
            await good(book, f"x = {{'number': {number}}}\ny = x\ndef f(): return y is x")
        for book in books:
            await asleep(book)
        wait_until(lambda: not below_the_zygote(data_dir), "no kernel is left")
        for number, book in enumerate(books):
            assert await book.value("x, f()") == [{"number": number}, True]
        results = await asyncio.gather(*(book.run("x['number'] *= 2\nx, f()") for book in books))
        values = [result.structured_content["return_value"] for result in results]
        assert values == [[{"number": 2 * number}, True] for number in range(count)]
        for book in books:
            await asleep(book)
        end(data_dir, signal.SIGKILL)
    async with cut_off(roomy_client(data_dir, **SLEEPY, **NO_SANDBOX)) as client:
        for number in (0, count // 2, count - 1):
            assert await Book(client=client, name=f"book {number}").value("x") == {"number": 2 * number}


@pytest.mark.parametrize("times", [10, pytest.param(100, marks=pytest.mark.soak(sample=True))])
async def test_a_run_that_comes_while_it_is_put_to_sleep_is_not_lost(data_dir: Path, times: int) -> None:
    choose = random.Random(5)
    async with roomy_client(data_dir, **{**SLEEPY, "hibernate_after": 0.05}, **NO_SANDBOX) as client:
        books = [await made(client, name) for name in "ab"]

        async def use(book: Book) -> None:
            await good(book, "x, woken, pids = 0, 0, set()\nimport os")
            number = processes = 0
            while number < times or processes < 2:  # it was put to sleep meanwhile
                await anyio.sleep(choose.random() * 0.25)
                answer = await good(book, "x += 1\npids.add(os.getpid())\nx, len(pids)")
                number += 1
                ran, processes = answer.structured_content["return_value"]
                assert ran == number < times + 1000, notice(answer)
                assert "not in it" not in notice(answer) and "gone" not in notice(answer), notice(answer)

        await asyncio.gather(*map(use, books))


WAYS = ["rollback", "branch_notebook", "save_state", "restore_state", "list_checkpoints", "execute_cell", "reset"]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_use_a_sleeping_notebook_wakes_it_or_works(book: Book, way: str) -> None:
    await good(book, "x = [1]")
    await book.ask("save_state", name="first")
    await good(book, "x.append(2)")
    await asleep(book)
    arguments: dict[str, dict[str, Any]] = {
        "rollback": {"to": 0},
        "branch_notebook": {"name": "twin"},
        "save_state": {"name": "second"},
        "restore_state": {"name": "first"},
        "execute_cell": {"cell_id_or_number": 1},
    }
    done = await book.ask(way, **arguments.get(way, {}))
    assert not done.is_error, text(done)
    expected = {"rollback": [1], "restore_state": [1], "execute_cell": [1, 2, 2], "reset": None}.get(way, [1, 2])
    answer = await good(book, "globals().get('x')")
    assert answer.structured_content["return_value"] == expected, notice(answer)
    if way == "branch_notebook":
        assert await Book(client=book.client, name="twin").value("x") == [1, 2]
    if way == "list_checkpoints":
        kinds = [each["kind"] for each in done.structured_content["checkpoints"]]
        assert kinds and set(kinds) <= {"durable", "both"}
    await asleep(book)  # and it falls asleep again


@pytest.mark.parametrize("policy", [{"isolation": "cell"}, {"on_error": "rollback"}], ids=str)
async def test_notebooks_of_every_policy_sleep_and_wake(server: Client[Any], policy: dict[str, str]) -> None:
    async with new_book(server, **policy) as book:
        for number in range(3):
            await good(book, f"x = [*globals().get('x', []), {number}]")
            await asleep(book)
        assert await book.value("x") == [0, 1, 2]


async def test_without_checkpoints_a_kernel_sleeps_all_the_same(data_dir: Path) -> None:
    async with roomy_client(data_dir, checkpoint_bytes=0, **SLEEPY, **NO_SANDBOX) as client:
        book = await made(client, "main")
        await good(book, "x = [1]")
        await asleep(book)
        assert await book.value("x") == [1]


async def test_a_branch_without_runs_sleeps_and_wakes(book: Book) -> None:
    await good(book, "x = [1]")
    await book.ask("branch_notebook", name="unused", use=False)
    twin = Book(client=book.client, name="unused")
    await asleep(book)
    await asleep(twin)
    assert await twin.value("x") == [1]
    await good(twin, "x.append(2)")
    await asleep(twin)
    assert await twin.value("x") == [1, 2] and await book.value("x") == [1]


async def test_a_sleeping_notebook_that_is_reset_wakes_empty_after_a_restart_too(data_dir: Path) -> None:
    async with cut_off(roomy_client(data_dir, **SLEEPY, **NO_SANDBOX)) as client:
        book = await made(client, "main")
        await good(book, "x = [1]")
        await asleep(book)
        await book.ask("reset")
        assert await kernel(book) == "not started"
        end(data_dir, signal.SIGKILL)
    async with cut_off(roomy_client(data_dir, **SLEEPY, **NO_SANDBOX)) as client:
        book = Book(client=client, name="main")
        assert await kernel(book) == "not started"
        answer = await good(book, "'x' in globals()")
        assert answer.structured_content["return_value"] is False, notice(answer)
        end(data_dir, signal.SIGTERM)
