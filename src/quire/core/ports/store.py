"""Where notebooks, runs, shares, tokens and blobs are kept."""

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


class Store(Protocol):
    """Notebooks, cells and the journal of runs. When a method returns, its change is on disk.

    Cells are numbered from 0 without gaps. A full disk raises Failed and changes nothing.
    """

    async def create_notebook(self, notebook: Notebook, *, limit: int = 0) -> Notebook:
        """Raises Refused where the owner has one of that name, OverLimit where it has `limit`; 0 is none."""
        ...

    async def find_notebook(self, owner: Principal, name: str) -> Notebook | None: ...

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        """The owner's notebooks, oldest first."""
        ...

    async def update_notebook(self, notebook: Notebook) -> None:
        """Keep its metadata, its mirror and where its document is as they are here."""

    async def list_mirrored(self) -> list[Notebook]:
        """Those of all owners that have a mirror."""
        ...

    async def clear_notebook(self, notebook: NotebookId) -> None:
        """Drop its cells and its journal."""

    async def delete_notebook(self, notebook: NotebookId) -> None:
        """It is gone, with its cells, its journal and who it was shared with. Whoever holds it lets go of it."""

    async def add_cells(self, notebook: NotebookId, cells: list[NewCell], *, at: int | None, limit: int) -> list[Cell]:
        """Insert before cell `at`, or append; all or none. Raises Refused past `limit` cells, or past the end.

        A run a cell comes with is journaled, but is none of this notebook's: it does not count. An id a cell comes
        with is its id, unless the notebook has it already. Cells after an inserted one fall behind.
        """
        ...

    async def find_cell(self, notebook: NotebookId, which: CellId | int) -> Cell | None: ...

    async def list_cells(self, notebook: NotebookId, start: int, limit: int | None) -> list[Cell]: ...

    async def edit_cell(self, notebook: NotebookId, cell: CellId, edit: Edit, expected: int | None) -> Cell:
        """Change it. Raises Stale, naming the newer source, where `expected` is not its version. Where the source of
        code is another, it and those after it that have run fall behind, as they do when a cell is moved or deleted,
        until they run again."""
        ...

    async def move_cell(self, notebook: NotebookId, cell: CellId, to: int) -> Cell: ...

    async def delete_cell(self, notebook: NotebookId, cell: CellId) -> None: ...

    async def clear_outputs(self, notebook: NotebookId, cell: CellId) -> None:
        """What its last run, which is over, showed is gone."""

    async def begin_run(self, notebook: NotebookId, cell: Cell | NewCell, run: Run, *, limit: int) -> Cell:
        """Journal the start of a run of `cell`, appending it first where it is new, and count it.

        The returned cell carries the run with its count. `run.count` and `run.cell` are the store's to fill.
        """
        ...

    async def keep_outputs(
        self, notebook: NotebookId, run: RunId, outputs: Mapping[int, Output], dropped: range
    ) -> None:
        """Journal what a run under way has shown since: by its place among all, each in place of what was there, and
        the places of what is no longer kept. Seen once the run is found unfinished; nobody waits for it.

        Safe from the end of any process at once, from a power failure when anything after it is on disk. A run that
        has ended, or is gone, stays as it is.
        """

    async def finish_run(self, notebook: NotebookId, run: Run) -> None:
        """Journal how the run ended, with its outputs. A run whose cell is gone is kept in the journal."""

    async def mark_stale(self, notebook: NotebookId, marks: Mapping[RunId, bool]) -> None:
        """Say of each of these runs whether the namespace was rolled back to before it."""

    async def find_run(self, notebook: NotebookId, run: RunId) -> Run | None:
        """Of the journal, without what it printed."""
        ...

    async def outline(self, notebook: NotebookId) -> list[Run]:
        """The journal, oldest first, without sources, values and outputs."""
        ...

    async def list_runs(self, notebook: NotebookId) -> list[Run]:
        """The journal, oldest first."""
        ...

    async def find_displayed(self, notebook: NotebookId, display_id: str) -> list[Run]:
        """Ended runs that have shown something under this display id."""
        ...

    async def mark_unfinished(self) -> int:
        """Runs that no living server is running become INTERRUPTED; how many there were."""
        ...

    def hold(self, notebook: NotebookId) -> bool:
        """Reserve the notebook's kernel for this process; False where another process has it."""
        ...

    def release(self, notebook: NotebookId) -> None: ...

    async def close(self) -> None: ...


class Shares(Protocol):
    """Which notebooks are shared with whom. When a method returns, its change is on disk."""

    async def put(self, notebook: NotebookId, whom: Principal, access: Access | None) -> None:
        """In place of what they could do before; None: nothing any more."""

    async def of(self, notebook: NotebookId) -> dict[Principal, Access]:
        """With whom, in the order of their names."""
        ...

    async def shared_with(self, whom: Principal) -> list[tuple[Notebook, Access]]:
        """Oldest notebook first."""
        ...


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token, without what proves it."""

    caller: Caller
    created_at: float  # seconds since the epoch


class Tokens(Protocol):
    """Secrets that prove who a caller is. Only their digests are kept; what another process changes counts at once."""

    def add(self, name: Principal, *, admin: bool) -> str:
        """A new one, told this once. Raises Refused where the name has one."""
        ...

    def remove(self, name: Principal) -> None:
        """Raises NotFound."""

    def all(self) -> list[TokenInfo]:
        """In the order of their names."""
        ...

    def whose(self, token: str) -> Caller | None: ...


class Blobs(Protocol):
    """Bytes by content: the same bytes are kept once. When `put` returns they are on disk."""

    async def put(self, data: bytes) -> Blob: ...

    async def get(self, blob: Blob) -> bytes:
        """Raises NotFound where they are gone or no longer what their name says."""
        ...
