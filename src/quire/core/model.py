"""The things Quire speaks of, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NewType

Principal = NewType("Principal", str)
NotebookId = NewType("NotebookId", str)
CellId = NewType("CellId", str)
RunId = NewType("RunId", str)
SnapshotId = NewType("SnapshotId", str)

LOCAL = Principal("local")
"""The user this process belongs to."""


class CellState(StrEnum):
    IDLE = "IDLE"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"
    INTERRUPTED = "INTERRUPTED"
    CRASHED = "CRASHED"

    @property
    def failed(self) -> bool:
        return self not in (CellState.IDLE, CellState.RUNNING, CellState.SUCCESS)


class CellKind(StrEnum):
    CODE = "code"
    MARKDOWN = "markdown"
    RAW = "raw"


class OutputType(StrEnum):
    STREAM = "stream"
    EXECUTE_RESULT = "execute_result"
    ERROR = "error"
    IMAGE = "image"
    HTML = "html"
    DATAFRAME = "dataframe"


@dataclass(frozen=True, kw_only=True)
class Blob:
    """Bytes kept beside the store, named by their content."""

    digest: str
    size: int
    text: bool = False  # whether it was text, kept as UTF-8


Data = str | bytes | Blob
"""One entry of a MIME bundle: text, bytes just arrived, or where kept bytes are."""


Attachments = dict[str, dict[str, Data]]
"""Files a cell's text refers to, by name, each a MIME bundle."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """One thing a run showed, with its whole MIME bundle.

    `name` is the stream's (stdout, stderr) or the exception's; `result` marks the last expression's value.
    `metadata` is the document's; `about` what Quire knows of it: a picture's width, height and source, an
    exception's message, a table's name.
    """

    type: OutputType
    bundle: dict[str, Data]
    metadata: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    result: bool = False
    display_id: str = ""  # what a later update names it by


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The notebook a branch came from, and the run after which it did; None: before its first run."""

    notebook: NotebookId
    run: RunId | None
    root: NotebookId  # the first of the family, in whose workspace they all work


@dataclass(frozen=True, kw_only=True)
class DocumentLocation:
    """Where a notebook's document is: a path on a Jupyter server, and the kind of kernel that runs it. Without a path
    it is a kernel alone."""

    server: str  # what it is called here
    path: str = ""  # below its root
    spec: str = ""  # the kernelspec of a kernel that has to be started; "" as the document or the server says
    kernel: str = ""  # the id of the one that is meant, whatever its document


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How one notebook's code runs, where it is not as the settings say."""

    isolation: str = "session"  # or "cell": every cell in a process of its own, state carried on by fork
    on_error: str = "keep"  # or "rollback": a run that fails leaves no trace in the namespace
    python: str = ""  # an interpreter of its own
    memory: int | None = None  # bytes; None as the settings say
    cpu: float | None = None  # seconds a run
    processes: int | None = None
    output: int | None = None  # bytes kept of a run
    shell: str = ""  # or "ipython": IPython itself runs every cell
    network: tuple[str, ...] | None = None  # hosts its code may connect to; None all that the settings grant
    fuel: int | None = None  # instructions a run in WebAssembly may take


@dataclass(frozen=True, kw_only=True)
class Notebook:
    id: NotebookId
    name: str
    owner: Principal
    runtime: str
    created_at: float  # seconds since the epoch
    runs: int = 0  # how many runs it has had: the last execution count
    cells: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    policy: Policy = Policy()
    origin: Origin | None = None  # where it branched off
    mirror: str = ""  # the ipynb file that is kept as it is
    document: DocumentLocation | None = None  # its cells are there; None: they are in the store
    seen_as: str = ""  # owner/name, for a caller who does not own it; never stored

    @property
    def title(self) -> str:
        """The name by which the caller found it."""
        return self.seen_as or self.name


@dataclass(frozen=True, kw_only=True)
class Run:
    """One execution of a cell, as the journal keeps it."""

    id: RunId
    cell: CellId
    count: int
    source: str
    author: str
    started_at: float  # seconds since the epoch
    seconds: float | None = None  # None while it runs
    state: CellState = CellState.RUNNING
    cause: str = ""  # why it ended, where the outputs do not say: a crash, a timeout, an interrupt
    value: list[Any] = field(default_factory=list)  # [the last expression's value] where JSON can say it
    outputs: tuple[Output, ...] = ()
    imports: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    parent: RunId | None = None  # the run whose state it began with; None in a fresh kernel
    stale: bool = False  # the namespace was rolled back to before it


@dataclass(frozen=True, kw_only=True)
class Cell:
    id: CellId
    number: int  # 0-based place in the notebook
    kind: CellKind
    source: str
    version: int = 1  # grows with each edit
    run: Run | None = None  # the last one
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: Attachments = field(default_factory=dict)
    behind: bool = False  # it, or a cell before it, was changed after it ran

    @property
    def stale(self) -> bool:
        """What it shows is not what its notebook would show now, run from the top."""
        return self.kind is CellKind.CODE and (self.behind or (self.run is not None and self.run.stale))

    @property
    def state(self) -> CellState:
        return self.run.state if self.run else CellState.IDLE

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.run.outputs if self.run else ()


@dataclass(frozen=True, kw_only=True)
class NewCell:
    """A cell to be added; `run` only where it comes with one, from an ipynb, as does the id it is given if free."""

    source: str
    kind: CellKind = CellKind.CODE
    run: Run | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: Attachments = field(default_factory=dict)
    id: CellId = CellId("")

    def to_cell(self, id_: CellId, number: int, run: Run | None) -> Cell:
        return Cell(
            id=id_,
            number=number,
            kind=self.kind,
            source=self.source,
            run=run,
            metadata=self.metadata,
            attachments=self.attachments,
        )


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What is to be different about a cell; None leaves it as it is. A metadata key given as None is removed."""

    source: str | None = None
    kind: CellKind | None = None
    metadata: dict[str, Any] | None = None

    def changes(self, cell: Cell) -> bool:
        """Whether code is another now: what it and later cells show is from before that."""
        return (self.source, self.kind) != (None, None) and CellKind.CODE in (cell.kind, self.kind)

    def of(self, cell: Cell) -> Cell:
        """The cell edited."""
        merged = {**cell.metadata, **(self.metadata or {})}
        return replace(
            cell,
            source=cell.source if self.source is None else self.source,
            kind=cell.kind if self.kind is None else self.kind,
            metadata={key: value for key, value in merged.items() if value is not None},
            version=cell.version + 1,
            behind=cell.behind or (self.changes(cell) and cell.run is not None),
        )


@dataclass(frozen=True, kw_only=True)
class Died:
    """A kernel's last event: its process is gone."""

    reason: str  # a sentence: what happened
    hint: str = ""  # a sentence: what to do
    lives: bool = False  # the process is another's and goes on there: only this run is let go of


@dataclass(frozen=True, kw_only=True)
class ForkReport:
    """What a checkpoint is worth: `lost` names what a kernel woken from it will not have."""

    quality: str  # clean, degraded, or hostile: a library it uses will not work
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A thing that a snapshot does not have, or that did not come back from it."""

    name: str  # the variable it is, or is in
    what: str
    why: str
    run: RunId | None = None  # the one that bound the variable


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A namespace written down: a durable checkpoint."""

    id: SnapshotId
    notebook: NotebookId
    run: RunId | None  # the run after which it was; None: before the first
    name: str  # the one save_state gave it; "" where it was taken by itself
    created_at: float  # seconds since the epoch
    python: str
    size: int  # bytes it describes
    added: int  # bytes it took on disk
    seconds: float  # a trial load took
    variables: dict[str, str]  # name to type with size
    functions: tuple[dict[str, str], ...]  # name, signature, docstring, source
    lost: tuple[Loss, ...]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep of the snapshots deleted, and what is left."""

    freed: int  # bytes
    chunks: int  # that were dropped
    kept: int  # bytes


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What came of loading a snapshot."""

    variables: int
    lost: tuple[Loss, ...]
    notes: tuple[str, ...]  # what is different now: versions, a folder that is gone
    seconds: float


@dataclass(frozen=True, kw_only=True)
class KernelLimits:
    """What a notebook's code may use; 0 is no limit."""

    memory: int = 0  # bytes of data each process may have
    cpu: float = 0  # seconds of processor time a run may take
    processes: int = 0  # at once
    file: int = 0  # bytes each file may have
    fuel: int = 0  # instructions a run in WebAssembly may take


@dataclass(frozen=True)
class Layer:
    """One of the walls around a kernel: it stands, or why it does not."""

    name: str
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class RuntimeInfo:
    """A runtime as it stands on this machine, or why it does not start here."""

    name: str
    version: str = ""
    packages: tuple[str, ...] = ()  # loaded ahead
    layers: tuple[Layer, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class Mount:
    """A folder or file of the machine that code may see beside its workspace, or write."""

    path: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """What a runtime needs to know to make a kernel."""

    notebook: NotebookId
    name: str  # the notebook's
    owner: Principal
    workspace: str  # the folder its code works in
    python: str = ""  # the interpreter; "" is the runtime's own
    ipython: bool = False  # IPython itself runs every cell
    network: tuple[str, ...] = ()  # hosts code may connect to, each with or without a port
    mounts: tuple[Mount, ...] = ()
    limits: KernelLimits = KernelLimits()
    checkpoint_bytes: int = 0  # memory all its checkpoints may hold; the newest is kept all the same
    document: DocumentLocation | None = None
