"""What the core needs of Jupyter servers beside their kernels and documents: which there are, and what is on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from quire.core.model import DocumentLocation, Notebook

RUNTIME = "jupyter"
"""The runtime of notebooks whose document is on a Jupyter server."""


@dataclass(frozen=True, kw_only=True)
class JupyterServer:
    """One that is known."""

    name: str
    url: str  # "" of the one that Quire runs in
    live: bool | None = None  # whether its documents are edited together; None where it was not asked
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class JupyterFile:
    path: str  # below the server's root
    kind: str  # notebook, directory or file
    size: int | None  # bytes
    modified: str


@dataclass(frozen=True, kw_only=True)
class JupyterKernel:
    """One that runs on a server."""

    id: str
    spec: str
    display_name: str
    language: str
    state: str
    connections: int
    last_activity: str
    environment: dict[str, str]
    paths: tuple[str, ...]  # documents that use it


class Jupyter(Protocol):
    """The Jupyter servers there are. A name that is "" means the first. Raises NotFound where there is no such thing,
    OperationFailed if a server does not answer, InvalidRequest if it refuses."""

    @property
    def document(self) -> str:
        """Path on the first server that is in use unless a client uses another; "" without servers."""
        ...

    def servers(self) -> list[JupyterServer]: ...

    async def connect(
        self, url: str, token: str, *, name: str = "", kernel_url: str = "", kernel_token: str = ""
    ) -> JupyterServer:
        """One more, once it has answered; of one whose address is known, the token is another from now on. What was
        there stays as it is where that fails."""
        ...

    async def files(self, server: str, path: str) -> list[JupyterFile]:
        """What lies in a folder."""
        ...

    async def kernels(self, server: str) -> list[JupyterKernel]: ...

    async def has_kernel(self, server: str, kernel: str) -> bool:
        """Whether a kernel with this id runs on the server."""
        ...

    async def specs(self, server: str) -> tuple[str, dict[str, str]]:
        """The default kernelspec, and of all the languages by their names."""
        ...

    async def check_kernel(self, server: str, kernel: str) -> str:
        """The kernelspec of a kernel by its id, or of this name; "" for NEW, and where it is not known. Raises NotFound
        where there is neither."""
        ...

    async def place(self, server: str, path: str, *, spec: str = "", create: bool | None = None) -> DocumentLocation:
        """The document there, open: a new one with `create`, one that is there without, either where that is None."""
        ...

    async def adopt(self, place: DocumentLocation, kernel: str) -> DocumentLocation:
        """Have the document run in a kernel by its id, or in a new one: NEW, or a kernelspec's name. Where the document
        has another kernel that one stays its page's."""
        ...

    def live(self, place: DocumentLocation) -> bool:
        """Whether what people type in the document is seen at once."""
        ...

    async def kernel_of(self, notebook: Notebook) -> str:
        """The id of the kernel that runs the notebook now; "" where none does."""
        ...

    async def restart(self, notebook: Notebook) -> bool:
        """Empty its kernel, whatever runs there; False where it has none."""
        ...

    async def end_kernel(self, notebook: Notebook) -> None:
        """End the kernel that was started for it and named in its place, unless a notebook still runs there."""
        ...

    def unsaved(self, notebook: Notebook) -> str:
        """What to say where the last save of its document failed; "" where all is well. It is tried again then."""
        ...

    async def save(self, notebook: Notebook) -> str:
        """Save its document to its file. Returns a notice if the server or the file is gone. Raises InvalidRequest if
        the server does not write it."""
        ...

    async def let_go(self, notebook: Notebook) -> None:
        """Save its document and close it."""
