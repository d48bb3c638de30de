"""A document by the name of its file: `.py` is a script in percent format, anything else an ipynb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio.to_thread

from quire.core.model import Cell, Notebook
from quire.notebook_format import ipynb, percent
from quire.notebook_format.document import Document


async def document(given: str, read: Callable[[str], Awaitable[str]]) -> Document:
    """Of its own text, or of the file of that name, which `read` reads."""
    if "\n" in given or given.lstrip("\ufeff \t").startswith(("{", "[")):
        name, text = "text.py" if percent.is_marked(given) else "", given
    else:
        name, text = given, await read(given)
    return await anyio.to_thread.run_sync(loads, name, text)  # a large one takes its time


def loads(name: str, text: str) -> Document:
    return percent.loads(text) if is_script(name) else ipynb.loads(text)


def dumps(name: str, notebook: Notebook, cells: list[Cell]) -> str:
    return percent.dumps(notebook, cells) if is_script(name) else ipynb.dumps(notebook, cells)


def mirrored(notebook: Notebook, cells: list[Cell]) -> str:
    return dumps(notebook.mirror, notebook, cells)


def is_script(name: str) -> bool:
    return name.lower().endswith(".py")
