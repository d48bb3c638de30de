"""Commands for state on disk: show, save, restore, and delete what no snapshot uses."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
from rich.table import Table
from rich.text import Text

from quire.core.app import App
from quire.core.checkpoints import restore_report, state_file
from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.checkpoints.saved_states import SavedStates
from quire.core.checkpoints.snapshot_writer import SnapshotWriter
from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, Cell, Loss, Notebook, Snapshot
from quire.core.phrases import count
from quire.frontends.terminal import commands, tables


async def show(app: App, name: str) -> None:
    """Show what is on disk of a notebook. Starts no kernel."""
    notebook = await app.notebooks.get(LOCAL, name)
    restorer, _, _ = _require_disk(app)
    standing = await restorer.find_latest(notebook)
    if standing is None:
        print(f"Only the cells of notebook {name!r} are on disk.")
        return
    listed = Table("saved", "after cell", "name", "bytes", "added", box=None, header_style="bold")
    for each in await restorer.list_snapshots(notebook):
        cell = await app.cells.find_by_run(notebook, each.run) if each.run is not None else None
        after = "-" if cell is None else str(cell.number)
        listed.add_row(_when(each), after, Text(each.name), f"{each.size:,}", f"{each.added:,}")
    tables.show(listed)
    has_names = standing.variables or standing.functions
    begins_with = "this" if has_names else "no variables"
    print(
        f"\nThe next run begins with {begins_with} ({_when(standing)}, Python {standing.python}){':.'[not has_names]}"
    )
    for variable, kind in standing.variables.items():
        print(f"{variable}: {kind}")
    for function in standing.functions:
        print(f"def {function['name']}{function['signature']}")
    if standing.lost:
        print(f"Not saved: {restore_report.describe_lost(await _made(app, notebook, standing))}.")


async def save(app: App, name: str, state: str) -> None:
    _, saved_states, _ = _require_disk(app)
    notebook = await app.notebooks.get(LOCAL, name)
    snapshot, file = await saved_states.save(notebook, state)
    print(f"Saved notebook {name!r} as {state!r}, {count(snapshot.size, 'byte')}. To read: {file}")
    if snapshot.lost:
        print(f"Not saved: {restore_report.describe_lost(await _made(app, notebook, snapshot))}.", file=sys.stderr)


async def restore(app: App, name: str, state: str) -> None:
    """Restore a saved state, with which the next run begins."""
    _, _, writer = _require_disk(app)
    notebook = await app.notebooks.get(LOCAL, name)
    moved = await app.timeline.restore(notebook, state)
    await writer.ensure_saved(notebook)
    print(
        restore_report.describe_restore(moved.back, "ask")
        if moved.back is not None
        else f"It stands at {state!r} again."
    )


async def restore_file(app: App, name: str, file: Path, *, trust: bool) -> int:
    """Run a readable state file as a cell. It is code, so the caller must trust the file."""
    try:
        text = await anyio.Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}.") from error
    code = state_file.to_code(text)
    if not trust:
        raise InvalidRequest(f"{file} contains code. Read it; if you trust it, run the command again with --trust.")
    return await commands.execute(app, name, code, None)


async def sweep(app: App, *, dry: bool) -> None:
    _, _, writer = _require_disk(app)
    swept = await writer.sweep(dry=dry)
    verb = "Would free" if dry else "Freed"
    kept = f"{count(swept.kept, 'byte')} {'is' if swept.kept == 1 else 'are'} kept"
    print(f"{verb} {count(swept.freed, 'byte')} ({count(swept.chunks, 'chunk')} that no snapshot uses); {kept}.")


def _require_disk(app: App) -> tuple[SnapshotRestorer, SavedStates, SnapshotWriter]:
    if app.restorer is None or app.saved_states is None or app.snapshot_writer is None:
        raise InvalidRequest("Nothing is kept: the setting store.kind is `memory`.")
    return app.restorer, app.saved_states, app.snapshot_writer


async def _made(app: App, notebook: Notebook, snapshot: Snapshot) -> list[tuple[Loss, Cell | None]]:
    return [
        (each, await app.cells.find_by_run(notebook, each.run) if each.run is not None else None)
        for each in snapshot.lost
    ]


def _when(snapshot: Snapshot) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(snapshot.created_at))
