"""Quire inside a program: run cells, read values, survive a hang and a crash, reopen the notebook. Ends with "ok"."""

import asyncio
import tempfile

import quire
from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import CellState, OutputType


async def work(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        book = await q.notebook("report")

        # the result of a run is data: its state, its outputs in order, its text
        cell = await book.add_cell("prices = [3, 4, 5]\nprint('three prices')\nsum(prices)")
        assert cell.state is CellState.SUCCESS
        assert [output.type for output in cell.outputs] == [OutputType.STREAM, OutputType.EXECUTE_RESULT]
        assert await cell.text() == "three prices\n12"

        # an exception in the cell is data, too; variables are kept
        failed = await book.add_cell("prices[99]")
        assert failed.state is CellState.ERROR and "IndexError" in await failed.text()

        # a hang is stopped at its timeout; variables are kept
        hung = await book.add_cell("while True: pass", timeout=1)
        assert hung.state is CellState.TIMEOUT
        assert await book.value("prices") == [3, 4, 5]

        # after a crash variables are as they were before the cell
        crashed = await book.add_cell("prices.clear()\nimport os\nos.abort()")
        assert crashed.state is CellState.CRASHED
        assert await book.value("prices") == [3, 4, 5]

        # value() returns only what JSON represents; errors of Quire are exceptions
        await book.add_cell("seen = {1, 2}")
        for name, error in (("seen", InvalidRequest), ("nothing", NotFound)):
            try:
                await book.value(name)
            except error:
                pass
            else:
                raise AssertionError(f"{name} came back")

        # an empty namespace; the cells stay
        await book.reset()
        assert (await book.add_cell("'prices' in globals()")).state is CellState.SUCCESS
        assert len(await book.cells()) == 6


async def look_again(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        assert await q.notebooks() == ["report"]
        cell = await (await q.notebook("report")).cell(0)
        assert cell.source.startswith("prices") and await cell.text() == "three prices\n12"


def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        asyncio.run(work(data_dir))
        asyncio.run(look_again(data_dir))
    print("ok")


if __name__ == "__main__":
    main()
