"""Tables of commands: columns aligned, nothing cut, whatever the width of the terminal, and without one."""

from __future__ import annotations

import re
import sys

from rich.console import Console
from rich.table import Table

_WIDTH = 100_000  # columns; a terminal wraps what is too wide for it
_PADDING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)  # of the last column; it may end with colours


def show(table: Table) -> None:
    console = Console(soft_wrap=True, width=_WIDTH)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write(_PADDING.sub(r"\1", captured.get()))
