"""Programs and packages that a machine may lack, such as the MCP inspector and MCP servers in Node."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def missing(part: str, reason: str) -> None:
    """Skip because a part of the system is not there; on CI, which installs all parts, that is a failure."""
    if os.environ.get("TESTS_MAY_NOT_SKIP"):
        pytest.fail(f"{part} is missing and may not be: {reason}")
    pytest.skip(f"needs {part}: {reason}")


def inspector() -> list[str]:
    """The command of the official MCP inspector, which nobody here wrote."""
    path = os.environ.get("MCP_INSPECTOR")
    node = shutil.which("node")
    if node is None or not path or not Path(path).exists():
        missing("the MCP inspector", "set MCP_INSPECTOR to its cli, as .ci/run does")
    return [str(node), str(path)]


def node_server(variable: str, *arguments: str) -> tuple[str, ...]:
    """The command of an MCP server from the npm registry, which nobody here wrote; .ci/run installs them."""
    path = os.environ.get(variable)
    node = shutil.which("node")
    if node is None or not path or not Path(path).exists():
        missing("an MCP server in node", f"set {variable} to its entry file, as .ci/run does")
    return (str(node), str(path), *arguments)
