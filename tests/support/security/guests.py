"""Notebooks in WebAssembly that attack, one beside them in the same process, and what could be reached outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quire.frontends.python import Cell, Notebook, Quire

RUNTIMES = ("wasm-python", "wasm-javascript")
PYTHON, JAVASCRIPT = (pytest.mark.parametrize("runtime", [each], indirect=True, scope="module") for each in RUNTIMES)
SECRET = "what no guest may read"
TRY = """
import os
def tried(step):
    try: return 'done: ' + ascii(step())
    except Exception as error: return type(error).__name__
"""
RAW = "import sys, wit_world\nkernel = sys.stdout.buffer._stream._kernel\n"  # what is behind a guest's own manners


@dataclass(frozen=True, kw_only=True)
class Outside:
    folder: Path  # of this module's tests
    secret: Path  # a file that the server's user can read
    mount: Path  # the operator's, to read
    kept: Path  # a file in it

    @property
    def data(self) -> Path:
        return self.folder / "data"


@dataclass(frozen=True, kw_only=True)
class Book:
    """A notebook with a variable `kept`, which is 41 and in a checkpoint."""

    notebook: Notebook
    workspace: Path
    runtime: str

    @property
    def is_python(self) -> bool:
        return self.runtime == "wasm-python"

    async def run(self, python: str, javascript: str | None = None, timeout: float = 60) -> Cell:
        """The one of the two that is in its language; one that is in both is given once."""
        code = python if self.is_python or javascript is None else javascript
        return await self.notebook.add_cell(code, timeout=timeout)

    async def text(self, python: str, javascript: str | None = None) -> str:
        """What a cell that must succeed shows."""
        cell = await self.run(python, javascript)
        assert cell.state == "SUCCESS", await cell.text()
        return await cell.text()

    async def is_as_before(self) -> None:
        assert await self.text("kept + 1") == "42"

    async def was_not_disturbed(self) -> None:
        """Nor was the process that it shares with others replaced."""
        cell = await self.run("kept + 1")
        assert (await cell.text(), cell.notice) == ("42", "")


async def new(quire: Quire, outside: Outside, name: str, runtime: str, **policy: Any) -> Book:
    notebook = await quire.create(name, runtime=runtime, **policy)
    await notebook.add_cell("kept = 41")
    await notebook.keep("before")
    return await found(notebook, outside, runtime)


async def found(notebook: Notebook, outside: Outside, runtime: str) -> Book:
    """With its folder, by a file that is put there."""
    mark = f"mark-{notebook.name}"
    await notebook.files.write(mark, "")
    (file,) = (outside.data / "workspaces").glob(f"*/{mark}")
    file.unlink()
    return Book(notebook=notebook, workspace=file.parent, runtime=runtime)
