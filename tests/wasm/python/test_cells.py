"""Cells: values, prints, tracebacks, displays, as the worker on an operating system has them."""

from __future__ import annotations

import pytest

from quire.wire.messages import Inspect, Printed, Read
from tests.support.wasm.python_guest import Notebook

DEEP = """
def outer(x):
    return inner(x)

def inner(x):
    y = x - 1
    return 1 / y

outer(1)
"""


def test_the_last_expression_is_the_value(notebook: Notebook) -> None:
    ran = notebook.run("x = 20\nx + 22")
    assert ran.value == 42
    assert ran.shown == [{"text/plain": "42"}]
    assert notebook.run("x;").shown == []


def test_names_stay_from_cell_to_cell(notebook: Notebook) -> None:
    notebook.run("def f(n): return n * 2")
    assert notebook.run("f(21)").value == 42
    assert notebook.run("_ + 1").value == 43


def test_what_is_printed_comes_line_by_line_and_in_order(notebook: Notebook) -> None:
    ran = notebook.run(
        "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('é', end='')\ndisplay(1)\nprint('c')"
    )
    said = [(each.stream, each.data.decode()) for each in ran.of(Printed)]
    assert said == [("stdout", "a\n"), ("stderr", "b\n"), ("stdout", "é"), ("stdout", "c\n")]
    assert [type(each).__name__ for each in ran.events][-3:] == ["Displayed", "Printed", "Finished"]


def test_a_line_is_heard_while_the_cell_still_runs(notebook: Notebook) -> None:
    heard: list[object] = []
    notebook.hears = heard.append
    notebook.run("import os\nprint('first')\nopen('mark', 'w').close()\nos.write(1, b'second\\n');")
    assert len(heard) == 3


def test_a_flood_is_gathered(notebook: Notebook) -> None:
    ran = notebook.run("for n in range(20_000): print('x' * 50)")
    assert len(ran.text) == 20_000 * 51
    assert len(ran.of(Printed)) < 5_000


def test_a_traceback_has_the_cells_lines_and_none_of_ours(notebook: Notebook) -> None:
    raised = notebook.run(DEEP).raised
    assert '<cell 1>", line 9, in <module>\n    outer(1)' in raised
    assert '<cell 1>", line 7, in inner\n    return 1 / y' in raised
    assert raised.endswith("ZeroDivisionError: division by zero")
    assert "quire" not in raised


@pytest.mark.plain_guest_only("its library comes without its source")
def test_a_traceback_has_the_librarys_source(notebook: Notebook) -> None:
    raised = notebook.run("import json\njson.loads('{')").raised
    assert 'json/decoder.py"' in raised
    assert "raise JSONDecodeError" in raised or "self.scan_once" in raised


def test_notes_groups_and_causes_are_told(notebook: Notebook) -> None:
    noted = notebook.run("e = ValueError('why')\ne.add_note('and more')\nraise e").raised
    assert noted.endswith("ValueError: why\nand more")
    group = notebook.run("raise ExceptionGroup('several', [ValueError(1), TypeError(2)])").raised
    assert "ExceptionGroup: several (2 sub-exceptions)" in group and "TypeError: 2" in group
    cause = notebook.run("try: 1/0\nexcept Exception as e: raise KeyError('k') from e").raised
    assert "direct cause" in cause


def test_code_that_does_not_compile_is_shown_with_its_place(notebook: Notebook) -> None:
    ran = notebook.run("x = (1,\ny = = 2")
    assert ran.finished.outcome == "error"
    assert "SyntaxError" in ran.raised and "<cell 1>" in ran.raised


def test_objects_show_themselves_as_html(notebook: Notebook) -> None:
    ran = notebook.run("class A:\n    def _repr_html_(self): return '<b>a</b>'\nA()")
    assert ran.shown[0]["text/html"] == "<b>a</b>"
    ran = notebook.run("from IPython.display import HTML, display\ndisplay(HTML('<i>b</i>'), display_id='d')")
    assert ran.shown[0]["text/html"] == "<i>b</i>"


def test_a_value_is_told_only_where_json_can_say_it(notebook: Notebook) -> None:
    assert notebook.run("{'a': [1, None, 2.5, 'é']}").value == {"a": [1, None, 2.5, "é"]}
    assert notebook.run("{1, 2}").finished.value == []


def test_the_namespace_is_described_without_running_anything(notebook: Notebook) -> None:
    notebook.run("x = [1, 2]\ndef f(a, b=1):\n    'What it does.'\n    return a")
    found = notebook.guest.ask(Inspect())
    assert found.variables == {"x": "list of 2"}  # type: ignore[union-attr]
    assert found.functions == [{"name": "f", "signature": "(a, b=1)", "docstring": "What it does."}]  # type: ignore[union-attr]
    assert notebook.guest.ask(Read(name="x")).value == [[1, 2]]  # type: ignore[union-attr]
    assert notebook.guest.ask(Read(name="nothing")).what == ""  # type: ignore[union-attr]


def test_a_cell_can_await(notebook: Notebook) -> None:
    assert notebook.run("import asyncio\nawait asyncio.sleep(0.01, 'slept')").value == "slept"
    assert notebook.run("async def f(n): await asyncio.sleep(0); return n\nawait asyncio.gather(f(1), f(2))").value == [
        1,
        2,
    ]
    assert notebook.run("asyncio.run(f(3))").value == 3
    assert notebook.run("task = asyncio.create_task(f(4))").finished.outcome == "success"
    assert notebook.run("await task").value == 4
    assert notebook.run("await asyncio.to_thread(sum, [1, 2])").value == 3
    assert "TimeoutError" in notebook.run("async with asyncio.timeout(0.01): await asyncio.sleep(5)").raised
    assert "Deadlock" in notebook.run("await asyncio.Event().wait()").raised


def test_input_is_refused_with_words(notebook: Notebook) -> None:
    assert "InputNotAvailable: input('Name: '): no person can be asked" in notebook.run("input('Name: ')").raised


def test_an_exit_ends_the_cell_and_nothing_else(notebook: Notebook) -> None:
    ran = notebook.run("x = 1\nimport sys\nsys.exit(3)")
    assert ran.finished.outcome == "error" and "SystemExit" in ran.raised
    assert notebook.run("x").value == 1


def test_magics_work_where_they_need_no_system(notebook: Notebook) -> None:
    assert "Wall time" in notebook.run("%time sum(range(10))").text
    assert "there are no processes" in notebook.run("!ls").raised
    assert notebook.run("%%writefile made.py\nANSWER = 42").finished.outcome == "success"
    assert notebook.run("import made\nmade.ANSWER").value == 42


def test_missing_part_of_ipython_is_named_with_what_there_is(notebook: Notebook) -> None:
    assert "UsageError: There is no magic %lsmagic in WebAssembly: there are %time" in notebook.run("%lsmagic").text
    assert "no magic %%capture in WebAssembly" in notebook.run("%%capture kept\n1").text
    missing = notebook.run("from IPython.display import Audio").raised
    assert "IPython.display.Audio is not there in WebAssembly. There are DisplayHandle, " in missing
    assert "No module named 'IPython.utils'" in notebook.run("import IPython.utils").raised


def test_help_timing_and_display_classes_are_there(notebook: Notebook) -> None:
    assert "Signature: len(obj, /)" in notebook.run("len?").text
    assert notebook.run("%%time\nx = 20\nx + 1").value == 21
    assert notebook.run("y = %time x + 2\ny").value == 22
    shown = notebook.run("from IPython.display import *\ndisplay(Markdown('*m*'), JSON({'a': 1}), Latex('$x$'))").shown
    assert [next(iter(each)) for each in shown] == ["text/markdown", "application/json", "text/latex"]
    notebook.run("open('p.png', 'wb').write(bytes([137]) + b'PNG' + bytes(30))")
    assert notebook.run("Image('p.png')").shown[0]["image/png"].startswith(b"\x89PNG")
    notebook.run("handle = display('first', display_id=True)")
    assert notebook.run("handle.update('second')").shown[0]["text/plain"] == "'second'"
    assert notebook.run("import IPython\nIPython.get_ipython() is get_ipython()").value is True


def test_streams_a_cell_has_closed_are_there_again(notebook: Notebook) -> None:
    notebook.run("import sys\nsys.stdout.close()\nsys.stderr = None")
    assert notebook.run("print('back')").text == "back\n"


def test_what_a_run_imports_and_defines_is_told(notebook: Notebook) -> None:
    finished = notebook.run("import json\ndef f(): return 1").finished
    assert finished.imports == ["import json"] and finished.functions == ["def f(): return 1"]
