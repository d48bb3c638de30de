"""Sandbox sessions: notebooks on a runtime of their own language, one for each client and language unless named."""

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
from quire.core.notebooks.editing import Notebooks
from quire.core.notebooks.sharing import Sharing
from quire.core.ops.change_bus import Change, Feed
from quire.core.phrases import existing
from quire.core.ports.files import Folders, Use
from quire.core.ports.store import Store
from quire.core.runs.active_run import ActiveRuns, Stop

RUNTIMES = {"python": "wasm-python", "javascript": "wasm-javascript"}
"""By the language, the runtime of its sessions."""

Seen = dict[str, tuple[int, int]]
"""Files of a workspace, with what tells whether one has changed."""

_CHANGES = 10_000  # files that are looked at
_LARGEST = 10  # of them are named


class Sandboxes:
    def __init__(
        self,
        store: Store,
        notebooks: Notebooks,
        slots: KernelSlots,
        active: ActiveRuns,
        sharing: Sharing,
        folders: Folders,
        feed: Feed,
        workspace: Callable[[Notebook], str],
        made: Path,
        restorer: SnapshotRestorer | None,
    ) -> None:
        """`made` is where folders lie that were made for notebooks; any other is a person's."""
        self._store = store
        self._notebooks = notebooks
        self._slots = slots
        self._active = active
        self._sharing = sharing
        self._folders = folders
        self._feed = feed
        self._workspace = workspace
        self._made = str(made)
        self._restorer = restorer

    async def of(self, client: Client, language: str) -> Notebook:
        """The client's own session, made on first use."""
        name = self.name_of(client, language)
        found = await self._notebooks.find(client.principal, name)
        return found or await self._notebooks.create(client.principal, name, RUNTIMES[language])

    def name_of(self, client: Client, language: str) -> str:
        """What a client's own session is called: each transport session has one, and those without share one."""
        if client.session is None:
            return f"{language}-session"
        return f"{language}-session-{hashlib.sha256(client.session.encode()).hexdigest()[:8]}"

    async def create(self, client: Client, language: str, name: str | None, policy: Policy) -> Notebook:
        name = name or await self._free_name(client.principal, language)
        return await self._notebooks.create(client.principal, name, RUNTIMES[language], policy)

    async def _free_name(self, who: Principal, language: str) -> str:
        taken = {notebook.name for notebook in await self._notebooks.of(who)}
        return next(name for n in range(1, len(taken) + 2) if (name := f"{language}-{n}") not in taken)

    async def named(self, client: Client, name: str, needed: Access = Access.WRITE) -> Notebook:
        try:
            found = await self._sharing.find(client, name, needed)
        except NotFound:
            raise NotFound(f"{await self._no_session(client, name)}") from None
        if found.runtime not in RUNTIMES.values():
            raise InvalidRequest(f"{name!r} is a notebook of the runtime {found.runtime}, no sandbox session.")
        return found

    async def _no_session(self, client: Client, name: str) -> str:
        names = [each.name for each in await self.all(client)]
        there = await anyio.to_thread.run_sync(existing, name, names)
        return f"No session is called {name!r}. {there} create_session makes one."

    async def all(self, client: Client) -> list[Notebook]:
        """The caller's sessions, oldest first."""
        return [each for each in await self._notebooks.of(client.principal) if each.runtime in RUNTIMES.values()]

    async def destroy(self, session: Notebook) -> bool:
        """Stop its runs, end it and delete its cells, its saved states and its files. Returns whether the files are
        gone: they stay where another notebook works in the same folder, and where Quire did not make the folder."""
        self._active.stop(session.id, Stop.INTERRUPT)
        await self._slots.forget(session)
        if self._restorer is not None:
            await self._restorer.drop_all(session)
        await self._store.delete_notebook(session.id)
        others = await self._notebooks.of(session.owner)
        place = self._workspace(session)
        goes = self._is_ours(place) and place not in map(self._workspace, others)
        if goes:
            await self._folders.remove(place)
        self._feed.tell(Change(notebook=session))
        return goes

    def _is_ours(self, place: str) -> bool:
        return os.path.dirname(place) == self._made  # noqa: PTH120 - asked for twice in each call

    @asynccontextmanager
    async def once(self, client: Client, language: str) -> AsyncIterator[Notebook]:
        """A session for as long as the block lasts."""
        session = await self.create(client, language, f"{language}-once-{uuid4().hex[:8]}", Policy())
        try:
            yield session
        finally:
            await self.destroy(session)

    async def use(self, session: Notebook) -> tuple[Use, tuple[str, ...]]:
        """What its files take, and the largest of them, each with its bytes."""
        place = self._workspace(session)
        seen = await self._folders.seen(place, _CHANGES)
        largest = sorted(seen, key=lambda name: -seen[name][0])[:_LARGEST]
        return await self._folders.measure(place), tuple(f"{name} ({seen[name][0]:,} bytes)" for name in largest)

    async def seen(self, session: Notebook) -> Seen:
        """The files of its workspace, to be compared later."""
        place = self._workspace(session)
        # at once where it holds little and is one of ours, on the disk our own data is on
        seen = self._folders.glance(place) if self._is_ours(place) else None
        return await self._folders.seen(place, _CHANGES) if seen is None else seen

    async def changed(self, session: Notebook, before: Seen) -> list[str]:
        """Files that were made, changed or taken away since."""
        after = await self.seen(session)
        every = before.keys() | after.keys()
        return sorted(name for name in every if before.get(name) != after.get(name))
