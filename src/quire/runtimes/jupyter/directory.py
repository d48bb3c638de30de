"""The Jupyter servers Quire works with, for whoever asks which there are and what is on them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from urllib.parse import urlsplit

import anyio.to_thread

from quire.clients.jupyter.ports import JupyterError, Missing, Unreachable
from quire.clients.jupyter.server.registry import Address, Server, Servers
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import DocumentLocation, Notebook
from quire.core.phrases import suggestion
from quire.core.ports.jupyter import JupyterFile, JupyterKernel, JupyterServer
from quire.runtimes.jupyter.runtime import NAME, JupyterRuntime, no_kernel, refusals

NEW = "NEW"
"""In place of a kernel's id: one that is started."""


class JupyterRoom:
    def __init__(self, servers: Servers, runtime: JupyterRuntime, document: str = "") -> None:
        self.document = document
        self._servers = servers
        self._runtime = runtime

    def servers(self) -> list[JupyterServer]:
        return [JupyterServer(name=each.name, url=each.url) for each in self._servers.all()]

    async def connect(
        self, url: str, token: str, *, name: str = "", kernel_url: str = "", kernel_token: str = ""
    ) -> JupyterServer:
        for each in filter(None, (url, kernel_url)):
            _check_url(each)
        address = Address.of(url, token, kernel_url, kernel_token)
        name, url = name or self._name(address.url), address.url
        before = {each.name: each for each in self._servers.all()}.get(name)
        server = self._servers.make(name, address)
        try:
            said = await server.check()
        except JupyterError as error:
            await server.close()
            unchanged = "" if before is None else " The previous connection is unchanged."
            raise OperationFailed(f"Failed to connect to Jupyter server {url}: {error}{unchanged}") from error
        self._servers.put(server)
        if before is not None:
            await before.close()
        version = str(said.get("version", ""))
        return JupyterServer(name=name, url=url, live=bool(said.get("collaboration")), version=version)

    def _name(self, url: str) -> str:
        """The name of the server at this address, or a new one."""
        there = self._servers.all()
        known = next((each.name for each in there if each.url.rstrip("/") == url.rstrip("/")), "")
        taken = {each.name for each in there}
        names = (NAME if number == 1 else f"{NAME}-{number}" for number in range(1, len(taken) + 2))
        return known or next(each for each in names if each not in taken)

    async def files(self, server: str, path: str) -> list[JupyterFile]:
        with refusals():
            found = await self._servers.named(server).documents.listing(path.strip("/"))
        return [JupyterFile(path=each.path, kind=each.kind, size=each.size, modified=each.modified) for each in found]

    async def kernels(self, server: str) -> list[JupyterKernel]:
        with refusals():
            found = await self._servers.named(server).kernels.listing()
        return [
            JupyterKernel(
                id=each.id,
                spec=each.spec,
                display_name=each.display_name,
                language=each.language,
                state=each.state,
                connections=each.connections,
                last_activity=each.last_activity,
                environment=each.environment,
                paths=each.paths,
            )
            for each in found
        ]

    async def specs(self, server: str) -> tuple[str, dict[str, str]]:
        with refusals():
            default, found = await self._servers.named(server).kernels.specs()
        return default, {each.name: each.language for each in found}

    async def place(self, server: str, path: str, *, spec: str = "", create: bool | None = None) -> DocumentLocation:
        path = check_path(path)
        with refusals():
            there = self._servers.named(server)
            if spec:
                await self._check_spec(there, spec)
            if create:
                await there.create(path, spec)
            else:
                await self._opened(there, path, spec, make=create is None)
        return DocumentLocation(server=there.name, path=path, spec=spec)

    async def _opened(self, server: Server, path: str, spec: str, *, make: bool) -> None:
        try:
            await server.document(path)
        except Missing as error:
            if not make:
                raise Missing(f"{error}{await self._similar(server, path)}") from error
            await server.create(path, spec)

    async def _similar(self, server: Server, path: str) -> str:
        """A sentence with the most similar path of a notebook in the same folder, after a blank; "" where none is."""
        try:
            listed = await server.documents.listing(path.rpartition("/")[0])
        except JupyterError:  # there is no such folder
            return ""
        notebooks = [each.path for each in listed if each.kind == "notebook"]
        return await anyio.to_thread.run_sync(suggestion, path, notebooks)  # there may be thousands

    async def _check_spec(self, server: Server, spec: str) -> None:
        _, found = await server.kernels.specs()
        if spec not in (each.name for each in found):
            names = ", ".join(f"{each.name} ({each.language})" for each in found)
            raise Missing(f"There is no kernelspec {spec!r} on that Jupyter server. There are: {names}.")

    async def check_kernel(self, server: str, kernel: str) -> str:
        with refusals():
            kernels = self._servers.named(server).kernels
            if kernel.upper() == NEW:
                return ""
            names = [spec.name for spec in (await kernels.specs())[1]]
            running = {info.id: info.spec for info in await kernels.listing()}
            if kernel in running:
                return running[kernel] if running[kernel] in names else ""
            if kernel not in names:
                raise Missing(f"{no_kernel(kernel)} Kernelspecs there: {', '.join(names)}.")
            return kernel

    async def adopt(self, place: DocumentLocation, kernel: str) -> DocumentLocation:
        await self.check_kernel(place.server, kernel)
        with refusals():
            server = self._servers.named(place.server)
            if kernel in {each.id for each in await server.kernels.listing()}:
                with contextlib.suppress(JupyterError):  # its page has another, and keeps that
                    await server.kernels.use(place.path, kernel)
                return replace(place, kernel=kernel)
            spec = place.spec if kernel.upper() == NEW else kernel
            own = await server.kernels.of(place.path) is None
            info = await server.kernels.start(path=place.path if own else "", spec=spec)
            server.ours.add(info.id)
            return replace(place, kernel=info.id, spec=spec)

    def live(self, place: DocumentLocation) -> bool:
        with refusals():
            document = self._servers.named(place.server).opened(place.path)
        return document is not None and document.live

    async def kernel_of(self, notebook: Notebook) -> str:
        live = self._runtime.of(notebook.id)
        if live is not None:
            return live.id
        place = notebook.document
        if place is None or not place.path:
            return place.kernel if place is not None else ""
        with refusals():
            used = await self._servers.named(place.server).kernels.of(place.path)
        return used.id if used is not None else ""

    async def restart(self, notebook: Notebook) -> bool:
        live = self._runtime.of(notebook.id)
        if live is not None:
            await live.restart()
            return True
        kernel = await self.kernel_of(notebook)
        if not kernel or notebook.document is None:
            return False
        with refusals():
            connection = await self._servers.named(notebook.document.server).kernels.connect(kernel)
            try:
                await connection.restart()
            finally:
                await connection.close()
        return True

    async def end_kernel(self, notebook: Notebook) -> None:
        if notebook.document is not None and notebook.document.kernel:
            with contextlib.suppress(JupyterError):  # its server is gone, or ends it by itself
                await self._servers.named(notebook.document.server).end_unused(notebook.document.kernel)

    def unsaved(self, notebook: Notebook) -> str:
        place = notebook.document
        try:
            why = self._servers.named(place.server).unsaved(place.path) if place is not None else ""
        except Missing:
            return ""
        return f"The last changes are not saved yet, and it is tried again: {why}" if why else ""

    async def save(self, notebook: Notebook) -> str:
        place = notebook.document
        try:
            if place is not None:
                await self._servers.named(place.server).save(place.path)
        except (Missing, Unreachable) as error:
            return f"Its last changes may not be saved: {error}"
        except JupyterError as error:
            raise InvalidRequest(f"It is not saved: {error}") from error
        return ""

    async def let_go(self, notebook: Notebook) -> None:
        place = notebook.document
        if place is not None and place.path:
            try:
                server = self._servers.named(place.server)
            except Missing:
                return
            await server.let_go(place.path)


def check_path(path: str) -> str:
    """A notebook's path as a server has it. Raises InvalidRequest where it leads out of the server's root."""
    parts = path.strip().strip("/").split("/")
    if ".." in parts or "\\" in path or "\x00" in path:
        raise InvalidRequest(f"{path!r} lies outside the Jupyter server's root. Name a path below it.")
    if not parts[-1].endswith(".ipynb"):
        raise NotFound(f"{path!r} is no notebook: its name must end with .ipynb.")
    return "/".join(part for part in parts if part not in ("", "."))


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{url!r} is no address of a Jupyter server: write it as in http://localhost:8888.")
