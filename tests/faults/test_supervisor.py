"""Hostile cells against what keeps a kernel: its supervisor, its checkpoints, its limits, the process it came from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.crash_state import AS_BEFORE, attack, have_state, is_undone, nothing_runs_of, state_is_as_before
from tests.support.notebooks import Book, new_book
from tests.support.processes import alive, minor_faults, processes_of
from tests.support.servers import IN_MEMORY, NO_SANDBOX, call, roomy_client, text
from tests.support.waiting import until, wait_until

SETTINGS: dict[str, Any] = {**IN_MEMORY, **NO_SANDBOX}
ENDLESS = "while True:\n    pass"

DAEMON = """
import os, time

def daemon():
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return int(os.read(told, 20))
"""


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return SETTINGS


"""A function that leaves a process behind which has no parent, no session and no group in common with its maker."""

FAMILY = """
import os

def children(pid):
    return [int(each) for each in open(f"/proc/{pid}/task/{pid}/children").read().split()]

def checkpoints():
    return [pid for pid in children(os.getppid()) if pid != os.getpid()]
"""

NURSERY = """
import json, os, socket

def sockets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield socket.socket(fileno=os.dup(int(name)))
        except OSError:
            pass

def nursery():
    return next(each for each in sockets() if each.type is socket.SOCK_SEQPACKET)
"""


# Crashes, one after another


async def test_the_same_state_is_restored_any_number_of_times(book: Book) -> None:
    await have_state(book)
    for code, word in (("os.abort()", "SIGABRT"), ("os._exit(3)", "code 3"), ("os.kill(os.getpid(), 9)", "SIGKILL")):
        result = await attack(book, code)
        assert AS_BEFORE in result.structured_content["error_message"] and word in text(result)
        await nothing_runs_of(result)
    await state_is_as_before(book)


async def test_a_crash_in_the_first_cell_leaves_an_empty_namespace(book: Book) -> None:
    result = await book.run("import os\nprint(os.getcwd())\nown = 1\nos.chdir('/')\nos.abort()")
    assert (result.structured_content["state"], AS_BEFORE in text(result)) == ("CRASHED", True)
    after = await book.run("import os\nprint(os.getcwd())\n'own' in globals()")
    assert after.structured_content["return_value"] is False and "notice" not in after.structured_content
    assert after.structured_content["stdout"] == result.structured_content["stdout"]


async def test_what_came_after_a_crash_is_kept_through_the_next(book: Book) -> None:
    await have_state(book)
    await attack(book, "os.abort()")
    await book.run("y = (n for n in 'ab')\nnext(y)")
    await is_undone(book, await attack(book, "next(y)\nos.abort()"), "CRASHED", "SIGABRT")
    assert await book.value("next(y)") == "b"


async def test_what_was_not_yet_written_to_a_file_is_written_once(book: Book) -> None:
    await book.run("file = open('once.txt', 'w')\nfile.write('kept ')")
    await book.run("import os\nfile.write('lost ')\nos.abort()")
    assert await book.value("file.write('and more')\nfile.close()\nopen('once.txt').read()") == "kept and more"


async def test_random_numbers_go_on_where_they_were(book: Book) -> None:
    await book.run("import random\nrandom.seed(7)\nexpected = random.Random(7).random()")
    await book.run("import os\nrandom.random()\nos.abort()")
    assert await book.value("random.random() == expected") is True


async def test_environment_limits_signals_and_modules_are_as_before(book: Book) -> None:
    look = (
        "import os, resource, signal, sys\n"
        "[os.environ.get('OWN'), os.umask(0o22), resource.getrlimit(resource.RLIMIT_NOFILE),\n"
        " signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL, 'colorsys' in sys.modules, sys.getrecursionlimit()]"
    )
    before = await book.value(look)
    result = await book.run(
        "import colorsys\nos.environ['OWN'] = '1'\nos.umask(0o77)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\nsys.setrecursionlimit(5000)\nos.abort()"
    )
    assert AS_BEFORE in text(result)
    assert await book.value(look) == before


async def test_a_thread_pool_a_loop_and_a_lock_work_in_what_was_restored(book: Book) -> None:
    await book.run(
        "import asyncio, concurrent.futures, threading\n"
        "pool = concurrent.futures.ThreadPoolExecutor(2)\nassert list(pool.map(abs, [-1, -2])) == [1, 2]\n"
        "condition = threading.Condition()\nawait asyncio.sleep(0)\nqueue = asyncio.Queue()\nawait queue.put(5)"
    )
    result = await book.run("import os\nawait queue.get()\nos.abort()")
    assert AS_BEFORE in text(result) and "Not restored" not in text(result)
    found = await book.value(
        "with condition: pass\n"
        "[list(pool.map(abs, [-3, -4])), await queue.get(), await asyncio.wait_for(asyncio.sleep(0, 'slept'), 10)]"
    )
    assert found == [[3, 4], 5, "slept"]


async def test_a_thread_that_is_not_restored_is_named(book: Book) -> None:
    await book.run(
        "import threading\nx = 41\ngo = threading.Event()\nthread = threading.Thread(target=go.wait, name='waiter')\n"
        "thread.daemon = True\nthread.start()"
    )
    await book.protected()
    assert (await book.checkpoints())[-1]["loses"] == ["thread waiter"]
    result = await book.run("import os\nos.abort()")
    assert AS_BEFORE in text(result) and "Not restored: thread waiter." in text(result)
    assert await book.value("[x, thread.is_alive()]") == [41, False]


async def test_a_child_process_that_is_not_restored_is_named_and_is_gone(book: Book) -> None:
    pid = await book.value("import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nchild.pid")
    await book.protected()
    result = await book.run("import os\nos.abort()")
    assert AS_BEFORE in text(result) and f"Not restored: child process {pid}." in text(result)
    wait_until(lambda: not alive(pid), "the child process is gone")
    assert await book.value("child.pid") == pid


# What checkpoints must not show to a cell


async def test_no_checkpoint_is_a_child_of_the_cell(book: Book) -> None:
    await book.run("x = 41")
    await book.protected()
    for wait in ("os.wait()", "os.waitpid(-1, os.WNOHANG)", "os.waitpid(0, 0)"):
        found = (await book.run(f"import os\n{wait}")).structured_content
        assert (found["state"], found["error_type"]) == ("ERROR", "ChildProcessError")
    assert await book.value("x + 1") == 42


async def test_child_processes_live_on_over_cells_and_are_reaped_by_the_cell(book: Book) -> None:
    await book.run("import subprocess\nchild = subprocess.Popen(['cat'], stdin=subprocess.PIPE)")
    await book.protected()
    assert await book.value("child.poll()") is None
    await book.protected()
    assert await book.value("child.stdin.close()\nchild.wait(30), child.poll()") == [0, 0]
    assert await book.value("killed = subprocess.Popen(['sleep', '1000'])\nkilled.poll()") is None
    await book.protected()
    assert await book.value("killed.terminate()\nkilled.wait(30)") == -15


async def test_a_port_is_free_again_when_the_cell_that_closes_it_says_so(book: Book) -> None:
    port = await book.value(
        "import socket\nlistening = socket.create_server(('127.0.0.1', 0))\nlistening.getsockname()[1]"
    )
    await book.protected()
    await book.run("client = socket.create_connection(listening.getsockname())\nserved, _ = listening.accept()")
    await book.protected()
    found = await book.value(
        "served.close()\nclosed = client.recv(1)\nclient.close()\nlistening.close()\n"
        f"again = socket.socket()\nagain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        f"again.bind(('127.0.0.1', {port}))\nagain.listen()\nclosed == b''"
    )
    assert found is True  # a checkpoint that held the connection would have kept it open


async def test_a_pipe_ends_when_the_cell_closes_it(book: Book) -> None:
    await book.run("import os\nread, write = os.pipe()")
    await book.protected()
    assert await book.value("os.close(write)\nos.read(read, 1) == b''") is True


async def test_a_file_lock_is_free_when_the_cell_lets_go(book: Book) -> None:
    await book.run("import fcntl\nheld = open('lock', 'w')\nfcntl.flock(held, fcntl.LOCK_EX)")
    await book.protected()
    assert (
        await book.value("held.close()\nother = open('lock')\nfcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)")
        is None
    )


async def test_an_interrupt_meets_the_cell_and_no_checkpoint(book: Book) -> None:
    await have_state(book)
    await book.protected()
    result = await book.run("import os, signal\nos.killpg(0, signal.SIGKILL)")
    assert "SIGKILL" in text(result) and AS_BEFORE in text(result)
    await state_is_as_before(book)


# Limits


async def test_a_fork_bomb_is_ended_and_variables_are_as_before_it(server: Client[Any]) -> None:
    async with new_book(server, limits={"processes": 20}) as book:
        await have_state(book)
        result = await attack(
            book,
            "for _ in range(40):\n    if os.fork() == 0:\n        time.sleep(1000)\n        os._exit(0)\n" + ENDLESS,
        )
        below = processes_of(await book.supervisor())
        await is_undone(book, result, "CRASHED", "more processes than it may", "`processes`")
        assert len(below) < 20


async def test_a_fork_bomb_of_orphans_is_ended_and_variables_are_as_before_it(server: Client[Any]) -> None:
    async with new_book(server, limits={"processes": 20}) as book:
        await have_state(book)
        result = await attack(book, f"{DAEMON}\nfor _ in range(40): daemon()\n{ENDLESS}")
        assert len(processes_of(await book.supervisor())) < 20
        await is_undone(book, result, "CRASHED", "more processes than it may")


async def test_a_fork_bomb_that_says_it_is_a_branch_is_ended(server: Client[Any]) -> None:
    async with new_book(server, limits={"processes": 20}) as book:
        await have_state(book)
        result = await attack(
            book,
            f"{NURSERY}\nthere = nursery()\nfor _ in range(40):\n    there.send(b'{{\"branched\": 1}}')\n"
            "    if os.fork() == 0:\n        there.send(b'{\"branched\": 1}')\n        time.sleep(1000)\n"
            f"        os._exit(0)\n{ENDLESS}",
        )
        below = processes_of(await book.supervisor())
        await is_undone(book, result, "CRASHED", "more processes than it may")
        assert len(below) < 20


async def test_a_fork_bomb_that_a_cell_leaves_behind_is_ended_though_nothing_runs(server: Client[Any]) -> None:
    async with new_book(server, limits={"processes": 20}) as book:
        await have_state(book)
        supervisor = await book.supervisor()
        late = (
            "import os, time\nif os.fork() == 0:\n    for _ in range(40):\n"
            "        if os.fork() == 0: time.sleep(1000)\n    time.sleep(1000)"
        )
        assert not (await book.run(late)).is_error
        wait_until(lambda: len(processes_of(supervisor)) > 30, "the bomb has grown")
        wait_until(lambda: len(processes_of(supervisor)) < 20, "it is gone")
        said = text(await book.run("1"))  # which may have begun before the server heard of it
        assert "died between two runs and was restored" in said or "more processes than it may" in said
        await state_is_as_before(book)


async def test_as_many_processes_as_allowed_are_left_alone(server: Client[Any]) -> None:
    async with new_book(server, limits={"processes": 20}) as book:
        code = (
            "import subprocess, time\nchildren = [subprocess.Popen(['sleep', '1000']) for _ in range(15)]\n"
            "until = time.monotonic() + 1.5\nwhile time.monotonic() < until: pass\n"  # the count is twice a second
            "[child.poll() for child in children]"
        )
        assert await book.value(code) == [None] * 15


BOMB = "kept = []\nwhile True: kept.append(bytearray(50 * 2**20))"


async def test_a_memory_bomb_is_a_memory_error_and_the_rest_is_kept(server: Client[Any]) -> None:
    async with new_book(server, limits={"memory_bytes": 300 * 2**20}) as book:
        await book.run("x = 41")
        found = (await book.run(f"print('before')\n{BOMB}")).structured_content
        assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "MemoryError", "before\n")
        assert await book.value("[x + 1, 0 < len(kept) < 6]") == [42, True]


async def test_a_memory_bomb_of_small_pieces_is_a_memory_error(server: Client[Any]) -> None:
    async with new_book(server, limits={"memory_bytes": 300 * 2**20}) as book:
        await book.run("x = 41\ngenerator = (n for n in range(10))\nnext(generator)")
        found = (await book.run("print('before')\nkept = []\nwhile True: kept.append(b'x' * 2**20)")).structured_content
        assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "MemoryError", "before\n")
        after = await book.run("[x + 1, 0 < len(kept) < 300, next(generator)]")
        assert after.structured_content["return_value"] == [42, True, 1]
        assert "notice" not in after.structured_content
        await book.run("kept.clear()")
        assert await book.value("len(bytearray(100 * 2**20)) // 2**20") == 100


async def test_a_memory_limit_holds_after_a_crash_a_rollback_and_a_reset(server: Client[Any]) -> None:
    async with new_book(server, limits={"memory_bytes": 300 * 2**20}) as book:
        await book.run("x = 41")
        for end in ("crash", "to a cell", "to the start", "reset"):
            match end:
                case "crash":
                    await book.run("import os\nos.abort()")
                case "to a cell":
                    await book.ask("rollback", to=0)
                case "to the start":
                    await book.ask("rollback", to="start")
                case "reset":
                    await book.ask("reset")
            found = (await book.run("large = bytearray(400 * 2**20)")).structured_content
            assert (end, found["error_type"]) == (end, "MemoryError")


async def test_past_its_processor_time_a_cell_is_an_error_and_variables_are_kept(server: Client[Any]) -> None:
    async with new_book(server, limits={"cpu_seconds": 1}) as book:
        await book.run("x = 41")
        for _ in range(2):  # each run has its own
            found = (await book.run(f"print('before')\n{ENDLESS}")).structured_content
            assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "CpuTimeExceeded", "before\n")
            assert "more than 1 s of processor time" in found["error_message"]
        assert await book.value("x + 1") == 42


async def test_processor_time_that_is_not_used_up_costs_nothing(server: Client[Any]) -> None:
    async with new_book(server, limits={"cpu_seconds": 1}) as book:
        code = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"
        for _ in range(3):
            found = (await book.run(code)).structured_content
            assert found["state"] == "SUCCESS"


async def test_output_past_the_notebooks_own_limit_is_dropped_and_counted(server: Client[Any]) -> None:
    async with new_book(server, limits={"output_bytes": 10_000}) as book:
        await book.run("print('x' * 100_000)")
        whole = (await book.whole(0))[0].text
        assert len(whole) < 12_000 and "dropped" in whole


# Strays


@pytest.mark.parametrize("end", ["reset", "crash", "timeout", "rollback", "clear", "own crash"])
async def test_a_daemon_lives_over_cells_and_ends_with_the_state_it_belongs_to(book: Book, end: str) -> None:
    await book.run("x = 41")
    pid = await book.value(f"{DAEMON}\npid = daemon()\npid")
    assert await book.value(f"os.kill({pid}, 0)") is None
    match end:
        case "reset":
            await book.ask("reset")
        case "crash":
            await book.run("import ctypes\nctypes.string_at(0)")
        case "timeout":
            await book.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + ENDLESS, timeout=0.5)
        case "rollback":
            await book.ask("rollback", to=0)
        case "clear":
            await book.ask("clear_notebook")
        case "own crash":
            await book.run("daemon()\nos.abort()")
    wait_until(lambda: not alive(pid), "the daemon is gone")


async def test_a_daemon_of_the_crashed_cell_ends_with_it(book: Book) -> None:
    await have_state(book)
    supervisor, live = await book.supervisor(), await book.value("import os\nos.getpid()")
    await is_undone(book, await attack(book, f"{DAEMON}\ndaemon()\nos.abort()"), "CRASHED", "SIGABRT")
    assert not alive(live)
    live = await book.value("os.getpid()")
    await book.protected()
    kept = len(await book.checkpoints())
    assert len([pid for pid in processes_of(supervisor) if pid != live]) == kept


async def test_whatever_happened_a_closed_notebook_has_no_process(server: Client[Any]) -> None:
    async with new_book(server) as book:
        supervisor = await book.supervisor()
        await book.run(f"{DAEMON}\ndaemon()\nimport subprocess\nsubprocess.Popen(['sleep', '1000'])")
        await book.protected()
        await book.run("import os\nos.abort()")
        await book.run("y = 1")
        await call(server, "branch_notebook", name=f"{book.name} branch", notebook=book.name, use=False)
        below = [pid for pid in processes_of(supervisor) if "sleep" not in command(pid)]
        branch = Book(client=server, name=f"{book.name} branch")
        branched = processes_of(await branch.supervisor())
        await book.ask("reset")
        gone = set(below) - {await branch.supervisor(), *branched}
        wait_until(lambda: not any(map(alive, [supervisor, *gone])), "all processes of the notebook are gone")
        assert await branch.value("y") == 1
        await branch.ask("reset")
        wait_until(lambda: not any(map(alive, branched)), "all processes of the branch are gone")


# The supervisor, the zygote and the checkpoints themselves


async def test_a_killed_supervisor_costs_the_variables_and_that_is_said(book: Book) -> None:
    await have_state(book)
    result = await attack(book, f"os.kill(os.getppid(), 9)\n{ENDLESS}")
    found = result.structured_content
    assert (result.is_error, found["state"]) == (True, "CRASHED")
    assert "The kernel is gone" in found["error_message"] and AS_BEFORE not in found["error_message"]
    await nothing_runs_of(result)
    await is_fresh(book)


async def test_a_supervisor_killed_between_cells_costs_variables_and_is_said(book: Book) -> None:
    await have_state(book)
    supervisor = await book.supervisor()
    await book.protected()
    family = processes_of(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, family)), "live process and checkpoints are gone with their supervisor")
    await sees_no_kernel(book)
    await is_fresh(book)


async def test_a_killed_zygote_costs_no_notebook_anything(server: Client[Any], book: Book) -> None:
    async with new_book(server) as other:
        await other.run("y = 1")
        await have_state(book)
        zygote = await book.zygote()
        result = await attack(book, f"os.kill({zygote}, 9)\nos.abort()")
        await is_undone(book, result, "CRASHED", "SIGABRT")
        assert await other.value("y") == 1
        async with new_book(server) as third, new_book(server) as fourth:  # one may be a spare of the old one
            assert [await third.value("40 + 2"), await fourth.value("40 + 2")] == [42, 42]
            assert not alive(zygote) and await fourth.zygote() != zygote


async def test_without_the_newest_checkpoint_an_older_one_is_restored(book: Book) -> None:
    await have_state(book)
    await book.run("later = 1")
    await book.protected()
    result = await attack(book, f"{FAMILY}\nos.kill(max(checkpoints()), 9)\ntime.sleep(0.3)\nos.abort()")
    found = result.structured_content
    assert (found["state"], AS_BEFORE in found["error_message"]) == ("CRASHED", False)
    assert "SIGABRT" in found["error_message"] and "Run again: cell 1." in found["error_message"]
    await nothing_runs_of(result)
    assert await book.value("'later' in globals()") is False
    await state_is_as_before(book)


async def test_without_any_checkpoint_all_cells_are_said_to_be_lost(book: Book) -> None:
    await have_state(book)
    await book.run("later = 1")
    await book.protected()
    result = await attack(
        book,
        f"{FAMILY}\nfor pid in checkpoints():\n    if pid != child.pid: os.kill(pid, 9)\ntime.sleep(0.3)\nos.abort()",
    )
    found = result.structured_content
    assert (found["state"], AS_BEFORE in found["error_message"]) == ("CRASHED", False)
    assert "Run again: cells 0, 1." in found["error_message"]
    await nothing_runs_of(result)
    assert await book.value("'x' in globals() or 'later' in globals()") is False
    listed = (await book.ask("list_cells")).structured_content["cells"]
    assert [cell["state"] for cell in listed] == ["SUCCESS", "SUCCESS", "CRASHED", "SUCCESS"]


async def test_checkpoints_killed_while_nothing_runs_are_listed_no_more(book: Book) -> None:
    await have_state(book)
    await book.run("later = 1")
    await book.protected()
    supervisor, live = await book.supervisor(), await book.value("import os\nos.getpid()")
    await book.protected()
    for pid in processes_of(supervisor):
        if pid != live:
            os.kill(pid, signal.SIGKILL)

    async def none() -> bool:
        return await book.checkpoints() == []

    await until(none, "no checkpoint is listed")
    assert "unprotected" in (await book.ask("list_checkpoints")).structured_content["protection"]
    assert await book.value("later") == 1
    await book.protected()
    await is_undone(book, await attack(book, "os.abort()"), "CRASHED", "SIGABRT")


async def test_a_stopped_supervisor_does_not_stop_the_notebook_for_ever(book: Book) -> None:
    await have_state(book)
    supervisor = await book.supervisor()
    await book.protected()
    found = (await book.run("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nprint(x)")).structured_content
    assert (found["state"], found["stdout"]) == ("SUCCESS", "41\n")
    await book.ask("reset")
    wait_until(lambda: not alive(supervisor), "the stopped supervisor is gone")
    assert await book.value("'x' in globals()") is False


async def test_a_stopped_checkpoint_does_not_stop_the_recovery(book: Book) -> None:
    await have_state(book)
    await book.run("later = 1")
    await book.protected()
    result = await attack(book, f"{FAMILY}\nimport signal\nos.kill(max(checkpoints()), signal.SIGSTOP)\nos.abort()")
    found = result.structured_content
    assert (found["state"], AS_BEFORE in found["error_message"]) == ("CRASHED", False)
    assert "Run again: cell 1." in found["error_message"]
    assert await book.value("'later' in globals()") is False
    await state_is_as_before(book)


async def test_nothing_of_a_killed_server_is_left(data_dir: Path) -> None:
    async with cut_off(roomy_client(data_dir, **SETTINGS)) as client:
        book = Book(client=client)
        server = await book.server()
        daemon = await book.value(f"{DAEMON}\ndaemon()")
        stopped = await book.value(f"{DAEMON}\nimport signal\npid = daemon()\nos.kill(pid, signal.SIGSTOP)\npid")
        await call(client, "branch_notebook", name="branch", use=False)
        other = await Book(client=client, name="branch").value("daemon()")
        family = processes_of(server)
        assert {daemon, stopped, other} <= set(family)
        os.kill(server, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, family)), "every process of the server is gone")


async def test_nothing_of_a_killed_server_is_left_although_a_supervisor_stands_still(data_dir: Path) -> None:
    async with cut_off(roomy_client(data_dir, **SETTINGS)) as client:
        book = Book(client=client)
        server = await book.server()
        await book.run(f"{DAEMON}\ndaemon()\nimport signal\nos.kill(os.getppid(), signal.SIGSTOP)")
        family = processes_of(server)
        os.kill(server, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, family)), "every process of the server is gone")


# Words where they do not belong


async def test_garbage_on_every_socket_costs_the_cell_only(book: Book) -> None:
    await have_state(book)
    result = await attack(
        book,
        f"{NURSERY}\nfor each in sockets():\n    each.setblocking(False)\n    each.send(b'garbage' * 100)\n{ENDLESS}",
        timeout=5,
    )
    await is_undone(book, result, "CRASHED", "broke its protocol")


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param("b'garbage'", id="garbage"),
        pytest.param("b'[]'", id="no object"),
        pytest.param("b'x' * 70_000", id="longer than a packet"),
        pytest.param("b'\\xff' * 100", id="no text"),
        pytest.param("b'{}'", id="nothing"),
        pytest.param('b\'{"do": "drop", "names": [""]}\'', id="an order"),
        pytest.param("b'{\"checkpoint\": 7}'", id="wrong types"),
        pytest.param('b\'{"checkpoint": "a"}\'', id="a checkpoint without its socket"),
        pytest.param("b'{\"woken\": 1}'", id="woken"),
        pytest.param("b'{\"branched\": 1}'", id="branched"),
        pytest.param("b'[' * 60_000", id="deep JSON"),
    ],
)
async def test_words_to_the_supervisor_that_are_not_a_cells_to_say_change_nothing(book: Book, packet: str) -> None:
    await have_state(book)
    said = await book.run(f"{NURSERY}\nnursery().send({packet})\nprint('said')")
    assert said.structured_content["stdout"] == "said\n"
    await book.run("later = 1")
    await book.protected()
    assert [each["cell_number"] for each in await book.checkpoints()] == [0, 1, 2]
    await is_undone(book, await attack(book, "os.abort()"), "CRASHED", "SIGABRT")
    assert await book.value("later") == 1


@pytest.mark.parametrize(
    "say",
    [
        pytest.param("there.send(b'[' * 60_000)", id="deep JSON"),
        pytest.param("there.send(b'garbage')", id="garbage"),
        pytest.param("socket.send_fds(there, [words], [os.open('/dev/null', os.O_RDWR)])", id="no socket"),
        pytest.param("other = socket.socket(); socket.send_fds(there, [words], [other.fileno()])", id="another socket"),
        pytest.param("socket.send_fds(there, [words], os.pipe())", id="two descriptors"),
        pytest.param("there.send(b'{\"woken\": 1}')", id="woken"),
        pytest.param("there.send(b'{\"branched\": 1}')", id="branched"),
    ],
)
async def test_words_of_a_process_that_is_the_supervisors_child_change_nothing(book: Book, say: str) -> None:
    await have_state(book)
    supervisor = await book.supervisor()
    said = await book.run(
        f"{NURSERY}\nimport time\nthere = nursery()\n"
        "words = json.dumps({'checkpoint': 'forged'}).encode()\n"
        "told, tell = os.pipe()\nif os.fork() == 0:\n    if os.fork() == 0:\n"
        "        while os.getppid() != %d: time.sleep(0.001)\n"
        % supervisor
        + f"        {say}\n        os.write(tell, str(os.getpid()).encode())\n        time.sleep(1000)\n"
        "    os._exit(0)\nos.wait()\nprint(os.read(told, 20).decode())"
    )
    forger = int(said.structured_content["stdout"])
    await book.run("later = 1")
    await book.protected()
    assert [each["cell_number"] for each in await book.checkpoints()] == [0, 1, 2, 3]
    assert (await book.ask("rollback", to="forged")).is_error
    await is_undone(book, await attack(book, "os.abort()"), "CRASHED", "SIGABRT")
    wait_until(lambda: not alive(forger), "it ended with what the cells started")
    assert [await book.value("later"), await book.supervisor()] == [1, supervisor]


async def test_a_forged_checkpoint_is_not_kept(book: Book) -> None:
    await have_state(book)
    await book.run(
        f"{NURSERY}\nmine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "words = json.dumps({'checkpoint': 'forged'}).encode()\n"
        "socket.send_fds(nursery(), [words], [theirs.fileno()])"
    )
    await book.protected()
    assert "forged" not in [each["checkpoint"] for each in await book.checkpoints()]
    assert (await book.ask("rollback", to="forged")).is_error
    await is_undone(book, await attack(book, "os.abort()"), "CRASHED", "SIGABRT")


async def test_a_notebook_without_checkpoints_says_what_a_crash_costs(book: Book) -> None:
    await have_state(book)
    await book.protected()
    await book.run("import os\nheld = []\ntry:\n    while True: held.append(os.dup(0))\nexcept OSError: pass")
    await book.run("later = 1")

    async def said() -> bool:
        return "Too many open files" in (await book.ask("list_checkpoints")).structured_content["protection"]

    await until(said, "the notebook is said to be unprotected, and why")
    assert await book.value("later") == 1
    crash = text(await book.run("os.abort()"))
    assert "SIGABRT" in crash and "Too many open files" in crash and "Run again: cells 1, 2, 3." in crash
    assert await book.value("'held' in globals() or 'later' in globals()") is False
    await state_is_as_before(book)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param("import os\nos.pipe2 = None", id="os.pipe2"),
        pytest.param("import random\nrandom.getstate = None", id="random.getstate"),
        pytest.param("import os\nos.listdir = None", id="os.listdir"),
    ],
)
async def test_a_cell_that_breaks_checkpoints_keeps_its_effects(book: Book, patch: str) -> None:
    await have_state(book)
    await book.protected()
    broken = await book.run(f"{patch}\ny = 5")
    assert broken.structured_content["state"] == "SUCCESS"
    await is_unprotected(book, "since run 2: taking one failed (TypeError: ")
    after = await book.run("[x, y]")
    assert after.structured_content["return_value"] == [41, 5] and "notice" not in after.structured_content
    assert [each["cell_number"] for each in await book.checkpoints()] == [0]
    crash = text(await book.run("__import__('os').abort()"))
    assert AS_BEFORE not in crash and "Run again: cells 1, 2." in crash and "taking one failed" in crash
    listed = (await book.ask("list_cells")).structured_content["cells"]
    assert [cell.get("stale", False) for cell in listed] == [False, True, True, False]
    await state_is_as_before(book)


async def test_a_process_that_dies_in_its_checkpoint_is_restored(
    book: Book,
) -> None:
    await have_state(book)
    await book.protected()
    done = await book.run("import os, random\nnumbers.append(2)\nrandom.getstate = os.abort")
    assert done.structured_content["state"] == "SUCCESS"
    after = await book.run("print('here')\n[x, numbers, next(squares)]")
    found = after.structured_content
    assert (found["stdout"], found["return_value"]) == ("here\n", [41, [1], 4])
    assert "died between two runs and was restored" in found["notice"]
    assert "Some of what ran is gone" in found["notice"]
    assert "notice" not in (await book.run("1")).structured_content


async def test_a_process_that_dies_any_moment_after_its_cell_loses_nothing_unsaid(book: Book) -> None:
    await book.run("import os, threading\nkept = []")
    expected: list[int] = []
    for number in range(20):
        ran = await book.run(f"kept.append({number})\nthreading.Timer({number} * 0.0002, os.abort).start()")
        after = await book.run("kept")
        said = text(ran) + text(after)
        if after.structured_content["state"] == "CRASHED":  # it was this cell that the timer met
            after = await book.run("kept")
            said += text(after)
        expected += [number] if ran.structured_content["state"] == "SUCCESS" else []
        found = after.structured_content["return_value"]
        assert found == expected or "is gone" in said, (number, found, expected, said)
        expected = found


async def test_a_supervisor_killed_in_a_checkpoint_costs_variables_and_is_said(book: Book) -> None:
    await have_state(book)
    await book.protected()
    code = "import os, random\nsupervisor = os.getppid()\nrandom.getstate = lambda: os.kill(supervisor, 9)\nsupervisor"
    done = await book.run(code)
    assert done.structured_content["state"] == "SUCCESS"
    wait_until(lambda: not alive(done.structured_content["return_value"]), "the checkpoint is begun: it may wait")
    await is_fresh(book)


async def test_checkpoints_listed_by_many_at_once_have_their_sizes(book: Book) -> None:
    for number in range(3):
        await book.run(f"large = b'{number}' * 2**20")
        await book.protected()
    listed: list[list[dict[str, Any]]] = []

    async def look() -> None:
        listed.append(await book.checkpoints())

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(look)
    assert len(listed) == 10
    for each in listed:
        assert [found["cell_number"] for found in each] == [0, 1, 2]
        assert [found["bytes"] > 0 for found in each] == [True] * 3


async def test_a_cell_that_uses_all_descriptors_costs_only_checkpoints(book: Book) -> None:
    await have_state(book)
    await book.protected()
    await book.run("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))\nlater = 1")
    await is_unprotected(book, "since run 2: taking one failed (OSError: [Errno 24] Too many open files")
    for _ in range(3):
        after = await book.run("print('here')\nlater += 1\n[x, next(squares)][0]")
        assert after.structured_content["stdout"] == "here\n" and after.structured_content["return_value"] == 41
        assert "notice" not in after.structured_content
    assert await book.value("later") == 4
    crash = text(await book.run("__import__('os').abort()"))
    assert "Run again: cells 1, 2, 3, 4, 5." in crash
    await state_is_as_before(book)


async def is_unprotected(book: Book, why: str) -> None:
    async def said() -> bool:
        return f"unprotected {why}" in text(await book.ask("state"))

    await until(said, f"`state` says that a crash would cost something: {why}")


async def is_fresh(book: Book) -> None:
    """The next run is told that what was there is gone; the one after it, no more."""
    after = await book.run("print('here')\n'x' in globals()")
    found = after.structured_content
    assert (found["stdout"], found["return_value"]) == ("here\n", False)
    assert "This is a fresh kernel" in found["notice"] and "server was restarted" not in found["notice"]
    assert text(after).startswith("Note: This is a fresh kernel")
    assert "notice" not in (await book.run("1")).structured_content


async def sees_no_kernel(book: Book) -> None:
    async def noticed() -> bool:
        return (await book.ask("state")).structured_content["kernel"] == "not started"

    await until(noticed, "the server saw it die")


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@asynccontextmanager
async def cut_off(client: Client[Any]) -> AsyncIterator[Client[Any]]:
    """A client whose server ends while it is connected."""
    with suppress(Exception):
        await client.__aenter__()
    try:
        yield client
    finally:
        with suppress(Exception):
            await client.__aexit__(None, None, None)


SUPERVISOR = """
from quire.wire import packets
from quire.worker.processes.supervisor import Supervisor

server, control = packets.socket_pair()
supervisor = Supervisor(control)
packets.send(server, {"do": "wake", "name": "none"})
packets.send(supervisor._announce_socket, {"checkpoint": "by a stranger"})
server.close()
supervisor.serve()
"""


def test_an_order_and_news_that_are_ready_together_do_not_stop_the_supervisor() -> None:
    """Carrying out the order it hears the news; then there is nothing to wait for."""
    assert subprocess.run([sys.executable, "-c", SUPERVISOR], timeout=30).returncode == 0


WAKING = """
import os, select, signal
from quire.wire import packets
from quire.worker.processes import supervisor as supervisors

server, control = packets.socket_pair()
supervisor = supervisors.Supervisor(control)
pid = os.fork()
if not pid:
    signal.pause()
orders, mine = packets.socket_pair()
supervisor._add_checkpoint("a", pid, mine.detach())

told = []
def descendants(root, spare):
    told.append(bool(select.select([server], [], [], 0)[0]))
    return []

supervisors.process_tree.descendants = descendants
packets.send(server, {"do": "wake", "name": "a"})
supervisor._on_order()
os.kill(pid, signal.SIGKILL)
assert told == [False], told
assert packets.receive(server)[0] == {"live": pid}
"""


def test_the_server_hears_of_a_woken_one_when_nothing_more_is_killed() -> None:
    """It has a copy of it taken at once, which would be killed as a stray."""
    subprocess.run([sys.executable, "-c", WAKING], timeout=30, check=True)


async def test_what_cells_keep_writing_to_is_not_shared_with_the_last_checkpoint(book: Book) -> None:
    """Between a checkpoint and the middle of the next cell the kernel copies few pages."""
    pid = await book.value("import os, resource\nos.getpid()")

    async def copies_few() -> bool:
        await book.protected()
        before = minor_faults(pid)
        return await book.value("resource.getrusage(resource.RUSAGE_SELF).ru_minflt") - before < 100

    await until(copies_few, "a cell writes to pages that are the kernel's own already")
