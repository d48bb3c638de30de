"""A notebook in the format that a file's ending selects. Only commands write HTML: nbconvert is slow."""

from __future__ import annotations

from quire.core.model import Cell, Notebook
from quire.notebook_format import files, html


def check_ending(name: str) -> None:
    """Raises InvalidRequest for an unknown file ending, and for HTML when nbconvert is not installed."""
    if files.ending(name) == html.ENDING:
        html.check_installed()
    else:
        files.check_ending(name, more=(html.ENDING,))


def dumps(name: str, notebook: Notebook, cells: list[Cell]) -> str:
    if files.ending(name) == html.ENDING:
        return html.dumps(notebook, cells)
    return files.dumps(name, notebook, cells)
