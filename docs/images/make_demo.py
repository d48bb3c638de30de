"""Draws demo.svg: the steps of `quire demo`, taken for real, on a console that records.

Run `python docs/images/make_demo.py` where quire[science] is installed. DATA_DIR stands for its temporary folder.
"""

import asyncio
import io
import re
import sys
import tempfile
from pathlib import Path

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from quire.frontends.terminal.demo import STEPS, _show

PICTURE = Path(__file__).with_name("demo.svg")
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # no fonts from elsewhere


async def main() -> None:
    console = Console(record=True, width=98, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        transport = StdioTransport(sys.executable, ["-m", "quire", "serve", "--data-dir", folder], keep_alive=False)
        async with Client(transport) as client:
            for number, step in enumerate(STEPS, 1):
                result = await client.call_tool(step.tool, step.arguments, raise_on_error=False)
                result.content[0].text = result.content[0].text.replace(folder, "DATA_DIR")
                _show(console, number, step, result)
    console.save_svg(str(PICTURE), title="quire demo", code_format=FORMAT, unique_id="demo")


asyncio.run(main())
