"""Tables of commands: columns aligned, nothing cut, however wide the terminal is and where there is none."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_WIDTH = 100_000  # columns; a terminal wraps what is too wide for it


def show(table: Table) -> None:
    Console(soft_wrap=True, width=_WIDTH).print(table)
