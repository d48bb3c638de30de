"""Hostile cells: each costs only itself, its end is explained, and the next cell finds the state before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from quire.wire import messages
from quire.worker.channel import FIRST_HIGH_DESCRIPTOR
from tests.support.crash_state import AS_BEFORE, attack, have_state, is_undone
from tests.support.notebooks import Book, new_book, waits_for
from tests.support.processes import alive
from tests.support.servers import QUICK, ROOMY, SharedServer, stdio_client, text
from tests.support.waiting import appears, until, wait_until

ENDLESS = "while True:\n    pass"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ENDLESS, id="endless loop"),
        pytest.param("import time\ntime.sleep(1000)", id="sleep"),
        pytest.param("import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", id="catastrophic regex"),
        pytest.param("import asyncio\nawait asyncio.Event().wait()", id="stuck await"),
        pytest.param("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", id="deadlock"),
        pytest.param("import subprocess\nsubprocess.run(['sleep', '1000'])", id="stuck subprocess"),
        pytest.param("import os\nos.read(os.pipe()[0], 1)", id="read of an empty pipe"),
    ],
)
async def test_a_cell_past_its_timeout_is_stopped_and_variables_are_kept(book: Book, code: str) -> None:
    await book.run("x = 41")
    result = await book.run(f"print('before')\n{code}", timeout=1)
    assert result.is_error
    found = result.structured_content
    assert (found["state"], found["stdout"]) == ("TIMEOUT", "before\n")
    assert "its timeout. Variables are kept" in found["error_message"]
    after = await book.run("x + 1")
    assert after.structured_content["return_value"] == 42 and "notice" not in after.structured_content


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{ENDLESS}", id="SIGINT ignored"),
        pytest.param(
            "while True:\n    try:\n        n = 0\n        while True: n += 1\n    except KeyboardInterrupt: pass",
            id="KeyboardInterrupt swallowed",
        ),
        pytest.param("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", id="SIGSTOP to itself"),
        pytest.param("import itertools\nall(itertools.repeat(True))", id="C loop that keeps the GIL"),
        pytest.param(
            "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nsignal.pause()",
            id="all signals blocked",
        ),
    ],
)
async def test_a_cell_that_will_not_stop_is_killed_and_variables_are_as_before_it(book: Book, code: str) -> None:
    await have_state(book)
    result = await attack(book, code, timeout=1)
    await is_undone(book, result, "TIMEOUT", "past its timeout of 1 s, did not stop when interrupted, and was killed")


CRASHES = [
    pytest.param("import ctypes\nctypes.string_at(0)", ["SIGSEGV", "C extension"], id="segfault"),
    pytest.param("import os\nos.abort()", ["SIGABRT"], id="abort"),
    pytest.param("import os\nos._exit(3)", ["exited with code 3", "os._exit()"], id="exit"),
    pytest.param(
        "import sys\nsys.setrecursionlimit(10**9)\ndef deeper(_):\n    return list(map(deeper, [0]))\ndeeper(0)",
        ["SIGSEGV", "deep recursion"],
        id="C stack overflow",
    ),
    pytest.param("import os\nos.kill(os.getpid(), 9)", ["SIGKILL"], id="SIGKILL"),
    pytest.param("import os\nos.kill(os.getpid(), 15)", ["SIGTERM"], id="SIGTERM"),
    pytest.param("import os\nos.execv('/bin/true', ['true'])", ["exited with code 0"], id="exec"),
    pytest.param(
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n" + ENDLESS, ["SIGKILL"], id="CPU limit"
    ),
    pytest.param("import builtins\nbuiltins.__dict__.clear()", ["exited with code 1"], id="builtins cleared"),
]


@pytest.mark.parametrize(("code", "words"), CRASHES)
async def test_after_a_crash_the_cause_is_said_and_variables_are_as_before_it(
    book: Book, code: str, words: list[str]
) -> None:
    await have_state(book)
    await is_undone(book, await attack(book, code), "CRASHED", *words)


async def test_a_kernel_that_closed_its_connection_is_reported_as_such(book: Book) -> None:
    await have_state(book)
    result = await attack(book, "os.closerange(0, 1000)\ntime.sleep(100)")
    assert "from outside" not in result.structured_content["error_message"]
    await is_undone(book, result, "CRASHED", "closed its connection", "os.closerange()")


FORGE = f"""
import json, os, struct, sys

def control():
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            if number >= {FIRST_HIGH_DESCRIPTOR} and os.readlink(f"/proc/self/fd/{{number}}").startswith("socket:"):
                return number
        except OSError:
            pass

def frame(say, fields, version={messages.VERSION}):
    header = say if isinstance(say, bytes) else json.dumps({{"say": say, "with": fields, "parts": []}}).encode()
    return struct.pack("!2sBBII", b"QW", version, 0, len(header), 0) + header

def this_run():
    caller = sys._getframe()
    while not hasattr(caller.f_locals.get("run"), "code"):
        caller = caller.f_back
    return caller.f_locals["run"].run
"""


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param("b'garbage' * 100", id="garbage"),
        pytest.param(
            f"struct.pack('!2sBBII', b'QW', {messages.VERSION}, 0, 2**32 - 1, 2**32 - 1)", id="a length over the limit"
        ),
        pytest.param("frame('Ready', {'version': 1, 'python': '3'}, version=9)", id="another version"),
        pytest.param("frame('Run', {'run': 'r', 'code': '1', 'name': 'n'})", id="a request"),
        pytest.param("frame('Printed', {'stream': 'stdout', 'data': 'text'})", id="a wrong field"),
        pytest.param("frame(b'[' * 100_000, {})", id="deep JSON"),
        pytest.param("frame('Finished', {'run': 'another', 'outcome': 'success'})", id="the end of another run"),
    ],
)
async def test_a_forged_frame_ends_the_kernel_that_sent_it(book: Book, forged: str) -> None:
    await have_state(book)
    result = await attack(book, f"{FORGE}\nos.write(control(), {forged})\n{ENDLESS}", timeout=5)
    await is_undone(book, result, "CRASHED", "broke its protocol")


HASTY = ROOMY.replace("main()", "from quire.runtimes.python import kernel\nkernel._CHECKPOINT_TIMEOUT_S = 2.0\nmain()")
"""A server that soon ends a kernel which does not answer when a checkpoint is due."""


@pytest.fixture(scope="module")
async def hasty(
    tmp_path_factory: pytest.TempPathFactory, server_settings: dict[str, Any]
) -> AsyncIterator[SharedServer]:
    settings = {**QUICK, **server_settings, "command": ("-c", HASTY)}
    async with AsyncExitStack() as stack:
        yield SharedServer(tmp_path_factory, stack, settings)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("['\\ud800']", id="a lone surrogate"),
        pytest.param("[json.loads('[' * 500 + ']' * 500)]", id="a deep value"),
        pytest.param("[float('nan'), float('inf')]", id="no JSON number"),
        pytest.param("[10 ** 4000]", id="a large number"),
    ],
)
async def test_a_forged_value_costs_its_cell_and_not_the_server(hasty: SharedServer, value: str) -> None:
    forged = f"frame('Finished', {{'run': this_run(), 'outcome': 'success', 'value': {value}}})"
    async with new_book(await hasty.client()) as book:
        await book.run(f"{FORGE}\nos.write(control(), {forged})\n{ENDLESS}", timeout=2)
        await book.ask("reset")
        assert await book.value("40 + 2") == 42


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("display({'text/plain': 'x'}, raw=True, metadata={'$': 'x'})", id="a metadata key"),
        pytest.param("display({'text/plain': 'x'}, raw=True, metadata={'a': '\\ud800'})", id="a lone surrogate"),
        pytest.param(
            "deep = {}\nfor _ in range(900): deep = {'a': deep}\ndisplay({'text/plain': 'x'}, raw=True, metadata=deep)",
            id="deep metadata",
        ),
        pytest.param("display({'text/plain': 'x' * 20_000_000}, raw=True)", id="a display over the limit"),
        pytest.param("display({'text/plain': 'x'}, raw=True, metadata={'a': object()})", id="no JSON"),
        pytest.param("display({'\\ud800': '\\ud800'}, raw=True)", id="a MIME type that is no text"),
        pytest.param("class E(Exception): pass\nE.__name__ = '\\ud800'\nraise E('\\ud800')", id="an exception's name"),
        pytest.param(
            "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
            id="an exception that cannot be said",
        ),
        pytest.param("class R:\n    def __repr__(self): raise SystemExit\nR()", id="a value that cannot be said"),
        pytest.param("a = []\na.extend([a, a, a, a])\na", id="a cyclic value"),
        pytest.param("class M(type): __module__ = 5\nclass C(metaclass=M): pass\nC()", id="a strange metaclass"),
        pytest.param("exec('-' * 100_000 + '1')", id="source too deep for the parser"),
        pytest.param("import sys\nsys.modules.clear()", id="modules forgotten"),
        pytest.param("import sys\nsys.setrecursionlimit(60)", id="no depth left"),
        pytest.param("import gc\ngc.disable()\ngc.set_threshold(1)", id="collector changed"),
    ],
)
async def test_what_a_cell_shows_never_costs_the_kernel(book: Book, code: str) -> None:
    await book.run("x = 41")
    result = await book.run(code, timeout=5)
    assert result.structured_content["state"] in ("SUCCESS", "ERROR"), text(result)
    assert await book.value("x + 1") == 42


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("globals()['$'] = 1", id="a strange name"),
        pytest.param("globals()['\\ud800'] = 1", id="a name that is no text"),
        pytest.param("def f(): '\\ud800'", id="a docstring that is no text"),
        pytest.param("class P:\n    __class__ = property(lambda self: 1 / 0)\nproxy = P()", id="an unbound proxy"),
        pytest.param(
            "class M(type):\n    __eq__ = lambda *a: exit()\n    __hash__ = None\nclass C(metaclass=M): 1\nc = C()",
            id="M",
        ),
        pytest.param("globals().update((f'{n:0200}', n) for n in range(100_000))", id="more names than a frame holds"),
        pytest.param("def f(a='x' * 20_000_000): 1", id="a signature longer than a frame"),
        pytest.param("globals()[1] = 2", id="a name that is a number"),
    ],
)
async def test_asking_what_there_is_never_costs_the_kernel(book: Book, code: str) -> None:
    await book.run(code)
    await book.ask("state")
    again = await book.run("print('here')")
    assert (again.structured_content["stdout"], again.structured_content.get("notice")) == ("here\n", None)


async def test_asking_what_there_is_runs_none_of_the_users_code(book: Book) -> None:
    await book.run(
        "asked = []\n"
        "class Default:\n    def __repr__(self):\n        asked.append('repr')\n        return 'd'\n"
        "    __class__ = property(lambda self: asked.append('class') or Default)\n"
        "default = Default()\n"
        "def f(a=default): pass"
    )
    shown = await book.ask("state")
    assert "f" in text(shown)
    assert await book.value("asked") == []


async def test_exit_is_an_error_and_variables_are_kept(book: Book) -> None:
    await book.run("x = 41")
    for code in ("import sys\nsys.exit()", "raise SystemExit(3)", "exit()", "quit(1)"):
        found = (await book.run(f"print('before')\n{code}")).structured_content
        assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "SystemExit", "before\n")
        assert "variables are kept" in found["error_message"]
    assert await book.value("x + 1") == 42


async def test_input_is_an_error_that_says_what_to_do(book: Book) -> None:
    found = (await book.run("name = input('Your name? ')")).structured_content
    assert (found["state"], found["error_type"]) == ("ERROR", "InputNotAvailable")
    assert "Your name? " in found["error_message"] and "Put the value into the code" in found["error_message"]
    assert await book.value("import sys\nsys.stdin.read()") == ""


async def test_a_cell_that_runs_out_of_memory_is_an_error_and_variables_are_kept(book: Book) -> None:
    await book.run(
        "import resource\nx = 41\nused = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20, resource.RLIM_INFINITY))"
    )
    found = (await book.run("print('before')\nlarge = bytearray(2**30)")).structured_content
    assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "MemoryError", "before\n")
    assert await book.value("x + 1") == 42


async def test_a_cell_without_any_memory_left_is_an_error_or_is_undone(book: Book) -> None:
    await book.run("x = 41")
    result = await book.run(
        "import resource\nprint('before')\nresource.setrlimit(resource.RLIMIT_AS, (1, resource.RLIM_INFINITY))\n"
        "kept = []\nwhile True: kept.append(bytearray(1000))",
        timeout=5,
    )
    found = result.structured_content
    assert found["stdout"] == "before\n" and found["state"] in ("ERROR", "CRASHED", "TIMEOUT")
    if found["state"] == "CRASHED":
        assert AS_BEFORE in found["error_message"]
        assert await book.value("x + 1") == 42
    await book.ask("reset")
    assert await book.value("40 + 2") == 42


async def test_a_kernel_that_dies_between_two_cells_is_restored_and_that_is_said(book: Book, tmp_path: Path) -> None:
    await have_state(book)
    await book.protected()
    waiting = waits_for(tmp_path / "now").replace("\n", "\n    ")
    await book.run(f"import os, threading\ndef end():\n    {waiting}\n    os.abort()\nlater = 1")
    pid = await book.process("os.getpid()")
    await book.run("threading.Thread(target=end, daemon=True).start()")
    await book.protected()
    (tmp_path / "now").touch()
    wait_until(lambda: not alive(pid), "the kernel died")

    async def noticed() -> bool:
        return (await book.ask("state")).structured_content["kernel"] == "not started"

    await until(noticed, "the server saw it die")
    result = await book.run("print('here')\nx, next(squares), lock.locked(), later")
    found = result.structured_content
    assert (found["stdout"], found["return_value"]) == ("here\n", [41, 4, True, 1])
    assert "died between two runs and was restored" in found["notice"]
    assert "notice" not in (await book.run("1")).structured_content


async def test_interrupt_from_another_call_stops_the_cell_and_variables_are_kept(book: Book) -> None:
    await book.run("x = 41")
    results: list[Any] = []
    async with anyio.create_task_group() as group:
        group.start_soon(keep, results, book, f"print('started')\n{ENDLESS}")
        await until(lambda: is_shown(book, 1, "started"), "the cell runs")
        stopped = await book.ask("interrupt")
    assert not stopped.is_error and stopped.structured_content["state"] == "INTERRUPTED"
    found = results[0].structured_content
    assert results[0].is_error and (found["state"], found["stdout"]) == ("INTERRUPTED", "started\n")
    assert "Variables are kept" in found["error_message"]
    assert await book.value("x + 1") == 42


async def test_interrupt_kills_a_cell_that_will_not_stop_and_undoes_it(book: Book) -> None:
    await have_state(book)
    results: list[Any] = []
    code = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('begun', 'w').close()\n{ENDLESS}"

    async def run() -> None:
        results.append(await attack(book, code.replace("'begun'", "os.path.dirname(file_path) + '/begun'")))

    begun = Path(await book.value("os.path.dirname(file_path)")) / "begun"
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await appears(begun)
        stopped = await book.ask("interrupt")
    assert stopped.structured_content["state"] == "INTERRUPTED"
    await is_undone(book, results[0], "INTERRUPTED", "was interrupted, did not stop by itself, and was killed")


async def test_interrupting_when_nothing_runs_says_so(book: Book) -> None:
    await book.run("x = 41")
    result = await book.ask("interrupt")
    assert result.is_error and "Nothing is running" in text(result)
    assert await book.value("x + 1") == 42


async def test_an_interrupt_that_comes_before_the_code_has_begun_is_not_lost(data_dir: Path) -> None:
    async with stdio_client(data_dir, preload="", grace=4) as client:
        book = Book(client=client)
        # a thread that keeps the GIL for long: the worker sees the request and the signal together
        await book.run(
            "import ctypes, threading\nx = 41\nbusy = True\nsleep = ctypes.PyDLL(None).usleep\n"
            "def hog():\n    while busy: sleep(300_000)\n"
            "threading.Thread(target=hog, daemon=True).start()"
        )
        found = (await book.run(ENDLESS, timeout=0.01)).structured_content
        assert (found["state"], "Variables are kept" in found["error_message"]) == ("TIMEOUT", True)
        assert await book.value("busy = False\nx + 1") == 42


async def test_one_notebook_runs_while_another_does(server: Client[Any], book: Book, tmp_path: Path) -> None:
    results: list[Any] = []
    async with new_book(server) as other, anyio.create_task_group() as group:
        group.start_soon(keep, results, book, f"print('started')\n{waits_for(tmp_path / 'go')}\nprint('gone on')")
        await until(lambda: is_shown(book, 0, "started"), "the first cell runs")
        await other.run(f"open({str(tmp_path / 'go')!r}, 'w').close()")
    assert results[0].structured_content["stdout"] == "started\ngone on\n"
    await appears(tmp_path / "go")


async def keep(results: list[Any], book: Book, code: str) -> None:
    results.append(await book.run(code))


async def is_shown(book: Book, number: int, words: str) -> bool:
    """Whether the cell has shown so much; false too where it is not there yet."""
    listed = await book.ask("list_cells")
    return number < listed.structured_content["total"] and words in await book.shown(number)
