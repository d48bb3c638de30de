"""Where what a notebook installs goes, when its interpreter's own folder may only be read: into its workspace."""

from __future__ import annotations

import os
import sys
import sysconfig

_NAME = ".packages"
# An index that cannot be reached is not asked again, nor for a newer pip.
_AT_ONCE = {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_HTTP_RETRIES": "0"}
_OTHER_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL")  # name another than PyPI
folder = ""
"""The folder, where there is one: a virtual environment, see pip_command.py."""
not_granted: list[str] = []
"""Hosts of the package index that the notebook may not connect to."""
_given: list[str] = []  # variables of _AT_ONCE that are ours, not the user's


def keep_in(workspace: str) -> None:
    """Install there, where nothing can be installed beside the interpreter, and import from there first."""
    global folder
    beside = sysconfig.get_path("purelib")
    if os.access(beside, os.W_OK):
        return
    folder = os.path.join(workspace, _NAME)
    modules = sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder})
    at = sys.path.index(beside) if beside in sys.path else len(sys.path)
    sys.path[at:at] = [path for path in (modules, folder) if path not in sys.path]  # 0.1 installed into the folder


def grant(missing: list[str]) -> None:
    """Set which hosts of the index are not granted, and let every pip and uv fail at once where any is missing."""
    not_granted[:] = missing
    for name in _given:
        os.environ.pop(name, None)
    fails = missing and not has_other_index()
    _given[:] = [name for name in _AT_ONCE if fails and name not in os.environ]
    os.environ.update({name: _AT_ONCE[name] for name in _given})


def has_other_index() -> bool:
    return any(map(os.environ.get, _OTHER_INDEX))


def without_limits(environment: dict[str, str]) -> dict[str, str]:
    """These variables as the user has them, for a command that names an index of its own."""
    return {name: value for name, value in environment.items() if name not in _given}
