"""Connects notebooks to kernels of Jupyter servers: to the kernel that a person uses, or to a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quire.clients.jupyter.ports import JupyterError, Missing, Unreachable
from quire.clients.jupyter.server.registry import Server, ServerRegistry
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import DocumentLocation, KernelSpec, NotebookId, RuntimeInfo
from quire.core.ports.kernel import Relay
from quire.runtimes.jupyter.kernel import JupyterKernel

NAME = "jupyter"


class LiveKernels:
    """The connected kernels by notebook. Shared by the runtime and the directory."""

    def __init__(self) -> None:
        self._kernels: dict[NotebookId, JupyterKernel] = {}

    def put(self, notebook: NotebookId, kernel: JupyterKernel) -> None:
        self._kernels[notebook] = kernel

    def find(self, notebook: NotebookId) -> JupyterKernel | None:
        kernel = self._kernels.get(notebook)
        return kernel if kernel is not None and kernel.alive else None


class JupyterRuntime:
    def __init__(self, servers: ServerRegistry, live: LiveKernels, calls: Relay) -> None:
        """`calls` answers capability calls from cells."""
        self._servers = servers
        self._live = live
        self._calls = calls

    async def start(self, spec: KernelSpec) -> JupyterKernel:
        place = spec.document
        if place is None:
            raise OperationFailed(
                f"Notebook {spec.name!r} has no document on a Jupyter server: create_notebook makes one."
            )
        with core_errors():
            server = self._servers.get(place.server)
            kernel_id, fresh = await _find_or_start(server, place)
            connection = await server.kernels.connect(kernel_id)
        kernel = JupyterKernel(server, connection, spec, self._calls, fresh=fresh)
        self._live.put(spec.notebook, kernel)
        return kernel

    @property
    def spares(self) -> int:
        return 0

    async def ready(self) -> None:
        """Nothing to prepare: servers are contacted when they are first needed."""

    async def about(self) -> RuntimeInfo:
        servers = self._servers.list_all()
        if not servers:
            why = "no Jupyter server is connected (connect_to_jupyter, or quire serve --jupyter-url)"
            return RuntimeInfo(name=NAME, why_not=why)
        reachable, failed = [], []
        for server in servers:
            try:
                status = await server.check()
                reachable.append(
                    f"{server.name} ({server.url or 'this server'}, version {status.get('version', 'unknown')})"
                )
            except JupyterError as error:
                failed.append(f"{server.name}: {error}")
        if not reachable:
            return RuntimeInfo(name=NAME, why_not=" ".join(failed))
        return RuntimeInfo(name=NAME, version=", ".join((*reachable, *failed)))


async def _find_or_start(server: Server, place: DocumentLocation) -> tuple[str, bool]:
    """The id of the document's kernel, and whether it was started now."""
    if place.kernel and await server.kernels.exists(place.kernel):
        return place.kernel, False
    if place.kernel and not place.path:
        raise Missing(kernel_not_found(place.kernel))
    used = await server.kernels.find_for_document(place.path)
    if used is not None and used.state != "dead":
        return used.id, False
    info = await server.kernels.start(path=place.path, spec=place.spec or await _spec_of_document(server, place.path))
    server.owned_kernels.add(info.id)
    return info.id, True


async def _spec_of_document(server: Server, path: str) -> str:
    """The kernelspec that the document names; "" if the server does not have it."""
    document = server.open_documents.find(path)
    kernelspec = document.metadata().get("kernelspec") if document is not None else None
    name = kernelspec.get("name") if isinstance(kernelspec, dict) else None
    _, specs = await server.kernels.list_specs()
    return next((spec.name for spec in specs if spec.name == name), "")


def kernel_not_found(kernel: str) -> str:
    return f"Kernel '{kernel}' not found in jupyter server, please check whether it is there with list_kernels."


@contextmanager
def core_errors() -> Iterator[None]:
    """Translate errors of the Jupyter client into those of the core."""
    try:
        yield
    except Missing as error:
        raise NotFound(str(error)) from error
    except Unreachable as error:
        raise OperationFailed(str(error)) from error
    except JupyterError as error:
        raise InvalidRequest(str(error)) from error
