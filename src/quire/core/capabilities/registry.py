"""The capabilities of each principal: installed, kept, connected when first used, described and searched."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from quire.core.capabilities import names
from quire.core.capabilities.connection import Link
from quire.core.capabilities.model import Approve, Backend, Capability, Catalog, Offered
from quire.core.errors import InvalidRequest, NotInstalled, OperationFailed, QuireError
from quire.core.model import Principal
from quire.core.ops.task_groups import background
from quire.core.phrases import suggestion
from quire.core.ports.capabilities import Backends, Connection, Installed

log = logging.getLogger(__name__)
_MOST = 200  # capabilities of one principal
_CATALOG = 10_000_000  # characters of what kernels are told of them all


@dataclass
class _Shelf:
    """One principal's."""

    links: dict[str, Link]
    catalog: Catalog
    turn: anyio.Lock
    coming: set[str] = field(default_factory=set)  # names that are being connected to
    stamp: int = -1  # of what is installed, when it was last looked at


class Capabilities:
    def __init__(self, backends: Backends, installed: Installed, connect_timeout: float) -> None:
        self._backends = backends
        self._installed = installed
        self._connect_timeout = connect_timeout
        self._shelves: dict[Principal, _Shelf] = {}
        self._version = 0
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connections live in here; leaving it ends them all, and their processes."""
        async with background() as self._group:
            try:
                yield
            finally:
                self._group = None
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as group:
                        for shelf in self._shelves.values():
                            for link in shelf.links.values():
                                group.start_soon(link.close)

    async def install(
        self, owner: Principal, name: str, backend: Backend, approve: dict[str, Approve] | None = None
    ) -> Capability:
        """Connect, and keep it under this name; where that fails nothing is kept."""
        shelf = await self.refresh(owner)
        names.check(name, [*shelf.links, *shelf.coming])
        if len(shelf.links) + len(shelf.coming) >= _MOST:
            raise InvalidRequest(f"There are {_MOST} capabilities already. Uninstall one first.")
        shelf.coming.add(name)
        link = self._link(
            Capability(
                owner=owner,
                name=name,
                backend=backend,
                offered=Offered(),
                approve=approve or {},
                installed_at=time.time(),
            )
        )
        try:
            await link.connection()
            link.check_approve()
            async with shelf.turn:
                await self._installed.keep(link.capability)
                shelf.links[name] = link
                self._changed(shelf)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await link.close()
            if isinstance(error, OperationFailed):
                raise OperationFailed(f"{name} was not installed: {error.why or error}") from error
            raise
        finally:
            shelf.coming.discard(name)
        return link.capability

    async def uninstall(self, owner: Principal, name: str) -> None:
        """Forget it, and end its connection; calls under way end."""
        shelf = await self.refresh(owner)
        async with shelf.turn:
            link = self._find(shelf, name)
            await self._installed.drop(owner, name)
            del shelf.links[name]
            self._changed(shelf)
        with anyio.CancelScope(shield=True):
            await link.close()

    async def refresh(self, owner: Principal) -> _Shelf:
        """The principal's shelf, as it is on disk: another server may have put something there."""
        shelf = self._shelves.get(owner)
        if shelf is None:
            shelf = _Shelf(links={}, catalog=Catalog(version=0, entries=[]), turn=anyio.Lock())
            shelf = self._shelves.setdefault(owner, shelf)
        async with shelf.turn:
            shelf.stamp = self._installed.stamp()
            kept = {each.name: each for each in await self._installed.of(owner)}
            gone = [name for name, link in shelf.links.items() if not _same(link.capability, kept.get(name))]
            links = [shelf.links.pop(name) for name in gone]
            fresh = [name for name in kept if name not in shelf.links and name not in shelf.coming]
            for name in fresh:
                shelf.links[name] = self._link(kept[name])
            if gone or fresh:
                self._changed(shelf)
        for link in links:
            self._soon(link.close)
        return shelf

    async def catalog(self, owner: Principal) -> Catalog:
        """What kernels are told there is."""
        shelf = self._shelves.get(owner)
        if shelf is None or shelf.stamp != self._installed.stamp():
            shelf = await self.refresh(owner)
        return shelf.catalog

    async def all(self, owner: Principal) -> list[tuple[Capability, str]]:
        """Each with how it is."""
        shelf = await self.refresh(owner)
        return [(link.capability, link.health) for link in shelf.links.values()]

    async def link(self, owner: Principal, name: str) -> Link:
        shelf = self._shelves.get(owner) or await self.refresh(owner)
        if name not in shelf.links:
            shelf = await self.refresh(owner)
        return self._find(shelf, name)

    def _find(self, shelf: _Shelf, name: str) -> Link:
        if name not in shelf.links:
            known = ", ".join(shelf.links) or "none"
            raise NotInstalled(
                f"There is no capability {name!r}; installed: {known}.{suggestion(name, list(shelf.links))}",
                agent="install_capability adds one.",
                person="`quire capability add` adds one.",
            )
        return shelf.links[name]

    def _link(self, capability: Capability) -> Link:
        return Link(capability, self._connect, self._offers, self._soon)

    async def _connect(self, link: Link) -> Connection:
        return await self._backends.connect(link.capability.backend, link, timeout=self._connect_timeout)

    def _soon(self, work: Any, *given: Any) -> None:
        if self._group is not None:
            self._group.start_soon(work, *given)

    def _offers(self, link: Link) -> None:
        """It offers something else now: kernels hear of it with their next run, and it is kept."""
        shelf = self._shelves.get(link.capability.owner)
        if shelf is not None and shelf.links.get(link.capability.name) is link:
            self._changed(shelf)
            self._soon(self._keep, link)

    async def _keep(self, link: Link) -> None:
        try:
            await self._installed.renew(link.capability)
        except QuireError as error:  # a full disk: it is listed anew at the next connection
            log.warning("what %s offers now could not be kept: %s", link.capability.name, error)

    def _changed(self, shelf: _Shelf) -> None:
        self._version += 1
        every = [link.capability for link in shelf.links.values()]
        hidden = sorted(set[str]().union(*(self._backends.variables(each.backend) for each in every)))
        shelf.catalog = Catalog(version=self._version, entries=_fitting(every), hidden=hidden)


def _same(capability: Capability, kept: Capability | None) -> bool:
    return kept is not None and kept.installed_at == capability.installed_at


def _fitting(every: list[Capability]) -> list[dict[str, Any]]:
    """Entries of a size that kernels can be told: past it, a tool is its name."""
    left, found = _CATALOG, []
    for each in map(entry, every):
        size = len(json.dumps(each))
        if size > left:
            each["tools"] = [{"name": tool["name"]} for tool in each["tools"]]
            size = len(json.dumps(each))
        left -= size
        found.append(each)
    return found


def entry(capability: Capability) -> dict[str, Any]:
    """As kernels are told it."""
    offered = capability.offered
    return {
        "name": capability.name,
        "about": offered.about,
        "tools": [asdict(tool) for tool in offered.tools],
        "resources": offered.resources,
        "prompts": offered.prompts,
    }
