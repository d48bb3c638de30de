"""Whose notebook a call means: the one it names, else this client's current one, else `main`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from quire.core.access import Access, Caller
from quire.core.kernels import Kernels
from quire.core.model import Notebook, Principal
from quire.core.notebooks import MAIN, Notebooks
from quire.core.sharing import Sharing

_SESSIONS = 10_000  # of one principal; the longest unused are forgotten, their notebooks stay

_NOTHING: OrderedDict[Client, str] = OrderedDict()


@dataclass(frozen=True, kw_only=True)
class Client(Caller):
    """A caller, and the session its transport gives it, where it gives one."""

    session: str | None = None


class Current:
    def __init__(self, notebooks: Notebooks, sharing: Sharing, kernels: Kernels) -> None:
        self._notebooks = notebooks
        self._sharing = sharing
        self._kernels = kernels
        self._chosen: dict[Principal, OrderedDict[Client, str]] = {}

    async def notebook(self, client: Client, name: str | None = None, needed: Access = Access.WRITE) -> Notebook:
        if name == MAIN:
            return await self._notebooks.get_or_create(client.principal, MAIN)
        if name is not None:
            return await self._sharing.find(client, name, needed)
        chosen = self._of(client).get(client)
        if chosen is not None:
            self._of(client).move_to_end(client)
            return await self._sharing.find(client, chosen, needed)
        return await self._default(client)

    def peek(self, client: Client) -> str:
        """The name of the notebook a call without one would mean, making none."""
        return self._of(client).get(client, MAIN)

    def chosen(self, client: Client) -> str | None:
        """The name of the notebook this client made current; None where it made none."""
        return self._of(client).get(client)

    def leave(self, client: Client, name: str) -> str | None:
        """It is this client's current one no more; which is then."""
        if self._of(client).get(client) == name:
            del self._of(client)[client]
        return self.chosen(client)

    def use(self, client: Client, notebook: Notebook) -> None:
        chosen = self._chosen.setdefault(client.principal, OrderedDict())
        chosen[client] = notebook.title
        chosen.move_to_end(client)
        while len(chosen) > _SESSIONS:
            chosen.popitem(last=False)

    def _of(self, client: Client) -> OrderedDict[Client, str]:
        return self._chosen.get(client.principal, _NOTHING)

    async def _default(self, client: Client) -> Notebook:
        """`main`; where another server on this data directory runs it, `main-2`, and so on."""
        number = 1
        while True:
            name = MAIN if number == 1 else f"{MAIN}-{number}"
            notebook = await self._notebooks.get_or_create(client.principal, name)
            if self._kernels.held(notebook):
                if number > 1:
                    self.use(client, notebook)
                return notebook
            number += 1
