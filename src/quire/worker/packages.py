"""Where what a notebook installs goes, when its interpreter's own folder may only be read: into its workspace."""

from __future__ import annotations

import os
import sys
import sysconfig

_NAME = ".packages"
folder = ""
"""The folder, where there is one."""
not_granted: list[str] = []
"""Hosts of the package index that the notebook may not connect to."""


def keep_in(workspace: str) -> None:
    """Install there, where nothing can be installed beside the interpreter, and import from there first."""
    global folder
    beside = sysconfig.get_path("purelib")
    if os.access(beside, os.W_OK):
        return
    folder = os.path.join(workspace, _NAME)
    if folder not in sys.path:
        sys.path.insert(sys.path.index(beside) if beside in sys.path else len(sys.path), folder)
