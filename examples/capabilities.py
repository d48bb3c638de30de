"""Another MCP server as an object in notebooks: install it, call it, approve calls, find it again. Ends with "ok"."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import quire
from quire.core.errors import OperationFailed
from quire.core.model import CellState

SERVER = """
import asyncio, os
from fastmcp import FastMCP

server = FastMCP("shop", instructions="A shop of fruit.")
stock = {"apple": 5, "pear": 2}

@server.tool
async def price(of: str) -> float:
    "Price of one item."
    await asyncio.sleep(0.1)
    return {"apple": 0.5, "pear": 0.8}[of]

@server.tool(annotations={"destructiveHint": True})
def empty(shelf: str) -> int:
    "Discard all items of a kind; return their number."
    assert os.environ["SHOP_KEY"] == "open sesame"
    return stock.pop(shelf)

server.run(show_banner=False)
"""


async def work(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        # a command that does not serve MCP raises an error with its output, and nothing is installed
        try:
            await q.install_capability("shop", command=[sys.executable, "-c", "exit('closed today')"])
        except OperationFailed as error:
            assert "closed today" in str(error) and await q.capabilities() == {}
        else:
            raise AssertionError("what is no server was installed")

        # the server resolves the reference to the secret; only the reference is stored on disk
        os.environ["KEY_OF_THE_SHOP"] = "open sesame"
        command, env = [sys.executable, "-c", SERVER], {"SHOP_KEY": "env:KEY_OF_THE_SHOP"}
        assert await q.install_capability("shop", command=command, env=env) == ["price", "empty"]
        book = await q.notebook("fruit")

        # many calls in parallel, in one cell
        cell = await book.add_cell(
            "import asyncio\n"
            "fruits = ['apple', 'pear'] * 10\n"
            "prices = await asyncio.gather(*(shop.price.aio(each) for each in fruits))\n"
            "total = round(sum(prices), 2)"
        )
        assert cell.state is CellState.SUCCESS and await book.value("total") == 13.0

        # wrong arguments are not sent; a failing tool raises ToolError
        wrong = await book.add_cell("shop.price(3)")
        assert "TypeError" in await wrong.text() and "price(of: str) -> float" in await wrong.text()
        failed = await book.add_cell("shop.price('plum')")
        assert "ToolError" in await failed.text()

        # a function of the notebook as a capability
        await book.add_cell(
            "@capability\ndef cheapest(of: list) -> str:\n"
            "    'The one that costs least.'\n"
            "    return min(of, key=shop.price)"
        )
        found = await book.add_cell("print(caps.search('costs least', limit=1))\ncheapest(['pear', 'apple'])")
        assert await found.text() == "cheapest.cheapest(of: list) -> str  # The one that costs least\n'apple'"

        # destructive, and no person can be asked: the call is denied
        denied = await book.add_cell("shop.empty('pear')")
        assert "ApprovalDenied" in await denied.text()

        # a person can be asked
        with q.approvals.watching():
            running = asyncio.create_task(book.add_cell("left = shop.empty('pear')"))
            while not q.approvals.pending():  # noqa: ASYNC110 - a page would show them as they come
                await asyncio.sleep(0.01)
            (question,) = q.approvals.pending()
            assert (question.what, question.arguments) == ("shop.empty", 'shelf="pear"')
            q.approvals.answer(question.id, approved=True)
            await running
        assert await book.value("left") == 2


async def go_on(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        # it is still installed, and connects with the first call
        assert await q.capabilities() == {"shop": "not connected yet"}
        book = await q.notebook("fruit")
        assert await (await book.add_cell("cheapest(fruits), shop.price(of='pear')")).text() == "('apple', 0.8)"
        assert await q.capabilities() == {"shop": "connected"}
        await q.uninstall_capability("shop")
        gone = await book.add_cell("shop.price('pear')")
        assert gone.state is CellState.ERROR


def look(data_dir: str) -> None:
    # each call has a line in the audit log, with a digest of its arguments
    calls = [json.loads(line) for line in Path(data_dir, "audit.jsonl").read_text().splitlines()]
    assert [each["outcome"] for each in calls if each["tool"] == "shop.empty"] == ["denied", "ok"]
    assert b"open sesame" not in b"".join(file.read_bytes() for file in Path(data_dir).glob("*.*"))


def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        asyncio.run(work(data_dir))
        asyncio.run(go_on(data_dir))
        look(data_dir)
    print("ok")


if __name__ == "__main__":
    main()
