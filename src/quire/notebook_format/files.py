"""Chooses the format by the file name: `.ipynb`, `.py` (percent script) or `.md` (write only). Without an ending it is
ipynb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath

import anyio.to_thread

from quire.core.errors import InvalidRequest
from quire.core.model import Cell, Notebook
from quire.notebook_format import ipynb, markdown, percent
from quire.notebook_format.document import Document


async def document(path_or_text: str, read: Callable[[str], Awaitable[str]]) -> Document:
    """Parse `path_or_text` if it is a document's text; else it is a file name, and `read` reads the file."""
    if "\n" in path_or_text or path_or_text.lstrip("\ufeff \t").startswith(("{", "[")):
        name, text = "text.py" if percent.is_marked(path_or_text) else "", path_or_text
    else:
        name, text = path_or_text, await read(path_or_text)
    return await anyio.to_thread.run_sync(loads, name, text)  # slow for large documents


def loads(name: str, text: str) -> Document:
    return percent.loads(text) if is_script(name) else ipynb.loads(text)


def dumps(name: str, notebook: Notebook, cells: list[Cell]) -> str:
    """Raises InvalidRequest if the ending is unknown."""
    check_ending(name)
    return _WRITERS[ending(name)](notebook, cells)


def check_ending(name: str, more: Sequence[str] = ()) -> None:
    """Raises InvalidRequest if the ending is unknown. `more`: further endings that the caller supports."""
    if ending(name) not in _WRITERS:
        known = [known for known in (*_WRITERS, *more) if known]
        raise InvalidRequest(
            f"No format of notebooks has the ending {ending(name)!r}; use {', '.join(known)}. Nothing was written."
        )


def ending(name: str) -> str:
    return PurePath(name).suffix.lower()


def dumps_mirror(notebook: Notebook, cells: list[Cell]) -> str:
    return dumps(notebook.mirror, notebook, cells)


def is_script(name: str) -> bool:
    return ending(name) == ".py"


_WRITERS: dict[str, Callable[[Notebook, list[Cell]], str]] = {
    ".ipynb": ipynb.dumps,
    ".py": percent.dumps,
    ".md": markdown.dumps,
    "": ipynb.dumps,
}
