"""What the core needs from outside, each a small protocol whose docstring is its contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from quire.core.access import Access, Caller
from quire.core.capability import Catalog
from quire.core.model import (
    Blob,
    Cell,
    CellId,
    Census,
    Died,
    Edit,
    KernelSpec,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    Principal,
    Restored,
    Run,
    RunId,
    RuntimeInfo,
    Snapshot,
    SnapshotId,
    Swept,
)
from quire.wire import messages, relay


class Kernel(Protocol):
    """One live namespace. One run or question at a time; the caller takes turns.

    A checkpoint is the namespace as it was when it was taken, under a name; START is the kernel as it began,
    which is always there.
    """

    @property
    def alive(self) -> bool:
        """Whether code can run in it now. One that is not may still be restored."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it began empty: one that was there before may hold anything."""
        ...

    @property
    def patience(self) -> float:
        """Seconds it has beyond the usual ones to heed an interrupt before it is killed: some where that costs all its
        variables."""
        ...

    async def begin(self, run: messages.Run) -> None:
        """Hand over the code; its events follow from `event`."""

    async def event(self) -> messages.Event | Died:
        """The next event of the run, in order; the last is Finished or Died. Safe to cancel and call again."""
        ...

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event | Died:
        """The answer to a question about the namespace, between runs."""
        ...

    async def answer(self, answer: messages.Answer) -> None:
        """What a person said to Asked."""

    async def offer(self, catalog: Catalog) -> None:
        """Have the code find these capabilities, from the next run on; nothing where it has that catalog already."""

    def interrupt(self) -> None:
        """Ask the running code to stop, as Ctrl-C does. The namespace is kept."""

    async def kill(self) -> None:
        """End what runs the code now, whatever it does, with all it started. Checkpoints stay."""

    @property
    def checkpoints(self) -> Mapping[str, Census]:
        """Those there are, oldest first."""
        ...

    async def checkpoint(self, name: str) -> float | str:
        """Take one, between runs: the seconds of work it took, or a sentence's end: why there is none."""
        ...

    async def thin_out(self, named: set[str]) -> None:
        """Drop what exceeds the memory checkpoints may hold: oldest first, named ones last, never the newest."""

    async def sizes(self) -> Mapping[str, int]:
        """Bytes that dropping each checkpoint would free."""
        ...

    async def restore(self, name: str) -> None:
        """Put the namespace back to a checkpoint, which is used up by that: take another of the same name. Raises
        Failed where it cannot be."""

    def forget(self, name: str) -> None:
        """Let a checkpoint go."""

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        """Write a checkpoint down, while cells run. `base` is the checkpoint that the draft's base was written of,
        `limit` how many bytes at the most, `values` whether JSON is to say what it can. Raises Failed."""
        ...

    async def load(self, recipe: Recipe) -> Restored:
        """Begin anew with what a snapshot holds; checkpoints stay. Raises Failed, and is as it began, where it cannot
        be loaded."""
        ...

    async def branch(self, name: str, spec: KernelSpec) -> Kernel:
        """A second kernel that begins at a checkpoint of this one and outlives it. Raises Failed."""
        ...

    def memory(self) -> int:
        """Bytes of its own that it holds now, about: what runs the code, and its checkpoints."""
        ...

    async def close(self) -> None:
        """End everything, checkpoints too, whatever it does; wait until it is gone. Twice is once."""


START = ""
"""The name of the state a kernel began with."""


class Runtime(Protocol):
    """A way to make kernels."""

    async def start(self, spec: KernelSpec) -> Kernel:
        """A new kernel, ready to run. Raises Failed with the reason where none can be had."""
        ...

    async def about(self) -> RuntimeInfo:
        """How it stands, and the walls its kernels are put behind on this machine; waits until it is warm."""
        ...

    @property
    def spares(self) -> int:
        """Kernels that are kept ready, for new notebooks."""
        ...

    async def ready(self) -> None:
        """Wait until a kernel could be started at once. Raises Failed with the reason where none could."""
        ...


@dataclass(frozen=True)
class Memory:
    """Of a machine, in bytes."""

    total: int
    available: int


class Machine(Protocol):
    """What everything here runs on."""

    def memory(self) -> Memory:
        """As it is now; quick."""
        ...


class Relay(Protocol):
    """What a runtime brings its kernels' calls to; it is the core's."""

    async def call(self, spec: KernelSpec, called: relay.Called) -> relay.Answer:
        """What a kernel's code asks of a capability. Never raises; cancelled where nobody waits any more."""
        ...

    def native(self, spec: KernelSpec, capabilities: list[dict[str, Any]]) -> None:
        """The capabilities a kernel's code offers itself, all there are now."""


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


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A snapshot being written: files for the kernel to read and write, as descriptors. See wire/chunks.py."""

    notebook: NotebookId
    file: int  # to be written
    base: int  # a recipe of the snapshot it differs little from; -1 where there is none


@dataclass(frozen=True, kw_only=True)
class Written:
    """A draft that is done: how many bytes of chunks, entries and manifest it holds."""

    chunks: int
    entries: int
    manifest: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A snapshot to be loaded: descriptors of its recipe and of the packs that names. Whoever has it closes them."""

    file: int
    packs: tuple[int, ...]


class Snapshots(Protocol):
    """Namespaces written down, each chunk of them once. When a method returns, its change is on disk; whatever
    happens meanwhile, what was published before stays whole."""

    async def begin(self, notebook: NotebookId, base: Snapshot | None) -> Draft:
        """A place to write one. Raises Failed where the disk is full."""
        ...

    async def publish(self, draft: Draft, written: Written, *, run: RunId | None, name: str) -> Snapshot:
        """Check what was written, keep what is new, sign it. A name replaces the notebook's snapshot of that name.
        Raises Failed, and keeps nothing of it, where it is not whole or the disk is full."""
        ...

    def abandon(self, draft: Draft) -> None:
        """Close its files; to be called after publishing, too."""

    async def of(self, notebook: NotebookId) -> list[Snapshot]:
        """A notebook's, oldest first."""
        ...

    async def open(self, snapshot: Snapshot) -> Recipe:
        """Raises Failed where it is damaged, lacks a piece, is not signed by this store, or is a newer Quire's."""
        ...

    async def values(self, snapshot: Snapshot) -> dict[str, Any]:
        """Those that JSON can say, by name, where they were asked for when it was written."""
        ...

    async def write_out(self, notebook: str, name: str, text: str) -> str:
        """Keep a copy for people to read; where it lies."""
        ...

    async def drop(self, snapshots: list[SnapshotId]) -> None: ...

    async def sweep(self, *, dry: bool = False) -> Swept:
        """Let go of chunks that no snapshot names; with `dry` only say how much that would free."""
        ...

    async def close(self) -> None: ...
