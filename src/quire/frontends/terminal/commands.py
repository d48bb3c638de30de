"""Commands: run code, list and export notebooks, install Quire in a client."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import anyio
from rich.table import Table
from rich.text import Text

from quire.core.app import App
from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, OutputType
from quire.core.notebooks.outputs import find_image
from quire.core.phrases import count
from quire.frontends.terminal import documents, tables
from quire.frontends.terminal import install as clients

_OVERTIME_S = 60.0  # how long to wait for a run after its timeout


async def execute(app: App, name: str, code: str, timeout: float | None) -> int:
    """Run code in the notebook and print its output. Returns 1 if it failed."""
    notebook = await app.notebooks.get_or_create(LOCAL, name)
    active = await app.runs.start(notebook, code, timeout=timeout, author="command line")
    cell = await app.runs.wait(active, active.timeout + _OVERTIME_S)
    if active.notice:
        print(active.notice, file=sys.stderr)
    for output in cell.outputs:
        text = await app.outputs.read_text(output.bundle.get("text/plain", ""))
        if output.type is OutputType.STREAM:
            print(text, end="", file=sys.stderr if output.name == "stderr" else sys.stdout, flush=True)
        elif output.type is OutputType.ERROR:
            print(text, file=sys.stderr)
        elif find_image(output) is not None:
            print(f"[image in cell {cell.number}; quire export {notebook.name} shows it]")
        else:
            print(text)
    return 1 if cell.state.failed else 0


async def show_notebooks(app: App) -> None:
    notebooks = await app.notebooks.list_notebooks(LOCAL)
    if not notebooks:
        print("No notebooks yet.")
        return
    table = Table("name", "cells", "runs", "runtime", "workspace", box=None, header_style="bold")
    for each in notebooks:
        table.add_row(Text(each.name), str(each.cells), str(each.runs), each.runtime, Text(app.workspace(each)))
    tables.show(table)


async def export(app: App, name: str, output: Path | None) -> None:
    """Write it in the format that the ending of `output` selects; without `output`, as ipynb to standard output."""
    documents.check_ending(str(output or ""))
    notebook = await app.notebooks.get(LOCAL, name)
    cells = [await app.outputs.load(cell) for cell in await app.cells.list_cells(notebook)]
    text = documents.dumps(str(output or ""), notebook, cells)
    if output is None:
        print(text, end="")
        return
    try:
        await anyio.Path(output).write_text(text, "utf-8")
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}.") from error
    print(f"Wrote {count(len(cells), 'cell')} to {output}.", file=sys.stderr)


def install(client: str, name: str, data_dir: Path | None, *, only_print: bool) -> int:
    if client not in clients.CLIENTS:
        raise InvalidRequest(f"There is no client {client!r}; there are {', '.join(clients.CLIENTS)}.")
    command = _command() + (["serve", "--data-dir", str(data_dir.resolve())] if data_dir else [])
    if only_print:
        print(clients.configuration(client, name=name, command=command, env={}), end="")
        return 0
    path = clients.path_of(client, home=Path.home(), platform=sys.platform, environ=os.environ)
    try:
        print(clients.write(client, path, name=name, command=command, env={}))
    except clients.ConfigurationRefused as error:
        raise InvalidRequest(str(error)) from error
    return 0


def _command() -> list[str]:
    """The command that starts this Quire: the installed one, or this interpreter."""
    found = shutil.which("quire")
    return [found] if found else [sys.executable, "-m", "quire"]
