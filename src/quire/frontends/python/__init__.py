"""Quire as Python objects, for programs that embed it."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from anyio import Path as AsyncPath
from anyio import to_thread

from quire.core.app import App
from quire.core.capabilities.approvals import Approvals
from quire.core.capabilities.request import parse_approve, parse_backend
from quire.core.checkpoints.checkpoint_list import Checkpoint
from quire.core.checkpoints.saved_states import SavedStates
from quire.core.checkpoints.timeline import RollbackResult
from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import LOCAL, CellKind, CellState, Output, Policy, Snapshot
from quire.core.model import Cell as CellData
from quire.core.model import Notebook as NotebookData
from quire.core.notebooks import safe_files
from quire.core.notebooks.access import LOCAL_CALLER, Access
from quire.core.notebooks.images import Image
from quire.core.notebooks.outputs import find_image
from quire.core.notebooks.service import MAIN
from quire.core.ports.files import Listing
from quire.notebook_format import files

log = logging.getLogger(__name__)


class Quire:
    """The notebooks of the local user."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def notebook(self, name: str = MAIN) -> Notebook:
        """The notebook of that name, created if missing; another user's is `owner/name`."""
        if "/" in name:
            return Notebook(self._app, await self._app.sharing.find(LOCAL_CALLER, name))
        return Notebook(self._app, await self._app.notebooks.get_or_create(LOCAL, name))

    async def create(self, name: str | None = None, runtime: str | None = None, **policy: Any) -> Notebook:
        """A new notebook. `policy`: isolation, on_error, python, memory, cpu, processes, output, fuel."""
        return Notebook(self._app, await self._app.notebooks.create(LOCAL, name, runtime, Policy(**policy)))

    async def notebooks(self) -> list[str]:
        return [notebook.name for notebook in await self._app.notebooks.list_notebooks(LOCAL)]

    async def tree(self) -> dict[str, str | None]:
        """Each notebook with the one it branched off, if any."""
        books = await self._app.notebooks.list_notebooks(LOCAL)
        names = {book.id: book.name for book in books}
        return {book.name: names.get(book.origin.notebook) if book.origin else None for book in books}

    async def install_capability(self, name: str, **backend: Any) -> list[str]:
        """Make an MCP server an object in every notebook; its tools. `backend`: command, url, env, headers, auth,
        config, approve."""
        reached = parse_backend(name, backend, self._app.backends.described)
        capability = await self._app.capabilities.install(LOCAL, name, reached, parse_approve(backend))
        return [tool.name for tool in capability.offered.tools]

    async def uninstall_capability(self, name: str) -> None:
        await self._app.capabilities.uninstall(LOCAL, name)

    async def capabilities(self) -> dict[str, str]:
        """Each with how it is."""
        return {each.name: health for each, health in await self._app.capabilities.all(LOCAL)}

    @property
    def approvals(self) -> Approvals:
        """Calls that wait for a person's word: `with q.approvals.watching():`, then pending() and answer()."""
        return self._app.approvals


class Notebook:
    def __init__(self, app: App, data: NotebookData) -> None:
        self._app = app
        self._data = data

    @property
    def name(self) -> str:
        return self._data.title

    async def add_cell(
        self,
        source: str,
        *,
        execute: bool = True,
        at: int | None = None,
        timeout: float | None = None,
        kind: CellKind = CellKind.CODE,
    ) -> Cell:
        """Append (or insert at a number) and, for code, run to the end."""
        if not execute or kind is not CellKind.CODE:
            return self._cell(await self._app.cells.add(self._data, source, kind, at))
        active = await self._app.runs.start(self._data, source, at=at, timeout=timeout, author="python")
        cell = await self._app.runs.wait(active, active.timeout + _OVERTIME)
        return Cell(self._app, self._data, cell, active.notice)

    async def cell(self, which: str | int) -> Cell:
        return self._cell(await self._app.cells.get(self._data, which))

    async def cells(self) -> list[Cell]:
        return [self._cell(cell) for cell in await self._app.cells.list_cells(self._data)]

    async def value(self, name: str) -> Any:
        """A variable's value. Only what JSON can say leaves a kernel; NotFound where there is no such name."""
        answer = await self._app.inspector.read_variable(self._data, name)
        if answer.value:
            return answer.value[0]
        if not answer.what:
            raise NotFound(f"There is no variable {name!r} in notebook {self.name!r}.")
        raise InvalidRequest(f"{name!r} is a {answer.what}, which JSON cannot say. Read a plain part of it in a cell.")

    async def interrupt(self) -> Cell:
        return self._cell(await self._app.runs.interrupt(self._data))

    async def reset(self) -> None:
        """A clean namespace; the cells stay."""
        await self._app.kernels.reset(self._data)

    async def checkpoints(self) -> list[Checkpoint]:
        """The states it can be rolled back to, oldest first."""
        return await self._app.checkpoints.list_checkpoints(self._data)

    async def keep(self, name: str) -> None:
        """Give the state it is in now a name; named checkpoints are dropped last."""
        await self._app.timeline.name_checkpoint(self._data, name)

    async def rollback(self, to: str | int) -> RollbackResult:
        """To after a cell, "before" a cell, a checkpoint, a name given by keep, or "start"."""
        return await self._app.timeline.rollback(self._data, to)

    async def branch(self, name: str, at: str | int | None = None) -> Notebook:
        """A new notebook that begins with the namespace as it is now, or was at a place as rollback takes it."""
        return Notebook(self._app, await self._app.branches.create(self._data, name, at))

    async def save(self, name: str = "default") -> Snapshot:
        """Save the namespace to disk under a name."""
        return (await self._saving().save(self._data, name))[0]

    async def restore(self, name: str = "default") -> RollbackResult:
        """Put the namespace back to a saved state; `back` of the answer says what did not come with it."""
        return await self._app.timeline.restore(self._data, name)

    async def snapshots(self) -> list[Snapshot]:
        """Its states on disk, oldest first; those with a name were saved by `save`."""
        return await self._app.restorer.list_snapshots(self._data) if self._app.restorer is not None else []

    async def load(self, path_or_text: str | Path) -> list[Cell]:
        """Append the cells of a notebook: an ipynb or a script with `# %%` cells, as a file or as its text."""
        if isinstance(path_or_text, Path):
            text = await safe_files.read_file(path_or_text)
            given = await to_thread.run_sync(files.loads, path_or_text.name, text)
        else:
            given = await files.document(path_or_text, lambda path: safe_files.read_file(Path(path)))
        for note in given.notes:
            log.warning("%s: %s", self.name, note)
        return [
            self._cell(cell) for cell in await self._app.documents.import_cells(self._data, given.cells, given.metadata)
        ]

    async def export(self, path: str | Path | None = None) -> str:
        """The notebook as an ipynb, or for a path that ends with .py as a script; written there where there is one."""
        text = await self._app.documents.export(self._data, partial(files.dumps, str(path or "")))
        if path is not None:
            target = Path(await AsyncPath(path).resolve())  # what a link leads to is written, and the link stays
            await to_thread.run_sync(safe_files.write_file, target, text)
        return text

    async def mirror(self, path: str | Path) -> None:
        """Keep the file as the notebook is, from now on; "" ends that."""
        self._data = await self._app.mirrors.set(self._data, path)

    @property
    def files(self) -> Files:
        """Those of its workspace."""
        return Files(self._app, self._data)

    def _saving(self) -> SavedStates:
        if self._app.saved_states is None:
            raise InvalidRequest("Nothing is kept: the setting store.kind is `memory`.")
        return self._app.saved_states

    async def share(self, with_whom: str, access: str = "read") -> dict[str, str]:
        """Let another user of a server on this data directory "read" or "write" it; "none" ends that. With whom it is
        shared then."""
        if access not in ("read", "write", "none"):
            raise InvalidRequest(f"access is 'read', 'write' or 'none'; got {access!r}.")
        given = None if access == "none" else Access(access)
        shares = await self._app.sharing.share(self._data, with_whom, given)
        return {str(whom): str(has) for whom, has in shares.items()}

    async def shares(self) -> dict[str, str]:
        """With whom it is shared, and how."""
        return {str(whom): str(has) for whom, has in (await self._app.sharing.list_shares(self._data)).items()}

    async def import_statements(self) -> list[str]:
        return (await self._app.cells.list_definitions(self._data))[0]

    async def function_definitions(self) -> list[str]:
        return (await self._app.cells.list_definitions(self._data))[1]

    def _cell(self, cell: CellData) -> Cell:
        return Cell(self._app, self._data, cell)


class Files:
    """The files of a notebook's workspace; paths are relative to it. Links are not followed."""

    def __init__(self, app: App, notebook: NotebookData) -> None:
        self._app = app
        self._notebook = notebook

    async def list(self, path: str = ".") -> Listing:
        """What a folder holds; `more` says how many names are left out."""
        return await self._app.files.list(self._notebook, path)

    async def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """A whole file, or with `limit` at most so many bytes of it from `start` on."""
        if limit is None and not start:
            return await self._app.files.read_whole(self._notebook, path)
        return (await self._app.files.read(self._notebook, path, start, limit)).data

    async def write(self, path: str, data: str | bytes, *, append: bool = False) -> int:
        """All of it or nothing; the bytes the file has then."""
        encoded = data.encode("utf-8") if isinstance(data, str) else data
        return await self._app.files.write(self._notebook, path, encoded, append=append)


_OVERTIME = 60.0  # seconds past its timeout a run is waited for: interrupt, grace, kill, last words


class Cell:
    """A cell as it was when asked for."""

    def __init__(self, app: App, notebook: NotebookData, data: CellData, notice: str = "") -> None:
        self._app = app
        self._notebook = notebook
        self._data = data
        self._notice = notice

    @property
    def id(self) -> str:
        return self._data.id

    @property
    def number(self) -> int:
        return self._data.number

    @property
    def source(self) -> str:
        return self._data.source

    @property
    def version(self) -> int:
        return self._data.version

    @property
    def state(self) -> CellState:
        return self._data.state

    @property
    def stale(self) -> bool:
        """Whether the namespace was rolled back to before its last run."""
        return self._data.stale

    @property
    def notice(self) -> str:
        """What is to be said beside its outputs: what came back from disk, what was lost. Of a cell just run only."""
        return self._notice

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self._data.outputs

    async def text(self) -> str:
        """Everything it printed and showed, as plain text."""
        parts = [output.bundle.get("text/plain", "") for output in self.outputs]
        return "\n".join([(await self._app.outputs.read_text(part)).rstrip("\n") for part in parts])

    async def images(self) -> list[Image]:
        count = sum(1 for output in self.outputs if find_image(output))
        return [await self._app.outputs.read_image(self._data, index) for index in range(count)]
