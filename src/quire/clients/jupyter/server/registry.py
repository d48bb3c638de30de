"""The Jupyter servers that are known, by name: each reached when it is first needed, its documents opened once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit, urlunsplit

from quire.clients.jupyter.kernels.kernelspecs import spec_for
from quire.clients.jupyter.ports import Document, Documents, JupyterError, Kernels, Missing

log = logging.getLogger(__name__)
_LAST = 10.0  # seconds the end waits for a server


class Link(Protocol):
    """A way to one Jupyter server; see connecting.py."""

    @property
    def documents(self) -> Documents: ...

    @property
    def kernels(self) -> Kernels: ...

    @property
    def check(self) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Reach it, or raise Unreachable; what it is."""
        ...

    @property
    def close(self) -> Callable[[], Awaitable[None]]: ...


Links = Mapping[str, Link]
"""By the names that the servers are called here."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server is. Kernels may be on another."""

    url: str
    token: str = field(default="", repr=False)
    kernel_url: str = ""
    kernel_token: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str, token: str = "", kernel_url: str = "", kernel_token: str = "") -> Address:
        """As people write it: a page's address may carry its token."""
        url, token = _without_token(url, token)
        kernel_url, kernel_token = _without_token(kernel_url, kernel_token)
        return cls(url=url, token=token, kernel_url=kernel_url, kernel_token=kernel_token or token)


def _without_token(url: str, token: str) -> tuple[str, str]:
    parts = urlsplit(url)
    said = parse_qs(parts.query).get("token", [""])[0]
    path = parts.path.removesuffix("/").removesuffix("/lab").removesuffix("/tree")
    return urlunsplit(parts._replace(path=path, query="", fragment="")), token or said


@dataclass(kw_only=True)
class Server:
    """One that is connected; `kernel_link` is another where its kernels are elsewhere."""

    name: str
    url: str  # for people; "" of the one we run in
    link: Link
    kernel_link: Link
    kernel_url: str = ""
    ours: set[str] = field(default_factory=set)  # kernels that we started: they end with us
    _users: Counter[str] = field(default_factory=Counter)  # notebooks that are run by each kernel
    _open: dict[str, Document] = field(default_factory=dict)
    _opening: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    _saving: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _writing: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # those of them that have begun
    _unsaved: dict[str, str] = field(default_factory=dict)  # documents whose last save failed, and why

    @property
    def documents(self) -> Documents:
        return self.link.documents

    @property
    def kernels(self) -> Kernels:
        return self.kernel_link.kernels

    async def check(self) -> dict[str, Any]:
        if self.kernel_link is not self.link:
            await self.kernel_link.check()
        return await self.link.check()

    def opened(self, path: str) -> Document | None:
        return self._open.get(path)

    async def document(self, path: str) -> Document:
        """The document, which stays open until it is let go of."""
        async with self._opening[path]:
            found = self._open.get(path)
            if found is None:
                found = self._open[path] = await self.documents.open(path)
            return found

    async def create(self, path: str, kernel: str = "") -> Document:
        spec = await spec_for(self.kernels.specs, kernel) if kernel else None  # kernels may be on another server
        async with self._opening[path]:
            found = self._open[path] = await self.documents.create(path, spec or "")
            return found

    def moved(self, path: str, to: str) -> None:
        """An open document is at another path from now on."""
        document = self._open.get(path)
        if document is None or document.path != to:
            return  # known already
        del self._open[path]
        self._open.setdefault(to, document)
        if path in self._unsaved:
            self._unsaved[to] = self._unsaved.pop(path)
        if path in self._saving:
            self.save_soon(to)

    def save_soon(self, path: str) -> None:
        """Have it in its file, without anybody waiting for it."""
        if path in self._open and path not in self._saving:
            self._saving[path] = asyncio.create_task(self._save(path))

    async def _save(self, path: str) -> None:
        await asyncio.sleep(0)  # what comes in the same moment is saved with it
        task = self._saving.pop(path, None)
        if task is not None:
            self._writing[path] = task
        try:
            await self.save(path)
        except JupyterError as error:
            log.warning("saving %s on the Jupyter server %r: %s", path, self.name, error)
        finally:
            if self._writing.get(path) is task:
                del self._writing[path]

    async def save(self, path: str) -> None:
        """Back when an open document is in its file; why it is not is kept until it is."""
        document = self._open.get(path)
        if document is None:
            return
        try:
            await document.save()
        except JupyterError as error:
            self._unsaved[path] = str(error)
            raise
        self._unsaved.pop(path, None)

    def unsaved(self, path: str) -> str:
        """Why the last save of an open document failed; "" where it did not. Who asks has it tried again."""
        why = self._unsaved.get(path, "")
        if why and path not in self._writing:
            self.save_soon(path)
        return why

    async def let_go(self, path: str) -> None:
        """Close a document, saved; the file stays."""
        try:
            await self.save(path)
        except JupyterError as error:
            log.warning("the last changes of %s on the Jupyter server %r are not saved: %s", path, self.name, error)
        self._unsaved.pop(path, None)
        document = self._open.pop(path, None)
        if document is not None:
            with contextlib.suppress(JupyterError):
                await document.close()

    def use(self, kernel: str) -> None:
        """One more notebook is run by it."""
        self._users[kernel] += 1

    async def leave(self, kernel: str) -> None:
        """One less; the last one ends a kernel of ours."""
        self._users[kernel] -= 1
        if self._users[kernel] <= 0:
            del self._users[kernel]
            await self.end(kernel)

    async def end_unused(self, kernel: str) -> None:
        """Shut down a kernel of ours that runs no notebook."""
        if not self._users[kernel]:
            await self.end(kernel)

    async def end(self, kernel: str) -> None:
        """Shut down a kernel of ours."""
        if kernel in self.ours:
            self.ours.discard(kernel)
            await self.kernels.shutdown(kernel)

    async def close(self) -> None:
        """Let go of everything, and end the kernels that are ours."""
        with contextlib.suppress(JupyterError, TimeoutError):
            async with asyncio.timeout(_LAST):
                ends = (*(self.let_go(path) for path in list(self._open)), *map(self.end, list(self.ours)))
                await asyncio.gather(*ends, return_exceptions=True)
        for link in {id(each): each for each in (self.link, self.kernel_link)}.values():
            with contextlib.suppress(JupyterError, TimeoutError):
                async with asyncio.timeout(_LAST):
                    await link.close()


class Servers:
    def __init__(self, reach: Callable[[str, str], Link]) -> None:
        """`reach` makes the way to an address, given its token; without asking it anything yet."""
        self._reach = reach
        self._servers: dict[str, Server] = {}

    def make(self, name: str, address: Address) -> Server:
        """One that is not among them yet."""
        link = self._reach(address.url, address.token)
        elsewhere = bool(address.kernel_url) and address.kernel_url != address.url
        kernel_link = self._reach(address.kernel_url, address.kernel_token) if elsewhere else link
        url = address.kernel_url if elsewhere else ""
        return Server(name=name, url=address.url, link=link, kernel_link=kernel_link, kernel_url=url)

    def put(self, server: Server) -> None:
        self._servers[server.name] = server

    def all(self) -> list[Server]:
        return list(self._servers.values())

    def named(self, name: str = "") -> Server:
        """The first where none is named. Raises Missing."""
        if not name and self._servers:
            return next(iter(self._servers.values()))
        found = self._servers.get(name)
        if found is not None:
            return found
        there = f" There are: {', '.join(self._servers)}." if self._servers else ""
        which = f"The Jupyter server {name!r} is not connected" if name else "No Jupyter server is connected"
        raise Missing(
            f"{which}.{there} connect_to_jupyter connects one, or start Quire with --jupyter-url and --jupyter-token."
        )

    async def close(self) -> None:
        servers, self._servers = self.all(), {}
        await asyncio.gather(*(server.close() for server in servers))
