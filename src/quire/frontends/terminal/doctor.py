"""Prints what `quire doctor` found."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from quire.frontends.terminal import tables


def show(findings: list[tuple[str, bool | None, str]]) -> int:
    """Each finding is a name, whether it works (None: for information), and a sentence. Returns 1 if one does not."""
    table = Table(box=None, show_header=False)
    for name, fine, sentence in findings:
        mark = {True: "[green]ok[/]", False: "[red]no[/]", None: "  "}[fine]
        table.add_row(mark, name, Text(sentence))
    tables.show(table)
    return 1 if any(fine is False for _, fine, _ in findings) else 0
