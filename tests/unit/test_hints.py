"""The line after a traceback that names the next step."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from quire.worker.environment import distributions, packages
from quire.worker.execution.errors import raised_event
from quire.worker.execution.hints import hint


def failed(code: str, **names: Any) -> BaseException:
    """What the code raises."""
    try:
        exec(code, {"__name__": "__main__", **names})
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("totl", "Did you mean: 'total'?"),
        ("Total", "Did you mean: 'total'?"),
        ("pritn(1)", "Did you mean: 'print'?"),
        ("true", "Did you mean: 'True'?"),
        ("def work():\n    counter = 1\n    return countr\nwork()", "Did you mean: 'counter'?"),
        ("json.dumps(1)", "Did you forget: import json?"),
        ("times = 1\ntime.time()", "Did you mean: 'times'? Or did you forget: import time?"),
        ("Path('a')", "Did you forget: from pathlib import Path?"),
        ("[].appendd(1)", "Did you mean: 'append'?"),
        ("import math\nmath.sqroot(2)", "Did you mean: 'sqrt'?"),
        ("from math import sqroot", "Did you mean: 'sqrt'?"),
        ("class Box:\n    def open_it(self): pass\nBox().open_itt()", "Did you mean: 'open_it'?"),
        ("class Box:\n    def __init__(self): self.width = 1\nBox().widht", "Did you mean: 'width'?"),
        ("class Box:\n    @property\n    def __dict__(self): return {'width': 1}\nBox().widht", ""),
        ("class Box:\n    def __getattr__(self, name): raise AttributeError('sqrt')\nBox().sqroot", ""),
        ("class Box:\n    def __dir__(self): raise SystemExit\nBox().zzzz", ""),
        ("__file__", "A cell has no file of its own; os.getcwd() is the folder it runs in."),
        ("zzzzqqqq", ""),
        ("_totl", ""),
        ("__nam__", ""),
        ("raise NameError('total')", ""),
        ("raise NameError('odd', name='not a name')", ""),
        ("raise NameError('odd', name='totl')", "Did you mean: 'total'?"),
        ("def late():\n    print(total)\n    total = 1\nlate()", ""),
        ("x" * 5_000, ""),
        ("1 / 0", ""),
    ],
)
def test_name_error_suggests_the_nearest_name(code: str, says: str) -> None:
    assert hint(failed(code, total=1)) == says


def test_program_is_suggested_only_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert hint(failed("git - status")) == "To run the program: !git"
    assert hint(failed("qqqq - status")) == ""
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert hint(failed("git - status")) == ""


def test_kernel_names_are_not_suggested() -> None:
    assert hint(failed("_i2", _i1="a", _i3="b")) == ""


def test_alias_is_suggested_only_if_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seaborn", types.ModuleType("seaborn"))
    assert hint(failed("sns.lineplot()")) == "Did you forget: import seaborn as sns?"
    monkeypatch.setitem(sys.modules, "seaborn", None)  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert hint(failed("sns.lineplot()")) == ""


def test_hostile_namespace_gets_no_hint() -> None:
    class Odd(dict[Any, Any]):
        def __iter__(self) -> Any:
            raise RuntimeError("looked at")

    try:
        exec("totl", {"__name__": "__main__"}, Odd())
    except NameError as error:
        assert hint(error) == ""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import jsom", "Did you mean: 'json'?"),
        ("import email.mesage", "Did you mean: 'email.message'?"),
        ("import json.dekoder", "Did you mean: 'json.decoder'?"),
        ("import os.path.zzz", ""),
        ("import display", "display needs no import: every cell has it."),
        ("raise ModuleNotFoundError('No module named \\'cv2\\': build it', name='cv2')", ""),
        ("raise ModuleNotFoundError('cv2')", ""),
    ],
)
def test_missing_module_suggests_the_nearest_one(code: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.display", print, raising=False)
    assert hint(failed(code)) == says


INSTALL = "%pip install PACKAGE, whose name may be another than the module's."


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("quire2", f"Did you mean: 'quire'? If a package has 'quire2': {INSTALL}"),
        ("orjsonn", f"Did you mean: 'json'? If a package has 'orjsonn': {INSTALL}"),
        ("Quire", "Did you mean: 'quire'?"),
        ("qiure", "Did you mean: 'quire'?"),
        ("quiire", "Did you mean: 'quire'?"),
        ("qure", "Did you mean: 'quire'?"),
    ],
)
def test_missing_module_without_a_typo_suggests_installing(
    module: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "unreachable_hosts", [])
    monkeypatch.setattr("quire.worker.environment.pip._has_installer", lambda: True)
    assert hint(failed(f"import {module}")) == says


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("table.prise", "Did you mean: 'price'?"),
        ("table.prise()", "Did you mean: 'price'?"),
        ("table.loc[0].prise", "Did you mean: 'price'?"),
        ("class Mine(type(table)): pass\nMine(table).prise", "Did you mean: 'price'?"),
        ("table.desribe()", "Did you mean: 'describe'?"),
        ("table.unit_cots", ""),
    ],
)
def test_column_is_suggested_before_a_method(code: str, says: str) -> None:
    pandas = pytest.importorskip("pandas")
    assert hint(failed(code, table=pandas.DataFrame({"price": [1], "unit cost": [2], 3: [3]}))) == says


@pytest.mark.parametrize(
    ("module", "not_granted", "installer", "says"),
    [
        ("MySQLdb", [], True, "To install it: %pip install mysqlclient"),
        ("MySQLdb.cursors", [], True, "To install it: %pip install mysqlclient"),
        ("quire_knows_no_such", [], True, "If a package has it: %pip install PACKAGE"),
        (
            "MySQLdb",
            ["pypi.org"],
            True,
            "It is in the package mysqlclient. %pip install needs pypi.org, which this notebook is not granted "
            "(setting sandbox.network).",
        ),
        ("MySQLdb", [], False, "It is in the package mysqlclient. This Python has neither uv nor pip"),
    ],
)
def test_missing_module_names_its_package(
    module: str, not_granted: list[str], installer: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(packages, "unreachable_hosts", not_granted)
    monkeypatch.setattr("quire.worker.environment.pip._has_installer", lambda: installer)
    assert hint(failed(f"import {module}")).startswith(says)


def test_standard_library_module_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdlib_module_names", {*sys.stdlib_module_names, "quire_knows_no_such"})
    assert "standard library" in hint(failed("import quire_knows_no_such"))


def test_own_messages_of_errors_stay() -> None:
    error = failed("totl", total=1)
    told = raised_event(error)
    assert (str(error), told.message) == ("name 'totl' is not defined",) * 2
    lines = told.traceback.splitlines()
    assert sum("Did you mean: 'total'?" in line for line in lines) == 1


def test_package_names_are_unique_and_normalized() -> None:
    assert {"cv2", "sklearn", "PIL", "yaml", "bs4", "numpy"} <= distributions.BY_MODULE.keys()
    assert not distributions.BY_MODULE.keys() & sys.stdlib_module_names
    assert all(name.isidentifier() for name in distributions.BY_MODULE)


def test_blocked_module_gets_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MySQLdb", types.ModuleType("MySQLdb"))
    assert hint(failed("import MySQLdb.cursors")) == ""
