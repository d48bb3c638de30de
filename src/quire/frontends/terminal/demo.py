"""`quire demo`: a tour through a real MCP client talking to a real server over stdio."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text


@dataclass(frozen=True, kw_only=True)
class Step:
    title: str
    tool: str
    arguments: dict[str, Any]


STEPS = (
    Step(
        title="Run code. The last expression's value comes back; variables stay.",
        tool="execute",
        arguments={"code": "squares = [n * n for n in range(8)]\nprint('kept on disk, cell by cell')\nsum(squares)"},
    ),
    Step(
        title="Plot. The picture comes with the answer, and stays under its own address.",
        tool="execute",
        arguments={
            "code": "try:\n    import matplotlib.pyplot as plt\n    plt.plot(squares)\n    plt.title('squares')\n"
            "    plt.show()\nexcept ImportError:\n    print('no matplotlib here: pip install quire[science]')"
        },
    ),
    Step(
        title="An error is an error, with everything printed before it. Variables are kept.",
        tool="execute",
        arguments={"code": "print('before')\nsquares[99]"},
    ),
    Step(
        title="A hang is stopped at its timeout. Variables are kept.",
        tool="execute",
        arguments={"code": "while True: pass", "timeout": 1},
    ),
    Step(title="What is there now?", tool="state", arguments={}),
    Step(
        title="Crash: native code brings the process down. It costs this cell, nothing else.",
        tool="execute",
        arguments={"code": "squares.clear()\nimport ctypes\nctypes.string_at(0)"},
    ),
    Step(
        title="Recover: the namespace is as it was before the crash.",
        tool="execute",
        arguments={"code": "squares.append(64)\nsum(squares)"},
    ),
    Step(
        title="Step back: the namespace as it was after cell 0. Later cells are stale, their outputs stay.",
        tool="rollback",
        arguments={"to": 0},
    ),
    Step(
        title="Try a second way: a branch begins with the same namespace, and the original goes on.",
        tool="branch_notebook",
        arguments={"name": "second way", "use": False},
    ),
    Step(title="Everything that happened is in the notebook.", tool="list_cells", arguments={}),
    Step(
        title="Take it home: a Jupyter notebook.",
        tool="export_notebook_as_ipynb",
        arguments={"path": "tour.ipynb"},
    ),
)


async def tour() -> int:
    """Take every step; 1 where one did not go as a tour should."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    console = Console()
    with tempfile.TemporaryDirectory(prefix="quire-demo-") as folder:
        transport = StdioTransport(sys.executable, ["-m", "quire", "serve", "--data-dir", folder], keep_alive=False)
        async with Client(transport) as client:
            tools = await client.list_tools()
            console.print(f"A Quire server over stdio, {len(tools)} tools. Its data goes with this tour.\n")
            for number, step in enumerate(STEPS, 1):
                result = await client.call_tool(step.tool, step.arguments, raise_on_error=False)
                _show(console, number, step, result)
            ipynb = await client.read_resource("notebook://current/ipynb")
            cells = len(json.loads(ipynb[0].text)["cells"])
    console.print(f"[bold]{cells} cells came home.[/] Next: quire install claude-code")
    return 0 if cells == sum(1 for step in STEPS if step.tool == "execute") else 1


def _show(console: Console, number: int, step: Step, result: Any) -> None:
    console.print(f"[bold]{number}. {step.title}[/]")
    code = step.arguments.get("code")
    if code:
        console.print(Syntax(code, "python", background_color="default"))
    else:
        console.print(f"{step.tool}({', '.join(f'{name}={value!r}' for name, value in step.arguments.items())})")
    text = "\n".join(
        block.text if block.type == "text" else f"<{block.type}, {block.mime_type}>" for block in result.content
    )
    console.print(Panel(Text(text), border_style="red" if result.is_error else "green"))
