"""Time, memory, stack and output, used up by code in WebAssembly: its run is what that costs."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path

import anyio
import pytest

from quire.core.errors import QuireError
from quire.frontends.python import Quire
from tests.support.processes import processes_of
from tests.support.security import guests
from tests.support.security.guests import RAW, Book, Outside
from tests.support.waiting import DEADLINE

ENDLESS = {
    "a loop": ("while True: pass", "while (true) {}"),
    "a loop that takes what stops it": (
        "while True:\n    try:\n        while True: print('x')\n    except BaseException: pass",
        "for (;;) { try { for (;;) console.log('x') } catch {} finally { continue } }",
    ),
    "a pattern": ("__import__('re').match('(a+)+$', 'a' * 40 + 'b')", "/(a+)+$/.test('a'.repeat(40) + 'b')"),
    "a large number": ("10 ** 10 ** 9", "let n = 3n; for (;;) { try { n = n * n } catch { n = 3n } }"),
    "a repr": (
        "class R:\n    def __repr__(self):\n        while True: pass\nR()",
        "display({ get html() { for (;;); }, toString() { for (;;); } }); for (;;) `${{ toString() { for (;;); } }}`",
    ),
    "an error that is told": (
        "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
        "const e = new Error(); Object.defineProperty(e, 'name', { get() { for (;;); } }); `${e}`",
    ),
    "a generator that is thrown away": (
        "def g():\n    while True:\n        try: yield\n        except GeneratorExit:\n            while True: pass\n"
        "it = g(); next(it); del it",
        "function* g() { try { yield } finally { for (;;); } }\nfor (const each of g()) break",
    ),
    "a sleep": ("__import__('time').sleep(1000)", "await new Promise(done => setTimeout(done, 1e6))"),
    "many sleeps": (
        "import time\nwhile True:\n    try: time.sleep(1000)\n    except KeyboardInterrupt: pass",
        "for (;;) { try { await new Promise(done => setTimeout(done, 1e6)) } catch {} }",
    ),
    "tasks": (
        "import asyncio\nasync def f():\n    while True: await asyncio.sleep(0)\nawait f()",
        "await (async () => { for (;;) await null })()",
    ),
    "what is left to be done": (
        "import asyncio\nloop = asyncio.new_event_loop()\ndef again(): loop.call_soon(again)\n"
        "again(); loop.run_forever()",
        "(function again() { Promise.resolve().then(again) })()",
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_what_has_no_end_ends_at_its_timeout(attacker: Book, neighbour: Book, kind: str) -> None:
    ended = await attacker.run(*ENDLESS[kind], timeout=0.5)
    assert ended.state == "TIMEOUT", await ended.text()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_sleep_that_cannot_be_stopped_costs_its_run_and_no_state(attacker: Book, neighbour: Book) -> None:
    """It waits outside of WebAssembly: the process is ended, and every notebook in it is put back."""
    slept = await attacker.run(
        "import time\ntime.sleep.__kwdefaults__['_sleep'](1000)",
        "await new Promise(done => setTimeout(done, 1e9))",
        timeout=0.5,
    )
    assert slept.state == "TIMEOUT"
    await attacker.is_as_before()
    await neighbour.is_as_before()
    await attacker.notebook.reset()  # and its host, which it has for itself now


async def test_one_that_loops_leaves_others_running(attacker: Book, neighbour: Book) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(attacker.run, *ENDLESS["a loop"], 2)
        for _ in range(5):
            await neighbour.was_not_disturbed()
    await attacker.is_as_before()


NESTED = {
    "calls": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
        "function f() { return f() + 1 }\nf()",
    ),
    "calls through C": (
        "import sys\nsys.setrecursionlimit(10**9)\nclass R:\n    def __repr__(self): return repr([self])\nrepr(R())",
        "const a = [1, 2]; a.map(function f() { return a.map(f) })",
    ),
    "attributes": (
        "class A:\n    def __getattr__(self, name): return getattr(self, name + 'x')\nA().a",
        "const p = new Proxy({}, { get(t, k, r) { return r[k] } }); p.a",
    ),
    "JSON": ("__import__('json').loads('[' * 1_000_000)", "JSON.parse('['.repeat(10000000))"),
    "JSON that is made": (
        "x = []\nfor n in range(1_000_000): x = [x]\n__import__('json').dumps(x)",
        "let x = []; for (let n = 0; n < 1e5; n++) x = [x]; JSON.stringify(x)",
    ),
    "brackets": ("eval('(' * 100_000 + ')' * 100_000)", "eval('('.repeat(1e6) + '1' + ')'.repeat(1e6))"),
    "a literal": ("eval('[' * 1_000_000 + ']' * 1_000_000)", "eval('['.repeat(1e6) + ']'.repeat(1e6))"),
    "signs": ("eval('-' * 1_000_000 + '1')", "eval('- '.repeat(1e6) + '1')"),
    "a pattern": (
        "__import__('re').compile('(?:' * 100_000 + ')' * 100_000)",
        "new RegExp('(?:'.repeat(1e6) + ')'.repeat(1e6))",
    ),
    "a pickle": (
        "__import__('pickle').loads(b'(' * 10 + b'l' * 10 ** 6)",
        "[].flat.call(new Array(5e7).fill([[]]), 9)",
    ),
}


@pytest.mark.parametrize("kind", NESTED)
async def test_what_is_nested_too_deeply_costs_its_run(attacker: Book, neighbour: Book, kind: str) -> None:
    ended = await attacker.run(*NESTED[kind])
    assert ended.state in ("ERROR", "CRASHED"), await ended.text()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


SHOWN = {
    "nested": (
        "x = []\nfor n in range(1_000_000): x = [x]\nx",
        "let x = []; for (let n = 0; n < 1e6; n++) x = [x]; x",
    ),
    "in itself": ("x = []; x.append(x); y = {'x': x}; x.append(y); y", "const y = { }; y.y = y; y.list = [y]; y"),
    "large": ("'x' * 100_000_000", "'x'.repeat(100000000)"),
    "many": ("list(range(3_000_000))", "Array.from({ length: 3e6 }, (_, n) => n)"),
    "one that raises": (
        "class R:\n    def __repr__(self): raise ValueError('no')\nR()",
        "({ get a() { throw 1 }, toJSON() { throw 1 }, toString() { throw 1 } })",
    ),
    "one that is no text": (
        "class R:\n    def __repr__(self): return 7\nR()",
        "({ [Symbol.toPrimitive]() { throw 1 }, [Symbol.toStringTag]: {} })",
    ),
    "one that has no type": (
        "class R:\n    __class__ = property(lambda self: 1 / 0)\n    __getattr__ = lambda self, name: 1 / 0\nR()",
        "Object.create(new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 1 } }))",
    ),
    "half a character": ("'\\ud800' * 1000", "'\\ud800'.repeat(1000)"),
}


@pytest.mark.parametrize("kind", SHOWN)
async def test_a_value_that_is_hard_to_show_is_shown_somehow(attacker: Book, neighbour: Book, kind: str) -> None:
    shown = await attacker.run(*SHOWN[kind])
    assert shown.state == "SUCCESS", await shown.text()
    assert 0 < len(await shown.text()) < 5_000_000
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_memory_bomb_costs_its_run(opened: Quire, outside: Outside, neighbour: Book, runtime: str) -> None:
    book = await guests.new(opened, outside, "bomb", runtime, memory=2**26)
    for python, javascript in (
        (
            "held = []\nwhile True: held.append(bytearray(1_000_000))",
            "held = []; for (;;) held.push(new Uint8Array(1e6))",
        ),
        ("held = 'x' * 10 ** 9", "new ArrayBuffer(1e9)"),
        (
            "held = []\nwhile True: held.append([{} for n in range(1000)])",
            "held = new Map(); for (;;) held.set(held.size, {})",
        ),
        ("x = 'x'\nwhile True: x += x", "x = 'x'; for (;;) x += x + Math.random()"),
    ):
        ended = await book.run(python, javascript)
        assert ended.state in ("ERROR", "CRASHED"), await ended.text()
        await book.notebook.rollback("before")  # what a failed run has named is there, and holds all memory
        await book.is_as_before()
    await neighbour.was_not_disturbed()


async def test_what_is_read_again_and_again_is_not_kept_by_the_host(attacker: Book, runtime: str) -> None:
    (host,) = hosts(runtime)
    before = memory_of(host)
    await attacker.text(
        "import sys, importlib\nsys.path.insert(0, '.')\nfor n in range(5):\n"
        "    with open('m.py', 'w') as file: file.write(f'x = {n} #' + '\\U0001f600' * 500_000)\n"
        "    importlib.import_module('m'); del sys.modules['m']; importlib.import_module('m')",
        "for (let n = 0; n < 60; n++) {\n"
        "  files.write('m.js', `export default ${n} //` + '\\u{1f600}'.repeat(900000));\n"
        "  await import('./m.js'); await import('./m.js')\n}",
    )
    assert memory_of(host) - before < 120_000_000
    await attacker.is_as_before()


async def test_a_flood_is_cut(attacker: Book, neighbour: Book) -> None:
    flooded = await attacker.run(
        "for n in range(50): print('x' * 1_000_000)\nprint('end')",
        "for (let n = 0; n < 50; n++) console.log('x'.repeat(1000000)); console.log('end')",
    )
    said = await flooded.text()
    assert flooded.state == "SUCCESS" and "bytes of output dropped" in said and said.endswith("end") and len(said) < 5e6
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


EXITS = {
    "exit": ("ERROR", "import sys\nsys.exit(3)"),
    "an exit without a number": ("ERROR", "raise SystemExit('now')"),
    "_exit": ("CRASHED", "import os\nos._exit(3)"),
    "abort": ("CRASHED", "import os\nos.abort()"),
    "exec": ("ERROR", "import os\nos.execv('/bin/true', ['true'])"),
    "a signal": ("ERROR", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    "a signal of its own": ("CRASHED", "import signal\nsignal.raise_signal(signal.SIGABRT)"),
    "a fault": ("CRASHED", "import faulthandler\nfaulthandler._sigabrt()"),
}


@pytest.mark.parametrize("kind", EXITS)
async def test_guest_that_ends_itself_ends_no_other(attacker: Book, neighbour: Book, kind: str) -> None:
    state, code = EXITS[kind]
    ended = await attacker.run(code, "[typeof process, typeof quit, typeof exit, typeof std, typeof os]; exit(1)")
    assert ended.state == (state if attacker.is_python else "ERROR"), await ended.text()
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


async def test_a_host_that_is_killed_costs_what_runs_and_no_state(
    opened: Quire, attacker: Book, neighbour: Book, runtime: str
) -> None:
    states: list[str] = []

    async def loop() -> None:
        states.append((await attacker.run(*ENDLESS["a loop"])).state)

    async with anyio.create_task_group() as group:
        group.start_soon(loop)
        with anyio.fail_after(DEADLINE):
            while not any(cell.state == "RUNNING" for cell in await attacker.notebook.cells()):
                await anyio.sleep(0.01)
        (host,) = hosts(runtime)
        os.kill(host, signal.SIGKILL)
    assert states == ["CRASHED"]
    await attacker.is_as_before()
    told = await neighbour.run("kept + 1")
    assert await told.text() == "42" and "died between two runs and was restored" in told.notice


async def test_guests_that_end_leave_nothing_in_their_host(attacker: Book, neighbour: Book, runtime: str) -> None:
    (host,) = hosts(runtime)
    end = ("import os\nos._exit(1)", "const held = []; for (;;) held.push(new Uint8Array(1e7))")
    await attacker.run(*end)
    await attacker.is_as_before()
    before = held_by(host)
    for _ in range(12):
        await attacker.run(*end)
        await attacker.is_as_before()
    threads, files = held_by(host)
    assert threads <= before[0] + 3 and files <= before[1] + 5


async def test_what_is_said_when_nothing_runs_is_not_gathered_for_ever(attacker: Book, neighbour: Book) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await attacker.run(
        f"{RAW}from quire.wire import messages, texts\nfrom quire.worker.execution import namespace\n"
        "said = texts.dump(messages.Printed(stream='stdout', data=b'x' * 1_000_000))\n"
        "def flood(*given):\n    while True: wit_world.host(said)\n"
        "namespace.describe = flood",
        "Object.defineProperty(globalThis, 'x', { get() { for (;;) console.log('x'.repeat(1e6)) }, enumerable: true })",
    )
    with contextlib.suppress(QuireError):
        await attacker.notebook.keep("flooded")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    await attacker.is_as_before()
    await neighbour.was_not_disturbed()


def held_by(pid: int) -> tuple[int, int]:
    """Its threads and its descriptors."""
    return len(list(Path(f"/proc/{pid}/task").iterdir())), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hosts(runtime: str) -> list[int]:
    """Processes of ours that hold guests of that language."""
    found = []
    for pid in processes_of(os.getpid()):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ours = any(word.startswith(runtime.encode()) for word in words)
            found += [pid] if b"quire.runtimes.wasm.host" in words and ours else []
    return found
