"""Bounds: each has its own words; the process around the guest never ends by what is in it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from quire.runtimes.wasm.host.guest import Bounds, Ended
from quire.wire import relay
from quire.wire.messages import Displayed, Inspect, Offer, Printed
from tests.support.wasm.python_guest import FULL, WEATHER, Make, Notebook

NESTED = """
import json, pickle, re, ast, copy
def nested(n, make=lambda x: [x]):
    x = make(1)
    for _ in range(n): x = make(x)
    return x
"""
DEEP = [
    "def f(n): return f(n + 1)\nf(0)",
    "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
    "class A:\n    def __getattr__(self, name): return getattr(self, name + 'x')\nA().a",
    "json.loads('[' * 100_000)",
    "json.dumps(nested(50_000))",
    "pickle.dumps(nested(50_000))",
    "repr(nested(50_000))",
    "copy.deepcopy(nested(50_000))",
    "nested(50_000) == nested(50_000)",
    "hash(nested(50_000, lambda x: (x,)))",
    "eval('[' * 5_000 + ']' * 5_000)",
    "eval('-' * 100_000 + '1')",
    "eval('1+' * 50_000 + '1')",
    "eval('a' + '.b' * 50_000)",
    "re.compile('(' * 5_000 + ')' * 5_000)",
    "compile(ast.Expression(nested(2_000, lambda x: ast.UnaryOp(ast.USub(), ast.Constant(1)))), 'x', 'eval')",
    "list(nested(50_000, lambda x: map(abs, x)))",
    "import sys; sys.setrecursionlimit(10**7)\ndef f(n): return f(n + 1)\nf(0)",
    "import xml.etree.ElementTree as E; E.fromstring('<a>' * 50_000 + '</a>' * 50_000)",
    "x = nested(200_000); del x",
]


@pytest.mark.parametrize("code", DEEP)
def test_nothing_is_deep_enough_to_end_the_process(make: Make, code: str) -> None:
    notebook = make(Bounds(memory=256 << 20, fuel=10**11))
    notebook.run(NESTED)
    try:
        ran = notebook.run(code)
    except Ended as ended:
        assert "nested too deeply" in ended.reason or "gave up" in ended.reason
    else:
        assert ran.finished.run == "r2"


def test_plain_recursion_is_an_error_of_pythons(notebook: Notebook) -> None:
    notebook.run("kept = 1")
    assert "RecursionError" in notebook.run("def f(n): return f(n + 1)\nf(0)").raised
    assert notebook.run("kept").value == 1


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
def test_memory_that_is_used_up_is_an_error_and_the_state_is_kept(make: Make) -> None:
    notebook = make(Bounds(memory=80 << 20))
    notebook.run("kept = 1")
    for code in (
        "x = bytearray(10**9)",
        "x = []\nwhile True: x.append('x' * 1_000_000)",
        "s = 'x'\nwhile True: s += s",
    ):
        ran = notebook.run(code)
        assert ran.finished.outcome == "error" and "MemoryError" in ran.raised
    notebook.run("x = s = None")
    assert notebook.run("kept").value == 1
    assert notebook.guest.memory() <= 80 << 20


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
def test_a_cell_after_one_that_took_all_memory_in_crumbs_can_free_it(make: Make) -> None:
    notebook = make(Bounds(memory=64 << 20))
    assert "MemoryError" in notebook.run("a = []\nwhile True: a.append(str(len(a)) * 10)").raised
    notebook.run("del a")
    assert notebook.run("sum(range(10_000))").value == sum(range(10_000))


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
@pytest.mark.parametrize("kind", FULL)
def test_what_fills_all_memory_can_be_deleted_by_the_next_cell(make: Make, kind: str) -> None:
    notebook = make(Bounds(memory=64 << 20))
    notebook.run("kept = 1")
    for _ in range(3):
        notebook.run(FULL[kind])
        notebook.guest.ask(Inspect())
        notebook.guest.image()
        assert notebook.run("del a").finished.outcome == "success"
        assert notebook.run("len(bytearray(5_000_000)) + kept").value == 5_000_001


def test_a_guest_that_does_not_fit_is_not_made(make: Make) -> None:
    with pytest.raises(Ended) as ended:
        make(Bounds(memory=1 << 20))
    assert "wasm.memory_bytes" in ended.value.hint


def test_fuel_that_is_used_up_ends_the_guest_with_words(make: Make) -> None:
    notebook = make(Bounds(fuel=10**8))
    notebook.run("x = 1")
    image = notebook.guest.image()
    with pytest.raises(Ended) as ended:
        notebook.run("while True: pass")
    assert "100,000,000 units of fuel" in ended.value.reason and "wasm.fuel" in ended.value.hint
    with pytest.raises(Ended, match="has ended before"):
        notebook.run("1")
    notebook.guest.restore(image)
    assert notebook.run("x").value == 1


def test_fuel_is_a_runs_own(make: Make) -> None:
    notebook = make(Bounds(fuel=10**9))
    for _ in range(5):
        assert notebook.run("sum(range(500_000))").value == 124999750000  # about half of it


@pytest.mark.parametrize(
    "code", ["while True: pass", "sum(range(10**15))", "10**10**9", "import re; re.match('(a+)+$', 'a' * 60 + 'b')"]
)
def test_interrupt_ends_code_that_ignores_it(make: Make, code: str) -> None:
    notebook = make()
    threading.Timer(0.1, notebook.guest.interrupt).start()
    with pytest.raises(Ended, match="stopped"):
        notebook.run(code)


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(1000)", "while True: print('x')", "import asyncio; await asyncio.sleep(1000)"]
)
def test_an_interrupt_is_soft_where_code_sleeps_or_prints(make: Make, code: str) -> None:
    notebook = make()
    notebook.run("kept = 1")
    begun = threading.Event()
    notebook.hears = lambda event: begun.set() if isinstance(event, Printed) else None

    def stop() -> None:
        begun.wait(30)
        notebook.guest.interrupt()

    stopping = threading.Thread(target=stop)
    stopping.start()
    ran = notebook.run(f"print('begun')\n{code}")
    stopping.join()
    assert ran.finished.outcome == "interrupted"
    assert notebook.run("kept").value == 1


def test_an_interrupt_is_soft_where_code_displays(make: Make) -> None:
    notebook = make()
    notebook.run("kept = 1")
    notebook.hears = lambda event: notebook.guest.interrupt() if isinstance(event, Displayed) else None
    assert notebook.run("n = 0\nwhile True: display(n); n += 1").finished.outcome == "interrupted"
    notebook.hears = lambda event: None
    assert notebook.run("kept + n - n").value == 1


def test_code_that_goes_on_after_an_interrupt_is_ended(make: Make) -> None:
    notebook = make()
    notebook.hears = lambda event: notebook.guest.interrupt() if isinstance(event, Printed) else None
    with pytest.raises(Ended, match="stopped"):
        notebook.run(
            "while True:\n    try:\n        print('here')\n        while True: pass\n    except BaseException: pass"
        )


@pytest.mark.parametrize(
    "code", ["import os; os._exit(3)", "import os; os.abort()", "import faulthandler; faulthandler._sigabrt()"]
)
def test_what_would_end_a_process_ends_the_guest_alone(make: Make, code: str) -> None:
    notebook = make()
    with pytest.raises(Ended):
        notebook.run(code)
    assert make().run("1 + 1").value == 2


def test_one_guests_loop_does_not_hold_up_another(make: Make) -> None:
    busy, other = make(), make()
    other.run("x = 1")
    begun = threading.Event()
    busy.hears = lambda event: begun.set() if isinstance(event, Printed) else None

    def loop() -> None:
        with pytest.raises(Ended):
            busy.run("print('begun')\nwhile True: pass")

    endless = threading.Thread(target=loop)
    endless.start()
    assert begun.wait(60)
    for _ in range(20):
        assert other.run("x").value == 1
    assert endless.is_alive()
    busy.guest.interrupt()
    endless.join(60)
    assert not endless.is_alive()


def test_open_files_are_bounded(make: Make) -> None:
    notebook = make(Bounds(files=20))
    ran = notebook.run("held = []\nfor n in range(30): held.append(open(f'{n}.txt', 'w'))")
    assert "20 are the most (wasm.open_files)" in ran.raised
    assert 15 <= notebook.run("len(held)").value <= 20
    notebook.run("for each in held: each.close()")
    assert notebook.run("for n in range(100): open('0.txt').close()\nn").value == 99


def test_calls_of_the_host_are_bounded(make: Make) -> None:
    notebook = make(Bounds(calls=3))
    notebook.guest.offer(Offer(catalog=[WEATHER]))
    notebook.answers = lambda called: relay.Returned(call=called.call, value={"content": [], "structured": {}})
    ran = notebook.run("done = 0\nfor _ in range(10):\n    weather.now(place='Rome')\n    done += 1")
    assert "max_calls" in ran.raised
    assert notebook.run("done").value == 3
    assert len(notebook.called) == 3


def test_a_pipe_in_the_workspace_is_refused(notebook: Notebook, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    for code in (
        "open('pipe')",
        "import os; os.open('pipe', os.O_RDONLY)",
        "import sqlite3; sqlite3.connect('pipe').execute('select 1')",
    ):
        assert "Only plain files and folders" in notebook.run(code).raised
