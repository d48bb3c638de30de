"""A backend that behaves: over stdio, or over HTTP with a token. `python good.py [http TOKEN]`"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import sys
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from mcp_types import ToolListChangedNotification

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def server(auth: Any = None) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("good", version="1.2.3", instructions="A backend of the tests.", auth=auth)
    running: list[str] = []

    @mcp.tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @mcp.tool(annotations={"readOnlyHint": True, "destructiveHint": False})
    def add(a: int, b: int = 1) -> int:
        """The sum."""
        return a + b

    @mcp.tool
    async def sleep(seconds: float, name: str = "") -> str:
        """Answer later."""
        running.append(name)
        try:
            await asyncio.sleep(seconds)
        finally:
            running.remove(name)
        return name

    @mcp.tool
    def asleep() -> list[str]:
        """The names of the sleeps under way."""
        return running

    @mcp.tool
    def fail(why: str) -> str:
        """Raise."""
        raise ValueError(why)

    @mcp.tool
    async def work(steps: int, ctx: Context) -> str:
        """Report progress and log on the way."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
            await ctx.info(f"did {step + 1}")
        return "done"

    @mcp.tool
    def picture() -> Image:
        """A pixel."""
        return Image(data=PIXEL, format="png")

    @mcp.tool
    def person(name: str) -> dict[str, Any]:
        """Structured."""
        return {"name": name, "tags": ["a", "b"], "address": {"city": "Bern", "zip": None}}

    @mcp.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    def sloppy() -> ToolResult:
        """Its answer is not what its schema says."""
        return ToolResult(content="no number", structured_content={"n": "one"})

    @mcp.tool
    def large(size: int) -> str:
        """So many characters."""
        return "x" * size

    @mcp.tool
    def variable(name: str) -> str:
        """Of its environment."""
        return os.environ.get(name, "")

    @mcp.tool
    async def grow(name: str, ctx: Context) -> str:
        """Add a tool of this name."""

        def grown() -> str:
            return name

        mcp.tool(grown, name=name)
        await ctx.send_notification(ToolListChangedNotification())
        return name

    @mcp.tool
    def die() -> str:
        """End this process at once."""
        os._exit(7)

    @mcp.resource("notes://all")
    def notes() -> str:
        return "all notes"

    @mcp.resource("notes://{name}")
    def note(name: str) -> str:
        return f"note {name}"

    @mcp.prompt
    def greet(who: str) -> str:
        """A greeting."""
        return f"Say hello to {who}."

    return mcp


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1:2] == ["http"]:
        tokens = {sys.argv[2]: {"client_id": "tests", "scopes": []}} if sys.argv[2:] else {}
        guarded = server(StaticTokenVerifier(tokens) if tokens else None)
        guarded.run(transport="http", host="127.0.0.1", port=int(os.environ["PORT"]), show_banner=False)
    else:
        server().run(show_banner=False)
