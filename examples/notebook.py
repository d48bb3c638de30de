"""A user's notebook through an MCP client: import, run, edit a cell, run on from there, export. Ends with "ok"."""

import asyncio
import json
import sys
import tempfile
from typing import Any

import nbformat
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def user_notebook() -> str:
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [
        nbformat.v4.new_markdown_cell("# Prices"),
        nbformat.v4.new_code_cell("rate = 0.5", metadata={"tags": ["parameters"], "their_tool": {"kept": True}}),
        nbformat.v4.new_code_cell("names = !printf 'pear\\nplum\\n'\nprices = dict(zip(names, [2, 4]))"),
        nbformat.v4.new_code_cell("%time\n{name: price * (1 + rate) for name, price in prices.items()}"),
    ]
    return str(nbformat.writes(book))


async def work(client: Client[Any]) -> None:
    async def call(tool: str, **arguments: Any) -> Any:
        return (await client.call_tool(tool, arguments)).structured_content

    await call("create_notebook", name="prices")
    assert (await call("import_ipynb", path_or_json=user_notebook()))["cells"] == 4

    # all cells, in order; text cells are skipped
    ran = await call("execute_cell", cell_id_or_number="all")
    assert ran["ran"] == [1, 2, 3] and ran["outputs"][-1]["text"] == "{'pear': 3.0, 'plum': 6.0}"

    # an edit runs nothing; cells from there on that have run become stale and keep their outputs
    edited = await call("edit_cell", cell_id_or_number=1, code="rate = 1", metadata={"reviewed": "yes"})
    assert edited["version"] == 2
    cells = (await call("list_cells"))["cells"]
    assert [cell["cell_number"] for cell in cells if cell.get("stale")] == [1, 2, 3]

    # run from that cell to the end
    ran = await call("execute_cell", cell_id_or_number="1-")
    assert ran["outputs"][-1]["text"] == "{'pear': 4, 'plum': 8}"

    # the export is valid and keeps metadata of other tools; with a path it would write a file
    exported = await client.call_tool("export_notebook_as_ipynb", {})
    document = json.loads(exported.content[0].text)
    nbformat.validate(document)
    metadata = document["cells"][1]["metadata"]
    assert metadata == {"tags": ["parameters"], "their_tool": {"kept": True}, "reviewed": "yes"}
    assert [cell.get("execution_count") for cell in document["cells"]] == [None, 4, 5, 6]
    assert document["cells"][3]["outputs"][-1]["data"]["text/plain"] == "{'pear': 4, 'plum': 8}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        arguments = ["-m", "quire", "serve", "--data-dir", data_dir]
        async with Client(StdioTransport(sys.executable, arguments, keep_alive=False)) as client:
            await work(client)
    print("ok")


if __name__ == "__main__":
    asyncio.run(main())
