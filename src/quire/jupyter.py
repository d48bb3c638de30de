"""The Jupyter servers that the settings name, and those that are handed in, as what the core works with."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.clients.jupyter.server.registry import Address, Link, Links, Server, Servers
from quire.core.errors import OperationFailed
from quire.core.ops.change_bus import Change, Feed
from quire.core.ports.store import Blobs, Store
from quire.runtimes.jupyter.directory import JupyterRoom
from quire.runtimes.jupyter.runtime import NAME, JupyterRuntime
from quire.settings import Settings
from quire.stores.documents import DocumentStore
from quire.stores.placed import PlacedStore

if TYPE_CHECKING:
    from quire.stores.temporary import TemporaryStore


@dataclass(frozen=True, kw_only=True)
class Jupyter:
    """Everything of it that an App needs."""

    servers: Servers
    documents: DocumentStore
    store: PlacedStore
    runtime: JupyterRuntime
    room: JupyterRoom


def elsewhere(
    settings: Settings, stack: AsyncExitStack, kept: Store, blobs: Blobs, feed: Feed, given: Links | None
) -> Jupyter:
    """Over the store that keeps all other notebooks, which `stack` closes after all this. Those given come first."""
    servers = Servers(_reach)
    documents = DocumentStore(servers, blobs, trust_outputs=settings.jupyter_trust_outputs)
    runtime = JupyterRuntime(servers)
    store = PlacedStore(kept, documents, open_temporary)
    stack.push_async_callback(store.close)
    for name, link in (given or {}).items():
        servers.put(Server(name=name, url="", link=link, kernel_link=link))
    for name, address in addresses(settings).items():
        servers.put(servers.make(name, address))
    stack.push_async_callback(servers.close)
    documents.changed = lambda notebook: feed.tell(Change(notebook=notebook))
    return Jupyter(
        servers=servers,
        documents=documents,
        store=store,
        runtime=runtime,
        room=JupyterRoom(servers, runtime, settings.jupyter_document or ""),
    )


def open_temporary() -> TemporaryStore:
    from quire.stores.temporary import TemporaryStore

    try:
        return TemporaryStore()
    except OSError as error:
        folder = tempfile.gettempdir()
        raise OperationFailed(
            f"The temporary folder {folder} cannot be used: {error.strerror}. Set TMPDIR to another."
        ) from error


def _reach(url: str, token: str) -> Link:
    from quire.clients.jupyter.client import remote

    return remote(url, secret(token))


def secret(value: str) -> str:
    """A token as it is, or as env:NAME or file:/path refers to it. Raises OperationFailed where there is nothing."""
    from quire.capabilities.secrets import Secrets

    return Secrets(os.environ).resolve(value)


def addresses(settings: Settings) -> dict[str, Address]:
    """By name; the first without one is `jupyter`."""
    found: dict[str, Address] = {}
    for place, entry in enumerate(settings.jupyter_url):
        name, url = _named(entry, NAME if not place else f"{NAME}-{place + 1}")
        kernel = _named(_at(settings.jupyter_kernel_url, place), "")[1]
        token, kernel_token = _at(settings.jupyter_token, place), _at(settings.jupyter_kernel_token, place)
        found[name] = Address.of(url, token, kernel, kernel_token)
    return found


def _named(entry: str, otherwise: str) -> tuple[str, str]:
    found = re.fullmatch(r"(?:(?P<name>[\w.-]+)=)?(?P<url>https?://.*)", entry)
    return (found["name"] or otherwise, found["url"]) if found else (otherwise, entry)


def _at(values: tuple[str, ...], place: int) -> str:
    return values[place] if place < len(values) else ""
