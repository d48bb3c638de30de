"""Rollback, branches and policies. Ends with "ok"."""

import asyncio
import tempfile

import quire
from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import CellState
from quire.frontends.python import Quire


async def step_back(q: Quire) -> None:
    book = await q.notebook("prices")
    await book.add_cell("prices = [3, 4, 5]")

    # after a crash variables are as they were before the cell
    crashed = await book.add_cell("prices.clear()\nimport os\nos.abort()")
    assert crashed.state is CellState.CRASHED and not crashed.stale
    assert await book.value("prices") == [3, 4, 5]

    # name the current state; named checkpoints are dropped last
    await book.keep("raw prices")
    await book.add_cell("prices = [each * 100 for each in prices]")
    await book.add_cell("prices.append(0)")

    # roll back to before a cell; the cell stays and is stale
    moved = await book.rollback("before 3")
    assert moved.stale == (3,) and await book.value("prices") == [300, 400, 500]
    assert (await book.cell(3)).stale

    # roll back to a name, and forward again
    await book.rollback("raw prices")
    assert await book.value("prices") == [3, 4, 5]
    await book.rollback(3)
    assert await book.value("prices") == [300, 400, 500, 0]
    assert not [cell.number for cell in await book.cells() if cell.stale]

    # list the checkpoints and what each would lose
    there = await book.checkpoints()
    assert [each.cell.number for each in there if each.cell] == [0, 2, 3]
    assert {each.census.quality for each in there} == {"clean"}
    assert [each.names for each in there if each.names] == [("raw prices",)]


async def branch(q: Quire) -> None:
    book = await q.notebook("prices")

    # branch from the same state; the original continues
    other = await book.branch("prices in euros", at="raw prices")
    await other.add_cell("prices = [each * 0.9 for each in prices]")
    await book.add_cell("prices.sort()")
    assert await other.value("prices") == [2.7, 3.6, 4.5]
    assert await book.value("prices") == [0, 300, 400, 500]
    assert (await other.cells())[0].source == "prices = [3, 4, 5]"
    assert await q.tree() == {"prices": None, "prices in euros": "prices"}

    # both notebooks work in the same folder
    await book.add_cell("open('shared.txt', 'w').write('seen by both')")
    assert "seen by both" in await (await other.add_cell("open('shared.txt').read()")).text()


async def policies(q: Quire) -> None:
    # a cell that fails is undone
    careful = await q.create("careful", on_error="rollback")
    await careful.add_cell("basket = ['apple']")
    failed = await careful.add_cell("basket.append('pear')\nbasket[9]")
    assert failed.state is CellState.ERROR and await careful.value("basket") == ["apple"]

    # each cell runs in its own process and starts from the last state
    apart = await q.create("apart", isolation="cell")
    await apart.add_cell("import os\nfirst = os.getpid()")
    await apart.add_cell("second = os.getpid()")
    assert await apart.value("first") != await apart.value("second")

    # limits of one notebook: memory in bytes, processor time in seconds
    small = await q.create("small", memory=2 * 2**30, cpu=1)
    assert "MemoryError" in await (await small.add_cell("b'x' * 4 * 2**30")).text()
    assert "CpuTimeExceeded" in await (await small.add_cell("while True: pass")).text()


async def environment(q: Quire) -> None:
    # a separate environment in the workspace, where %pip installs
    book = await q.create("own", python="venv")
    await book.add_cell(MAKE_A_WHEEL)
    installed = await book.add_cell("%pip install --no-index ./greeting-1.0-py3-none-any.whl", timeout=60)
    assert installed.state is CellState.SUCCESS, await installed.text()
    assert "good morning" in await (await book.add_cell("import greeting\ngreeting.WORDS")).text()
    elsewhere = await (await q.notebook("prices")).add_cell("import greeting")
    assert "ModuleNotFoundError" in await elsewhere.text()


MAKE_A_WHEEL = """\
import zipfile
with zipfile.ZipFile("greeting-1.0-py3-none-any.whl", "w") as wheel:
    about = "greeting-1.0.dist-info"
    wheel.writestr("greeting.py", "WORDS = 'good morning'")
    wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
    wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(f"{about}/RECORD", "")
"""


async def refusals(q: Quire) -> None:
    # impossible requests are refused, and nothing changes
    for notebook, to, error in (("prices", 99, NotFound), ("never run", 0, InvalidRequest)):
        try:
            await (await q.notebook(notebook)).rollback(to)
        except error:
            pass
        else:
            raise AssertionError(f"{notebook} went back to {to}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        async with quire.open(data_dir) as q:
            for part in (step_back, branch, policies, environment, refusals):
                await part(q)
    print("ok")


if __name__ == "__main__":
    asyncio.run(main())
