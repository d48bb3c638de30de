"""Builds everything for Jupyter servers: those in the settings, and the server that Quire runs in."""

from __future__ import annotations

import os
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.clients.jupyter.client import JupyterClient
from quire.clients.jupyter.server.address import Address
from quire.clients.jupyter.server.registry import Clients, Server, ServerRegistry
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.kernel import Relay
from quire.core.ports.store import Blobs
from quire.runtimes.jupyter.directory import JupyterDirectory
from quire.runtimes.jupyter.runtime import NAME, JupyterRuntime, LiveKernels
from quire.settings import Settings
from quire.storage import open_temporary
from quire.stores.documents import JupyterDocuments
from quire.stores.routing import RoutingStore

if TYPE_CHECKING:
    from quire.stores.sql import SqlStore


@dataclass(frozen=True, kw_only=True)
class Jupyter:
    """The parts that an App needs."""

    servers: ServerRegistry
    live: LiveKernels
    store: RoutingStore
    directory: JupyterDirectory

    def runtime(self, calls: Relay) -> JupyterRuntime:
        return JupyterRuntime(self.servers, self.live, calls)


def build_jupyter(
    settings: Settings, stack: AsyncExitStack, database: SqlStore, blobs: Blobs, feed: Feed, clients: Clients | None
) -> Jupyter:
    """`database` has all notebooks without a document; `stack` closes it last. `clients` come before the servers of
    the settings."""
    servers, live = ServerRegistry(_create_client), LiveKernels()
    documents = JupyterDocuments(servers, lambda notebook: feed.tell(Change(notebook=notebook)))
    store = RoutingStore(database, documents, blobs, open_temporary, trust_outputs=settings.jupyter.trust_outputs)
    stack.push_async_callback(store.close)
    for name, client in (clients or {}).items():
        servers.add(Server(name, client))
    for name, address in addresses(settings).items():
        servers.add(servers.create(name, address))
    stack.push_async_callback(servers.close)
    directory = JupyterDirectory(servers, live, settings.jupyter.document or "")
    return Jupyter(servers=servers, live=live, store=store, directory=directory)


def _create_client(url: str, token: str) -> JupyterClient:
    from quire.clients.jupyter.client import remote_client

    return remote_client(url, resolve_secret(token))


def resolve_secret(value: str) -> str:
    """A token, or the one that env:NAME or file:/path refers to. Raises OperationFailed if it does not exist."""
    from quire.capabilities.secrets import Secrets

    return Secrets(os.environ).resolve(value)


def addresses(settings: Settings) -> dict[str, Address]:
    """Addresses by name. The first one without a name is `jupyter`."""
    found: dict[str, Address] = {}
    for index, entry in enumerate(settings.jupyter.url):
        name, url = _split_name(entry, NAME if not index else f"{NAME}-{index + 1}")
        kernel_url = _split_name(_value_at(settings.jupyter.kernel_url, index), "")[1]
        token, kernel_token = _value_at(settings.jupyter.token, index), _value_at(settings.jupyter.kernel_token, index)
        found[name] = Address.parse(url, token, kernel_url, kernel_token)
    return found


def _split_name(entry: str, default: str) -> tuple[str, str]:
    found = re.fullmatch(r"(?:(?P<name>[\w.-]+)=)?(?P<url>https?://.*)", entry)
    return (found["name"] or default, found["url"]) if found else (default, entry)


def _value_at(values: tuple[str, ...], index: int) -> str:
    return values[index] if index < len(values) else ""
