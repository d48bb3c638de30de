"""Files run, read and written by magics."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
import types
from typing import Any

from quire.worker.shim import options
from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import cell, line
from quire.worker.shim.times import spoken

_kept: list[types.ModuleType] = []  # functions of a script look their names up in its module


@line("run")
def run(shell: Any, line: str) -> None:
    """Run a script: `%run [-i] [-n] [-t] [-m] file.py arguments`. Its names are the notebook's afterwards."""
    flags, rest = options.leading(line, flags="intedpG", valued="lsT")
    words = options.words(rest)
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words:
        raise UsageError("%run needs a file: %run script.py")
    begun = time.perf_counter()
    names = _module(shell, words) if module else _script(shell, words, flags)
    shell.user_ns.update({name: value for name, value in names.items() if not _is_module_name(name)})
    if "t" in flags:
        print(f"\nWall time: {spoken(time.perf_counter() - begun)}")


def _is_module_name(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _module(shell: Any, words: list[str]) -> dict[str, Any]:
    argv, sys.argv = sys.argv, words
    try:
        return runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return _ended(end)
    finally:
        sys.argv = argv


def _script(shell: Any, words: list[str], flags: dict[str, str]) -> dict[str, Any]:
    path = _found(words[0])
    if path.endswith(".ipynb"):
        _notebook(shell, path)
        return {}
    with open(path, "rb") as file:
        code = compile(file.read(), os.path.abspath(path), "exec", dont_inherit=True)
    own = types.ModuleType(os.path.splitext(os.path.basename(path))[0] if "n" in flags else "__main__")
    own.__dict__.update(__file__=path, __builtins__=__builtins__)
    names = shell.user_ns if "i" in flags else own.__dict__
    before, argv, folder = sys.modules.get("__main__"), sys.argv, os.path.dirname(os.path.abspath(path))
    sys.argv = [path, *words[1:]]
    sys.path.insert(0, folder)
    _kept.append(own)
    names["__file__"] = path
    try:
        if "i" not in flags and "n" not in flags:
            sys.modules["__main__"] = own
        exec(code, names)
    except SystemExit as end:
        _ended(end)
    finally:
        sys.argv = argv
        shell.user_ns.pop("__file__", None)
        if folder in sys.path:
            sys.path.remove(folder)
        if before is not None:
            sys.modules["__main__"] = before
    return own.__dict__


def _ended(end: SystemExit) -> dict[str, Any]:
    if end.code:
        sys.stderr.write(f"SystemExit: {end.code}\n")
    return {}


def _found(name: str) -> str:
    path = os.path.expanduser(name)
    for each in (path, f"{path}.py"):
        if os.path.isfile(each):
            return each
    raise UsageError(f"There is no file {name}.")


def _notebook(shell: Any, path: str) -> None:
    with open(path, encoding="utf-8") as file:
        cells = json.load(file).get("cells", [])
    for each in cells:
        if each.get("cell_type") == "code":
            shell.run_cell("".join(each.get("source", ""))).raise_error()


@line("load", "loadpy")
def load(shell: Any, line: str) -> None:
    """The text of a file, to be put into a cell."""
    _, rest = options.leading(line, flags="yn", valued="rs")
    with open(_found(rest.strip("'\"")), encoding="utf-8") as file:
        print(f"# %load {rest}\n{file.read()}", end="")


@line("pycat")
def pycat(shell: Any, line: str) -> None:
    """The text of a file."""
    with open(_found(line.strip().strip("'\"")), encoding="utf-8") as file:
        print(file.read(), end="")


@cell("writefile", "file")
def writefile(shell: Any, line: str, cell: str) -> None:
    """Write the cell to a file; `-a` appends."""
    flags, rest = options.leading(line, flags="a", long=("append",))
    appends = bool(flags)
    path = os.path.expanduser(rest.strip().strip("'\""))
    if not path:
        raise UsageError("%%writefile needs a file: %%writefile notes.txt")
    print(f"{'Appending to' if appends else 'Overwriting' if os.path.exists(path) else 'Writing'} {path}")
    with open(path, "a" if appends else "w", encoding="utf-8") as file:
        file.write(cell)
