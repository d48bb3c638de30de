"""State across restarts: save, close Quire, open it again, continue. Ends with "ok"."""

import asyncio
import tempfile

import quire
from quire.core.errors import NotFound
from quire.core.model import CellState


async def work(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        book = await q.notebook("prices")
        await book.add_cell("prices = [3, 4, 5]\nsame = prices")
        await book.add_cell("def expensive(minimum):\n    return [price for price in prices if price >= minimum]")

        # a named state stays; of the others the last few stay
        saved = await book.save("raw")
        assert saved.name == "raw" and not saved.lost
        await book.add_cell("prices = [price * 100 for price in prices]")

        # the result names what could not be saved, with the reason
        await book.add_cell("squares = (price * price for price in prices)\nnext(squares)")
        (lost,) = (await book.save("squares begun")).lost
        assert (lost.name, lost.what) == ("squares", "a suspended generator")
        assert [each.name for each in await book.snapshots() if each.name] == ["raw", "squares begun"]


async def go_on(data_dir: str) -> None:
    async with quire.open(data_dir) as q:
        # the first use of a notebook restores its namespace as of its last cell
        book = await q.notebook("prices")
        assert await book.value("prices") == [300, 400, 500]

        # using what could not be saved raises an error that names the cell to run again
        gone = await book.add_cell("next(squares)")
        assert gone.state is CellState.ERROR and "GoneError" in await gone.text()
        assert (await gone.text()).endswith("Run cell 3 again.")

        # restore a saved state; cells that ran since stay and are stale
        moved = await book.restore("raw")
        assert moved.stale == (2, 3, 4) and await book.value("prices") == [3, 4, 5]
        assert await (await book.add_cell("same is prices, expensive(4)")).text() == "(True, [4, 5])"

        # branch a second notebook from a state on disk
        other = await book.branch("in cents", at="squares begun")
        assert await other.value("prices") == [300, 400, 500]

        # an unknown state is refused, and nothing changes
        try:
            await book.restore("row")
        except NotFound as error:
            assert "There are: raw, squares begun." in str(error)
        else:
            raise AssertionError("a state came back that was never saved")


def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        asyncio.run(work(data_dir))
        asyncio.run(go_on(data_dir))
    print("ok")


if __name__ == "__main__":
    main()
