"""The standard library: whole, but for what cannot be in WebAssembly, which says so."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.support.wasm.python_guest import Notebook

EVERY = """
import importlib, sys, warnings
warnings.simplefilter('ignore')
bad = {}
for name in sorted(sys.stdlib_module_names - {'this', 'antigravity', '__main__', 'idlelib'}):
    try:
        importlib.import_module(name)
    except ImportError as error:
        bad[name] = str(error)
bad
"""
OF_OTHER_SYSTEMS = {"_overlapped", "_scproxy", "_winapi", "_wmi", "msvcrt", "nt", "winreg", "winsound", "_msi", "ntdll"}

PROGRAMS = dict(
    each.split("\n", 1) for each in Path(__file__).with_name("programs.txt").read_text("utf-8").split("### ")[1:]
)


@pytest.mark.plain_guest_only("it has another library")
def test_every_module_is_there_or_says_why_not(notebook: Notebook) -> None:
    absent = notebook.run(EVERY).value
    silent = {name: why for name, why in absent.items() if "WebAssembly" not in why and not name.startswith("_")}
    assert silent.keys() <= OF_OTHER_SYSTEMS, silent
    for name in (
        "json",
        "asyncio",
        "sqlite3",
        "email",
        "unittest",
        "xml",
        "tomllib",
        "zoneinfo",
        "http",
        "pydoc",
        "doctest",
    ):
        assert name not in absent


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=list(PROGRAMS))
def test_programs_give_the_same_answers_as_on_an_operating_system(notebook: Notebook, code: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "<here>", "exec"), {"__name__": "__main__"})
    ran = notebook.run(code)
    assert ran.finished.outcome == "success", ran.raised
    assert ran.text == said.getvalue()


@pytest.mark.plain_guest_only("it is tested in tests/wasm/science, with more memory or other words")
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import ctypes", "no other machine's libraries"),
        ("import ssl", "no network"),
        ("import socket; socket.create_connection(('example.org', 80))", "no network"),
        ("import urllib.request; urllib.request.urlopen('http://example.org')", "no network"),
        ("import subprocess; subprocess.run(['ls'])", "does not support processes"),
        ("import os; os.system('ls')", "no processes"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "no processes"),
        ("import multiprocessing; multiprocessing.Pool()", "no processes"),
        ("import threading; threading.Thread(target=print).start()", "no threads"),
        ("from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor().submit(print)", "no threads"),
        ("import fcntl", "no operating system"),
        ("import tkinter", "no terminal"),
        ("%pip install requests", "OSError: pip 'install requests' cannot be run: Python runs in WebAssembly here"),
        ("!pip install requests", "There is no shell"),
        ("import zoneinfo; zoneinfo.ZoneInfo('Nowhere/Here')", "No time zone found with key Nowhere/Here"),
    ],
)
def test_what_cannot_be_says_so(notebook: Notebook, code: str, why: str) -> None:
    assert why in notebook.run(code).raised


@pytest.mark.plain_guest_only("numpy is there with the science libraries")
def test_a_missing_package_says_what_has_it(notebook: Notebook) -> None:
    missing = notebook.run("import numpy")
    assert missing.raised.endswith(
        "No module named 'numpy'\nIt is in the package numpy. No package can be installed in WebAssembly: %pip is "
        "for the runtime `python`."
    )
    assert notebook.run("pritn(1)").raised.endswith("Did you mean: 'print'?")


def test_time_zones_are_there(notebook: Notebook) -> None:
    code = "from datetime import datetime\nfrom zoneinfo import ZoneInfo, available_timezones\n"
    code += "str(datetime(2024, 7, 1, tzinfo=ZoneInfo('Europe/Paris')).utcoffset()), len(available_timezones()) > 400"
    assert notebook.run(code).value == ["2:00:00", True]


@pytest.mark.plain_guest_only("its library comes without its source")
def test_the_librarys_source_can_be_read(notebook: Notebook) -> None:
    assert "def dumps" in notebook.run("import inspect, json\ninspect.getsource(json)[:20_000]").value
