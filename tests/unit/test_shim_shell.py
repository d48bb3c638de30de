"""The shell and the magics of the shim, cell by cell."""

from __future__ import annotations

import ast
import asyncio
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.magics.execution import _format_time

from quire.worker.shim import running
from quire.worker.shim.errors import UsageError
from quire.worker.shim.settings import inline
from quire.worker.shim.shell import Shell
from quire.worker.shim.times import spoken

Captured = pytest.CaptureFixture[str]


class Kernel:
    """Runs cells as the executor does, with what they show kept."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"In": [""], "Out": {}}
        self.shown: list[Any] = []
        self.shell = Shell(self.names, lambda *given: self.shown.append(given[0]), self.shown.append)
        self.names["get_ipython"] = lambda: self.shell

    def __call__(self, code: str) -> Any:
        tree, name = running.parsed(self.shell.transform(code), "of a test")
        codes = running.compiled(self.shell.transform_ast(tree), name)
        values = list(running.run(codes, self.names, self.shell.wait_for))
        return values[-1] if values else None


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Kernel()


def out(capsys: Captured) -> str:
    return capsys.readouterr().out


# Time


@pytest.mark.parametrize(
    "seconds", [0, 3e-9, 4.5678e-7, 1e-6, 0.00123, 0.9999, 1, 59.99, 60, 61.5, 3600, 3725, 90061, 172800]
)
def test_time_is_said_as_ipython_says_it(seconds: float) -> None:
    assert spoken(seconds).replace("μ", "µ") == _format_time(seconds).replace("μ", "µ")


def test_time_gives_the_value_and_says_how_long(kernel: Kernel, capsys: Captured) -> None:
    assert kernel("x = %time 40 + 2\nx") == 42
    assert kernel("%%time\ny = 5\ny * 2") == 10
    assert re.fullmatch(r"(CPU times: user .*, sys: .*, total: .*\nWall time: .*\n){2}", out(capsys))
    assert kernel.names["y"] == 5


def test_time_of_code_that_fails_raises(kernel: Kernel) -> None:
    with pytest.raises(ZeroDivisionError):
        kernel("%time 1/0")


def test_time_inside_a_function_sees_its_names(kernel: Kernel, capsys: Captured) -> None:
    assert kernel("def f():\n    inner = 7\n    v = %time inner + 1\n    !echo {inner}\n    return v\nf()") == 8
    assert out(capsys).endswith("7\n")


def test_timeit(kernel: Kernel, capsys: Captured) -> None:
    kernel("x = 3\n%timeit -n 10 -r 3 x + 1")
    kernel("%%timeit -n1 -r1 z = x\nz + 1\nz + 2")
    said = out(capsys)
    assert re.search(r"per loop \(mean ± std\. dev\. of 3 runs, 10 loops each\)", said)
    assert re.search(r"per loop \(mean ± std\. dev\. of 1 run, 1 loop each\)", said)
    result = kernel("r = %timeit -q -o -n 5 -r 2 x\nr")
    assert (result.loops, result.repeat, len(result.timings)) == (5, 2, 2)
    assert "z" not in kernel.names and out(capsys) == ""


def test_prun_says_where_time_goes(kernel: Kernel, capsys: Captured) -> None:
    kernel("def busy():\n    return sum(range(10))\n%prun -s cumulative busy()")
    assert "busy" in out(capsys)


def test_a_cell_may_await_inside_a_magic(kernel: Kernel, capsys: Captured) -> None:
    assert kernel("%%time\nimport asyncio\nawait asyncio.sleep(0, 5)") == 5

    async def inside() -> Any:
        return kernel("%time await asyncio.sleep(0, 6)")

    assert asyncio.run(inside()) == 6


# Commands and programs


def test_commands_and_their_exit_code(kernel: Kernel, capsys: Captured) -> None:
    kernel("x = 5\n!echo {x} $x")
    assert (out(capsys), kernel.names["_exit_code"]) == ("5 5\n", 0)
    kernel("!exit 4")
    assert kernel.names["_exit_code"] == 4
    assert kernel("lines = !echo a; echo b\nlines") == ["a", "b"]
    assert kernel("!!echo c") == ["c"]
    assert kernel("%sx echo d") == ["d"]


def test_programs_get_the_cell(kernel: Kernel, capsys: Captured) -> None:
    kernel("%%bash\necho $0; echo err >&2")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("bash\n", "err\n")
    kernel("%%sh --out o --err e\necho a; echo b >&2")
    assert (kernel.names["o"], kernel.names["e"]) == ("a\n", "b\n")
    kernel("%%python\nimport sys\nprint(sys.executable)")
    assert out(capsys).strip() == sys.executable
    kernel("%%script cat -n\nline")
    assert "1\tline" in out(capsys)
    with pytest.raises(subprocess.CalledProcessError):
        kernel("%%bash\nexit 3")
    kernel("%%bash --no-raise-error\nexit 3")


# Folders and environment


def test_folders(kernel: Kernel, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "a b").mkdir()
    kernel("%cd 'a b'")
    assert out(capsys).strip() == str(tmp_path / "a b") == kernel("%pwd")
    kernel("%cd -")
    kernel("%cd -q a b")
    assert os.getcwd() == str(tmp_path / "a b")
    kernel("%pushd ..\n%popd")
    assert os.getcwd() == str(tmp_path / "a b")
    capsys.readouterr()
    kernel("%cd nowhere")
    assert "No such file" in out(capsys)
    kernel("%mkdir made\n%ls")
    assert out(capsys) == "made/\n"


def test_environment(kernel: Kernel, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_TEST", "before")
    assert kernel("%env SHIM_TEST") == "before"
    kernel("word = 'now'\n%env SHIM_TEST=is {word}")
    assert out(capsys) == "env: SHIM_TEST=is now\n" and os.environ["SHIM_TEST"] == "is now"
    kernel("%set_env SHIM_TEST again")
    assert kernel("!echo $SHIM_TEST") is None and out(capsys).endswith("again\n")
    assert kernel("%env")["SHIM_TEST"] == "again"
    with pytest.raises(UsageError, match="SHIM_NONE"):
        kernel("%env SHIM_NONE")


# Files


def test_files_are_written_run_and_read(kernel: Kernel, tmp_path: Path, capsys: Captured) -> None:
    kernel("%%writefile s.py\nimport sys\nname = __name__\nargs = sys.argv\ndef f():\n    return args\n")
    kernel("%%writefile -a s.py\nprint('ran')")
    assert out(capsys) == "Writing s.py\nAppending to s.py\n"
    kernel("%run s.py one 'two words'")
    assert (kernel.names["name"], kernel("f()")) == ("__main__", ["s.py", "one", "two words"])
    kernel("%run -n s")
    assert kernel.names["name"] == "s"
    kernel("%%writefile t.py\nseen = word\n")
    kernel("word = 'shared'\n%run -i t.py")
    assert kernel.names["seen"] == "shared"
    capsys.readouterr()
    kernel("%pycat t.py")
    kernel("%load t.py")
    assert out(capsys) == "seen = word\n# %load t.py\nseen = word\n"
    (tmp_path / "fails.py").write_text("1/0")
    with pytest.raises(ZeroDivisionError):
        kernel("%run fails.py")
    (tmp_path / "ends.py").write_text("import sys; x = 3; sys.exit(0)")
    kernel("%run ends.py")
    with pytest.raises(UsageError, match="absent"):
        kernel("%run absent.py")


# Names


def test_who(kernel: Kernel, capsys: Captured) -> None:
    kernel("a, b, _hidden = 1, 'text', 3")
    assert kernel("%who_ls") == ["a", "b"] and kernel("%who_ls str") == ["b"]
    kernel("%who")
    kernel("%whos")
    assert out(capsys).splitlines() == [
        "a\t b\t ",
        "Variable   Type    Data/Info",
        "----------------------------",
        "a          int     1",
        "b          str     text",
    ]
    kernel("%reset_selective -f ^a")
    assert kernel("%who_ls") == ["b"]
    kernel("%reset -f\n%who")
    assert out(capsys) == "Interactive namespace is empty.\n" and "get_ipython" in kernel.names


def test_history(kernel: Kernel, capsys: Captured) -> None:
    kernel.names["In"] += ["x = 1", "y = 2"]
    kernel("%history")
    kernel("%history -n 2")
    assert out(capsys) == "x = 1\ny = 2\n   2: y = 2\n"
    kernel.names["In"] += ["%history -l 1"]
    kernel("%history -l 1")
    kernel("%history -l")
    assert out(capsys) == "y = 2\nx = 1\ny = 2\n"


def test_precision_and_pprint(kernel: Kernel, capsys: Captured) -> None:
    assert kernel("%precision 3") == "%.3f"
    assert kernel.shell.format([3.14159])[0] == {"text/plain": "[3.142]"} and not kernel.shell.is_plain(float)
    assert kernel("%precision") == "%r"
    assert kernel.shell.format(3.14159)[0] == {"text/plain": "3.14159"} and kernel.shell.is_plain(float)
    kernel("%pprint")
    assert kernel.shell.format({3, 1})[0] == {"text/plain": "{1, 3}"} and "OFF" in out(capsys)


def test_help(kernel: Kernel, capsys: Captured) -> None:
    kernel('def f(x, y=1):\n    """Says what."""\n    return x')
    kernel("f?")
    said = out(capsys)
    assert "f(x, y=1)" in said and "Says what." in said and "return x" not in said
    kernel("f??")
    assert "return x" in out(capsys)
    kernel("%time?\nstr.isal*?\nabsent_thing?")
    said = out(capsys)
    assert "how long" in said and "str.isalnum" in said and "Object `absent_thing` not found." in said


# Showing


def test_cells_are_shown_as_what_they_are(kernel: Kernel) -> None:
    for magic, mime in (
        *(("html", "text/html"), ("HTML", "text/html"), ("markdown", "text/markdown"), ("latex", "text/latex")),
        *(("javascript", "application/javascript"), ("js", "application/javascript")),
    ):
        kernel(f"%%{magic}\nsome text")
        assert kernel.shown.pop()[mime] == "some text\n"
    kernel("%%svg\n<svg><g/></svg>")
    assert kernel.shown.pop()["image/svg+xml"] == "<svg><g/></svg>"


def test_capture(kernel: Kernel, capsys: Captured) -> None:
    kernel("%%capture kept\nprint('o')\nimport sys\nprint('e', file=sys.stderr)\n!echo command\n[1, 2]")
    kept = kernel.names["kept"]
    assert (kept.stdout, kept.stderr) == ("o\ncommand\n", "e\n")
    assert [each.data for each in kept.outputs] == [{"text/plain": "[1, 2]"}] and kernel.shown == []
    assert out(capsys) == ""
    kept.show()
    assert capsys.readouterr().out == "o\ncommand\n" and kernel.shown == [{"text/plain": "[1, 2]"}]
    kernel("%%capture named --no-stdout\nprint('seen')")
    assert out(capsys) == "seen\n" and kernel.names["named"].stdout == ""
    with pytest.raises(ZeroDivisionError):
        kernel("%%capture\n1/0")
    kernel("%%capture inner\n%%bash\necho nested")
    assert kernel.names["inner"].stdout == "nested\n"


def test_figures_are_set_up(kernel: Kernel, capsys: Captured) -> None:
    before = inline.formats, inline.print_options
    try:
        kernel("%matplotlib inline")
        assert capsys.readouterr() == ("", "")
        kernel("%matplotlib qt")
        assert "inline" in capsys.readouterr().err
        kernel("%config InlineBackend.figure_format = 'retina'")
        assert inline.formats == ("retina",)
        kernel("%config InlineBackend.figure_formats = ['svg', 'png']")
        kernel("%config InlineBackend.print_figure_kwargs={'dpi': 3}")
        assert (inline.formats, inline.print_options) == (("png", "svg"), {"dpi": 3})
        with pytest.raises(ValueError, match="bmp"):
            kernel("%config InlineBackend.figure_format = 'bmp'")
    finally:
        inline.formats, inline.print_options = before


# What is not there


def test_an_unknown_magic_names_the_nearest_and_what_to_do(kernel: Kernel) -> None:
    with pytest.raises(UsageError, match=r"no magic %tiem here\. The nearest is %time\..*%pip install ipython"):
        kernel("%tiem 5")
    with pytest.raises(UsageError, match="no line magic %bash, but a cell magic %%bash"):
        kernel("%bash x")
    assert UsageError.__name__ == "UsageError"


@pytest.mark.parametrize(
    "code", ["%debug", "%pdb on", "%macro a 1", "%alias a b", "%conda install x", "%load_ext rmagic"]
)
def test_what_cannot_be_done_says_so(kernel: Kernel, code: str) -> None:
    with pytest.raises(UsageError):
        kernel(code)


def test_what_changes_nothing_is_accepted(kernel: Kernel, capsys: Captured) -> None:
    kernel("%load_ext autoreload\n%autoreload 2\n%xmode Verbose\n%autosave 60\n%colors nocolor")
    assert "%pip install ipython" in capsys.readouterr().err


def test_a_magic_alone_on_its_line_needs_no_mark(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel("pwd") == str(tmp_path)
    assert kernel.shell.transform("cd -q /").startswith("get_ipython().run_line_magic('cd'")
    kernel("pwd = 5")
    assert kernel("pwd") == 5
    for plain in ("ls = 3", "ls, x = 1, 2", "print (1)", "import os", "time.sleep(1)", "ls\nls"):
        assert kernel.shell.transform(plain) == plain


# What libraries ask


def test_run_cell_tells_what_came_of_it(kernel: Kernel) -> None:
    told: list[str] = []
    kernel.shell.report = lambda error, text: told.append(text)
    done = kernel.shell.run_cell("q = 4\nq + 1")
    assert (done.success, done.result, kernel.names["q"], kernel.shown) == (True, 5, 4, [{"text/plain": "5"}])
    failed = kernel.shell.run_cell("1/0")
    assert not failed.success and isinstance(failed.error_in_exec, ZeroDivisionError)
    assert isinstance(kernel.shell.run_cell("x = = 1").error_before_exec, SyntaxError)
    assert "1/0" in told[0] and "shim/" not in told[0] and "SyntaxError" in told[1]


@pytest.mark.parametrize(
    ("mode", "shown"), [("last_expr", ["2"]), ("all", ["1", "2"]), ("none", []), ("last_expr_or_assign", ["2"])]
)
def test_which_values_are_shown(kernel: Kernel, mode: str, shown: list[str]) -> None:
    kernel.shell.ast_node_interactivity = mode
    kernel.shell.run_cell("1\n2")
    assert [each["text/plain"] for each in kernel.shown] == shown
    kernel.shell.run_cell("a = 3")
    assert len(kernel.shown) - len(shown) == (mode == "last_expr_or_assign")


def test_events(kernel: Kernel, capsys: Captured) -> None:
    seen: list[Any] = []
    shell = kernel.shell
    callbacks: list[tuple[str, Callable[..., Any]]] = [
        ("pre_run_cell", lambda info: seen.append(info.raw_cell)),
        ("post_execute", lambda: 1 / 0),
        ("post_run_cell", lambda result: seen.append(result.success)),
    ]
    for event, function in callbacks:
        shell.events.register(event, function)
        shell.events.register(event, function)
    shell.run_cell("1")
    assert seen == ["1", True] and "ZeroDivisionError" in capsys.readouterr().err
    for event, function in callbacks:
        shell.events.unregister(event, function)
    shell.run_cell("1")
    assert len(seen) == 2
    with pytest.raises(KeyError):
        shell.events.register("no such event", print)


def test_transformers_have_their_say(kernel: Kernel) -> None:
    shell = kernel.shell
    assert not shell.transforms_all()
    shell.input_transformers_cleanup.append(lambda lines: [line.replace("PLEASE ", "") for line in lines])
    shell.input_transformers_post.append(lambda lines: [line.replace("41", "42") for line in lines])

    class Doubles(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.copy_location(ast.Constant(node.value * 2), node) if isinstance(node.value, int) else node

    class Fails(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            raise RuntimeError("no")

    shell.ast_transformers += [Doubles(), Fails()]
    assert shell.transforms_all() and kernel("PLEASE 41") == 84
    assert len(shell.ast_transformers) == 1


def test_extensions_are_loaded_and_unloaded(kernel: Kernel, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "shim_extension.py").write_text(
        "def load_ipython_extension(shell):\n"
        "    shell.register_magic_function(lambda line: line * 2, 'line', 'twice')\n"
        "def unload_ipython_extension(shell):\n    pass\n"
    )
    sys.path.insert(0, str(tmp_path))
    kernel("%load_ext shim_extension")
    assert kernel("%twice ab") == "abab"
    kernel("%load_ext shim_extension")
    assert "already loaded" in out(capsys)
    kernel("%unload_ext shim_extension")
    kernel("%load_ext json")
    assert "not an IPython extension" in out(capsys)


def test_errors_can_be_reported_by_others(kernel: Kernel) -> None:
    seen: list[Any] = []
    kernel.shell.set_custom_exc((ZeroDivisionError,), lambda shell, kind, error, tb, tb_offset=None: seen.append(kind))
    kernel.shell.run_cell("1/0")
    assert seen == [ZeroDivisionError]
    kernel.shell.set_custom_exc((), None)
    assert kernel.shell.custom_exceptions == ()


def test_the_rest_that_is_asked_of_a_shell(kernel: Kernel) -> None:
    shell = kernel.shell
    shell.push({"pushed": 1})
    local = 5  # noqa: F841 - pushed by name
    shell.push("local")
    assert shell.ev("pushed + local") == 6
    shell.ex("made = 7")
    assert (kernel.names["made"], shell.user_global_ns is shell.user_ns) == (7, True)
    assert shell.getoutput("echo $pushed", split=False) == "1\n"
    assert str(type(shell)) == "<class 'ipykernel.zmqshell.ZMQInteractiveShell'>"
    assert "IPKernelApp" in shell.config and shell.config.SomeSection.value is None
    assert shell.kernel._parent_header == shell.kernel.get_parent()
    assert shell.find_cell_magic("time") is not None and shell.find_magic("nope") is None
    assert pickle.loads(pickle.dumps(shell)) is shell
    shell.enable_gui("inline")
    with pytest.raises(UsageError):
        shell.enable_gui("qt")
    shell.set_next_input("x")
    shell.execution_count = 4
    assert shell.has_trait("kernel") and not shell.has_trait("nope") and "config" in shell.traits()
