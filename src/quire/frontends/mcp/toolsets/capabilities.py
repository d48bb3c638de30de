"""The `capabilities` tool set: other MCP servers as Python objects in every notebook."""

from typing import Any

from fastmcp.tools import ToolResult

from quire.core.capabilities import description
from quire.core.capabilities.request import plain_secrets
from quire.core.notebooks.access import Access
from quire.frontends.mcp.results import CapabilityInfo, Described, FoundMethods, Uninstalled
from quire.frontends.mcp.tool_context import ToolContext
from quire.frontends.mcp.tool_registry import ToolRegistry
from quire.tool_descriptions import tools


def register(registry: ToolRegistry) -> None:
    async def install_capability(
        ctx: ToolContext,
        name: str,
        server_command: str | None = None,
        url: str | None = None,
        env: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        config: dict[str, Any] | str | None = None,
    ) -> ToolResult:
        """Make an MCP server a Python object in every notebook: code calls name.method(...). Reached by a command, a
        url, or config: an mcpServers entry, or a client (cursor, claude-desktop, vscode) that has it. Secrets in env
        and headers as "env:NAME" or "file:/path"."""
        given = {"command": server_command, "url": url, "env": env, "headers": headers, "config": config}
        given = {key: value for key, value in given.items() if value is not None}
        caller = ctx.client
        backend, owner = (
            ctx.app.caller_policy.make_backend(caller, name, given, ctx.app.backends.described),
            caller.principal,
        )
        capability = await ctx.app.capabilities.install(owner, name, backend)
        entry = next(each for each in (await ctx.app.capabilities.catalog(owner)).entries if each["name"] == name)
        said = [
            f"Installed {name} ({capability.offered.server or backend.how}).",
            description.summary(entry),
        ]
        if (secrets := plain_secrets(backend)) and not backend.confined:
            said.append(
                f"{', '.join(secrets)} is kept as given; to keep it out of the data directory install with "
                '"env:NAME", a variable of the server.'
            )
        info: CapabilityInfo = {
            "name": name,
            "server": capability.offered.server,
            "methods": list(tools.methods(entry)),
        }
        return ToolResult(content="\n".join(said), structured_content=dict(info))

    async def uninstall_capability(ctx: ToolContext, name: str) -> ToolResult:
        """Remove a capability and end its server."""
        await ctx.app.capabilities.uninstall(ctx.client.principal, name)
        gone: Uninstalled = {"name": name}
        return ToolResult(content=f"Uninstalled {name}; its server is ended.", structured_content=dict(gone))

    registry.add(install_capability, "Install capability", CapabilityInfo, open_world=True)
    registry.add(uninstall_capability, "Uninstall capability", Uninstalled, destructive=True)
    _register_reading(registry)


def _register_reading(registry: ToolRegistry) -> None:
    async def describe_capability(
        ctx: ToolContext, name: str, method: str | None = None, notebook: str | None = None
    ) -> ToolResult:
        """A capability's methods in full, or in a line each where there are many; or one method."""
        described: Described = {"text": description.describe(await every(ctx, notebook), name, method)}
        return ToolResult(content=described["text"], structured_content=dict(described))

    async def search_capabilities(
        ctx: ToolContext, query: str, limit: int = 5, notebook: str | None = None
    ) -> ToolResult:
        """Find methods of any capability by what they do: signature and one line."""
        known = await every(ctx, notebook)
        found: FoundMethods = {"methods": description.search(known, query, max(1, min(limit, 50)))}
        names = ", ".join(each["name"] for each in known)
        there = f"The capabilities are: {names}. describe_capability shows what one has."
        nothing = (
            f"Nothing fits {query!r}. {there if known else 'No capability is installed: install_capability adds one.'}"
        )
        return ToolResult(content="\n".join(found["methods"]) or nothing, structured_content=dict(found))

    async def every(ctx: ToolContext, name: str | None) -> list[dict[str, Any]]:
        return await ctx.entries(await ctx.notebook(name, Access.READ))

    registry.add(describe_capability, "Describe capability", Described, read_only=True)
    registry.add(search_capabilities, "Search capabilities", FoundMethods, read_only=True)
