"""What a Jupyter server gives: documents that people edit meanwhile, and kernels that they use.

Two protocols, each implemented from outside (HTTP and websockets), from inside (a server extension), and documents
once more over plain contents, where no collaboration is installed. Which one it is, is chosen once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

NbCell = dict[str, Any]
"""A cell as nbformat 4.5 writes it, its source one string."""

NbOutput = dict[str, Any]
"""An output as nbformat 4.5 writes it, each text one string."""


class JupyterError(Exception):
    """What a server refused or did not do, as a sentence that says what to do."""


class Missing(JupyterError):
    """There is no such document, folder, kernel or kernelspec."""


class Unreachable(JupyterError):
    """The server did not answer, or would not let us in."""


class CellChanged(JupyterError):
    """A cell is not the one that was read: `cell` is how it stands now."""

    def __init__(self, message: str, cell: NbCell) -> None:
        super().__init__(message)
        self.cell = cell


class KernelDied(JupyterError):
    """The kernel ended, or was restarted, while something was awaited of it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file or folder below the server's root."""

    path: str
    kind: str  # notebook, directory or file
    size: int | None = None  # bytes
    modified: str = ""  # as the server writes it


@dataclass(frozen=True, kw_only=True)
class KernelInfo:
    """A kernel that runs."""

    id: str
    spec: str  # the kernelspec's name
    display_name: str = ""
    language: str = ""
    state: str = ""  # idle, busy, starting, dead …
    connections: int = 0
    last_activity: str = ""  # as the server writes it
    environment: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()  # documents that use it


@dataclass(frozen=True, kw_only=True)
class SpecInfo:
    """A kernelspec: a kind of kernel that can be started."""

    name: str
    display_name: str
    language: str


class Document(Protocol):
    """One notebook as it is this moment. Reads are local and quick. Edits are transactions that merge with what
    people type; each returns when it is handed to the server. Cells are named by their ids."""

    @property
    def path(self) -> str: ...

    @property
    def live(self) -> bool:
        """Whether what others type is seen at once; False over plain contents."""
        ...

    def cells(self) -> list[NbCell]:
        """Copies, in order."""
        ...

    def metadata(self) -> dict[str, Any]: ...

    def version(self, cell: str) -> int:
        """Grows whenever anybody changes the cell's source; begins at 1."""
        ...

    async def insert(self, at: int, cells: Sequence[NbCell]) -> list[str]:
        """Before place `at`; their ids, given ones kept where they are free."""
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
        """What is given; of a source only what differs, so that a cursor in it stays. Raises CellChanged where
        `expected` is not the version."""

    async def begin_run(self, cell: str) -> None:
        """It shows [*] and no outputs."""

    async def set_outputs(self, cell: str, outputs: Sequence[NbOutput], *, start: int = 0) -> None:
        """These in place of its outputs from `start` on; text that only grew is appended to in place."""

    async def end_run(self, cell: str, count: int | None) -> None:
        """It shows [count] from now on."""

    async def save(self) -> None:
        """Back when it is in the file."""

    def watch(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call this whenever somebody else changed something; returns what ends that."""
        ...

    async def close(self) -> None:
        """Let go of it. Twice is once."""


class Documents(Protocol):
    async def open(self, path: str) -> Document:
        """Raises Missing; JupyterError for a path outside the root or a file that is no notebook."""
        ...

    async def create(self, path: str, kernel: str | SpecInfo = "") -> Document:
        """A new, empty one, with folders above it, that names a kernelspec: of its own server where it is given by
        name. Raises JupyterError where there is something already."""
        ...

    async def list_folder(self, path: str = "") -> list[Entry]:
        """What lies in a folder. Raises Missing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a kernel says of an execution: `kind` and `content` as Jupyter's messaging has them."""

    kind: str
    content: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


class Execution(Protocol):
    """Code on its way through a kernel."""

    async def next_message(self) -> Message:
        """The next message in order, input_request among them; the last is execute_reply, once all outputs are there.
        Raises KernelDied at once where the kernel ends. Safe to cancel and call again."""
        ...

    async def reply(self, text: str) -> None:
        """What an input_request asked for."""


class KernelConnection(Protocol):
    """One kernel, spoken to over one lasting connection, which is made again when it breaks."""

    @property
    def info(self) -> KernelInfo:
        """As last heard."""
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
        """Let go of it; the kernel lives on. Twice is once."""


class Kernels(Protocol):
    async def list_running(self) -> list[KernelInfo]: ...

    async def list_specs(self) -> tuple[str, list[SpecInfo]]:
        """The default one's name, and all."""
        ...

    async def find_for_document(self, path: str) -> KernelInfo | None:
        """The one that the person beside uses with this document."""
        ...

    async def start(self, *, path: str = "", spec: str = "") -> KernelInfo:
        """A new one; with a path the document's own from now on, which its page finds. Raises Missing."""
        ...

    async def assign(self, path: str, kernel: str) -> None:
        """Have the document use a kernel that runs already."""

    async def connect(self, kernel: str) -> KernelConnection:
        """Raises Missing."""
        ...

    async def shut_down(self, kernel: str) -> None:
        """End it. One that is gone already is no error."""
