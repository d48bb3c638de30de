"""`import IPython` where it is not installed: hidden from a child process, in which the shim is served."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src"

HIDING = f"""
import builtins, importlib.machinery, json, sys, warnings
warnings.simplefilter("ignore")

class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = ("IPython", "matplotlib_inline", "ipykernel", "ipywidgets", "comm")
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)

sys.meta_path[:] = [Hiding if each is importlib.machinery.PathFinder else each for each in sys.meta_path]
sys.path.insert(0, {str(SOURCE)!r})
from quire.worker.shim import finder
finder.install()
shown, shells = [], []

def get_ipython():
    if not shells:
        from quire.worker.shim.shell import Shell
        shells.append(Shell(globals(), lambda *given: shown.append(given), lambda wait: shown.append(("clear", wait))))
    return shells[0]

builtins.get_ipython = get_ipython
answer = None
"""


def answer(code: str) -> Any:
    """What the code leaves in `answer`, in a process that has no IPython."""
    script = HIDING + textwrap.dedent(code) + "\nprint(); print(json.dumps(answer, default=repr))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_real_ipython_wins() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
        "from quire.worker.shim import finder; finder.install(); assert finder.real()\n"
        "import IPython.terminal.embed; print(IPython.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "quire" not in done.stdout, done.stderr


def test_what_people_import_is_there() -> None:
    found = answer("""
        import IPython, IPython.display
        from IPython import get_ipython as get
        from IPython.display import HTML, Image, clear_output, display, set_matplotlib_formats
        from IPython.core.display import HTML as Same
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.core.getipython import get_ipython as again
        from IPython.core.error import UsageError
        from IPython.utils.capture import capture_output
        from IPython.lib.pretty import pretty
        from IPython.utils.text import SList
        with capture_output() as captured:
            print("printed")
            display(HTML("<b>"))
        InteractiveShell.ast_node_interactivity = "all"
        answer = [
            IPython.__version__, IPython.version_info[:2], get() is again() is get_ipython(), HTML is Same,
            isinstance(get(), InteractiveShell), str(type(get())), InteractiveShell.initialized(),
            get().ast_node_interactivity, captured.stdout, captured.outputs[0].data["text/html"], pretty([1, 2]),
            finder.real(), "IPKernelApp" in get().config, get().has_trait("kernel"), hasattr(get(), "Completer"),
            get().kernel.get_parent()["header"]["msg_type"],
        ]
    """)
    assert found == [
        "9.0.0+quire.shim", [9, 0], True, True, True, "<class 'ipykernel.zmqshell.ZMQInteractiveShell'>", True, "all",
        "printed\n", "<b>", "[1, 2]", False, True, True, False, "execute_request",
    ]  # fmt: skip


def test_what_is_not_there_says_what_to_do() -> None:
    found = answer("""
        try:
            import IPython.parallel
        except ModuleNotFoundError as error:
            answer = [error.name, str(error)]
    """)
    assert found[0] == "IPython.parallel" and "%pip install ipython" in found[1]


def test_magics_of_a_library() -> None:
    found = answer("""
        from IPython.core.magic import (
            Magics, cell_magic, line_cell_magic, line_magic, magics_class, needs_local_scope, register_cell_magic,
            register_line_cell_magic, register_line_magic,
        )

        @register_line_magic
        def shout(line):
            return line.upper()

        @register_cell_magic("renamed")
        @needs_local_scope
        def cell(line, cell, local_ns=None):
            return [line, cell, "shout" in local_ns]

        @register_line_cell_magic
        def either(line, cell=None):
            return [line, cell]

        @magics_class
        class Mine(Magics):
            def __init__(self, shell, data=3):
                super().__init__(shell)
                self.data = data

            @line_magic
            def one(self, line):
                return [self.shell is get_ipython(), line, self.data]

            @cell_magic("two")
            def another(self, line, cell):
                return cell

            @line_cell_magic
            def three(self, line, cell=None):
                options, rest = self.parse_options(line, "ab:", "long=")
                return [dict(options), rest, cell]

        shell = get_ipython()
        shell.register_magics(Mine)
        name = "filled in"
        answer = [
            shell.run_line_magic("shout", "a {name}"), shell.run_cell_magic("renamed", "l", "c"),
            shell.magic("%shout b"),
            shell.run_line_magic("either", "l"), shell.run_line_magic("one", "x"), shell.run_cell_magic("two", "", "c"),
            shell.run_line_magic("three", "-a -b 3 --long=4 rest of it"), shell.find_line_magic("nope"),
        ]
    """)
    assert found == [
        "A FILLED IN", ["l", "c", True], "B", ["l", None], [True, "x", 3], "c",
        [{"a": "", "b": "3", "long": "4"}, "rest of it", None], None,
    ]  # fmt: skip


def test_options_of_a_magic_said_by_decorators() -> None:
    found = answer("""
        from IPython.core.magic import Magics, line_cell_magic, magics_class
        from IPython.core.magic_arguments import argument, argument_group, magic_arguments, parse_argstring

        @magics_class
        class Mine(Magics):
            @line_cell_magic
            @magic_arguments()
            @argument("-n", "--number", type=int, default=1)
            @argument_group("more")
            @argument("--flag", action="store_true")
            @argument("rest", nargs="*")
            def chosen(self, line, cell=None):
                return vars(parse_argstring(self.chosen, line))

        shell = get_ipython()
        shell.register_magics(Mine)
        answer = [shell.run_line_magic("chosen", "-n 3 --flag a 'b c'")]
        try:
            shell.run_line_magic("chosen", "--nope")
        except Exception as error:
            answer.append(type(error).__name__)
    """)
    assert found == [{"number": 3, "flag": True, "rest": ["a", "b c"]}, "UsageError"]


def test_matplotlib_and_pandas_see_a_notebook() -> None:
    found = answer("""
        import IPython
        import matplotlib
        matplotlib.use("agg")
        import matplotlib.pyplot as plt
        from matplotlib_inline.backend_inline import set_matplotlib_formats
        from pandas.io.formats import console
        from quire.worker.shim.settings import inline
        plt.ion()
        set_matplotlib_formats("svg", "retina", dpi=50)
        answer = [len(get_ipython().events.callbacks["post_execute"]), console.in_ipython_frontend(), inline.formats,
                  inline.print_options]
    """)
    assert found == [1, True, ["svg", "retina"], {"bbox_inches": "tight", "dpi": 50}]


@pytest.mark.parametrize(
    ("code", "mime"),
    [
        ("import sympy; sympy.init_printing(); value = sympy.Symbol('x') ** 2", "text/latex"),
        ("import pandas; value = pandas.DataFrame({'a': [1]})", "text/html"),
        ("import polars; value = polars.DataFrame({'a': [1]})", "text/html"),
        ("import altair, pandas; value = altair.Chart(pandas.DataFrame({'a': [1]})).mark_point()", "text/html"),
        ("from sklearn.linear_model import LinearRegression; value = LinearRegression()", "text/html"),
    ],
)
def test_values_of_libraries_have_their_rich_form(code: str, mime: str) -> None:
    found = answer(f"{code}\nanswer = get_ipython().format(value)[0]")
    assert mime in found and "text/plain" in found


def test_plotly_and_bokeh_show_by_publishing() -> None:
    found = answer("""
        import plotly.graph_objects as go
        go.Figure(go.Scatter(x=[1], y=[2])).show()
        import bokeh.io, bokeh.plotting
        bokeh.io.output_notebook(hide_banner=True)
        figure = bokeh.plotting.figure()
        figure.scatter([1], [2])
        bokeh.plotting.show(figure)
        answer = [list(data) for data, *_ in shown]
    """)
    assert "application/vnd.plotly.v1+json" in found[0]
    assert any("application/vnd.bokehjs_exec.v0+json" in each for each in found)


def test_tqdm_counts() -> None:
    found = answer("""
        from tqdm.auto import tqdm
        answer = sum(tqdm(range(3), file=sys.stdout))
    """)
    assert found == 3
