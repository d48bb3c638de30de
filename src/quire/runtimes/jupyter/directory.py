"""Implements the core's Jupyter port: the known servers, their files and kernels, and open documents."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from urllib.parse import urlsplit

import anyio.to_thread

from quire.clients.jupyter.ports import JupyterError, Missing, Unreachable
from quire.clients.jupyter.server.address import Address
from quire.clients.jupyter.server.registry import Server, ServerRegistry
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import DocumentLocation, Notebook
from quire.core.phrases import suggestion
from quire.core.ports.jupyter import JupyterFile, JupyterKernel, JupyterServer
from quire.runtimes.jupyter.runtime import NAME, LiveKernels, core_errors, kernel_not_found

NEW = "NEW"
"""In place of a kernel's id: start a new kernel."""


class JupyterDirectory:
    def __init__(self, servers: ServerRegistry, live: LiveKernels, document: str = "") -> None:
        self.document = document
        self._servers = servers
        self._live = live

    def servers(self) -> list[JupyterServer]:
        return [JupyterServer(name=server.name, url=server.url) for server in self._servers.list_all()]

    async def connect(
        self, url: str, token: str, *, name: str = "", kernel_url: str = "", kernel_token: str = ""
    ) -> JupyterServer:
        for server_url in filter(None, (url, kernel_url)):
            _check_url(server_url)
        address = Address.parse(url, token, kernel_url, kernel_token)
        name, url = name or self._name_for(address.url), address.url
        previous = {known.name: known for known in self._servers.list_all()}.get(name)
        server = self._servers.create(name, address)
        try:
            status = await server.check()
        except JupyterError as error:
            await server.close()
            unchanged = "" if previous is None else " The previous connection is unchanged."
            raise OperationFailed(f"Failed to connect to Jupyter server {url}: {error}{unchanged}") from error
        self._servers.add(server)
        if previous is not None:
            await previous.close()
        version = str(status.get("version", ""))
        return JupyterServer(name=name, url=url, live=bool(status.get("collaboration")), version=version)

    def _name_for(self, url: str) -> str:
        """The name of the known server at this URL, or a new name."""
        servers = self._servers.list_all()
        known = next((server.name for server in servers if server.url.rstrip("/") == url.rstrip("/")), "")
        taken = {server.name for server in servers}
        names = (NAME if number == 1 else f"{NAME}-{number}" for number in range(1, len(taken) + 2))
        return known or next(name for name in names if name not in taken)

    async def files(self, server: str, path: str) -> list[JupyterFile]:
        with core_errors():
            found = await self._servers.get(server).documents.list_folder(path.strip("/"))
        return [
            JupyterFile(path=entry.path, kind=entry.kind, size=entry.size, modified=entry.modified) for entry in found
        ]

    async def kernels(self, server: str) -> list[JupyterKernel]:
        with core_errors():
            found = await self._servers.get(server).kernels.list_running()
        return [
            JupyterKernel(
                id=kernel.id,
                spec=kernel.spec,
                display_name=kernel.display_name,
                language=kernel.language,
                state=kernel.state,
                connections=kernel.connections,
                last_activity=kernel.last_activity,
                environment=kernel.environment,
                paths=kernel.paths,
            )
            for kernel in found
        ]

    async def has_kernel(self, server: str, kernel: str) -> bool:
        with core_errors():
            return await self._servers.get(server).kernels.exists(kernel)

    async def specs(self, server: str) -> tuple[str, dict[str, str]]:
        with core_errors():
            default, found = await self._servers.get(server).kernels.list_specs()
        return default, {spec.name: spec.language for spec in found}

    async def place(self, server: str, path: str, *, spec: str = "", create: bool | None = None) -> DocumentLocation:
        path = check_path(path)
        with core_errors():
            on_server = self._servers.get(server)
            if spec:
                await self._check_spec(on_server, spec)
            if create:
                await on_server.create_document(path, spec)
            else:
                await self._open(on_server, path, spec, create=create is None)
        return DocumentLocation(server=on_server.name, path=path, spec=spec)

    async def _open(self, server: Server, path: str, spec: str, *, create: bool) -> None:
        try:
            await server.open_documents.open(path)
        except Missing as error:
            if not create:
                raise Missing(f"{error}{await self._similar(server, path)}") from error
            await server.create_document(path, spec)

    async def _similar(self, server: Server, path: str) -> str:
        """A sentence, after a space, that names the most similar notebook in the same folder; "" without one."""
        try:
            entries = await server.documents.list_folder(path.rpartition("/")[0])
        except JupyterError:  # the folder does not exist
            return ""
        notebooks = [entry.path for entry in entries if entry.kind == "notebook"]
        return await anyio.to_thread.run_sync(suggestion, path, notebooks)  # there may be thousands

    async def _check_spec(self, server: Server, spec: str) -> None:
        _, found = await server.kernels.list_specs()
        if spec not in (known.name for known in found):
            names = ", ".join(f"{known.name} ({known.language})" for known in found)
            raise Missing(f"There is no kernelspec {spec!r} on that Jupyter server. There are: {names}.")

    async def check_kernel(self, server: str, kernel: str) -> str:
        with core_errors():
            kernels = self._servers.get(server).kernels
            if kernel.upper() == NEW:
                return ""
            names = [spec.name for spec in (await kernels.list_specs())[1]]
            running = {info.id: info.spec for info in await kernels.list_running()}
            if kernel in running:
                return running[kernel] if running[kernel] in names else ""
            if kernel not in names:
                raise Missing(f"{kernel_not_found(kernel)} Kernelspecs there: {', '.join(names)}.")
            return kernel

    async def adopt(self, place: DocumentLocation, kernel: str) -> DocumentLocation:
        await self.check_kernel(place.server, kernel)
        with core_errors():
            server = self._servers.get(place.server)
            if await server.kernels.exists(kernel):
                with contextlib.suppress(JupyterError):  # the document's page keeps its own kernel
                    await server.kernels.assign(place.path, kernel)
                return replace(place, kernel=kernel)
            spec = place.spec if kernel.upper() == NEW else kernel
            is_unused = await server.kernels.find_for_document(place.path) is None
            info = await server.kernels.start(path=place.path if is_unused else "", spec=spec)
            server.owned_kernels.add(info.id)
            return replace(place, kernel=info.id, spec=spec)

    def live(self, place: DocumentLocation) -> bool:
        with core_errors():
            document = self._servers.get(place.server).open_documents.find(place.path)
        return document is not None and document.live

    async def kernel_of(self, notebook: Notebook) -> str:
        live = self._live.find(notebook.id)
        if live is not None:
            return live.id
        place = notebook.document
        if place is None or not place.path:
            return place.kernel if place is not None else ""
        with core_errors():
            used = await self._servers.get(place.server).kernels.find_for_document(place.path)
        return used.id if used is not None else ""

    async def restart(self, notebook: Notebook) -> bool:
        live = self._live.find(notebook.id)
        if live is not None:
            await live.restart()
            return True
        kernel = await self.kernel_of(notebook)
        if not kernel or notebook.document is None:
            return False
        with core_errors():
            connection = await self._servers.get(notebook.document.server).kernels.connect(kernel)
            try:
                await connection.restart()
            finally:
                await connection.close()
        return True

    async def end_kernel(self, notebook: Notebook) -> None:
        if notebook.document is not None and notebook.document.kernel:
            with contextlib.suppress(JupyterError):  # the server is gone, or has ended the kernel
                await self._servers.get(notebook.document.server).owned_kernels.shut_down_unused(
                    notebook.document.kernel
                )

    def unsaved(self, notebook: Notebook) -> str:
        place = notebook.document
        try:
            error = (
                self._servers.get(place.server).open_documents.retry_failed_save(place.path)
                if place is not None
                else ""
            )
        except Missing:
            return ""
        return f"The last changes are not saved yet, and it is tried again: {error}" if error else ""

    async def save(self, notebook: Notebook) -> str:
        place = notebook.document
        try:
            if place is not None:
                await self._servers.get(place.server).open_documents.save(place.path)
        except (Missing, Unreachable) as error:
            return f"Its last changes may not be saved: {error}"
        except JupyterError as error:
            raise InvalidRequest(f"It is not saved: {error}") from error
        return ""

    async def let_go(self, notebook: Notebook) -> None:
        place = notebook.document
        if place is not None and place.path:
            try:
                server = self._servers.get(place.server)
            except Missing:
                return
            await server.open_documents.close(place.path)


def check_path(path: str) -> str:
    """A normalized path of a notebook. Raises InvalidRequest if it is outside the server's root."""
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
