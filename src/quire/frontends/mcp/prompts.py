"""Prompts, which clients show in a menu."""

from typing import Any
from urllib.parse import quote

from fastmcp import FastMCP


def register(server: FastMCP[Any]) -> None:
    @server.prompt(title="Analyse this notebook")
    def analyse_notebook(name: str = "current") -> str:
        """Read a notebook and say what it does, what it found and what is missing."""
        return (
            f"Read the resource notebook://{quote(name, safe='')}/ipynb. Say in a few sentences what the notebook "
            "does, what its results show, which cells failed and why, and what you would check or run next."
        )

    @server.prompt(title="Continue from a cell")
    def continue_from_cell(cell: str, name: str = "current") -> str:
        """Go on working where a cell left off."""
        return (
            f"Read the resource notebook://{quote(name, safe='')}/cells and cell {cell} with get_cell. Check with the "
            "state tool what is in the namespace; where variables the cell needs are gone, run the cells that make "
            "them again. Then go on from there."
        )
