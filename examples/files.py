"""A notebook's files from Python: put in, used by a cell, brought out. Ends with "ok"."""

import asyncio
import tempfile

import quire
from quire.core.errors import InvalidRequest


async def work(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        book = await q.notebook("report")
        await book.files.write("in/prices.csv", "item,price\ntea,3\nbread,4\n")
        await book.files.write("in/prices.csv", "cheese,9\n", append=True)
        await book.add_cell("rows = open('in/prices.csv').read().splitlines()")
        await book.add_cell("open('out.bin', 'wb').write(bytes(range(256)))")
        assert await book.value("rows") == ["item,price", "tea,3", "bread,4", "cheese,9"]
        assert await book.files.read("out.bin") == bytes(range(256))
        assert await book.files.read("out.bin", 10, 2) == b"\x0a\x0b"
        assert [entry.name for entry in (await book.files.list()).entries] == ["in", "out.bin"]
        try:
            await book.files.read("../../quire.db")
        except InvalidRequest:
            pass
        else:
            raise AssertionError("it was read")


def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        asyncio.run(work(data_dir))
    print("ok")


if __name__ == "__main__":
    main()
