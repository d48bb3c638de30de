"""The installed capabilities of each principal: stored, and connected on first use."""

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
from quire.core.capabilities.connection import ReconnectingBackend
from quire.core.capabilities.model import Approve, Backend, Capability, Catalog, Offered
from quire.core.errors import InvalidRequest, NotInstalled, OperationFailed, QuireError
from quire.core.model import Principal
from quire.core.ops.task_groups import background
from quire.core.phrases import suggestion
from quire.core.ports.capabilities import Backends, CapabilityStore, Connection

log = logging.getLogger(__name__)
_MAX_CAPABILITIES = 200  # capabilities of one principal
_MAX_CATALOG_CHARS = 10_000_000  # of all entries, sent to kernels


@dataclass
class _OwnerCapabilities:
    """The capabilities of one principal."""

    backends: dict[str, ReconnectingBackend]
    catalog: Catalog
    turn: anyio.Lock
    connecting: set[str] = field(default_factory=set)  # names of those being installed
    stamp: int = -1  # of the stored capabilities, when last read


class CapabilityRegistry:
    def __init__(self, backends: Backends, installed: CapabilityStore, connect_timeout: float) -> None:
        self._backends = backends
        self._installed = installed
        self._connect_timeout = connect_timeout
        self._by_owner: dict[Principal, _OwnerCapabilities] = {}
        self._version = 0
        self._group: TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """The scope of all connections; on exit they and their processes end."""
        async with background() as self._group:
            try:
                yield
            finally:
                self._group = None
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as group:
                        for owned in self._by_owner.values():
                            for link in owned.backends.values():
                                group.start_soon(link.close)

    async def install(
        self, owner: Principal, name: str, backend: Backend, approve: dict[str, Approve] | None = None
    ) -> Capability:
        """Connect and store it; if that fails nothing is stored."""
        owned = await self.refresh(owner)
        names.check_name(name, [*owned.backends, *owned.connecting])
        if len(owned.backends) + len(owned.connecting) >= _MAX_CAPABILITIES:
            raise InvalidRequest(f"There are {_MAX_CAPABILITIES} capabilities already. Uninstall one first.")
        owned.connecting.add(name)
        link = self._make_link(
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
            async with owned.turn:
                await self._installed.save(link.capability)
                owned.backends[name] = link
                self._update_catalog(owned)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await link.close()
            if isinstance(error, OperationFailed):
                raise OperationFailed(f"{name} was not installed: {error.why or error}") from error
            raise
        finally:
            owned.connecting.discard(name)
        return link.capability

    async def uninstall(self, owner: Principal, name: str) -> None:
        """Remove it and close its connection with all calls."""
        owned = await self.refresh(owner)
        async with owned.turn:
            link = self._find(owned, name)
            await self._installed.delete(owner, name)
            del owned.backends[name]
            self._update_catalog(owned)
        with anyio.CancelScope(shield=True):
            await link.close()

    async def refresh(self, owner: Principal) -> _OwnerCapabilities:
        """The principal's capabilities as stored, since another server may have changed them."""
        owned = self._by_owner.get(owner)
        if owned is None:
            owned = _OwnerCapabilities(backends={}, catalog=Catalog(version=0, entries=[]), turn=anyio.Lock())
            owned = self._by_owner.setdefault(owner, owned)
        async with owned.turn:
            owned.stamp = self._installed.version()
            stored = {capability.name: capability for capability in await self._installed.list_for_owner(owner)}
            removed = [name for name, link in owned.backends.items() if not _is_same(link.capability, stored.get(name))]
            closing = [owned.backends.pop(name) for name in removed]
            added = [name for name in stored if name not in owned.backends and name not in owned.connecting]
            for name in added:
                owned.backends[name] = self._make_link(stored[name])
            if removed or added:
                self._update_catalog(owned)
        for link in closing:
            self._start_soon(link.close)
        return owned

    async def catalog(self, owner: Principal) -> Catalog:
        """The catalog for kernels, reread if the stored capabilities changed."""
        owned = self._by_owner.get(owner)
        if owned is None or owned.stamp != self._installed.version():
            owned = await self.refresh(owner)
        return owned.catalog

    async def all(self, owner: Principal) -> list[tuple[Capability, str]]:
        """Each capability with the state of its connection."""
        owned = await self.refresh(owner)
        return [(link.capability, link.health) for link in owned.backends.values()]

    async def link(self, owner: Principal, name: str) -> ReconnectingBackend:
        owned = self._by_owner.get(owner) or await self.refresh(owner)
        if name not in owned.backends:
            owned = await self.refresh(owner)
        return self._find(owned, name)

    def _find(self, owned: _OwnerCapabilities, name: str) -> ReconnectingBackend:
        if name not in owned.backends:
            known = ", ".join(owned.backends) or "none"
            raise NotInstalled(
                f"There is no capability {name!r}; installed: {known}.{suggestion(name, list(owned.backends))}",
                agent="install_capability adds one.",
                person="`quire capability add` adds one.",
            )
        return owned.backends[name]

    def _make_link(self, capability: Capability) -> ReconnectingBackend:
        return ReconnectingBackend(capability, self._connect, self._on_changed, self._start_soon)

    async def _connect(self, link: ReconnectingBackend) -> Connection:
        return await self._backends.connect(link.capability.backend, link, timeout=self._connect_timeout)

    def _start_soon(self, work: Any, *given: Any) -> None:
        if self._group is not None:
            self._group.start_soon(work, *given)

    def _on_changed(self, link: ReconnectingBackend) -> None:
        """The backend offers something else: kernels learn it with their next run, and it is stored."""
        owned = self._by_owner.get(link.capability.owner)
        if owned is not None and owned.backends.get(link.capability.name) is link:
            self._update_catalog(owned)
            self._start_soon(self._save, link)

    async def _save(self, link: ReconnectingBackend) -> None:
        try:
            await self._installed.update_offered(link.capability)
        except QuireError as error:  # a full disk; the next connection lists it again
            log.warning("what %s offers now could not be kept: %s", link.capability.name, error)

    def _update_catalog(self, owned: _OwnerCapabilities) -> None:
        self._version += 1
        capabilities = [link.capability for link in owned.backends.values()]
        variables = (self._backends.variables(capability.backend) for capability in capabilities)
        hidden = sorted(set[str]().union(*variables))
        owned.catalog = Catalog(version=self._version, entries=_catalog_entries(capabilities), hidden=hidden)


def _is_same(capability: Capability, stored: Capability | None) -> bool:
    return stored is not None and stored.installed_at == capability.installed_at


def _catalog_entries(capabilities: list[Capability]) -> list[dict[str, Any]]:
    """Entries of limited size: beyond it, a tool is only its name."""
    left, found = _MAX_CATALOG_CHARS, []
    for entry_ in map(catalog_entry, capabilities):
        size = len(json.dumps(entry_))
        if size > left:
            entry_["tools"] = [{"name": tool["name"]} for tool in entry_["tools"]]
            size = len(json.dumps(entry_))
        left -= size
        found.append(entry_)
    return found


def catalog_entry(capability: Capability) -> dict[str, Any]:
    """A capability as sent to kernels."""
    offered = capability.offered
    return {
        "name": capability.name,
        "about": offered.about,
        "tools": [asdict(tool) for tool in offered.tools],
        "resources": offered.resources,
        "prompts": offered.prompts,
    }
