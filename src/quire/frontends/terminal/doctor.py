"""`quire doctor`: what this machine gives, line by line, and what to do where something is missing."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from quire.frontends.terminal import tables


def show(findings: list[tuple[str, bool | None, str]]) -> int:
    """Each finding is a name, whether it is fine (None: only good to know), and a sentence. 1 where one is not."""
    table = Table(box=None, show_header=False)
    for name, fine, sentence in findings:
        mark = {True: "[green]ok[/]", False: "[red]no[/]", None: "  "}[fine]
        table.add_row(mark, name, Text(sentence))
    tables.show(table)
    return 1 if any(fine is False for _, fine, _ in findings) else 0
