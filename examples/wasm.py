"""Notebooks in WebAssembly: both languages, a capability, isolation, rollback, branch, restart. Ends with "ok"."""

import asyncio
import sys
import tempfile

import quire
from quire.core.model import CellState

SERVER = """
from fastmcp import FastMCP

server = FastMCP("shop")

@server.tool
def price(of: str) -> float:
    "Price of one item."
    return {"apple": 0.5, "pear": 0.75}[of]

server.run(show_banner=False)
"""


async def work(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        await q.install_capability("shop", command=[sys.executable, "-c", SERVER])
        python = await q.create("python in wasm", runtime="wasm-python")
        script = await q.create("javascript in wasm", runtime="wasm-javascript")

        # both languages call the same capability, and variables stay
        await python.add_cell("total = sum(shop.price(each) for each in ['apple', 'pear'])")
        await script.add_cell("let total = 0\nfor (const of of ['apple', 'pear']) total += await shop.price({of})")
        assert await python.value("total") == await script.value("total") == 1.25

        # no network, no processes, no files of the machine
        for code in ("import ssl", "import os; os.system('ls')", "open('/etc/passwd')"):
            assert (await python.add_cell(code)).state is CellState.ERROR
        assert (await script.add_cell("fetch('https://example.org')")).state is CellState.ERROR

        # after a cell that ends the guest, variables are as they were before it
        await python.keep("priced")
        crashed = await python.add_cell("total = 0; import os; os._exit(1)")
        assert crashed.state is CellState.CRASHED
        assert await python.value("total") == 1.25

        # branch and roll back
        await python.add_cell("total *= 2")
        branch = await python.branch("the other way")
        await python.rollback("priced")
        assert (await python.value("total"), await branch.value("total")) == (1.25, 2.5)

    async with quire.open(data_dir) as q:
        for name in ("python in wasm", "javascript in wasm"):
            assert await (await q.notebook(name)).value("total") == 1.25


def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        asyncio.run(work(data_dir))
    print("ok")


if __name__ == "__main__":
    main()
