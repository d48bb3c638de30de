"""Quire embedded in a Python program."""

from __future__ import annotations

from pathlib import Path

import pytest

import quire
from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import CellState, OutputType


async def test_a_notebook_runs_and_is_kept(data_dir: Path) -> None:
    async with quire.open(data_dir=data_dir) as q:
        book = await q.notebook("x")
        cell = await book.add_cell("import math\ndef area(r):\n    return math.pi * r * r\nx = round(area(2), 2)\nx")
        assert cell.state is CellState.SUCCESS and cell.outputs[0].type is OutputType.EXECUTE_RESULT
        assert await cell.text() == "12.57"
        assert await book.value("x") == 12.57
        assert await book.import_statements() == ["import math"]
        assert await book.function_definitions() == ["def area(r):\n    return math.pi * r * r"]
    async with quire.open(data_dir=data_dir) as q:
        assert await q.notebooks() == ["x"]
        again = await (await q.notebook("x")).cell(0)
        assert await again.text() == "12.57"


async def test_a_value_that_json_cannot_say_or_is_not_there_is_refused(data_dir: Path) -> None:
    async with quire.open(data_dir=data_dir) as q:
        book = await q.notebook()
        await book.add_cell("s = {1, 2}")
        with pytest.raises(InvalidRequest, match="set of 2"):
            await book.value("s")
        with pytest.raises(NotFound, match="no variable 'nothing'"):
            await book.value("nothing")


async def test_an_error_shows_its_line_where_ipython_is_not_loaded(data_dir: Path) -> None:
    async with quire.open(data_dir=data_dir, kernel_preload="") as q:
        failed = await (await q.notebook()).add_cell("x = 1\ndef f(): raise ValueError('why')\nf()")
        assert 'run 1>", line 2, in f' in str(failed.outputs[-1].bundle["text/plain"])


@pytest.mark.parametrize("shell", ["", "ipython"])
async def test_imports_and_functions_are_known_in_either_shell(data_dir: Path, shell: str) -> None:
    async with quire.open(data_dir=data_dir, kernel_preload="") as q:
        book = await q.create("x", shell=shell)
        await book.add_cell("import json\n%time 1\ndef f():\n    return 1")
        await book.add_cell("from os import path as place\n1 / 0")  # fails later
        await book.add_cell("%%time\nimport re")  # text of a magic
        await book.add_cell("import (")
        await book.add_cell("get_ipython().run_cell('import ast')")  # a cell inside the cell
        assert await book.import_statements() == ["import json", "from os import path as place"]
        assert await book.function_definitions() == ["def f():\n    return 1"]


async def test_a_decorated_function_is_tracked_whole_and_each_once(data_dir: Path) -> None:
    source = "import functools\n@functools.cache\ndef f(n):\n    return n"
    async with quire.open(data_dir=data_dir, store_kind="memory") as q:
        book = await q.notebook()
        await book.add_cell(source)
        await book.add_cell(source)
        assert await book.function_definitions() == ["@functools.cache\ndef f(n):\n    return n"]


async def test_what_the_block_raises_comes_out_as_it_was(data_dir: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with quire.open(data_dir=data_dir):
            raise ZeroDivisionError


async def test_images_come_with_their_bytes(data_dir: Path, science: None) -> None:
    async with quire.open(data_dir=data_dir) as q:
        cell = await (await q.notebook()).add_cell("import matplotlib.pyplot as plt\nplt.plot([1, 2]);plt.show()")
        images = await cell.images()
        assert len(images) == 1 and images[0].data.startswith(b"\x89PNG") and images[0].source == "matplotlib"


async def test_another_interpreter_may_run_the_kernels(data_dir: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    async with quire.open(data_dir=data_dir, kernel_python=str(tmp_path / "venv" / "bin" / "python")) as q:
        book = await q.notebook()
        await book.add_cell(
            "import sys, importlib.util\nprefix = sys.prefix\nfound = importlib.util.find_spec('fastmcp')"
        )
        assert await book.value("prefix") == str(tmp_path / "venv")
        assert await book.value("found") is None  # nothing of Quire's own environment is on its path
        ours = await book.add_cell("import quire")
        assert ours.state is CellState.ERROR


async def test_the_state_furthest_on_comes_back_whichever_was_saved_last(data_dir: Path) -> None:
    async with quire.open(data_dir=data_dir, checkpoints_snapshot_interval_seconds=0) as q:
        book = await q.notebook("x")
        await book.add_cell("x = 1")
        await book.add_cell("x = 2")
        await book.save("late")
        await book.rollback(0)
        await book.save("early")
        await book.rollback(1)
    async with quire.open(data_dir=data_dir) as q:
        book = await q.notebook("x")
        cell = await book.add_cell("x")
        assert await cell.text() == "2" and "Ran after" not in cell.notice
        assert [each.stale for each in await book.cells()] == [False] * 3


@pytest.mark.parametrize("store", ["sql", "memory"])
async def test_a_notebook_is_shared_and_anothers_is_found_by_its_owner(data_dir: Path, store: str) -> None:
    async with quire.open(data_dir=data_dir, store_kind=store) as q:
        book = await q.notebook("x")
        assert await book.share("bob") == {"bob": "read"}
        assert await book.share("carol@id.test", "write") == await book.shares()
        assert await book.share("bob", "none") == {"carol@id.test": "write"}
        for whom, access in (("local", "read"), ("a b", "read"), ("bob", "own")):
            with pytest.raises(InvalidRequest):
                await book.share(whom, access)
        assert await book.shares() == {"carol@id.test": "write"}
        assert (await q.notebook("local/x")).name == "x"
        with pytest.raises(NotFound, match="No notebook is called 'bob/x'"):
            await q.notebook("bob/x")
