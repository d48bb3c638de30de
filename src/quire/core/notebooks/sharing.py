"""Shared notebooks: find them by name for a caller, list them, change who may use them."""

from __future__ import annotations

from dataclasses import replace

from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, Notebook, NotebookId, Principal
from quire.core.notebooks.access import (
    LOCAL_CALLER,
    Access,
    Caller,
    check_access,
    check_principal,
    effective_access,
    parse_name,
)
from quire.core.notebooks.service import Notebooks, no_such_notebook
from quire.core.ports.store import Shares


class Sharing:
    def __init__(self, shares: Shares, notebooks: Notebooks) -> None:
        self._shares = shares
        self._notebooks = notebooks

    async def find(self, caller: Caller, name: str, needed: Access = Access.WRITE) -> Notebook:
        """The caller's own notebook by `name`, another user's by `owner/name`.

        Raises NotFound for an unknown name, and the same if the caller must not learn that it exists."""
        owner, own = parse_name(name)
        if owner is None or owner == caller.principal:
            return await self._notebooks.get(caller.principal, own)
        found = await self._notebooks.find(owner, own)
        has = (
            effective_access(caller, owner, (await self._shares.list_access(found.id)).get(caller.principal))
            if found
            else None
        )
        if found is None or has is None:
            raise await no_such_notebook(name, [found.title for found, _ in await self.list_accessible(caller)])
        seen = replace(found, seen_as=f"{owner}/{own}")
        check_access(seen, has, needed)
        return seen

    async def list_accessible(self, caller: Caller) -> list[tuple[Notebook, Access]]:
        """The caller's own notebooks, then those shared with the caller, each with the access."""
        own = [(notebook, Access.OWN) for notebook in await self._notebooks.list_notebooks(caller.principal)]
        shared = await self._shares.list_shared_with(caller.principal)
        return own + [(replace(other, seen_as=f"{other.owner}/{other.name}"), has) for other, has in shared]

    async def has_access(self, caller: Caller, notebook: Notebook, needed: Access) -> bool:
        if caller.is_trusted or caller.principal == notebook.owner:
            return True
        has = (await self._shares.list_access(notebook.id)).get(caller.principal)
        return has is not None and has.covers(needed)

    async def share(self, notebook: Notebook, user: str, access: Access | None) -> dict[Principal, Access]:
        """Share the notebook with a user, or end that if `access` is None. Returns all shares."""
        principal = check_principal(user)
        if principal == notebook.owner:
            raise InvalidRequest(f"{notebook.title} belongs to {user!r} already. Nothing was changed.")
        if access is Access.OWN:
            raise InvalidRequest("A notebook has one owner: share it to read or to write.")
        await self._shares.set_access(notebook.id, principal, access)
        return await self.list_shares(notebook)

    async def list_shares(self, notebook: Notebook) -> dict[Principal, Access]:
        return await self._shares.list_access(notebook.id)

    async def code_caller(self, notebook: NotebookId, owner: Principal) -> Caller:
        """The caller that requests of a notebook's code count as: its owner. It is the trusted local user only if no
        other user may write the code."""
        if owner == LOCAL and Access.WRITE not in (await self._shares.list_access(notebook)).values():
            return LOCAL_CALLER
        return Caller(principal=owner)
