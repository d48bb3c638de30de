"""Sandbox sessions: notebooks on a WebAssembly runtime, one for each client and language unless named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import anyio.to_thread

from quire.core.checkpoints.restorer import SnapshotRestorer
from quire.core.errors import InvalidRequest, NotFound
from quire.core.kernels.slots import KernelSlots
from quire.core.model import Notebook, Policy, Principal
from quire.core.notebooks.access import Access
from quire.core.notebooks.current import Client
from quire.core.notebooks.service import Notebooks
from quire.core.notebooks.sharing import Sharing
from quire.core.phrases import existing
from quire.core.ports.files import Folders, FolderUsage
from quire.core.runs.active_run import ActiveRuns, StopReason

RUNTIMES = {"python": "wasm-python", "javascript": "wasm-javascript"}
"""The runtime of sessions, by language."""

FileStates = dict[str, tuple[int, int]]
"""Size and modification time of each file of a workspace."""

_MAX_COMPARED_FILES = 10_000
_MAX_LARGEST_FILES = 10


class SessionFiles:
    """The files in the workspaces of sandbox sessions."""

    def __init__(self, folders: Folders, workspace: Callable[[Notebook], str], own_root: Path) -> None:
        """`own_root` holds the folders that Quire created. Any other folder is a person's."""
        self._folders = folders
        self._workspace = workspace
        self._own_root = str(own_root)

    async def usage(self, session: Notebook) -> tuple[FolderUsage, tuple[str, ...]]:
        """The bytes and files of the workspace, and its largest files with their sizes."""
        path = self._workspace(session)
        states = await self._folders.stat_files(path, _MAX_COMPARED_FILES)
        largest = sorted(states, key=lambda name: -states[name][0])[:_MAX_LARGEST_FILES]
        return await self._folders.measure(path), tuple(f"{name} ({states[name][0]:,} bytes)" for name in largest)

    async def states(self, session: Notebook) -> FileStates:
        """The files of the workspace, for `changed_since`."""
        path = self._workspace(session)
        # without a thread if there are few files, on the disk of our own data
        states = self._folders.stat_files_inline(path) if self._is_own(path) else None
        return await self._folders.stat_files(path, _MAX_COMPARED_FILES) if states is None else states

    async def changed_since(self, session: Notebook, before: FileStates) -> list[str]:
        """Files that were added, changed or deleted since."""
        after = await self.states(session)
        names = before.keys() | after.keys()
        return sorted(name for name in names if before.get(name) != after.get(name))

    async def delete(self, session: Notebook, other_notebooks: list[Notebook]) -> bool:
        """Delete the workspace, unless another notebook uses it or Quire did not create it. Returns whether it did."""
        path = self._workspace(session)
        if not self._is_own(path) or path in map(self._workspace, other_notebooks):
            return False
        await self._folders.remove(path)
        return True

    def _is_own(self, path: str) -> bool:
        return os.path.dirname(path) == self._own_root  # noqa: PTH120 - called twice in each call


class SandboxSessions:
    def __init__(
        self,
        notebooks: Notebooks,
        sharing: Sharing,
        slots: KernelSlots,
        active: ActiveRuns,
        restorer: SnapshotRestorer | None,
        files: SessionFiles,
    ) -> None:
        self._notebooks = notebooks
        self._sharing = sharing
        self._slots = slots
        self._active = active
        self._restorer = restorer
        self.files = files

    async def get_or_create_default(self, client: Client, language: str) -> Notebook:
        """The client's own session."""
        name = self.default_name(client, language)
        found = await self._notebooks.find(client.principal, name)
        return found or await self._notebooks.create(client.principal, name, RUNTIMES[language])

    def default_name(self, client: Client, language: str) -> str:
        """The name of a client's own session. Clients without a transport session share one."""
        if client.session is None:
            return f"{language}-session"
        return f"{language}-session-{hashlib.sha256(client.session.encode()).hexdigest()[:8]}"

    async def create(self, client: Client, language: str, name: str | None, policy: Policy) -> Notebook:
        name = name or await self._free_name(client.principal, language)
        return await self._notebooks.create(client.principal, name, RUNTIMES[language], policy)

    async def _free_name(self, owner: Principal, language: str) -> str:
        taken = {notebook.name for notebook in await self._notebooks.list_notebooks(owner)}
        return next(name for n in range(1, len(taken) + 2) if (name := f"{language}-{n}") not in taken)

    async def get(self, client: Client, name: str, needed: Access = Access.WRITE) -> Notebook:
        try:
            found = await self._sharing.find(client, name, needed)
        except NotFound:
            raise NotFound(f"{await self._no_session(client, name)}") from None
        if found.runtime not in RUNTIMES.values():
            raise InvalidRequest(f"{name!r} is a notebook of the runtime {found.runtime}, no sandbox session.")
        return found

    async def _no_session(self, client: Client, name: str) -> str:
        names = [session.name for session in await self.list_sessions(client)]
        there = await anyio.to_thread.run_sync(existing, name, names)
        return f"No session is called {name!r}. {there} create_session makes one."

    async def list_sessions(self, client: Client) -> list[Notebook]:
        """The caller's sessions, oldest first."""
        notebooks = await self._notebooks.list_notebooks(client.principal)
        return [notebook for notebook in notebooks if notebook.runtime in RUNTIMES.values()]

    async def delete(self, session: Notebook) -> bool:
        """Stop the session's runs, end its kernel and delete its cells, saved states and files. Returns whether the
        files were deleted."""
        self._active.stop(session.id, StopReason.INTERRUPT)
        await self._slots.forget(session)
        if self._restorer is not None:
            await self._restorer.drop_all(session)
        await self._notebooks.delete(session)
        return await self.files.delete(session, await self._notebooks.list_notebooks(session.owner))

    @asynccontextmanager
    async def temporary(self, client: Client, language: str) -> AsyncIterator[Notebook]:
        """A session that is deleted at the end of the block."""
        session = await self.create(client, language, f"{language}-once-{uuid4().hex[:8]}", Policy())
        try:
            yield session
        finally:
            await self.delete(session)
