"""Makes kernels of Jupyter servers: the one a person uses with the document, else a new one that its page finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quire.clients.jupyter.ports import JupyterError, KernelInfo, Missing, Unreachable
from quire.clients.jupyter.server.registry import Server, Servers
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import DocumentLocation, KernelSpec, NotebookId, RuntimeInfo
from quire.core.ports.kernel import Relay
from quire.runtimes.jupyter.kernel import JupyterKernel

NAME = "jupyter"


class JupyterRuntime:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._kernels: dict[NotebookId, JupyterKernel] = {}
        self._calls: Relay | None = None

    def with_calls(self, calls: Relay) -> JupyterRuntime:
        """From now on its kernels' code may call capabilities."""
        self._calls = calls
        return self

    async def start(self, spec: KernelSpec) -> JupyterKernel:
        place = spec.document
        if place is None:
            raise OperationFailed(
                f"Notebook {spec.name!r} has no document on a Jupyter server: create_notebook makes one."
            )
        with refusals():
            server = self._servers.named(place.server)
            info, fresh = await _kernel(server, place)
            connection = await server.kernels.connect(info.id)
        found = self._kernels[spec.notebook] = JupyterKernel(server, connection, spec, self._calls, fresh=fresh)
        return found

    def of(self, notebook: NotebookId) -> JupyterKernel | None:
        """The one that is there now."""
        found = self._kernels.get(notebook)
        return found if found is not None and found.alive else None

    @property
    def spares(self) -> int:
        return 0

    async def ready(self) -> None:
        """Servers are reached when they are first needed."""

    async def about(self) -> RuntimeInfo:
        servers = self._servers.all()
        if not servers:
            why = "no Jupyter server is connected (connect_to_jupyter, or quire serve --jupyter-url)"
            return RuntimeInfo(name=NAME, why_not=why)
        said, wrong = [], []
        for server in servers:
            try:
                found = await server.check()
                said.append(f"{server.name} ({server.url or 'this server'}, version {found.get('version', 'unknown')})")
            except JupyterError as error:
                wrong.append(f"{server.name}: {error}")
        if not said:
            return RuntimeInfo(name=NAME, why_not=" ".join(wrong))
        return RuntimeInfo(name=NAME, version=", ".join((*said, *wrong)))


async def _kernel(server: Server, place: DocumentLocation) -> tuple[KernelInfo, bool]:
    """Which kernel runs the document, and whether it was started just now."""
    if place.kernel:
        there = {each.id: each for each in await server.kernels.listing()}
        if place.kernel in there:
            return there[place.kernel], False
        if not place.path:
            raise Missing(no_kernel(place.kernel))
    used = await server.kernels.of(place.path)
    if used is not None and used.state != "dead":
        return used, False
    info = await server.kernels.start(path=place.path, spec=place.spec or await _spec_of_document(server, place.path))
    server.ours.add(info.id)
    return info, True


async def _spec_of_document(server: Server, path: str) -> str:
    """The kernelspec that the document names; "" where its server does not have it."""
    document = server.opened(path)
    said = document.metadata().get("kernelspec") if document is not None else None
    name = said.get("name") if isinstance(said, dict) else None
    _, specs = await server.kernels.specs()
    return next((spec.name for spec in specs if spec.name == name), "")


def no_kernel(kernel: str) -> str:
    return f"Kernel '{kernel}' not found in jupyter server, please check whether it is there with list_kernels."


@contextmanager
def refusals() -> Iterator[None]:
    """What a Jupyter server does not do, in the core's words."""
    try:
        yield
    except Missing as error:
        raise NotFound(str(error)) from error
    except Unreachable as error:
        raise OperationFailed(str(error)) from error
    except JupyterError as error:
        raise InvalidRequest(str(error)) from error
