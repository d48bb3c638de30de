"""Stepping back and branching off: where a notebook can go, what it says, and what it leaves alone."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

import quire
from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import CellState
from quire.frontends.python import Quire
from quire.runtimes.python import checkpoint_budget
from tests.support.crash_state import AS_BEFORE
from tests.support.notebooks import Book, new_book, waits_for
from tests.support.processes import alive, here, parent, processes_of
from tests.support.servers import IN_MEMORY, call, keywords, roomy_client, text
from tests.support.waiting import until, wait_until

LARGE = "large = b'x' * (16 * 2**20)"
"""So much is touched that checkpoints are weighed after the cell."""


@pytest.fixture(scope="module")
async def unkept(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A server that takes no checkpoints."""
    async with roomy_client(tmp_path_factory.mktemp("unkept") / "data", checkpoint_bytes=0, **IN_MEMORY) as client:
        yield client


@pytest.fixture(scope="module")
async def pruned(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A server that keeps the newest checkpoint only."""
    async with roomy_client(tmp_path_factory.mktemp("pruned") / "data", checkpoint_bytes=1, **IN_MEMORY) as client:
        yield client


@pytest.fixture(scope="module")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Quire]:
    settings = {"preload": (), "grace": 0.5, "checkpoint_bytes": 100 * 2**20}
    with pytest.MonkeyPatch.context() as patch:  # whatever else runs on this machine
        patch.setattr(
            checkpoint_budget, "machine_memory", lambda: checkpoint_budget.MachineMemory(total=2**37, available=2**37)
        )
        async with quire.open(tmp_path_factory.mktemp("embedded") / "data", **keywords(settings)) as q:
            yield q


# Where rollback goes


async def test_a_place_is_a_number_an_id_before_a_cell_a_checkpoint_or_the_start(book: Book) -> None:
    await counted(book, 3)
    checkpoint = (await book.checkpoints())[1]["checkpoint"]
    id_ = (await book.cell(1))["cell_id"]
    for to in (1, "1", "cell 1", " 1 ", id_, "before 2", "before cell 2", checkpoint):
        moved = await book.ask("rollback", to=to)
        assert not moved.is_error, (to, text(moved))
        assert text(moved).startswith("The namespace is as after cell 1. Files"), to
        assert moved.structured_content["checkpoint"] == checkpoint, to
        assert (to, await book.value("numbers")) == (to, [0, 1])
    for to in ("start", "before 0"):
        moved = await book.ask("rollback", to=to)
        assert (to, moved.structured_content["checkpoint"]) == (to, "start")
        assert "as the kernel began" in text(moved)
        assert (to, await book.value("'numbers' in globals()")) == (to, False)


async def test_after_a_cell_is_after_its_last_run(book: Book) -> None:
    await counted(book, 2)
    await book.ask("execute_cell", cell_id_or_number=1)
    await book.run("numbers.append('later')")
    await book.protected()
    await book.ask("rollback", to=1)
    assert await book.value("numbers") == [0, 1, 1]


async def test_after_a_cell_that_crashed_is_before_it(book: Book) -> None:
    await counted(book, 2)
    await book.run("numbers.clear()\nimport os\nos.abort()")
    await book.run("numbers.append('later')")
    moved = await book.ask("rollback", to=2)
    assert "as after cell 1" in text(moved)
    assert await book.value("numbers") == [0, 1]


@pytest.mark.parametrize("to", [99, "before 99", "nothing", "before", ""])
async def test_a_place_that_is_not_there_is_refused_and_nothing_changes(book: Book, to: str | int) -> None:
    await counted(book, 2)
    refused = await book.ask("rollback", to=to)
    assert refused.is_error and "cell" in text(refused)
    assert await stale(book) == []
    assert await book.value("numbers") == [0, 1]


async def test_a_cell_that_never_ran_has_no_state(book: Book) -> None:
    await counted(book, 1)
    await book.ask("add_cell", code="numbers", execute=False)
    for to in (1, "before 1"):
        refused = await book.ask("rollback", to=to)
        assert refused.is_error and "Cell 1 has not run" in text(refused)
    assert await book.value("numbers") == [0]


async def test_where_it_stands_already_nothing_is_changed_and_that_is_said(book: Book) -> None:
    supervisor = await book.supervisor()
    await counted(book, 3, first=1)
    await book.ask("rollback", to=2)
    await book.protected()
    family = processes_of(supervisor)
    again = await book.ask("rollback", to=2)
    assert not again.is_error
    assert text(again) == "The namespace is as after cell 2 already; nothing was changed."
    assert processes_of(supervisor) == family
    assert await stale(book) == [3]
    assert await book.value("numbers") == [1, 2]
    for expected in (False, True):
        begun = await book.ask("rollback", to="start")
        assert ("already" in text(begun)) is expected


async def test_rollback_to_a_dropped_state_is_refused_and_changes_nothing(
    pruned: Client[Any],
) -> None:
    async with new_book(pruned) as book:
        for number in range(3):
            await book.run(f"{LARGE}\nnumber = {number}")
            await book.protected()
        assert [each["cell_number"] for each in await book.checkpoints()] == [2]
        for to in (0, "before 2"):
            refused = await book.ask("rollback", to=to)
            assert refused.is_error and "is not kept" in text(refused)
            assert "There are checkpoints after cells 2, and `start`. Nothing was changed." in text(refused)
        assert (await book.ask("branch_notebook", name="of what is not kept", at=0)).is_error
        assert await stale(book) == []
        assert await book.value("number") == 2
        await book.run("number = 3\nimport os\nos.abort()")
        assert await book.value("number") == 2
        assert not (await book.ask("rollback", to="start")).is_error
        assert await book.value("'number' in globals()") is False


async def test_while_a_cell_runs_both_are_refused_and_nothing_changes(book: Book, tmp_path: Path) -> None:
    await counted(book, 2)
    results: list[Any] = []

    async def run() -> None:
        results.append(await book.run(f"print('started')\n{waits_for(tmp_path / 'go')}\nnumbers"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(lambda: runs(book, 2), "the cell runs")
        for to in (0, "start"):
            refused = await book.ask("rollback", to=to)
            assert refused.is_error and "runs or waits" in text(refused) and "interrupt" in text(refused)
        refused = await book.ask("branch_notebook", name=f"{book.name} refused", use=False)
        assert refused.is_error and "runs or waits" in text(refused)
        (tmp_path / "go").touch()
    assert results[0].structured_content["return_value"] == [0, 1]
    assert await stale(book) == []
    assert f"{book.name} refused" not in await names(book.client)


async def test_without_a_kernel_there_is_nowhere_to_go_and_that_is_said(server: Client[Any], book: Book) -> None:
    for what in ("new", "reset"):
        if what == "reset":
            await counted(book, 2)
            await book.ask("reset")
        for tool, arguments in (
            ("rollback", {"to": 0}),
            ("rollback", {"to": "start"}),
            ("branch_notebook", {"name": f"{book.name} of nothing", "use": False}),
        ):
            refused = await book.ask(tool, **arguments)
            assert refused.is_error and "has no live kernel" in text(refused), (what, tool)
        assert await book.checkpoints() == []
    assert f"{book.name} of nothing" not in await names(server)
    assert await stale(book) == [0, 1]  # the namespace is without them


# What a rollback leaves


async def test_cells_left_behind_are_stale_with_their_outputs_kept(book: Book) -> None:
    await counted(book, 3)
    await book.ask("add_cell", code="# a note", cell_type="markdown")
    moved = await book.ask("rollback", to=0)
    assert moved.structured_content["stale_cells"] == [1, 2]
    assert "Stale now, outputs kept: cells 1, 2." in text(moved)
    listed = await book.ask("list_cells")
    assert [cell.get("stale", False) for cell in listed.structured_content["cells"]] == [False, True, True, False]
    assert [line.count("SUCCESS (stale)") for line in text(listed).splitlines()] == [0, 1, 1, 0]
    shown = await book.ask("get_cell", cell_id_or_number=2)
    assert shown.structured_content["stale"] is True and "SUCCESS (stale)" in text(shown)
    assert await book.shown(2) == "appended 2\n"
    assert "stale" not in await book.cell(0)


async def test_a_stale_cell_that_runs_again_is_stale_no_more(book: Book) -> None:
    await counted(book, 3)
    await book.ask("rollback", to=0)
    again = await book.ask("execute_cell", cell_id_or_number=2)
    assert "stale" not in again.structured_content
    assert await stale(book) == [1]
    assert await book.value("numbers") == [0, 2]


async def test_after_a_rollback_a_crash_goes_back_on_the_new_line(book: Book) -> None:
    await counted(book, 3)
    await book.ask("rollback", to=0)
    await book.run("numbers.append('other')")
    crash = await book.run("numbers.clear()\nimport os\nos.abort()")
    assert crash.structured_content["state"] == "CRASHED" and AS_BEFORE in text(crash)
    assert await book.value("numbers") == [0, "other"]
    assert await stale(book) == [1, 2]


async def test_forward_again_the_marks_turn_round(book: Book) -> None:
    await counted(book, 3)
    forward = (await book.checkpoints())[2]["checkpoint"]
    await book.ask("rollback", to=0)
    listed = sorted(await book.checkpoints(), key=lambda each: int(each["execution_count"]))
    assert [(each["current"], each["stale"]) for each in listed] == [(True, False), (False, True), (False, True)]
    await book.run("numbers.append('other')")
    await book.protected()
    moved = await book.ask("rollback", to=forward)
    assert moved.structured_content["stale_cells"] == [3] and "as after cell 2" in text(moved)
    assert await stale(book) == [3]
    assert await book.value("numbers") == [0, 1, 2]
    await book.ask("rollback", to=3)
    assert await stale(book) == [1, 2, 4]
    assert await book.value("numbers") == [0, "other"]


async def test_what_a_state_does_not_have_is_named_and_files_stay(book: Book) -> None:
    await book.run(
        "import threading\ngo = threading.Event()\nthreading.Thread(target=go.wait, name='waiter', daemon=True).start()"
    )
    await book.run("open('left.txt', 'w').write('left')")
    await book.protected()
    moved = await book.ask("rollback", to=0)
    assert moved.structured_content["not_restored"] == ["thread waiter"]
    assert "Not restored: thread waiter." in text(moved)
    assert await book.value("open('left.txt').read()") == "left"


async def test_a_checkpoint_that_does_not_wake_fails_the_rollback_and_nothing_else(book: Book) -> None:
    supervisor = await book.supervisor()
    await book.run("numbers = [0]\ngenerator = (n for n in range(10))\nnext(generator)")
    await book.protected()
    before = set(processes_of(supervisor))
    await book.run("numbers.append(1)\nnext(generator)")
    await book.protected()
    (asleep,) = set(processes_of(supervisor)) - before
    await book.run("numbers.append(2)\nnext(generator)")
    await book.protected()
    os.kill(asleep, signal.SIGSTOP)
    failed = await book.ask("rollback", to=2)
    assert failed.is_error and text(failed).endswith(" The namespace is as it was before this call.")
    assert await stale(book) == []
    wait_until(lambda: not alive(asleep), "what did not wake is no checkpoint any more")
    assert [each["cell_number"] for each in await book.checkpoints()] == [0, 1, 3]
    after = await book.run("[numbers, next(generator)]")
    assert after.structured_content["return_value"] == [[0, 1, 2], 3]
    assert "notice" not in after.structured_content
    refused = await book.ask("rollback", to=2)
    assert refused.is_error and "is not kept" in text(refused)
    await book.ask("rollback", to=1)
    assert await book.value("[numbers, next(generator)]") == [[0], 1]


# Branches


async def test_a_branch_begins_where_the_original_stands_and_both_go_on(book: Book) -> None:
    await book.run("import threading, os\nlock = threading.Lock()\nlock.acquire()\nnumbers = [0]")
    await book.run("generator = (n for n in range(10))\nfirst = next(generator)")
    branch = await branched(book, "two")
    assert [cell["cell_number"] for cell in await cells(branch)] == [0, 1]
    await branch.run("numbers.append('branch')\nlock.release()\nsecond = [next(generator), next(generator)]")
    await book.run("numbers.append('original')\nsecond = [next(generator)]")
    look = "[numbers, lock.locked(), second, next(generator)]"
    assert await branch.value(look) == [[0, "branch"], False, [1, 2], 3]
    assert await book.value(look) == [[0, "original"], True, [1], 2]
    pids = [await each.value("os.getpid()") for each in (book, branch)]
    assert pids[0] != pids[1] and await book.supervisor() != await branch.supervisor()
    await branch.ask("reset")


async def test_a_branch_works_in_the_same_folder_under_the_same_policy(server: Client[Any]) -> None:
    async with new_book(server, on_error="rollback") as book:
        await book.run("basket = ['apple']")
        branch = await branched(book, "policy")
        await branch.run("open('shared.txt', 'w').write('seen by both')")
        assert await book.value("open('shared.txt').read()") == "seen by both"
        await branch.run("basket.append('pear')\n1 / 0")
        assert await branch.value("basket") == ["apple"]
        await branch.ask("reset")
        await branch.run("open('shared.txt', 'a').write(', again')")
        assert await book.value("open('shared.txt').read()") == "seen by both, again"
        await branch.ask("reset")


async def test_a_branch_at_a_cell_has_the_state_and_the_cells_that_led_there(book: Book) -> None:
    await counted(book, 2)
    await book.run("numbers.clear()\nimport os\nos.abort()")
    await book.ask("add_cell", code="never ran", execute=False)
    await book.run("numbers.append('left behind')")
    await book.protected()
    await book.ask("rollback", to=1)
    await book.run("numbers.append('new line')")
    await book.run("numbers.append('too late')")
    await book.protected()
    branch = await branched(book, "at", at=5)
    copied = await cells(branch)
    sources = [(await branch.cell(cell["cell_number"]))["code"].splitlines()[0] for cell in copied]
    assert sources == [
        "numbers = []",
        "numbers.append(1)",
        "numbers.clear()",
        "never ran",
        "numbers.append('new line')",
    ]
    assert [cell["state"] for cell in copied] == ["SUCCESS", "SUCCESS", "CRASHED", "IDLE", "SUCCESS"]
    assert not any(cell.get("stale") for cell in copied)
    assert await branch.shown(1) == "appended 1\n"
    assert await branch.value("numbers") == [0, 1, "new line"]
    assert await book.value("numbers") == [0, 1, "new line", "too late"]
    await branch.ask("reset")


@pytest.mark.parametrize("at", ["start", "before 0"])
async def test_a_branch_at_the_start_is_empty_and_in_the_same_folder(book: Book, at: str) -> None:
    await counted(book, 2)
    folder = await book.value("import os\nos.getcwd()")
    branch = await branched(book, f"of the start ({at})", at=at)
    assert await cells(branch) == []
    assert await branch.value("import os\n['numbers' in globals(), os.getcwd()]") == [False, folder]
    await branch.run("numbers = ['own']\nos.chdir('/')")
    await branch.run("numbers.clear()\nos.abort()")
    assert await branch.value("numbers") == ["own"]
    await branch.ask("rollback", to="start")
    assert await branch.value("import os\n['numbers' in globals(), os.getcwd()]") == [False, folder]
    assert await book.value("numbers") == [0, 1]
    await branch.ask("reset")


async def test_a_branch_goes_back_to_where_it_branched_off_and_no_further(book: Book) -> None:
    await counted(book, 2)
    branch = await branched(book, "back")
    await branch.run("numbers.append('branch')")
    await branch.protected()
    refused = await branch.ask("rollback", to=0)
    assert refused.is_error and "is not kept" in text(refused) and "Nothing was changed" in text(refused)
    crash = await branch.run("numbers.clear()\nimport os\nos.abort()")
    assert AS_BEFORE in text(crash)
    assert await branch.value("numbers") == [0, 1, "branch"]
    await branch.ask("rollback", to="start")
    assert await branch.value("numbers") == [0, 1]
    assert await book.value("numbers") == [0, 1]
    await branch.ask("reset")


async def test_a_branch_outlives_its_original(book: Book) -> None:
    await counted(book, 2)
    supervisor, live = await book.supervisor(), await book.process("os.getpid()")
    branch = await branched(book, "left alone")
    await branch.run("numbers.append('branch')")
    await branch.protected()
    await book.ask("reset")
    wait_until(lambda: not alive(live), "the original's kernel is gone")
    assert await branch.value("numbers") == [0, 1, "branch"]
    crash = await branch.run("numbers.clear()\nimport os\nos.abort()")
    assert AS_BEFORE in text(crash)
    assert await branch.value("numbers") == [0, 1, "branch"]
    assert await book.value("'numbers' in globals()") is False
    await branch.ask("reset")
    wait_until(lambda: not alive(supervisor), "the first process of their namespace is gone, with the last of them")


@pytest.mark.parametrize("ran", [True, False], ids=["after a run", "before any run"])
async def test_a_branch_of_a_branch(book: Book, ran: bool) -> None:
    await counted(book, 2)
    first = await branched(book, f"first {ran}")
    if ran:
        await first.run("numbers.append('first')")
    second = await branched(first, f"second {ran}")
    await second.run("numbers.append('second')")
    between = ["first"] * ran
    assert await second.value("numbers") == [0, 1, *between, "second"]
    assert await first.value("numbers") == [0, 1, *between]
    assert len(await cells(second)) == 2 + ran + 2
    await second.run("numbers.clear()\nimport os\nos.abort()")
    assert await second.value("numbers") == [0, 1, *between, "second"]
    await second.ask("rollback", to="start")
    assert await second.value("numbers") == [0, 1, *between]
    await second.ask("reset")
    await first.ask("reset")


async def test_a_crash_and_a_rollback_of_the_original_leave_its_branches_alone(book: Book) -> None:
    await counted(book, 2)
    first = await branched(book, "beside")
    second = await branched(first, "beside that")
    for each in (first, second):
        await each.run("numbers.append('own')")
    await book.run("import os\nos.abort()")
    await book.ask("rollback", to=0)
    for each in (first, second):
        after = await each.run("numbers")
        assert after.structured_content["return_value"] == [0, 1, "own"]
        assert "notice" not in after.structured_content
        await each.ask("reset")


async def test_a_name_that_is_taken_is_refused_and_nothing_is_made(server: Client[Any], book: Book) -> None:
    await counted(book, 1)
    supervisor = await book.supervisor()
    await book.protected()
    there, family = await names(server), processes_of(supervisor)
    for name in (book.name, "", "a/b", "current"):
        refused = await book.ask("branch_notebook", name=name, use=False)
        assert refused.is_error, name
    assert "already" in text(await book.ask("branch_notebook", name=book.name, use=False))
    assert await names(server) == there
    assert processes_of(supervisor) == family
    assert await book.value("numbers") == [0]


async def test_a_branch_becomes_current_where_asked(data_dir: Path) -> None:
    async with roomy_client(data_dir) as client:
        await call(client, "execute", code="x = 41")
        made = await call(client, "branch_notebook", name="second")
        assert made.structured_content["current"] is True and made.structured_content["branch_of"] == "main"
        assert (await call(client, "execute", code="x")).structured_content["notebook"] == "second"
        await call(client, "branch_notebook", name="third", use=False)
        assert (await call(client, "execute", code="x")).structured_content["notebook"] == "second"
    async with roomy_client(data_dir) as client:
        for name in ("second", "third"):  # one of them never ran
            after = await call(client, "execute", code="x", notebook=name)
            assert after.structured_content["return_value"] == 41
            assert "Restored from disk" in after.structured_content["notice"]


async def test_a_branch_whose_kernel_ended_before_its_first_run_says_so(book: Book) -> None:
    await counted(book, 1)
    supervisor = await book.supervisor()
    before = set(processes_of(supervisor))
    branch = await branched(book, "soon gone")
    new: list[int] = []

    def there() -> bool:
        new[:] = [pid for pid in set(processes_of(supervisor)) - before if is_branch(pid, supervisor)]
        return bool(new)

    wait_until(there, "the branch has a supervisor")
    for pid in new:
        os.kill(pid, signal.SIGKILL)

    async def gone() -> bool:
        return (await branch.ask("state")).structured_content["kernel"] == "not started"

    await until(gone, "the server saw it die")
    after = await branch.run("'numbers' in globals()")
    assert after.structured_content["return_value"] is False
    assert "This is a fresh kernel" in after.structured_content["notice"]
    assert "notice" not in (await branch.run("1")).structured_content
    assert await book.value("numbers") == [0]
    await branch.ask("reset")


# Policies


@pytest.mark.parametrize("which", ["kept", "unkept"])
async def test_on_error_rollback_undoes_a_failed_cell_and_says_so(
    server: Client[Any], unkept: Client[Any], which: str
) -> None:
    async with new_book(server if which == "kept" else unkept, on_error="rollback") as book:
        await book.run("basket = ['apple']\ninner = {'list': basket}")
        failed = await book.run("own = 1\ninner['list'].append('pear')\nprint('tried')\nbasket[9]")
        found = failed.structured_content
        assert (failed.is_error, found["state"], found["error_type"]) == (True, "ERROR", "IndexError")
        assert found["stdout"] == "tried\n" and found["notice"] == AS_BEFORE
        assert text(failed).startswith(f"Note: {AS_BEFORE}")
        after = await book.run("[basket, inner['list'] is basket, 'own' in globals()]")
        assert after.structured_content["return_value"] == [["apple"], True, False]
        assert "notice" not in after.structured_content
        stopped = await book.run("basket.clear()\nwhile True: pass", timeout=0.5)
        assert stopped.structured_content["state"] == "TIMEOUT"
        assert AS_BEFORE in stopped.structured_content["error_message"]
        assert await book.value("basket") == ["apple"]
        await book.run("basket.append('plum')")
        await book.run("basket.clear()\n1 / 0")
        assert await book.value("basket") == ["apple", "plum"]


async def test_a_first_cell_that_fails_is_undone_too(server: Client[Any]) -> None:
    async with new_book(server, on_error="rollback") as book:
        failed = await book.run("own = 1\n1 / 0")
        assert failed.structured_content["notice"] == AS_BEFORE
        assert await book.value("'own' in globals()") is False


async def test_where_nothing_is_asked_a_failed_cell_leaves_what_it_did(book: Book) -> None:
    await book.run("basket = []")
    failed = await book.run("basket.append('pear')\n1 / 0")
    assert "notice" not in failed.structured_content
    assert await book.value("basket") == ["pear"]


@pytest.mark.parametrize("which", ["kept", "unkept"])
async def test_with_isolation_each_cell_has_a_process_of_its_own_and_state_goes_on(
    server: Client[Any], unkept: Client[Any], which: str
) -> None:
    async with new_book(server if which == "kept" else unkept, isolation="cell") as book:
        first = await book.value(
            "import os, subprocess, threading\nlock = threading.Lock()\nlock.acquire()\n"
            "thread = threading.Thread(target=threading.Event().wait, daemon=True)\nthread.start()\n"
            "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
            "generator = (n for n in range(10))\nnext(generator)\n[os.getpid(), child.pid]"
        )
        space = await book.value("os.readlink('/proc/self/ns/pid')")
        second = await book.value("[os.getpid(), thread.is_alive(), threading.active_count(), lock.locked()]")
        third = await book.value("[os.getpid(), next(generator)]")
        assert len({first[0], second[0], third[0]}) == 3
        assert second[1:] == [False, 1, True] and third[1] == 1
        ended = [*first, second[0]]
        wait_until(lambda: not any(alive(here(pid, space)) for pid in ended), "what the cells ran in is gone")
        crash = await book.run("next(generator)\nos.abort()")
        assert AS_BEFORE in text(crash)
        after = await book.run("next(generator)")
        assert after.structured_content["return_value"] == 2 and "notice" not in after.structured_content


async def test_an_unknown_limit_or_policy_is_refused_and_no_notebook_is_made(
    server: Client[Any], embedded: Quire
) -> None:
    for arguments in (
        {"limits": {"memory": 2**30}},
        {"limits": {"memory_bytes": -1}},
        {"limits": {"output_bytes": 1}},
        {"isolation": "none"},
        {"on_error": "ignore"},
    ):
        refused = await call(server, "create_notebook", name="refused", use=False, **arguments)
        (name,) = arguments
        assert refused.is_error and name in text(refused), arguments
    assert "refused" not in await names(server)
    for policy in ({"isolation": "none"}, {"on_error": "ignore"}):
        with pytest.raises(InvalidRequest, match=next(iter(policy))):
            await embedded.create("refused", **policy)
    with pytest.raises(TypeError):
        await embedded.create("refused", memory_bytes=1)
    assert "refused" not in await embedded.notebooks()


# Crashes without a checkpoint


async def test_without_checkpoints_lost_cells_are_named_and_marked(unkept: Client[Any]) -> None:
    async with new_book(unkept) as book:
        await book.run("x = 1")
        await book.run("y = 1")
        state = text(await book.ask("state"))
        assert (
            "unprotected since run 1: checkpoints are turned off by the setting checkpoints.max_memory_bytes" in state
        )
        assert await book.checkpoints() == []
        crash = await book.run("import os\nos.abort()")
        assert AS_BEFORE not in text(crash) and "Run again: cells 0, 1." in text(crash)
        assert await stale(book) == [0, 1]
        assert await book.value("'x' in globals() or 'y' in globals()") is False
        await book.ask("execute_cell", cell_id_or_number=0)
        assert await stale(book) == [1]


# Names, and the tree


async def test_a_named_state_is_found_by_its_name_and_dropped_last(embedded: Quire) -> None:
    book = await embedded.create("named")
    change = "large = b'%d' * (40 * 2**20)"
    await book.add_cell(change % 0)
    await book.keep("first")
    for number in range(1, 6):
        await book.add_cell(change % number)
        await book.checkpoints()  # the one of this cell is taken by now
    there = await book.checkpoints()
    numbers = [each.cell.number for each in there if each.cell is not None]
    assert numbers[0] == 0 and numbers[-1] == 5 and 1 not in numbers
    assert there[0].names == ("first",)
    with pytest.raises(NotFound, match="is not kept"):
        await book.rollback(1)
    moved = await book.rollback("first")
    assert moved.cell is not None and moved.cell.number == 0
    first = await book.add_cell("large[:1]")
    assert await first.text() == "b'0'"
    branch = await book.branch("of a name", at="first")
    assert await (await branch.add_cell("large[:1]")).text() == "b'0'"
    await branch.reset()
    await book.reset()
    with pytest.raises(InvalidRequest, match="no live kernel"):
        await book.rollback("first")
    await book.add_cell("1")
    with pytest.raises(NotFound):
        await book.rollback("first")
    await book.reset()


async def test_nothing_that_ran_has_no_name(embedded: Quire) -> None:
    book = await embedded.create("nothing ran")
    with pytest.raises(InvalidRequest, match="no live kernel"):
        await book.keep("nothing")
    await book.add_cell("1")
    await book.rollback("start")
    with pytest.raises(InvalidRequest, match="nothing to keep"):
        await book.keep("nothing")
    await book.reset()


async def test_the_tree_says_who_came_from_whom(embedded: Quire) -> None:
    book = await embedded.create("trunk")
    await book.add_cell("x = 1")
    limb = await book.branch("limb")
    await limb.add_cell("x += 1")
    twig = await limb.branch("twig", at="start")
    tree = await embedded.tree()
    assert {name: tree[name] for name in ("trunk", "limb", "twig")} == {"trunk": None, "limb": "trunk", "twig": "limb"}
    assert await twig.value("x") == 1
    crashed = await twig.add_cell("import os\nos.abort()")
    assert crashed.state is CellState.CRASHED and await twig.value("x") == 1
    for each in (twig, limb, book):
        await each.reset()
    assert (await embedded.tree())["twig"] == "limb"


# Ways to look


async def counted(book: Book, cells: int, first: int = 0) -> None:
    """So many cells, each of which adds its number to a list and prints; each with a checkpoint."""
    for number in range(first, first + cells):
        made = "numbers = []\n" if number == first else ""
        await book.value(f"{made}numbers.append({number})\nprint('appended {number}')")
        await book.protected()


async def branched(book: Book, name: str, at: str | int | None = None) -> Book:
    made = await book.ask("branch_notebook", name=f"{book.name} {name}", at=at, use=False)
    assert not made.is_error, text(made)
    assert made.structured_content["branch_of"] == book.name
    return Book(client=book.client, name=made.structured_content["name"])


async def cells(book: Book) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await book.ask("list_cells")).structured_content["cells"]
    return found


async def stale(book: Book) -> list[int]:
    return [cell["cell_number"] for cell in await cells(book) if cell.get("stale")]


async def names(client: Client[Any]) -> list[str]:
    return [each["name"] for each in (await call(client, "list_notebooks")).structured_content["notebooks"]]


async def runs(book: Book, number: int) -> bool:
    there = await cells(book)
    return number < len(there) and there[number]["state"] == "RUNNING"


def is_branch(pid: int, supervisor: int) -> bool:
    """A branch's supervisor is a child of the original's and has a child of its own."""
    return parent(pid) == supervisor and bool(processes_of(pid))
