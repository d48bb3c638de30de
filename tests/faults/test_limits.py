"""Limits of users and of the server: what waits, what sleeps, what is refused and how."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.support.http_users import Users
from tests.support.notebooks import Book, asleep, good, kernel, made, new_book, notice, waits_for
from tests.support.servers import QUICK, ROOMY, call, http_server, roomy_client, stdio_client, text
from tests.support.waiting import appears, until


@contextlib.contextmanager
def server_of_many(data_dir: Path, **settings: Any) -> Iterator[Users]:
    """A server over HTTP with several users."""
    with http_server(data_dir, **{**QUICK, "auth": "tokens", **settings}) as (url, _):
        yield Users(url, data_dir)


async def test_over_the_limit_the_kernel_idle_longest_sleeps_and_wakes(data_dir: Path) -> None:
    async with roomy_client(data_dir, max_kernels_per_user=2, snapshot_interval=0.05) as client:
        books = [await made(client, name) for name in "abc"]
        for number, book in enumerate(books):
            await good(book, f"x = [{number}]")
        assert [await kernel(book) for book in books] == ["hibernated", "idle", "idle"]
        answer = await good(books[0], "x")
        assert answer.structured_content["return_value"] == [0]
        assert "Restored from disk" in notice(answer) and "Not restored" not in notice(answer)
        assert [await kernel(book) for book in books] == ["idle", "hibernated", "idle"]


async def test_where_no_kernel_can_sleep_one_more_is_refused_until_one_ends(data_dir: Path) -> None:
    async with roomy_client(data_dir, max_kernels=2, snapshot_interval=0.05) as client:
        books = [await made(client, name) for name in "ab"]
        for book in books:
            await good(book, "g = (n for n in [1, 2]); next(g)")  # which cannot be saved
        third = await made(client, "c")
        refused = await third.run("1")
        assert refused.is_error
        assert "2 live on this server" in text(refused) and "setting limits.max_kernels)" in text(refused)
        assert "End one with reset" in text(refused)
        assert [await book.value("next(g)") for book in books] == [2, 2]
        await books[0].ask("reset")
        assert await third.value("1") == 1


IMPATIENT = ROOMY.replace("main()", "from quire.core.kernels import admission\nadmission._MAX_WAIT_S = 1.0\nmain()")
"""A server that does not wait long until a busy kernel makes room."""


async def test_a_branch_needs_room_too(data_dir: Path) -> None:
    impatient = stdio_client(data_dir, command=("-c", IMPATIENT), max_kernels=1, **QUICK)
    async with impatient as client, new_book(client) as book:
        await good(book, "x = 1")
        refused = await book.ask("branch_notebook", name="twin")
        assert refused.is_error and "max_kernels" in text(refused)
        listed = (await call(client, "list_notebooks")).structured_content["notebooks"]
        assert [each["name"] for each in listed] == [book.name]


async def test_users_have_kernels_each_and_the_one_with_most_makes_room(data_dir: Path) -> None:
    settings = {"max_kernels": 3, "snapshot_interval": 0.05, "spare_kernels": 0}
    with server_of_many(data_dir, **settings) as many:
        async with many.client("ann") as ann, many.client("ben") as ben:
            mine = [await made(ann, name) for name in "abc"]
            for book in mine:
                await good(book, "x = 1")
            his = await made(ben, "a")
            await good(his, "x = 2")
            assert [await kernel(book) for book in (*mine, his)] == ["hibernated", "idle", "idle", "idle"]
            assert await his.value("x") == 2 and await mine[0].value("x") == 1
            assert await kernel(his) == "idle"  # it is hers that slept for it


async def test_a_run_past_the_limit_waits_says_so_and_its_time_does_not_count(data_dir: Path, tmp_path: Path) -> None:
    async with roomy_client(data_dir, max_runs=1, patience=1) as client:
        first, second = await made(client, "a"), await made(client, "b")
        await good(second, "1")
        going = asyncio.ensure_future(first.run(f"open({str(tmp_path / 'on')!r}, 'w')\n" + waits_for(tmp_path / "go")))
        await appears(tmp_path / "on")
        waiting = await second.run("'ran'", timeout=2)
        assert waiting.structured_content["state"] == "IDLE", text(waiting)
        assert "waits for its turn: 1 run under way" in notice(waiting) and "max_runs)" in notice(waiting)
        await anyio.sleep(2.2)  # longer than it may take once it runs
        (tmp_path / "go").touch()
        await going

        async def ran() -> bool:
            return bool((await second.cell(1))["state"] == "SUCCESS")

        await until(ran, "the run that waited has run")
        assert "ran" in await second.shown(1)


async def test_a_run_that_waits_can_be_given_up(data_dir: Path, tmp_path: Path) -> None:
    async with roomy_client(data_dir, max_runs_per_user=1) as client:
        first, second = await made(client, "a"), await made(client, "b")
        going = asyncio.ensure_future(first.run(f"open({str(tmp_path / 'on')!r}, 'w')\n" + waits_for(tmp_path / "go")))
        await appears(tmp_path / "on")
        waiting = asyncio.ensure_future(second.run("ran = True"))

        async def waits() -> bool:
            return bool((await call(client, "list_cells", notebook="b")).structured_content["cells"])

        await until(waits, "the run waits as a cell")
        stopped = await second.ask("interrupt")
        assert not stopped.is_error and "Stopped" in text(stopped)
        given_up = await waiting
        assert given_up.is_error and "given up while it waited for its turn" in text(given_up)
        assert (await second.cell(0))["state"] == "IDLE"
        (tmp_path / "go").touch()
        await going
        assert await second.value("'ran' in globals()") is False


async def test_a_user_with_many_runs_does_not_keep_another_waiting(data_dir: Path) -> None:
    order: list[str] = []
    with server_of_many(data_dir, max_runs=1) as many:
        async with many.client("ann") as ann, many.client("ben") as ben:
            hers = [await made(ann, f"n{number}") for number in range(6)]
            his = await made(ben, "n")
            for book in (*hers, his):
                await good(book, "import time")

            async def run(book: Book, who: str) -> None:
                await good(book, "time.sleep(0.3)")
                order.append(who)

            async with anyio.create_task_group() as group:
                for book in hers:
                    group.start_soon(run, book, "ann")
                await anyio.sleep(0.2)
                group.start_soon(run, his, "ben")
    assert order.count("ann") == 6 and order.index("ben") <= 3, order


async def test_notebooks_are_counted_for_each_user(data_dir: Path) -> None:
    with server_of_many(data_dir, max_notebooks_per_user=2) as many:
        async with many.client("ann") as ann, many.client("ben") as ben:
            for name in "ab":
                await made(ann, name)
            refused = await call(ann, "create_notebook", name="c")
            assert refused.is_error and "may have 2 (setting limits.max_notebooks_per_user)" in text(refused)
            await made(ben, "c")
            listed = (await call(ann, "list_notebooks")).structured_content["notebooks"]
            assert [each["name"] for each in listed] == ["a", "b"]


async def test_too_many_requests_are_refused_with_how_long_to_wait(data_dir: Path) -> None:
    with server_of_many(data_dir, requests_per_minute=60, requests_burst=20) as many:
        async with many.client("ann") as ann, many.client("ben") as ben:
            with pytest.raises(MCPError, match=r"60 a minute.*requests_per_minute.*Call again in [0-9.]+ s"):
                for _ in range(1000):  # more than a busy machine answers while some are given back
                    await call(ann, "list_notebooks")
            assert not (await call(ben, "list_notebooks")).is_error
            await anyio.sleep(1.1)
            assert not (await call(ann, "list_notebooks")).is_error


async def test_over_stdio_requests_are_not_counted(data_dir: Path) -> None:
    async with roomy_client(data_dir, requests_per_minute=1, requests_burst=1) as client:
        for _ in range(5):
            assert not (await call(client, "list_notebooks")).is_error


async def test_kernels_that_hold_too_much_together_sleep_and_one_more_is_refused(data_dir: Path) -> None:
    settings = {"max_memory_bytes_per_user": 90 * 2**20, "snapshot_interval": 0.05, "hibernate_after": 0}
    async with roomy_client(data_dir, **settings) as client:
        first, second, third = [await made(client, name) for name in "abc"]
        await good(first, "x = bytearray(50 * 2**20)")
        await good(second, "g = (n for n in [1]); next(g)")  # which cannot sleep
        await good(second, "x = bytearray(100 * 2**20)")
        await asleep(first)
        refused = await third.run("1")
        assert refused.is_error and "max_memory_bytes_per_user" in text(refused), text(refused)
        await good(second, "x = None")  # what holds too much can let it go
        await third.value("1")
        assert await first.value("len(x)") == 50 * 2**20


async def test_low_memory_drops_checkpoints_and_idle_kernels_but_no_run(data_dir: Path, tmp_path: Path) -> None:
    """A machine of which more is to stay free than it has is always short of memory."""
    settings = {"min_free_bytes": 2**60, "snapshot_interval": 0.05, "hibernate_after": 0, "idle_timeout": 0}
    async with roomy_client(data_dir, **settings) as client:
        busy, idle = await made(client, "busy"), await made(client, "idle")
        going = asyncio.ensure_future(
            busy.run(f"open({str(tmp_path / 'on')!r}, 'w')\n" + waits_for(tmp_path / "go") + "'done'")
        )
        await appears(tmp_path / "on")
        for number in range(3):
            await good(idle, f"x = {number}")
        await asleep(idle)
        assert await kernel(busy) == "running"
        (tmp_path / "go").touch()
        assert (await going).structured_content["return_value"] == "done"
        answer = await good(idle, "x")
        assert answer.structured_content["return_value"] == 2 and "Restored from disk" in notice(answer)
        await asleep(busy)
