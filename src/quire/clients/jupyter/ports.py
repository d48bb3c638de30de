"""Interface of a Jupyter client: documents that people edit at the same time, and kernels that they use.

Both are implemented over HTTP and websockets (remote) and inside the server (local). Without jupyter-collaboration,
documents are plain files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

NbCell = dict[str, Any]
"""A cell of nbformat 4.5, with its source as one string."""

NbOutput = dict[str, Any]
"""An output of nbformat 4.5, with each text as one string."""


class JupyterError(Exception):
    """The server refused a request or failed. The message says what to do."""


class Missing(JupyterError):
    """The document, folder, kernel or kernelspec does not exist."""


class Unreachable(JupyterError):
    """The server did not answer, or denied access."""


class CellChanged(JupyterError):
    """The cell was changed since it was read. `cell` is its current state."""

    def __init__(self, message: str, cell: NbCell) -> None:
        super().__init__(message)
        self.cell = cell


class KernelDied(JupyterError):
    """The kernel ended or was restarted during a request."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or folder below the server's root."""

    path: str
    kind: str  # notebook, directory or file
    size: int | None = None  # bytes
    modified: str = ""  # in the server's format


@dataclass(frozen=True, kw_only=True)
class KernelInfo:
    """A running kernel."""

    id: str
    spec: str  # the kernelspec's name
    display_name: str = ""
    language: str = ""
    state: str = ""  # idle, busy, starting, dead …
    connections: int = 0
    last_activity: str = ""  # in the server's format
    environment: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()  # documents that use it


@dataclass(frozen=True, kw_only=True)
class SpecInfo:
    """A kernelspec: a kind of kernel that can be started."""

    name: str
    display_name: str
    language: str


class Document(Protocol):
    """An open notebook. Reads are local and fast. Edits are transactions that merge with what people type; each returns
    when it was sent to the server. Cells are identified by their ids."""

    @property
    def path(self) -> str: ...

    @property
    def live(self) -> bool:
        """Whether edits of others arrive immediately. False for plain files."""
        ...

    def cells(self) -> list[NbCell]:
        """Copies of the cells, in order."""
        ...

    def metadata(self) -> dict[str, Any]: ...

    def version(self, cell: str) -> int:
        """Starts at 1 and grows with every change of the cell's source, by anyone."""
        ...

    async def insert(self, at: int, cells: Sequence[NbCell]) -> list[str]:
        """Insert cells before index `at` and return their ids. A given id is kept if no other cell has it."""
        ...

    async def delete(self, cell: str) -> None: ...

    async def move(self, cell: str, to: int) -> None: ...

    async def change(
        self,
        cell: str,
        *,
        source: str | None = None,
        kind: str | None = None,
        metadata: dict[str, Any] | None = None,
        expected: int | None = None,
    ) -> None:
        """Change what is given. Only the part of the source that differs is replaced, so that cursors stay. Raises
        CellChanged if `expected` is not the cell's version."""

    async def begin_run(self, cell: str) -> None:
        """Show [*] and no outputs."""

    async def set_outputs(self, cell: str, outputs: Sequence[NbOutput], *, start: int = 0) -> None:
        """Replace the outputs from index `start` on. Text that only grew is appended in place."""

    async def end_run(self, cell: str, count: int | None) -> None:
        """Show [count]."""

    async def save(self) -> None:
        """Return when the document is in its file."""

    def watch(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` after each change by others. Returns a function that stops it."""
        ...

    async def close(self) -> None:
        """Closing twice has no effect."""


class Documents(Protocol):
    async def open(self, path: str) -> Document:
        """Raises Missing, and JupyterError if the path is outside the root or the file is not a notebook."""
        ...

    async def create(self, path: str, kernel: str | SpecInfo = "") -> Document:
        """Create an empty notebook and missing parent folders. A kernelspec given by name is one of this server.
        Raises JupyterError if the path exists."""
        ...

    async def list_folder(self, path: str = "") -> list[Entry]:
        """The contents of a folder. Raises Missing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message about an execution, with `kind` and `content` of the Jupyter messaging protocol."""

    kind: str
    content: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


class Execution(Protocol):
    """Code that runs in a kernel."""

    async def next_message(self) -> Message:
        """The next message in order, including input_request. The last one is execute_reply, after all outputs.
        Raises KernelDied immediately if the kernel ends. Can be cancelled and called again."""
        ...

    async def reply(self, text: str) -> None:
        """Answer an input_request."""


class KernelConnection(Protocol):
    """A connection to one kernel. It reconnects when it breaks."""

    @property
    def info(self) -> KernelInfo:
        """With the state that the kernel reported last."""
        ...

    @property
    def alive(self) -> bool: ...

    async def execute(
        self,
        code: str,
        *,
        silent: bool = False,
        store_history: bool = True,
        allow_stdin: bool = False,
        stop_on_error: bool = True,
        user_expressions: dict[str, str] | None = None,
    ) -> Execution: ...

    async def interrupt(self) -> None: ...

    async def restart(self) -> None: ...

    async def close(self) -> None:
        """Close the connection; the kernel keeps running. Closing twice has no effect."""


class Kernels(Protocol):
    async def list_running(self) -> list[KernelInfo]: ...

    async def exists(self, kernel: str) -> bool:
        """Whether a kernel with this id runs."""
        ...

    async def list_specs(self) -> tuple[str, list[SpecInfo]]:
        """The name of the default kernelspec, and all kernelspecs."""
        ...

    async def find_for_document(self, path: str) -> KernelInfo | None:
        """The kernel of the document's session: the one that a person's page uses."""
        ...

    async def start(self, *, path: str = "", spec: str = "") -> KernelInfo:
        """Start a kernel. With `path` it becomes the kernel of that document, also for its page. Raises Missing."""
        ...

    async def assign(self, path: str, kernel: str) -> None:
        """Make a running kernel the kernel of the document."""

    async def connect(self, kernel: str) -> KernelConnection:
        """Raises Missing."""
        ...

    async def shut_down(self, kernel: str) -> None:
        """A kernel that has ended already is not an error."""
