"""`quire run`: runs the cells of a document in order, in a new kernel of a temporary notebook."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.core.app import App
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.model import LOCAL, Cell, CellKind, CellState, NewCell
from quire.core.ops.task_groups import background
from quire.core.phrases import count
from quire.frontends.terminal import documents, parameters, progress, saved
from quire.frontends.terminal.notebook_runner import READ_ENOUGH, NotebookRunner, Stopping

if TYPE_CHECKING:
    from quire.notebook_format.document import Document

STDIN = "-"
_NOT_RUN = "skip-execution"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run, and how."""

    text: str
    script: bool  # Python with `# %%` between its cells, not an ipynb document
    folder: Path  # where its code works
    values: dict[str, parameters.Value]
    output: Path | None
    allow_errors: bool
    timeout: float | None  # seconds a cell may take

    @property
    def settings(self) -> dict[str, Any]:
        """Only the document is kept, and no modules are preloaded."""
        return {
            "store_kind": "memory",
            "kernel_workspace": self.folder,
            "kernel_preload": (),
            "kernel_spare_kernels": 0,
            "checkpoints_max_memory_bytes": 0,
            "kernel_hibernate_after_seconds": 0,
            "kernel_idle_timeout_seconds": 0,
            "kernel_cell_timeout_seconds": self.timeout or math.inf,
        }


def job(
    file: str, *, output: str | None, given: Sequence[str], allow_errors: bool = False, timeout: float | None = None
) -> Job:
    """Read what to run. Raises InvalidRequest before anything runs."""
    if timeout is not None and not timeout > 0:
        raise InvalidRequest(f"--timeout is a number of seconds above 0; got {timeout:g}. Nothing was run.")
    text = _read(file)
    path = Path(file)
    suffix = path.suffix.lower() if file != STDIN else ""
    return Job(
        text=text,
        script=suffix == ".py" or (suffix != ".ipynb" and not text.lstrip().startswith("{")),
        folder=path.absolute().parent if file != STDIN and path.is_file() else Path.cwd(),
        values=parameters.parse(given),
        output=_checked(output) if output is not None else None,
        allow_errors=allow_errors,
        timeout=timeout,
    )


def _checked(output: str) -> Path:
    documents.check_ending(output)
    return saved.checked(output)


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}. Nothing was run.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{file} is not UTF-8 text (byte {error.start}). Nothing was run.") from error


async def run(opening: AbstractAsyncContextManager[App], job: Job) -> int:
    """Run the document. Returns the exit code."""
    async with background() as group:
        stopping = Stopping()
        await group.start(stopping.watch)
        async with opening as app:
            return await _run(app, job, stopping)


async def _run(app: App, job: Job, stopping: Stopping) -> int:
    document = _document(job)  # meanwhile the kernel starts
    doubts = [*document.notes, *parameters.doubts(document.cells, job.values)]
    notebook = replace(await app.notebooks.create(LOCAL), metadata=document.metadata)
    fresh = [_as_new(cell) for cell in parameters.injected(document.cells, job.values)]
    cells = await app.cells.add_all(notebook, fresh)
    todo = [cell for cell in cells if _is_run(cell)]
    with closing(_watching(job, len(todo), stopping)) as watching:
        for doubt in doubts:
            watching.say(f"quire: {doubt}")
        runner = NotebookRunner(app, notebook, watching, stopping, output=job.output, allow_errors=job.allow_errors)
        async with background() as group:
            group.start_soon(watching.keep)
            await runner.run_all(todo)
        watching.close()
        return _conclude(runner, len(todo), job, watching, stopping)


def _document(job: Job) -> Document:
    from quire.notebook_format.document import language_note

    if job.script:
        from quire.notebook_format import percent

        document = percent.loads(job.text)
    else:
        from quire.notebook_format import ipynb

        document = ipynb.loads(job.text)
    for why in language_note(document.metadata):
        raise InvalidRequest(f"This notebook cannot be run here: {why}. Nothing was run.")
    return document


def _as_new(cell: NewCell) -> NewCell:
    """The cell without earlier outputs, unless it is skipped."""
    return cell if parameters.tagged(cell.metadata, _NOT_RUN) else replace(cell, run=None)


def _is_run(cell: Cell) -> bool:
    return cell.kind is CellKind.CODE and bool(cell.source.strip()) and not parameters.tagged(cell.metadata, _NOT_RUN)


def _watching(job: Job, total: int, stopping: Stopping) -> progress.Watching:
    if job.output is None:
        return progress.Shown(stopping.unheard)
    return progress.Bar(total) if sys.stderr.isatty() else progress.Lines(total)


def _conclude(done: NotebookRunner, total: int, job: Job, watching: progress.Watching, stopping: Stopping) -> int:
    """Print how the run ended. Returns the exit code."""
    if stopping.unwritable is not None and not isinstance(stopping.unwritable, BrokenPipeError):
        raise OperationFailed(f"Standard output cannot be written: {stopping.unwritable.strerror}.")
    if stopping.told == READ_ENOUGH:  # the reader closed the pipe
        return 128 + READ_ENOUGH
    where = f" What ran is in {job.output}." if job.output and saved.is_file(job.output) and done.ran else ""
    if stopping.told:
        watching.say(f"quire: stopped in cell {done.ran} of {total}.{where}" if done.ran else "quire: nothing was run.")
        return 128 + stopping.told
    if done.failed:
        rest = f" {total - done.ran} not run." if total > done.ran else ""
        watching.say(f"quire: {_failures(done.failed, total)}{rest}{where}")
        return 1
    if job.output is not None:
        watching.say(f"quire: ran {count(total, 'cell')}.{where}")
    return 0


def _failures(failed: list[tuple[int, CellState]], total: int) -> str:
    if len(failed) == 1:
        return f"cell {failed[0][0]} of {total} failed ({failed[0][1]})."
    return f"{len(failed)} of {total} cells failed: {', '.join(f'{place} ({state})' for place, state in failed)}."
