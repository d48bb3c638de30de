"""Programs and packages that a machine may lack, such as the MCP inspector and MCP servers in Node."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

NODE_MODULES = Path(__file__).parents[2] / ".ci/node/node_modules"


def missing(part: str, reason: str) -> None:
    """Skip because a part of the system is not there; on CI, which installs all parts, that is a failure."""
    if os.environ.get("TESTS_MAY_NOT_SKIP"):
        pytest.fail(f"{part} is missing and may not be: {reason}")
    pytest.skip(f"needs {part}: {reason}")


def inspector() -> list[str]:
    """The command of the official MCP inspector."""
    return list(node_program("inspector/clients/launcher/build/index.js"))


def node_program(path: str, *arguments: str) -> tuple[str, ...]:
    """The command of a program of @modelcontextprotocol on npm, by the path of its entry file."""
    entry = NODE_MODULES / "@modelcontextprotocol" / path
    node = shutil.which("node")
    if node is None or not entry.exists():
        missing(f"{path.partition('/')[0]}, a program in Node", "tools/install-node-programs installs it")
    return (str(node), str(entry), *arguments)


EVERYTHING_SERVER = "server-everything/dist/index.js"
FILESYSTEM_SERVER = "server-filesystem/dist/index.js"
