"""The notebooks of each user: create, find, list and delete them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

import anyio
import anyio.to_thread

from quire.core.errors import InvalidRequest, NotFound
from quire.core.limits.validation import Limits, check_name, check_policy
from quire.core.model import DocumentLocation, Notebook, NotebookId, Policy, Principal
from quire.core.ops.change_bus import Change, Feed
from quire.core.phrases import existing
from quire.core.ports.jupyter import RUNTIME
from quire.core.ports.store import NotebookStore

CreateDocument = Callable[[str, str], Awaitable[DocumentLocation]]

MAIN = "main"
"""The notebook of calls that name none."""


class Notebooks:
    def __init__(
        self,
        store: NotebookStore,
        feed: Feed,
        limits: Limits,
        runtimes: list[str],
        create_document: CreateDocument | None = None,
    ) -> None:
        """The first of `runtimes` is the default. `create_document` finds or creates the document of a notebook on a
        Jupyter server, given the server's name and the path."""
        self._store = store
        self._feed = feed
        self._limits = limits
        self._runtimes = runtimes
        self._create_document = create_document
        self._naming = anyio.Lock()

    async def create(
        self,
        owner: Principal,
        name: str | None = None,
        runtime: str | None = None,
        policy: Policy | None = None,
        document: DocumentLocation | None = None,
    ) -> Notebook:
        if name is None:
            async with self._naming:  # two calls at once must not choose the same free name
                return await self.create(owner, await self._free_name(owner), runtime, policy, document)
        runtime = self._runtimes[0] if runtime is None else runtime
        if runtime not in self._runtimes:
            raise InvalidRequest(f"There is no runtime {runtime!r}; there is {', '.join(self._runtimes)}.")
        name = check_name(name)
        policy = check_policy(policy or Policy(), self._limits, runtime)
        if runtime == RUNTIME and document is None and self._create_document is not None:
            if await self._store.find_notebook(owner, name) is not None:  # checked before a document is created
                raise InvalidRequest(f"There is a notebook called {name!r} already. Use it, or choose another name.")
            document = await self._create_document("", f"{name}.ipynb")
        notebook = Notebook(
            id=NotebookId(uuid4().hex),
            name=name,
            owner=owner,
            runtime=runtime,
            created_at=time.time(),
            policy=policy,
            document=document,
        )
        return await self.add(notebook)

    async def add(self, notebook: Notebook) -> Notebook:
        """Store a new notebook. Raises OverLimit if its owner has the maximum number."""
        return await self._store.create_notebook(notebook, limit=self._limits.max_notebooks)

    async def get(self, owner: Principal, name: str) -> Notebook:
        """Raises NotFound for an unknown name."""
        found = await self._store.find_notebook(owner, check_name(name, new=False))
        if found is None:
            raise await no_such_notebook(name, [notebook.name for notebook in await self.list_notebooks(owner)])
        return found

    async def find(self, owner: Principal, name: str) -> Notebook | None:
        return await self._store.find_notebook(owner, check_name(name))

    async def get_or_create(self, owner: Principal, name: str) -> Notebook:
        found = await self._store.find_notebook(owner, check_name(name, new=False))
        if found is not None:
            return found
        try:
            return await self.create(owner, name)
        except InvalidRequest:  # another call created it meanwhile
            return await self.get(owner, name)

    async def list_notebooks(self, owner: Principal) -> list[Notebook]:
        return await self._store.list_notebooks(owner)

    async def delete(self, notebook: Notebook) -> None:
        """Delete the notebook and its cells. A document on a Jupyter server stays there."""
        await self._store.delete_notebook(notebook.id)
        self._feed.tell(Change(notebook=notebook))

    async def _free_name(self, owner: Principal) -> str:
        taken = {notebook.name for notebook in await self._store.list_notebooks(owner)}
        return next(name for n in range(1, len(taken) + 2) if (name := f"notebook-{n}") not in taken)


async def no_such_notebook(name: str, names: list[str]) -> NotFound:
    """The error for a name that none of these notebooks has."""
    there = await anyio.to_thread.run_sync(existing, name, names)  # there may be thousands
    return NotFound(
        f"No notebook is called {name!r}. {there}",
        agent="create_notebook makes one.",
        person="`quire list` shows them." if names else "`quire exec CODE --notebook NAME` makes one.",
    )
