"""The event loop of cells: there for each of them, whatever words it has; what cells set while it turns stays set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, good, new_book
from tests.support.servers import text
from tests.support.waiting import appears

WORK = (
    "import asyncio, contextvars, decimal\n"
    "v = contextvars.ContextVar('v', default='unset')\n"
    "async def work(value=5):\n    await asyncio.sleep(0)\n    return value\n"
    "def start():\n    return asyncio.create_task(work())\n"
    "def loop_here():\n    try: return asyncio.get_running_loop()\n    except RuntimeError: return None\n"
)


@pytest.fixture(params=["", "ipython"], ids=["short", "ipython"])
async def either(request: pytest.FixtureRequest, shared_server: Any) -> AsyncIterator[Book]:
    """A notebook whose cells take the short way, and one whose cells IPython runs."""
    client: Client[Any] = await shared_server.client()
    async with new_book(client, **({"shell": request.param} if request.param else {})) as made:
        await good(made, WORK)
        yield made


@pytest.mark.parametrize("words", ["", "  # via asyncio", "\nawait asyncio.sleep(0)"], ids=["plain", "named", "awaits"])
async def test_context_variables_stay_set_after_a_cell(either: Book, words: str) -> None:
    await good(either, f"v.set('set'); decimal.setcontext(decimal.Context(prec=7)){words}")
    assert await either.value("[v.get(), decimal.getcontext().prec]") == ["set", 7]
    await good(either, f"await work(); v.set('later'); decimal.getcontext().prec = 8{words}")
    assert await either.value("[v.get(), decimal.getcontext().prec]") == ["later", 8]


async def test_a_cell_that_fails_while_it_awaits_keeps_context_variables(either: Book) -> None:
    failed = await either.run("v.set('before'); await work(); 1 / 0")
    assert failed.is_error
    assert await either.value("v.get()") == "before"


async def test_options_of_numpy_stay_set_after_a_cell_that_awaits(either: Book, science: None) -> None:
    await good(either, "import numpy as np; np.set_printoptions(precision=3); np.seterr(divide='raise'); await work()")
    assert await either.value("[np.get_printoptions()['precision'], np.geterr()['divide']]") == [3, "raise"]


async def test_every_cell_finds_the_same_running_loop(either: Book) -> None:
    for code in ("a = loop_here()", "b = loop_here()  # asyncio", "await work(); c = loop_here()", "d = loop_here()"):
        await good(either, code)
    assert await either.value("[a is not None and a is each and each.is_running() for each in (b, c, d)]") == [True] * 3
    assert await either.value("asyncio.get_event_loop() is a")


async def test_plain_code_starts_tasks_that_a_later_cell_awaits(either: Book) -> None:
    await good(either, "t = start()")
    assert await either.value("await t") == 5


async def test_tasks_begin_when_the_cell_that_made_them_ends(either: Book) -> None:
    await good(either, "ran = []\nasync def note(): ran.append(1)\nt = loop_here().create_task(note())")
    assert await either.value("ran") == [1]


async def test_code_written_as_a_script_starts_a_loop_in_any_cell(either: Book) -> None:
    await good(either, "def go(): return asyncio.run(work(6))")
    assert await either.value("go()") == 6
    assert await either.value("[go(), asyncio.run(work(7))]") == [6, 7]
    assert await either.value("go(); t = start(); [loop_here() is t.get_loop(), t.get_loop().is_running()]") == [
        True,
        True,
    ]
    assert await either.value("asyncio.get_event_loop().run_until_complete(work(8))") == 8
    assert await either.value("own = asyncio.new_event_loop(); own.run_until_complete(work(9))") == 9
    assert await either.value("await t") == 5


async def test_asyncio_run_inside_a_cell_that_awaits_is_refused_as_in_jupyter(either: Book) -> None:
    refused = await either.run("await work()\nasyncio.run(work())")
    assert "cannot be called from a running event loop" in text(refused)


async def test_threads_and_child_processes_of_a_cell_have_no_loop(either: Book) -> None:
    code = (
        "import concurrent.futures as f, multiprocessing as m\n"
        "def found(): return [loop_here() is None, asyncio.run(work()), loop_here() is None]\n"
        "with f.ThreadPoolExecutor(1) as threads, m.get_context('fork').Pool(1) as processes:\n"
        "    both = [threads.submit(found).result(), processes.apply(found)]\n"
        "both"
    )
    assert await either.value(code) == [[True, 5, True], [True, 5, True]]


async def test_a_cell_that_closes_the_loop_costs_the_next_nothing(either: Book) -> None:
    await good(either, "loop = asyncio.get_event_loop(); loop.run_until_complete(work()); loop.close()")
    assert await either.value("await work()") == 5


async def test_an_interrupt_ends_a_plain_cell_that_waits_in_a_selector(either: Book, tmp_path: Path) -> None:
    code = (
        "import selectors, socket\n"
        "pair = socket.socketpair(); waiting = selectors.DefaultSelector(); waiting.register(pair[0], 1)\n"
        f"open({str(tmp_path / 'on')!r}, 'w')\nwaiting.select()"
    )
    async with anyio.create_task_group() as group:
        group.start_soon(either.run, code)
        await appears(tmp_path / "on")
        stopped = await either.ask("interrupt")
    assert stopped.structured_content["state"] == "INTERRUPTED"
    assert await either.value("await work()") == 5


async def test_a_crash_leaves_a_loop_that_works_after_asyncio_run(either: Book) -> None:
    await good(either, "await work()")
    await good(either, "asyncio.run(work())")
    await either.protected()
    crashed = await either.run("import os; os.abort()")
    assert crashed.structured_content["state"] == "CRASHED"
    assert await either.value("await asyncio.sleep(0.01, 'slept')") == "slept"
