"""What makes a kernel a notebook's, whatever happens to it: after its end, and under cells that spoil it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client

from tests.support.notebooks import Book, new_book
from tests.support.servers import QUICK, ROOMY, call, stdio_client, text
from tests.support.waiting import DEADLINE, until


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    """A server that saves at once, with all that is loaded ahead out of the box."""
    settings = {**QUICK, "preload": "IPython,matplotlib.pyplot", "snapshot_interval": 0.05}
    folder = tmp_path_factory.mktemp("shells") / "data"
    async with stdio_client(folder, command=("-c", ROOMY), **settings) as connected:
        yield connected


@pytest.fixture(params=["early", "late"])
async def any_server(request: pytest.FixtureRequest, server: Client[Any], bare: Client[Any]) -> Client[Any]:
    """With a shell that is made ahead of all kernels, and one that is made on first need."""
    return server if request.param == "early" else bare


@pytest.fixture(scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    folder = tmp_path_factory.mktemp("bare") / "data"
    async with stdio_client(folder, command=("-c", ROOMY), **QUICK, snapshot_interval=0.05) as connected:
        yield connected


@pytest.fixture
async def book(server: Client[Any]) -> AsyncIterator[Book]:
    async with new_book(server) as made:
        yield made


async def good(book: Book, code: str, timeout: float = 30) -> Any:
    result = await book.run(code, timeout)
    assert not result.is_error, text(result)[-1500:]
    return result


async def said(book: Book, code: str) -> str:
    return str((await good(book, code)).structured_content["stdout"])


async def works(book: Book) -> None:
    """All that a notebook has, in the shortest cells that need it."""
    assert await said(book, "%%bash\necho from bash") == "from bash\n"
    assert await said(book, "!echo command") == "command\n"
    assert await book.value("lines = !echo one\nlist(lines)") == ["one"]
    assert await book.value("type(get_ipython()).__name__") == "ZMQInteractiveShell"
    assert await book.value("%time 1 + 1") == 2
    figure = await good(
        book, "import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1)).add_axes((0, 0, 1, 1))\nNone"
    )
    assert [each["type"] for each in figure.structured_content["outputs"]] == ["image"]
    shown = await book.ask("add_cell", code="from IPython.display import HTML\ndisplay(HTML('<b>html</b>'))\n41 + 1")
    assert [each["text"] for each in shown.structured_content["outputs"]] == ["html", "42"]
    assert await book.value("_") == 42


async def widgets_work(book: Book) -> None:
    shown = await book.ask(
        "add_cell", code="import ipywidgets\nslider = ipywidgets.IntSlider(3)\nslider.value = 7\nslider"
    )
    assert not shown.is_error and "value=7" in text(shown), text(shown)


async def asleep(book: Book) -> bool:
    listed = (await call(book.client, "list_notebooks")).structured_content["notebooks"]
    return next(each for each in listed if each["name"] == book.name)["kernel"] in ("hibernated", "not started")


# After a kernel's end


async def test_all_works_after_a_crash(any_server: Client[Any]) -> None:
    async with new_book(any_server) as book:
        await widgets_work(book)
        await works(book)
        await book.protected()
        crashed = await book.run("import os\nos.kill(os.getpid(), 9)")
        assert crashed.structured_content["state"] == "CRASHED"
        await works(book)
        await widgets_work(book)
        assert await book.value("slider.value") == 7


async def test_all_works_after_a_rollback_to_before_there_was_a_shell(any_server: Client[Any]) -> None:
    async with new_book(any_server) as book:
        await good(book, "x = 1")
        await book.protected()
        await works(book)
        back = await book.ask("rollback", to=0)
        assert not back.is_error, text(back)
        assert await book.value("x") == 1
        await works(book)
        await widgets_work(book)


async def test_all_works_in_a_state_that_came_from_disk(any_server: Client[Any]) -> None:
    async with new_book(any_server) as book:
        await works(book)
        await good(book, "x = [1]\ndef f(): return display('shown')")
        saved = await book.ask("save_state", name="all")
        assert not saved.is_error and "Not saved" not in text(saved), text(saved)
        await book.ask("reset")
        restored = await book.ask("restore_state", name="all")
        assert not restored.is_error, text(restored)
        assert await book.value("x") == [1]
        assert "'shown'" in text(await book.ask("add_cell", code="f()"))
        await works(book)
        await widgets_work(book)


async def test_all_works_in_a_branch_and_in_its_original(book: Book) -> None:
    await works(book)
    branched = await book.ask("branch_notebook", name=f"{book.name}-branch")
    assert not branched.is_error, text(branched)
    branch = Book(client=book.client, name=f"{book.name}-branch")
    await works(branch)
    await works(book)
    await branch.ask("reset")


# Snapshots of kernels whose libraries do as they please in a fork

CLOSES = """
import os, tempfile
files = [tempfile.TemporaryFile() for _ in range(20)]
for file in files:
    os.register_at_fork(after_in_child=file.close)
x = {'kept': [1, 2]}
"""


async def test_files_that_are_closed_in_every_fork_do_not_spoil_the_snapshot(book: Book) -> None:
    await good(book, CLOSES)
    figure = await good(
        book, "import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1)).add_axes((0, 0, 1, 1))\nNone"
    )
    assert [each["type"] for each in figure.structured_content["outputs"]] == ["image"]
    for name in ("one", "two"):
        saved = await book.ask("save_state", name=name)
        assert not saved.is_error, text(saved)
    await book.ask("reset")
    restored = await book.ask("restore_state", name="two")
    assert not restored.is_error, text(restored)
    assert await book.value("x") == {"kept": [1, 2]}


async def test_files_that_are_opened_in_every_fork_do_not_spoil_the_snapshot(book: Book) -> None:
    await good(
        book,
        "import os\nheld = []\nx = 5\n"
        "os.register_at_fork(after_in_child=lambda: held.extend(open('/dev/zero', 'rb') for _ in range(30)))",
    )
    saved = await book.ask("save_state", name="one")
    assert not saved.is_error, text(saved)
    await book.protected()
    await book.run("import os; os.kill(os.getpid(), 9)")
    assert await book.value("x") == 5


async def test_after_plots_a_restart_and_a_sleep_all_is_back(tmp_path: Path) -> None:
    sleepy = {**QUICK, "preload": "IPython,matplotlib.pyplot", "hibernate_after": 0.5}
    async with stdio_client(tmp_path / "data", command=("-c", ROOMY), **QUICK) as client:
        book = Book(client=client, name="main")
        await call(client, "create_notebook", name="main")
        await good(book, "import matplotlib.pyplot as plt\nx = [1, 2]\nplt.plot(x)\nNone")
        saved = await book.ask("save_state", name="plotted")
        assert not saved.is_error, text(saved)
    async with stdio_client(tmp_path / "data", command=("-c", ROOMY), **sleepy) as client:
        book = Book(client=client, name="main")
        back = await good(book, "plt.plot(x)\nNone")
        assert "Restored from disk" in back.structured_content["notice"]
        assert [each["type"] for each in back.structured_content["outputs"]] == ["image"]
        await until(lambda: asleep(book), "it sleeps")
        assert await book.value("x") == [1, 2]
        await works(book)


# Cells that spoil what is theirs

SPOILS = [
    "import sys\nsys.displayhook = None",
    "import sys\nsys.displayhook = lambda value: 1/0",
    "import sys\ndel sys.displayhook",
    "import builtins\nbuiltins.get_ipython = None",
    "import builtins\ndel builtins.get_ipython\nif hasattr(builtins, 'display'): del builtins.display",
    "del In, Out, get_ipython",
    "In = Out = _ = __ = ___ = 5",
    "Out.clear()\nIn.clear()",
    "globals().clear()",
    "import builtins\nbuiltins._ = str",
    "get_ipython().user_ns = {}",
    "import sys, io\nsys.stdout = io.StringIO()\nsys.stderr = None",
]


async def test_a_cell_that_spoils_the_shell_harms_itself_only(book: Book) -> None:
    for code in SPOILS:
        await book.run(code)
        printed = await book.run("print('printed')")
        assert printed.structured_content["stdout"] == "printed\n", code
        assert (await book.run("20 + 1")).structured_content["return_value"] == 21, code
        assert await said(book, "!echo command") == "command\n", code
        failed = await book.run("1 / 0")
        assert failed.structured_content["error_type"] == "ZeroDivisionError", code
        shown = await book.ask("add_cell", code="from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))")
        assert [each["text"] for each in shown.structured_content["outputs"]] == ["x"], code


async def test_deleted_names_of_the_kernel_are_back_in_the_next_cell(book: Book) -> None:
    for code in ("del In, Out, get_ipython", "globals().clear()"):
        await good(book, "1 + 1")
        await book.run(code)
        assert await book.value("type(In) is list, type(Out) is dict, get_ipython() is not None") == [True] * 3
    await good(book, "Out = 'mine'")
    assert await book.value("Out") == "mine"


async def test_another_ipython_among_the_modules_harms_no_plain_cell(book: Book) -> None:
    for value in ("None", "type(sys)('IPython')", "5"):
        await book.run(f"import sys\nkept = 1\nsys.modules['IPython'] = {value}")
        assert await book.value("kept + 20") == 21
        assert (await book.run("1 / 0")).structured_content["error_type"] == "ZeroDivisionError"
    assert "kept" in (await book.ask("state")).structured_content["variables"]


async def test_callbacks_that_raise_do_not_cost_the_cell(book: Book) -> None:
    code = """
def wrong(*arguments): raise ValueError('in a callback')
for event in ('pre_execute', 'pre_run_cell', 'post_execute', 'post_run_cell'):
    get_ipython().events.register(event, wrong)
"""
    await book.run(code)
    done = await book.run("print('printed')\n20 + 1")
    assert done.structured_content["return_value"] == 21 and "printed" in done.structured_content["stdout"]
    assert "in a callback" in text(done)
    assert (await book.run("20 + 2")).structured_content["return_value"] == 22


async def test_a_transformer_that_raises_is_dropped_or_said_and_can_be_taken_back(book: Book) -> None:
    code = """
import ast
class Wrong(ast.NodeTransformer):
    def visit_Constant(self, node): raise ValueError('in a transformer')
wrong = Wrong()
get_ipython().ast_transformers.append(wrong)
"""
    await book.run(code)
    await book.run("x = 1")
    assert await book.value("20 + 1") == 21


async def test_an_input_transformer_that_raises_can_be_taken_back(book: Book) -> None:
    await book.run("def wrong(lines): raise ValueError('wrong')\nget_ipython().input_transformers_post.append(wrong)")
    failed = await book.run("1")
    assert failed.is_error and failed.structured_content["error_type"] == "ValueError", text(failed)
    await book.ask("reset")
    assert await book.value("20 + 1") == 21


async def test_an_input_transformer_that_returns_garbage_is_an_error_of_the_cell(book: Book) -> None:
    await book.run("get_ipython().input_transformers_post.append(lambda lines: None)")
    failed = await book.run("1")
    assert failed.is_error and failed.structured_content["state"] == "ERROR", text(failed)


FORMATS = """
class Thing: pass
def formatter(mime): return get_ipython().display_formatter.formatters[mime]
"""


GARBAGE = (
    "1/0",
    "5",
    "None",
    "b'\\xff'",
    "'\\ud800'",
    "object()",
    "['a']",
    "('text', 'no metadata')",
    "raise_()",
    "{}",
)


async def test_a_formatter_that_raises_or_returns_garbage_costs_its_cell_only(book: Book) -> None:
    await good(book, f"{FORMATS}\ndef raise_(): raise KeyboardInterrupt\n%xmode Minimal")
    for mime in ("text/plain", "image/png", "application/json"):
        await good(book, f"class Thing: pass\nformatter({mime!r}).for_type(Thing, lambda *given: give())")
        for each in GARBAGE:
            await good(book, f"give = lambda: {each}")
            for code in ("Thing()", "display(Thing())"):
                done = await book.run(code)
                assert done.structured_content["state"] in ("SUCCESS", "ERROR", "INTERRUPTED"), (mime, each, text(done))
                assert len(text(done)) < 30_000
    await good(book, "class Thing: pass\nformatter('text/html').for_type(Thing, lambda value: 1/0)")
    assert "<__main__.Thing" in text(await book.run("Thing()"))  # by its other form
    assert await book.value("20 + 1") == 21


WRONG = [
    "def _repr_html_(self): raise ValueError('in html')",
    "def _repr_html_(self): return 5",
    "def _repr_html_(self): return b'bytes'",
    "def _repr_html_(self): return None",
    "def _repr_png_(self): return 'not base64'",
    "def _repr_mimebundle_(self, **k): return {5: object(), 'text/x': object(), None: None}",
    "def _repr_mimebundle_(self, **k): return 'garbage'",
    "def _repr_mimebundle_(self, **k): raise ValueError('in bundle')",
    "def _ipython_display_(self): raise ValueError('in display')",
    "def _repr_json_(self): return {'deep': float('nan'), 'set': {1}}",
    "def __getattr__(self, name): raise RuntimeError(name)",
    "def __getattr__(self, name): return lambda *a, **k: self",
    "def __repr__(self): raise ValueError('in repr')",
    "def __repr__(self): return 5",
    "def __repr__(self): return repr(self)",
    "def __repr__(self): return '\\ud800'",
    "def __repr__(self): import sys; sys.exit(3)",
    "__class__ = property(lambda self: 1/0)",
]


async def test_an_object_that_shows_itself_wrong_costs_its_cell_only(book: Book) -> None:
    await good(book, "kept = 1\nget_ipython().run_line_magic('xmode', 'Minimal')")  # long ones take long
    for body in WRONG:
        await good(book, f"class Thing:\n    {body}\nthing = Thing()")
        for code in ("thing", "display(thing, [thing])"):
            done = await book.run(code)
            assert done.structured_content["state"] in ("SUCCESS", "ERROR"), (body, text(done))
            assert len(text(done)) < 30_000, body
        assert await book.value("kept") == 1
        assert "thing" in (await book.ask("state")).structured_content["variables"], body


async def test_a_repr_that_hangs_is_interrupted(book: Book) -> None:
    await good(book, "kept = 1\nclass Slow:\n    def __repr__(self):\n        while True: pass")
    done = await book.run("Slow()", timeout=1)
    assert done.structured_content["state"] == "TIMEOUT", text(done)
    assert await book.value("kept") == 1
    await good(book, f"{FORMATS}\nimport time\nformatter('text/html').for_type(Thing, lambda value: time.sleep(60))")
    with anyio.fail_after(DEADLINE):
        late = await book.run("Thing()", timeout=1)
    assert late.structured_content["state"] in ("TIMEOUT", "SUCCESS"), text(late)
    assert await book.value("kept") == 1


async def test_a_value_nested_deeper_than_python_counts_is_shown(book: Book) -> None:
    await good(book, "deep = []\nfor n in range(100_000): deep = [deep]\nround_ = []\nround_.append(round_)")
    for code in ("deep", "display(deep)", "round_"):
        done = await book.run(code)
        assert done.structured_content["state"] in ("SUCCESS", "ERROR"), text(done)
        assert len(text(done)) < 30_000
    assert await book.value("20 + 1") == 21


async def test_a_repr_of_200_megabytes_does_not_end_the_server_and_is_capped(book: Book) -> None:
    await good(book, "kept = 1\nclass Long:\n    def __repr__(self): return 'x' * 200_000_000")
    done = await book.run("Long()", timeout=60)
    assert len(text(done)) < 30_000
    assert await book.value("kept") == 1
    kept = await book.client.read_resource(f"notebook://{book.name}/cell/1/output/0")
    assert sum(len(each.text) for each in kept) < 70_000_000


async def test_a_cell_that_ends_the_kernel_while_it_shows_is_undone(book: Book) -> None:
    await good(
        book, "kept = 1\nclass Deadly:\n    def _repr_html_(self):\n        import os\n        os.kill(os.getpid(), 9)"
    )
    await book.protected()
    done = await book.run("kept = 2\nDeadly()")
    assert done.structured_content["state"] == "CRASHED"
    assert await book.value("kept") == 1


async def test_a_kernel_that_dies_in_a_batch_ends_the_batch(book: Book) -> None:
    for code in ("x = 1", "import os\nos.kill(os.getpid(), 9)", "x = 3"):
        await book.ask("add_cell", code=code, execute=False)
    done = await book.ask("execute_cell", cell_id_or_number="all")
    assert done.is_error and done.structured_content["state"] == "CRASHED" and "1 more did not run" in text(done)
    assert await book.value("x") == 1
