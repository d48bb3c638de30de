"""The copy of IPython that interpreters without it are given."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quire.runtimes.python import ipython_folder
from quire.runtimes.python.ipython_folder import IPythonCopyError, ensure

LOAD = """
import json, sys
sys.path.append(sys.argv[1])
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import SList
InteractiveShell.instance().run_cell("%time 1 + 1\\n1 / 0")
print(json.dumps([name for name in sys.modules if "." not in name and sys.argv[1] in str(sys.modules[name].__spec__)]))
"""


def test_ipython_runs_from_the_copy_without_any_other_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys._base_executable, "-I", "-S", "-c", LOAD, str(ensure(tmp_path))],  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"HOME": str(tmp_path)},
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"IPython", "traitlets", "pygments", "stack_data"} <= loaded


def test_copy_has_every_requirement_and_nothing_of_other_packages(tmp_path: Path) -> None:
    folder = ensure(tmp_path)
    names = {path.name.removesuffix(".py") for path in folder.iterdir()}
    assert {"IPython", "jedi", "prompt_toolkit", "matplotlib_inline", "psutil"} <= names
    assert not names & {"pytest", "fastmcp", "quire", "numpy", "matplotlib"}
    assert [each.name for each in importlib.metadata.distributions(path=[str(folder)])] == ["matplotlib-inline"]
    assert not list(folder.rglob("*.pyi"))


def test_copy_is_made_once(tmp_path: Path) -> None:
    folder = ensure(tmp_path)
    made = (folder / "IPython" / "__init__.py").stat()
    assert ensure(tmp_path) == folder
    assert (folder / "IPython" / "__init__.py").stat().st_ino == made.st_ino
    assert {path.name for path in tmp_path.iterdir()} == {folder.parent.name, "lock"}


def test_part_that_a_killed_server_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "copying-abc" / "copy"
    left.mkdir(parents=True)
    ensure(tmp_path)
    assert not left.exists()


def test_servers_that_copy_at_the_same_time_share_one_copy(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(ensure, [tmp_path] * 4))
    (folder,) = folders
    assert (folder / "IPython").is_dir() and len(list(tmp_path.glob("ipython-*"))) == 1


def test_copy_can_be_read_by_other_users(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = ensure(tmp_path / "libraries")
    finally:
        os.umask(before)
    for path in (folder.parent, folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o005 >= (0o005 if path.is_dir() else 0o004), path


def test_file_in_the_place_of_the_copy_is_an_error(tmp_path: Path) -> None:
    name = ensure(tmp_path / "first").parent.name
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / name).touch()
    with pytest.raises(IPythonCopyError, match="there is a file of that name"):
        ensure(tmp_path / "second")


def test_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IPythonCopyError, match="could not be copied to"):
        ensure(tmp_path / "file")


def test_unlisted_files_are_an_error_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata.Distribution, "files", None)
    with pytest.raises(IPythonCopyError, match="not listed"):
        ensure(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_missing_ipython_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipython_folder, "_ROOT", "no-such-ipython")
    with pytest.raises(IPythonCopyError, match="not installed"):
        ensure(tmp_path)
