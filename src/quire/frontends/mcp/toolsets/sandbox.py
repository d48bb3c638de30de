"""The `sandbox` tool set: the runtimes there are, and what stands around code in each."""

from fastmcp import Context
from fastmcp.tools import ToolResult

from quire.core import layers
from quire.core.model import RuntimeInfo as Runtime
from quire.frontends.mcp.desk import Desk
from quire.frontends.mcp.results import RuntimeInfo, RuntimeList
from quire.frontends.mcp.toolsets import Shelf


def register(shelf: Shelf, desk: Desk) -> None:
    async def list_runtimes(ctx: Context) -> ToolResult:
        """The ways to run code here: version, packages loaded ahead, what walls code in, or why one cannot start."""
        found: RuntimeList = {"runtimes": [_info(each) for each in await desk.app.kernels.runtimes()]}
        text = "\n".join(_line(each) for each in found["runtimes"]) or "no runtimes: nothing can be run here"
        return ToolResult(content=text, structured_content=dict(found))

    shelf.put(list_runtimes, "List runtimes", RuntimeList, reads=True)


def _info(runtime: Runtime) -> RuntimeInfo:
    return {
        "name": runtime.name,
        "version": runtime.version,
        "packages": list(runtime.packages),
        "layers": {layer.name: layer.why_not or "on" for layer in runtime.layers},
        "sandbox": layers.sentence(runtime.layers),
        "why_not": runtime.why_not,
    }


def _line(info: RuntimeInfo) -> str:
    if info["why_not"]:
        return f"{info['name']}: cannot start here: {info['why_not']}"
    packages = ", ".join(info["packages"]) or "no packages"
    return f"{info['name']} {info['version']}: {packages} loaded ahead; sandbox: {info['sandbox']}"
