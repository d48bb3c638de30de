"""Cells: several at once, edited and stale, of IPython's syntax, with magics and commands."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, new_book, waits_for
from tests.support.processes import alive, here
from tests.support.servers import call, stdio_client, text
from tests.support.waiting import DEADLINE, appears, until, wait_until


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    async with stdio_client(tmp_path_factory.mktemp("cells") / "data", preload="IPython") as connected:
        yield connected


@pytest.fixture(scope="module")
async def impatient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A server that answers soon, whether or not all has run."""
    async with stdio_client(tmp_path_factory.mktemp("soon") / "data", preload="", patience=0.5) as connected:
        yield connected


@pytest.fixture
async def book(server: Client[Any]) -> AsyncIterator[Book]:
    async with new_book(server) as made:
        yield made


@pytest.fixture(params=["", "ipython"], ids=["short", "ipython"])
async def either(request: pytest.FixtureRequest, server: Client[Any]) -> AsyncIterator[Book]:
    """A notebook whose cells take the short way, and one whose cells IPython runs."""
    async with new_book(server, **({"shell": request.param} if request.param else {})) as made:
        yield made


async def has(book: Book, *sources: str | dict[str, Any]) -> None:
    """Give the notebook these cells, unrun; one that is not code says what it is."""
    written = [
        {"metadata": {}, **({"cell_type": "code", "source": each} if isinstance(each, str) else each)}
        for each in sources
    ]
    for number, cell in enumerate(written):
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "code":
            cell.update({"outputs": [], "execution_count": None})
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": written}
    done = await book.ask("import_ipynb", path_or_json=json.dumps(document))
    assert not done.is_error, text(done)


def markdown(words: str = "words") -> dict[str, Any]:
    return {"cell_type": "markdown", "source": words}


async def run(book: Book, which: object, **more: Any) -> Any:
    return await book.ask("execute_cell", cell_id_or_number=which, **more)


async def listed(book: Book) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await book.ask("list_cells")).structured_content["cells"]
    return found


async def states(book: Book) -> list[str]:
    return [cell["state"] for cell in await listed(book)]


async def stale(book: Book) -> list[int]:
    return [cell["cell_number"] for cell in await listed(book) if cell.get("stale")]


@contextlib.asynccontextmanager
async def in_background(book: Book, code: str) -> AsyncIterator[None]:
    """Its last cell, which runs while the block does and until it ends by itself."""
    added = await book.ask("add_cell", code=code, execute=False)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(run, book, added.structured_content["cell_id"], timeout=60))
        yield


# Several cells


@pytest.mark.parametrize(
    ("which", "ran"),
    [
        ("all", [0, 2, 5]),
        ("2-4", [2]),
        ("2 - 5", [2, 5]),
        ("3-", [5]),
        ("0-0", [0]),
        ("1-99", [2, 5]),
        (" all ", [0, 2, 5]),
    ],
)
async def test_a_range_runs_its_code_in_order_and_leaves_out_the_rest(book: Book, which: str, ran: list[int]) -> None:
    await book.run("log = []")
    await book.ask("delete_cell", cell_id_or_number=0)
    skipped = {"cell_type": "code", "source": "1/0", "metadata": {"tags": ["skip-execution"]}}
    await has(book, "log.append(0)", markdown(), "log.append(2)\nprint('two')", "  \n", skipped, "log.append(5)")
    done = await run(book, which)
    assert not done.is_error and done.structured_content["ran"] == ran, text(done)
    assert done.structured_content["cell_number"] == ran[-1]
    assert await book.value("log") == ran
    assert ("two" in text(done)) == (2 in ran)
    assert all(f"[cell {number} (" in text(done) for number in ran)


async def test_a_failure_ends_the_range_and_says_how_many_did_not_run(book: Book) -> None:
    await has(book, "print('before')", "1/0", "print('never')", markdown(), "print('never')")
    done = await run(book, "all")
    assert done.is_error and done.structured_content["ran"] == [0, 1] and done.structured_content["state"] == "ERROR"
    assert "Stopped at the failed cell; 2 more did not run." in text(done)
    assert "before" in text(done) and "ZeroDivisionError" in text(done) and "never" not in text(done)
    assert (await states(book))[2] == "IDLE"
    last = await run(book, "4-")
    assert not last.is_error and "did not run" not in text(last)


async def test_a_timeout_is_each_cells_own(book: Book) -> None:
    await has(book, "import time\ntime.sleep(.6)", "time.sleep(.6)", "time.sleep(60)", "1")
    done = await run(book, "all", timeout=1.1)
    assert done.is_error and done.structured_content["state"] == "TIMEOUT"
    assert await states(book) == ["SUCCESS", "SUCCESS", "TIMEOUT", "IDLE"]


async def test_cells_that_outlast_the_call_go_on_by_themselves(impatient: Client[Any], tmp_path: Path) -> None:
    async with new_book(impatient) as book:
        await has(book, "1", f"print('waits')\n{waits_for(tmp_path / 'go')}", "done = 'all'")
        answer = await run(book, "all")
        assert not answer.is_error and answer.structured_content["state"] == "RUNNING", text(answer)
        assert answer.structured_content["ran"] == [0, 1]
        assert "1 more follow by themselves" in text(answer) and "interrupt stops them" in text(answer)
        (tmp_path / "go").touch()

        async def over() -> bool:
            return await states(book) == ["SUCCESS"] * 3

        await until(over, "the last cell has run")
        assert await book.value("done") == "all"


async def test_an_interrupt_stops_the_cells_that_follow_too(impatient: Client[Any]) -> None:
    async with new_book(impatient) as book:
        await has(book, "import time\ntime.sleep(60)", "after = 1")
        assert (await run(book, "all")).structured_content["state"] == "RUNNING"
        stopped = await book.ask("interrupt")
        assert stopped.structured_content["state"] == "INTERRUPTED"
        assert await book.value("'after' in globals()") is False
        assert (await states(book))[:2] == ["INTERRUPTED", "IDLE"]


async def test_a_caller_who_cancels_stops_the_range(book: Book, tmp_path: Path) -> None:
    await has(book, f"open({str(tmp_path / 'on')!r}, 'w')\nwhile True: pass", "after = 1")
    async with anyio.create_task_group() as group:
        group.start_soon(partial(run, book, "all", timeout=60))
        await appears(tmp_path / "on")
        group.cancel_scope.cancel()

    async def over() -> bool:
        return (await states(book))[0] == "INTERRUPTED"

    await until(over, "the cell that ran is interrupted")
    assert await book.value("'after' in globals()") is False


async def test_a_range_behind_another_cell_waits_its_turn(book: Book, tmp_path: Path) -> None:
    await has(book, "x + 1", "x + 2")
    async with in_background(book, f"open({str(tmp_path / 'on')!r}, 'w')\n{waits_for(tmp_path / 'go')}x = 1"):
        await appears(tmp_path / "on")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(run, book, "0-1"))

            async def queued() -> bool:
                return len(await states(book)) == 3

            await until(queued, "it was asked for")
            (tmp_path / "go").touch()
    assert await states(book) == ["SUCCESS"] * 3


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("3-1", "'3-1' is an empty range"),
        ("7-9", "There is no code to run in cells 7-9"),
        ("1-1", "There is no code to run in cells 1-1"),
        ("9-", "There is no code to run"),
        ("-3", "No cell '-3'"),
        ("ALL", "No cell 'ALL'"),
        ("0-1-2", "No cell '0-1-2'"),
        ("0..2", "No cell '0..2'"),
        ("-", "No cell '-'"),
        ("99999999999-", "No cell '99999999999-'"),
        ("0-99999999999", "No cell"),
        ("", "No cell ''"),
    ],
)
async def test_a_bad_range_runs_nothing(book: Book, which: str, says: str) -> None:
    await has(book, "1", markdown(), "2")
    refused = await run(book, which)
    assert refused.is_error and says in text(refused), text(refused)
    assert await states(book) == ["IDLE"] * 3


async def test_an_id_that_looks_like_a_range_is_that_cells(book: Book) -> None:
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {"cell_type": "code", "id": id_, "metadata": {}, "outputs": [], "execution_count": None, "source": source}
            for id_, source in (("x", "'x'"), ("0-1", "'dash'"), ("all", "'all'"), ("12345", "'digits'"))
        ],
    }
    await book.ask("import_ipynb", path_or_json=json.dumps(document))
    for id_, value in (("0-1", "'dash'"), ("all", "'all'"), ("12345", "'digits'")):
        done = await run(book, id_)
        assert "ran" not in done.structured_content and done.structured_content["outputs"][0]["text"] == value
    assert (await states(book))[0] == "IDLE"


async def test_a_range_of_many_outputs_is_answered_in_brief(book: Book) -> None:
    await has(book, *["print('x' * 100_000)"] * 20)
    done = await run(book, "all")
    assert len(text(done)) + len(json.dumps(done.structured_content)) < 40_000


# Edits


async def test_a_cell_can_become_another_kind_and_back(book: Book) -> None:
    await has(book, "1 + 1")
    assert (await run(book, 0)).structured_content["state"] == "SUCCESS"
    edited = await book.ask("edit_cell", cell_id_or_number=0, cell_type="markdown", code="*words*")
    assert edited.structured_content["cell_type"] == "markdown" and "execute_cell" not in text(edited)
    refused = await run(book, 0)
    assert refused.is_error and "markdown" in text(refused)
    document = json.loads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text)
    assert document["cells"][0]["cell_type"] == "markdown" and "outputs" not in document["cells"][0]
    await book.ask("edit_cell", cell_id_or_number=0, cell_type="raw")
    await book.ask("edit_cell", cell_id_or_number=0, cell_type="code", code="2 + 2")
    assert (await run(book, 0)).structured_content["outputs"][0]["text"] == "4"


async def test_metadata_are_merged_and_null_removes_a_key(book: Book) -> None:
    await has(book, {"cell_type": "code", "source": "1", "metadata": {"tags": ["a"], "mine": {"deep": [1]}}})

    async def change(**metadata: Any) -> Any:
        edited = await book.ask("edit_cell", cell_id_or_number=0, metadata=metadata)
        assert not edited.is_error, text(edited)
        document = json.loads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text)
        return document["cells"][0]["metadata"]

    assert await change(tags=["b", "c"]) == {"tags": ["b", "c"], "mine": {"deep": [1]}}
    assert await change(mine=None, other=False) == {"tags": ["b", "c"], "other": False}
    assert await change(absent=None) == {"tags": ["b", "c"], "other": False}
    assert (await listed(book))[0]["version"] == 4


async def test_a_tag_set_by_an_edit_takes_the_cell_out_of_ranges(book: Book) -> None:
    await has(book, "1", "2")
    await book.ask("edit_cell", cell_id_or_number=0, metadata={"tags": ["skip-execution"]})
    assert (await run(book, "all")).structured_content["ran"] == [1]
    assert not (await run(book, 0)).is_error  # named by itself it runs


@pytest.mark.parametrize("tags", [5, "skip-execution", {"a": 1}, [None, 3], None])
async def test_tags_of_any_shape_do_no_harm(book: Book, tags: Any) -> None:
    await has(book, "1", "2")
    await book.ask("edit_cell", cell_id_or_number=0, metadata={"tags": tags, "k": 1})
    done = await run(book, "all")
    assert not done.is_error and 1 in done.structured_content["ran"], text(done)


async def test_an_edit_of_an_older_version_changes_nothing(book: Book) -> None:
    await has(book, "one")
    for change in ({"code": "x"}, {"cell_type": "markdown"}, {"metadata": {"a": 1}}):
        before = (await book.cell(0))["code"], (await listed(book))[0]
        refused = await book.ask("edit_cell", cell_id_or_number=0, expected_version=99, **change)
        assert refused.is_error and "version 1" in text(refused)
        assert ((await book.cell(0))["code"], (await listed(book))[0]) == before


async def test_a_running_cell_keeps_its_kind_and_takes_new_source(book: Book, tmp_path: Path) -> None:
    async with in_background(book, f"open({str(tmp_path / 'on')!r}, 'w')\n{waits_for(tmp_path / 'go')}'old'"):
        await appears(tmp_path / "on")
        refused = await book.ask("edit_cell", cell_id_or_number=0, cell_type="markdown")
        edited = await book.ask("edit_cell", cell_id_or_number=0, code="'new'")
        deleted = await book.ask("delete_cell", cell_id_or_number=0)
        (tmp_path / "go").touch()
    assert refused.is_error and "stop it first (interrupt" in text(refused) and deleted.is_error
    assert not edited.is_error and await stale(book) == [0]


async def test_what_comes_after_a_changed_cell_is_stale_until_it_runs_again(book: Book) -> None:
    await has(book, "a = 1", "b = a", markdown(), "c = b")
    await run(book, "all")
    assert await stale(book) == []
    await book.ask("edit_cell", cell_id_or_number=1, code="b = a + 1")
    assert await stale(book) == [1, 3]
    assert "(stale)" in text(await book.ask("list_cells"))
    assert (await book.cell(3))["stale"] is True
    await run(book, 1)
    assert await stale(book) == [3]
    await run(book, 3)
    assert await stale(book) == []


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (("move_cell", {"cell_id_or_number": 2, "to_number": 1}), [1, 2, 3]),
        (("move_cell", {"cell_id_or_number": 0, "to_number": 3}), [0, 1, 2, 3]),
        (("move_cell", {"cell_id_or_number": 1, "to_number": 1}), []),
        (("delete_cell", {"cell_id_or_number": 1}), [1, 2]),
        (("delete_cell", {"cell_id_or_number": 3}), []),
        (("add_cell", {"code": "z = 1", "cell_number": 2, "execute": False}), [3, 4]),
        (("add_cell", {"code": "z = 1", "execute": False}), []),
        (("add_cell", {"code": "z", "cell_number": 0, "cell_type": "markdown"}), []),
        (("edit_cell", {"cell_id_or_number": 1, "metadata": {"tags": ["x"]}}), []),
        (("edit_cell", {"cell_id_or_number": 1, "cell_type": "markdown"}), [2, 3]),
        (("edit_cell", {"cell_id_or_number": 1, "code": "b = 2"}), [1, 2, 3]),  # the same source as before
    ],
)
async def test_which_cells_a_change_makes_stale(
    book: Book, change: tuple[str, dict[str, Any]], left: list[int]
) -> None:
    await has(book, "a = 1", "b = 2", "c = 3", "d = 4")
    await run(book, "all")
    tool, arguments = change
    done = await book.ask(tool, **arguments)
    assert not done.is_error, text(done)
    assert await stale(book) == left


async def test_text_around_code_makes_nothing_stale(book: Book) -> None:
    await has(book, markdown("# One"), "a = 1", markdown("two"), "b = 2")
    await run(book, "all")
    await book.ask("edit_cell", cell_id_or_number=0, code="# Another")
    await book.ask("move_cell", cell_id_or_number=2, to_number=0)
    await book.ask("delete_cell", cell_id_or_number=0)
    await book.ask("add_cell", code="more", cell_type="markdown", cell_number=0)
    assert await stale(book) == []


async def test_a_cell_that_never_ran_is_not_stale(book: Book) -> None:
    await has(book, "a = 1", "b = 2")
    await book.ask("edit_cell", cell_id_or_number=0, code="a = 3")
    assert await stale(book) == []


# Either way to run a cell


async def test_values_and_text_come_either_way(either: Book) -> None:
    done = await either.run("x = 20\nprint('printed')\nx + 1")
    assert done.structured_content["stdout"] == "printed\n" and done.structured_content["return_value"] == 21
    assert (await either.run("x + 1;")).structured_content["return_value"] is None
    assert await either.value("(_, Out[1], In[1].splitlines()[0])") == [21, 21, "x = 20"]


async def test_errors_come_either_way_and_variables_stay(either: Book) -> None:
    done = await either.run("y = 1\nprint('before')\ndef f():\n    return 1 / 0\nf()")
    assert done.is_error
    found = done.structured_content
    assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "ZeroDivisionError", "before\n")
    assert "return 1 / 0" in text(done)
    assert text(done).count("ZeroDivisionError: division by zero") == 1  # said once
    broken = await either.run("x = (1,")
    assert broken.structured_content["error_type"] == "SyntaxError" and "x = (1," in text(broken)
    assert await either.value("y") == 1


async def test_carets_stand_under_the_code_whatever_blanks_end_the_line(book: Book) -> None:
    for blanks in ("", "   ", "\t"):
        shown = text(await book.run(f"x = 1 / 0 + 2{blanks}")).split("\n")
        at = next(number for number, line in enumerate(shown) if line.strip() == "x = 1 / 0 + 2")
        assert shown[at + 1].index("~") == shown[at].index("1 / 0"), shown


async def test_carets_of_an_error_in_an_error_stand_under_the_code(book: Book) -> None:
    shown = text(await book.run("try:\n    x = 1 / 0 + 2   \nexcept ZeroDivisionError:\n    y = 2 + 3 / 0  ")).split(
        "\n"
    )
    for code, part in (("x = 1 / 0 + 2", "1 / 0"), ("y = 2 + 3 / 0", "3 / 0")):
        at = next(number for number, line in enumerate(shown) if line.strip() == code)
        assert shown[at + 1].index("~") == shown[at].index(part), shown


async def test_exit_ends_the_cell_and_not_the_kernel_either_way(either: Book) -> None:
    await either.run("x = 5")
    for leave in ("import sys\nsys.exit(3)", "exit()", "raise SystemExit", "quit()"):
        await either.run(leave)
        assert await either.value("x") == 5


async def test_cell_that_made_a_lost_name_is_told_either_way(either: Book) -> None:
    await either.run("import socket\n%time bad = socket.socket()")
    saved = await either.ask("save_state", name="made by")
    (lost,) = saved.structured_content["not_saved"]
    assert lost.startswith("bad (") and lost.endswith("; cell 0 makes it)"), lost


async def test_await_works_either_way(either: Book) -> None:
    await either.run("import asyncio\nqueue = asyncio.Queue()\nawait queue.put(7)")
    assert await either.value("await queue.get()") == 7


async def test_magics_and_questions_come_either_way(either: Book) -> None:
    assert (await either.run("%%capture said\nprint('hidden')")).structured_content["stdout"] == ""
    assert await either.value("said.stdout") == "hidden\n"
    assert "Wall time" in (await either.run("%time 1 + 1")).structured_content["stdout"]
    help_ = await either.run("len?")
    assert not help_.is_error and "Return the number of items" in text(help_)
    assert await either.value("%pwd") == await either.value("import os; os.getcwd()")


async def test_history_of_the_last_cells_is_without_the_asking_one_either_way(either: Book) -> None:
    for code in ("first = 1", "second = 2", "third = 3"):
        await either.run(code)
    said = [(await either.run(f"%history {which}")).structured_content["stdout"] for which in ("-l 1", "-l 3", "-l")]
    assert said == ["third = 3\n", "second = 2\nthird = 3\n%history -l 1\n", SAID_BEFORE]
    assert "   2: second = 2\n" in (await either.run("%history -g second*")).structured_content["stdout"]


SAID_BEFORE = "first = 1\nsecond = 2\nthird = 3\n%history -l 1\n%history -l 3\n"


async def test_an_interrupt_stops_a_cell_either_way(either: Book, tmp_path: Path) -> None:
    await either.run("x = 5")
    async with in_background(either, f"open({str(tmp_path / 'on')!r}, 'w')\nwhile True: pass"):
        await appears(tmp_path / "on")
        stopped = await either.ask("interrupt")
    assert stopped.structured_content["state"] == "INTERRUPTED"
    shown = await either.cell(1)
    assert "KeyboardInterrupt" in str(shown["outputs"])
    late = await either.run("import time\ntime.sleep(60)", timeout=1)
    assert late.structured_content["state"] == "TIMEOUT"
    assert await either.value("x") == 5


async def test_after_a_crash_variables_are_as_before_either_way(either: Book) -> None:
    await either.run("import threading\nx = 5\nlock = threading.Lock()\nx")
    await either.protected()
    crashed = await either.run("x = 6\nimport os\nos.kill(os.getpid(), 9)")
    assert crashed.structured_content["state"] == "CRASHED"
    assert await either.value("(x, lock.locked(), _, Out[1])") == [5, False, 5, 5]
    assert (await either.run("%%bash\necho still")).structured_content["stdout"] == "still\n"


# Magics and commands


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("%tiem 5", "There is no magic %tiem. The nearest is %time"),
        ("%%bsah\necho", "There is no magic %%bsah. The nearest is %%bash."),
        ("%zzzzzz", "There is no magic %zzzzzz. %lsmagic lists them."),
        ("%bash echo", "%bash is a cell magic: write %%bash."),
        ("%%script\n1", "needs a program"),
    ],
)
async def test_a_magic_that_is_wrong_says_what_is_right(book: Book, code: str, says: str) -> None:
    done = await book.run(code)
    assert done.is_error and f"UsageError: {says}" in text(done).replace("%%script needs", "needs"), text(done)
    assert "Traceback" not in text(done)


async def test_a_script_that_fails_is_an_error_with_its_words(book: Book) -> None:
    done = await book.run("%%bash\necho out; echo err >&2; exit 3")
    assert done.is_error and done.structured_content["error_type"] == "CalledProcessError"
    assert (done.structured_content["stdout"], done.structured_content["stderr"]) == ("out\n", "err\n")
    kept = await book.run("%%bash --out said --err wrong --no-raise-error\necho out; echo err >&2; exit 3")
    assert not kept.is_error, text(kept)
    assert await book.value("(said, wrong)") == ["out\n", "err\n"]
    nowhere = await book.run("%%script no-such-program\n1")
    assert "no-such-program" in text(nowhere)
    bad = await book.run("%%script --proc\n1")
    assert bad.is_error and "Traceback" not in text(bad)


async def test_a_script_past_its_time_is_stopped_with_all_it_started(book: Book, tmp_path: Path) -> None:
    await book.run("x = 5")
    code = f"%%bash\necho $$ > {tmp_path}/pid\nsleep 100 & echo $! > {tmp_path}/child\necho begun\nsleep 100"
    done = await book.run(code, timeout=1.5)
    assert done.structured_content["state"] == "TIMEOUT" and done.structured_content["stdout"] == "begun\n"
    assert await book.value("x") == 5
    space = await book.value("import os\nos.readlink('/proc/self/ns/pid')")
    for name in ("pid", "child"):
        pid = int((tmp_path / name).read_text())
        wait_until(lambda pid=pid: not alive(here(pid, space)), f"{name} of the script is gone")  # type: ignore[misc]


async def test_a_command_that_is_interrupted_is_stopped_and_variables_stay(book: Book, tmp_path: Path) -> None:
    await book.run("x = 5")
    async with in_background(book, f"!echo $$ > {tmp_path}/pid; echo first; exec sleep 100"):
        await appears(tmp_path / "pid")

        async def live() -> bool:
            return "first" in await book.shown(1)

        await until(live, "its first line is shown while it runs")
        stopped = await book.ask("interrupt")
    assert stopped.structured_content["state"] == "INTERRUPTED"
    assert "first" in await book.shown(1)
    pid, space = int((tmp_path / "pid").read_text()), await book.value("import os\nos.readlink('/proc/self/ns/pid')")
    wait_until(lambda: not alive(here(pid, space)), "the command is gone")
    assert await book.value("x") == 5


async def test_a_script_shows_its_lines_while_it_runs(book: Book, tmp_path: Path) -> None:
    async with in_background(book, f"%%bash\necho first\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.01; done\necho last"):

        async def live() -> bool:
            return await book.shown(0) == "first\n"

        await until(live, "its first line is shown while it runs")
        (tmp_path / "go").touch()
    assert await book.shown(0) == "first\nlast\n"


@pytest.mark.parametrize(
    "code",
    [
        "!sleep 30 & echo $! > {pid}",
        "!(sleep 30 & echo $! > {pid}); echo over",
        "%%bash\nsleep 30 & echo $! > {pid}\necho over",
        "%%bash --bg\necho $$ > {pid}; exec sleep 30",
        "import os\nos.system('sleep 30 & echo $! > {pid}')",
    ],
)
async def test_a_child_in_the_background_does_not_hold_up_the_cell(book: Book, code: str, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        done = await book.run(code.replace("{pid}", str(tmp_path / "pid")))
    assert not done.is_error, text(done)
    await appears(tmp_path / "pid")
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((tmp_path / "pid").read_text()), 9)


async def test_commands_read_and_give_variables(book: Book) -> None:
    await book.run("name = 'a b'\nnumbers = [1, 2]")
    assert (await book.run("!echo $name {len(numbers)} $$HOME")).structured_content["stdout"].startswith("a b 2 /")
    await book.run("lines = !printf 'one\\ntwo\\n'; exit 4")
    assert await book.value("(list(lines), lines.n)") == [["one", "two"], "one\ntwo"]
    await book.run("!exit 7")
    assert await book.value("_exit_code") == 7
    for number in range(2):
        assert (await book.run(f"for n in range(2):\n    !echo {{n}} {number}")).structured_content["stdout"].count(
            "\n"
        ) == 2


async def test_a_flood_of_a_command_is_bounded(book: Book) -> None:
    done = await book.run("!yes | head -c 5000000")
    assert not done.is_error and "characters left out" in done.structured_content["stdout"]
    whole = (await book.whole(0))[0].text
    assert len(whole) < 5_000_000 and "bytes of output dropped" in whole


async def test_pip_is_said_to_need_an_environment_of_its_own_or_works(book: Book) -> None:
    done = await book.run("%pip --version")
    assert "pip" in text(done) or "uv" in text(done)
    failed = await book.run("%pip install --no-index no-such-package-at-all", timeout=60)
    assert failed.is_error and "pip ended with code" in text(failed)
    assert await book.value("1") == 1


async def test_a_library_may_bring_magics_and_rewrite_input(book: Book) -> None:
    code = """
from IPython.core.magic import register_cell_magic, register_line_magic
@register_line_magic
def twice(line): return line * 2
@register_cell_magic
def upper(line, cell): print(line, cell.upper())
def arrows(lines): return [line.replace('<-', '=') for line in lines]
get_ipython().input_transformers_post.append(arrows)
"""
    await book.run(code)
    assert await book.value("%twice ab") == "abab"
    assert (await book.run("%%upper a\nb c")).structured_content["stdout"] == "a B C\n\n"
    assert await book.value("x <- 5\nx") == 5


async def test_what_looks_like_a_magic_in_a_string_is_left_alone(book: Book) -> None:
    assert await book.value("text = '''\n%time\n!ls\n'''\ntext") == "\n%time\n!ls\n"
    assert await book.value("a, b = 7, 4\na %b") == 3
    assert (await book.run("x = 1 +\n%time")).structured_content["error_type"] == "SyntaxError"


async def test_the_repl_says_which_line_of_a_magic_cell_failed(book: Book) -> None:
    done = await book.run("!true\n\nx = 1\nraise ValueError('here')")
    assert "line 4" in text(done) and "raise ValueError('here')" in text(done) and "quire" not in text(done)


async def test_each_notebook_has_a_shell_of_its_own(server: Client[Any], book: Book) -> None:
    await book.run("from IPython.core.magic import register_line_magic\n@register_line_magic\ndef mine(line): return 1")
    async with new_book(server) as other:
        assert (await other.run("%mine")).is_error
        assert (await call(server, "execute", code="_", notebook=other.name)).is_error
    assert await book.value("%mine") == 1
