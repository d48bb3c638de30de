"""Where packages are installed if the interpreter's own folder is read-only: in the workspace."""

from __future__ import annotations

import os
import sys
import sysconfig

_FOLDER_NAME = ".packages"
# do not retry an index that cannot be reached, and do not look for a newer pip
_FAIL_FAST = {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_HTTP_RETRIES": "0"}
_OTHER_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL")  # name an index other than PyPI
folder = ""
"""Folder of a virtual environment, see pip_command.py; "" if packages go to the interpreter's own folder."""
unreachable_hosts: list[str] = []
"""Hosts of the package index that the notebook may not connect to."""
_set_by_quire: list[str] = []  # variables of _FAIL_FAST not set by the user


def use_workspace(workspace: str) -> None:
    """Install into the workspace if the interpreter's folder is read-only, and import from there first."""
    global folder
    interpreter_folder = sysconfig.get_path("purelib")
    if os.access(interpreter_folder, os.W_OK):
        return
    folder = os.path.join(workspace, _FOLDER_NAME)
    modules = sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder})
    index = sys.path.index(interpreter_folder) if interpreter_folder in sys.path else len(sys.path)
    sys.path[index:index] = [path for path in (modules, folder) if path not in sys.path]  # 0.1 used the folder itself


def set_unreachable_hosts(missing: list[str]) -> None:
    """Set the index hosts that are not granted, and make pip and uv fail without retries if there are any."""
    unreachable_hosts[:] = missing
    for name in _set_by_quire:
        os.environ.pop(name, None)
    fail_fast = missing and not has_other_index()
    _set_by_quire[:] = [name for name in _FAIL_FAST if fail_fast and name not in os.environ]
    os.environ.update({name: _FAIL_FAST[name] for name in _set_by_quire})


def has_other_index() -> bool:
    return any(map(os.environ.get, _OTHER_INDEX))


def without_fail_fast(environment: dict[str, str]) -> dict[str, str]:
    """The environment as the user has it, for a command that names its own index."""
    return {name: value for name, value in environment.items() if name not in _set_by_quire}
