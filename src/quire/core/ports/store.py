"""Where notebooks, runs, leases, shares, tokens and blobs are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from quire.core.model import (
    Blob,
    Cell,
    CellId,
    Edit,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    Principal,
    Run,
    RunId,
)
from quire.core.notebooks.access import Access, Caller


class NotebookStore(Protocol):
    """Notebooks and their cells. When a method returns, its change is on disk.

    Cells are numbered from 0 without gaps. If the disk is full, a method raises OperationFailed and changes nothing.
    """

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        """Raises InvalidRequest if the owner has a notebook of that name, OverLimit if the owner has `limit` notebooks
        (0: no limit)."""
        ...

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None: ...

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        """Return the owner's notebooks, oldest first."""
        ...

    async def list_mirrored(self) -> list[Notebook]:
        """Return the notebooks of all owners that have a mirror."""
        ...

    async def update_notebook(self, notebook: Notebook) -> None:
        """Save its metadata, its mirror and the location of its document."""

    async def clear_notebook(self, notebook: NotebookId) -> None:
        """Delete its cells and runs."""

    async def delete_notebook(self, notebook: NotebookId) -> None:
        """Delete it with its cells, runs and shares, and release its lease. Nothing happens if it does not exist."""

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        """Insert all or none before cell `at`, or append them. Cells after an inserted code cell are marked `behind`.

        A run that a new cell has is recorded, but the notebook does not count it. The id that a new cell has is used
        unless the notebook has it already. Raises InvalidRequest if there would be more than `limit` cells, or if `at`
        is past the end.
        """
        ...

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None: ...

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]: ...

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        """Change a cell.

        If the source of code changes, the cell and those after it that have run are marked `behind` until they run
        again, as after a move or a deletion. Raises VersionConflict with the newer source if `expected` is not the
        cell's version.
        """
        ...

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell: ...

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None: ...


class RunStore(Protocol):
    """The runs of each notebook. When a method returns, its change is committed; `begin_run` and `save_outputs` are
    safe from the end of a process then, and from a power failure once a later change has returned. All others are on
    disk. If the disk is full, a method raises OperationFailed and changes nothing."""

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        """Record the start of a run and count it. A new cell is appended first.

        Returns the cell with the run. The store sets `run.count` and `run.cell`.
        """
        ...

    async def save_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        """Save outputs of a run that is not over, by their number, and delete those that are `dropped`.

        They are read if the server ends before the run does. Nothing happens if the run has ended or is gone.
        """

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        """Record the end of a run with its outputs, also if its cell was deleted."""

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        """Delete the outputs of the cell's last run, which is over."""

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        """Set for each of these runs whether the namespace was rolled back to a state before it."""

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        """Return a run without its source, value and outputs."""
        ...

    async def list_run_summaries(self, notebook: NotebookId) -> list[Run]:
        """Return the runs without their sources, values and outputs, oldest first."""
        ...

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        """Return the runs, oldest first."""
        ...

    async def find_runs_by_display_id(self, notebook: NotebookId, display_id: str) -> list[Run]:
        """Return the ended runs that have an output with this display id."""
        ...

    async def mark_interrupted_runs(self) -> int:
        """Mark the runs that no live server runs as INTERRUPTED, and return their number."""
        ...


class Leases(Protocol):
    """Which server runs which notebook. The lease of a server that ends, however it ends, is released."""

    async def hold(self, notebook: NotebookId) -> int | None:
        """Take the lease of a notebook for this server, and return its epoch; None if another server has the lease.

        The epoch is kept on disk and grows each time the lease is taken. It stays the same while this server has it.
        It is 0 if the disk is full and the epoch could not be recorded.
        """
        ...

    async def release(self, notebook: NotebookId) -> None:
        """Nothing happens if this server does not have the lease. A cancelled caller releases it, too."""


class Shares(Protocol):
    """Which notebooks are shared with which users. When a method returns, its change is on disk."""

    async def set_access(self, notebook: NotebookId, principal: Principal, access: Access | None) -> None:
        """Replace the access of a user; None ends it."""

    async def list_access(self, notebook: NotebookId) -> dict[Principal, Access]:
        """Return the users that have access, in the order of their names."""
        ...

    async def list_shared_with(self, principal: Principal) -> list[tuple[Notebook, Access]]:
        """Return the notebooks that others share with a user, oldest first."""
        ...


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token without its secret."""

    caller: Caller
    created_at: float  # seconds since the epoch


class Tokens(Protocol):
    """Secrets that identify callers. Only their digests are kept. Changes of other processes take effect at once."""

    def add(self, name: Principal, *, admin: bool) -> str:
        """Return a new token, which cannot be read again. Raises InvalidRequest if the name has one."""
        ...

    def remove(self, name: Principal) -> None:
        """Raises NotFound."""

    def list_tokens(self) -> list[TokenInfo]:
        """Return all tokens in the order of their names."""
        ...

    def find_caller(self, token: str) -> Caller | None: ...


class Blobs(Protocol):
    """Bytes by content: equal bytes are kept once. When `put` returns they are on disk."""

    async def put(self, data: bytes) -> Blob: ...

    async def get(self, blob: Blob) -> bytes:
        """Raises NotFound if they are gone or damaged."""
        ...
