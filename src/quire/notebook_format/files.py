"""A document by the name of its file: `.ipynb`, `.py` for a script in percent format, `.md` to read. A name without an
ending is an ipynb's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath

import anyio.to_thread

from quire.core.errors import InvalidRequest
from quire.core.model import Cell, Notebook
from quire.notebook_format import ipynb, markdown, percent
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
    """Raises InvalidRequest for an ending of no format."""
    check_ending(name)
    return _WRITERS[ending(name)](notebook, cells)


def check_ending(name: str, more: Sequence[str] = ()) -> None:
    """Raises InvalidRequest for an ending of no format; `more`: endings that the caller writes itself."""
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
