"""Where what a notebook installs goes, when its interpreter's own folder may only be read: into its workspace."""

from __future__ import annotations

import os
import sys
import sysconfig

_FOLDER_NAME = ".packages"
# An index that cannot be reached is not asked again, nor for a newer pip.
_FAIL_FAST = {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_HTTP_RETRIES": "0"}
_OTHER_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL")  # name another than PyPI
folder = ""
"""The folder, where there is one: a virtual environment, see pip_command.py."""
unreachable_hosts: list[str] = []
"""Hosts of the package index that the notebook may not connect to."""
_set_by_quire: list[str] = []  # variables of _AT_ONCE that are ours, not the user's


def use_workspace(workspace: str) -> None:
    """Install there, where nothing can be installed beside the interpreter, and import from there first."""
    global folder
    interpreter_folder = sysconfig.get_path("purelib")
    if os.access(interpreter_folder, os.W_OK):
        return
    folder = os.path.join(workspace, _FOLDER_NAME)
    modules = sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder})
    index = sys.path.index(interpreter_folder) if interpreter_folder in sys.path else len(sys.path)
    sys.path[index:index] = [
        path for path in (modules, folder) if path not in sys.path
    ]  # 0.1 installed into the folder


def set_unreachable_hosts(missing: list[str]) -> None:
    """Set which hosts of the index are not granted, and let every pip and uv fail at once where any is missing."""
    unreachable_hosts[:] = missing
    for name in _set_by_quire:
        os.environ.pop(name, None)
    fail_fast = missing and not has_other_index()
    _set_by_quire[:] = [name for name in _FAIL_FAST if fail_fast and name not in os.environ]
    os.environ.update({name: _FAIL_FAST[name] for name in _set_by_quire})


def has_other_index() -> bool:
    return any(map(os.environ.get, _OTHER_INDEX))


def without_fail_fast(environment: dict[str, str]) -> dict[str, str]:
    """These variables as the user has them, for a command that names an index of its own."""
    return {name: value for name, value in environment.items() if name not in _set_by_quire}
