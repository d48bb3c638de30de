"""Writes notebooks as HTML pages, with nbconvert."""

from __future__ import annotations

import importlib.util

from quire.core.errors import InvalidRequest
from quire.core.model import Cell, Notebook
from quire.notebook_format import ipynb

ENDING = ".html"


def check_installed() -> None:
    if importlib.util.find_spec("nbconvert") is None:
        raise InvalidRequest(
            "HTML is written by nbconvert, which is not installed: pip install nbconvert. Nothing was written; "
            ".ipynb, .py and .md need nothing more."
        )


def dumps(notebook: Notebook, cells: list[Cell]) -> str:
    """The page of nbconvert. Scripts in outputs run in it."""
    import nbformat  # both take half a second to import
    from nbconvert import HTMLExporter

    document = nbformat.reads(ipynb.dumps(notebook, cells), as_version=4)  # type: ignore[no-untyped-call]
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]
    page, _ = exporter.from_notebook_node(document, {"metadata": {"name": notebook.name}})
    return str(page)
