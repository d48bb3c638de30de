"""What every store says and decides alike: refusals, and the fate of a run nobody finished. Pure."""

from __future__ import annotations

import itertools
from dataclasses import replace

from quire.core.errors import InvalidRequest, OverLimit, VersionConflict
from quire.core.model import Cell, CellId, CellState, NewCell, Output, OutputType, Run
from quire.core.phrases import count
from quire.core.runs import transcript
from quire.core.runs.model_text import escape_control_characters


def name_taken(name: str) -> str:
    return f"There is a notebook called {name!r} already. Use it (use_notebook), or choose another name."


def too_many_notebooks(limit: int) -> OverLimit:
    return OverLimit(
        f"No notebook was made: a user may have {limit:,} (setting limits.max_notebooks_per_user).",
        agent="Go on in one there is (list_notebooks shows them), emptied by clear_notebook where its cells are not "
        "needed.",
        person="Go on in one there is; `quire list` shows them.",
    )


def too_many_cells(there: int, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"The notebook has {count(there, 'cell')} and may have {limit:,} (setting limits.max_cells).",
        agent="Delete some, clear_notebook, or go on in a new one (create_notebook).",
        person="Go on in another one: `quire exec --notebook NAME`.",
    )


def no_such_place(at: int, last: int) -> str:
    return f"There is no place {at} in this notebook: places go from 0 to {last}. Nothing was changed."


def cell_gone(cell: str) -> str:
    return f"Cell {cell} is no longer in the notebook; list_cells shows what is."


def blob_gone(digest: str) -> str:
    return f"The bytes of this output ({digest[:12]}) are gone or damaged. Run the cell again."


def check_version(cell: Cell, expected: int | None) -> None:
    if expected is not None and expected != cell.version:
        raise VersionConflict(edited_meanwhile(cell.number, cell.version, expected, cell.source))


def edited_meanwhile(number: int, version: int, expected: int, source: str) -> str:
    return (
        f"Cell {number} is at version {version}, not {expected}: it was edited meanwhile. "
        f"Nothing was changed. Its source now:\n{escape_control_characters(source)}"
    )


def added(new: NewCell, id_: CellId, number: int, run: Run | None) -> Cell:
    return Cell(
        id=id_,
        number=number,
        kind=new.kind,
        source=new.source,
        run=run,
        metadata=new.metadata,
        attachments=new.attachments,
    )


def unfinished(run: Run, shown: list[Output]) -> Run:
    """A run whose server ended before it did, with what was kept of what it had shown."""
    kept = "what it had shown until shortly before is kept" if shown else "nothing it may have shown is kept"
    cause = f"The server ended while this cell ran; {kept}."
    return replace(
        run,
        state=CellState.INTERRUPTED,
        cause=cause,
        outputs=(*_joined(shown), transcript.error_output("Interrupted", cause)),
    )


def _joined(shown: list[Output]) -> list[Output]:
    """Pieces of one stream side by side as one."""
    joined: list[Output] = []
    for (stream, name), pieces in itertools.groupby(shown, lambda each: (each.type is OutputType.STREAM, each.name)):
        if stream:
            text = "".join(str(piece.bundle["text/plain"]) for piece in pieces)
            joined.append(Output(type=OutputType.STREAM, name=name, bundle={"text/plain": text}))
        else:
            joined += pieces
    return joined
