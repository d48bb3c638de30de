"""Documents and mirrors when things go wrong: huge files, full disks, folders gone, a server killed while it writes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from quire import compose
from quire.core.app import App
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.model import LOCAL, CellKind, Edit, Notebook
from quire.core.notebooks import safe_files
from quire.settings import load
from tests.support.disks import FILL, with_mount
from tests.support.notebooks import Book
from tests.support.servers import IN_MEMORY, QUICK, http_client, http_server, server_environment, text
from tests.support.waiting import until


@asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[tuple[App, Notebook]]:
    """Without kernels: what mirrors do needs none."""
    settings = load({"store_data_dir": data_dir, "kernel_preload": ""}, environ={})
    async with compose.app(settings, kernels=False) as app:
        yield app, await app.notebooks.get_or_create(LOCAL, "main")


def sources(path: Path) -> list[str]:
    """Of a document that must be whole whenever it is looked at."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]]


async def follows(path: Path, last: str) -> None:
    async def true() -> bool:
        return path.exists() and sources(path)[-1:] == [last]

    await until(true, f"{path} ends with {last!r}")


async def test_a_file_of_500_megabytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge.ipynb").open("wb") as file:
        file.truncate(500_000_000)
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match=r"has 500,000,000 bytes, over the limit of 50,000,000. It was not read"):
        await safe_files.read_in_workspace(str(tmp_path), "huge.ipynb")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


async def test_a_file_that_says_it_is_empty_and_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory").symlink_to("/proc/self/mem")
    with pytest.raises(InvalidRequest, match="cannot be read: Input/output error"):
        await safe_files.read_file(tmp_path / "memory")


async def test_a_reader_never_sees_half_a_file(data_dir: Path, tmp_path: Path) -> None:
    path, over, seen = tmp_path / "book.ipynb", threading.Event(), []

    def watch() -> None:
        while not over.is_set():
            seen.append(sources(path)[0] if path.exists() else "")

    watcher = threading.Thread(target=watch)
    async with running(data_dir) as (app, book):
        await app.cells.add(book, "x" * 300_000, CellKind.MARKDOWN)
        await app.mirrors.set(book, path)
        watcher.start()
        try:
            for number in range(40):
                await app.cells.edit(book, 0, Edit(source=f"{number}" * 300_000))
                await app.mirrors.set(book, path)  # writes at once, without the pause that changes get
        finally:
            over.set()
            watcher.join()
    assert {len(each) for each in seen} <= {300_000, 600_000} and len(set(seen)) > 5
    assert [each.name for each in tmp_path.glob("*") if each.name.startswith(".")] == []


async def test_a_server_that_is_killed_leaves_a_whole_file_and_the_next_goes_on(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    where: dict[str, Any] = {**QUICK, **IN_MEMORY, "workspace": tmp_path}
    for life in range(3):
        with http_server(data_dir, **where) as (url, process):
            async with http_client(url) as client:
                book = Book(client=client)
                await book.ask("export_notebook_as_ipynb", path="book.ipynb", mirror=True)
                for number in range(5 + life):
                    await book.ask("add_cell", code=f"n = {life, number}", execute=False)
                await anyio.sleep(0.3 + 0.01 * life)  # about when it is written
                process.send_signal(signal.SIGKILL)
                process.wait()
        assert all(source.startswith("n = ") for source in sources(path))
    async with running(data_dir) as (app, there):
        await app.cells.add(there, "last", CellKind.MARKDOWN)
        await follows(path, "last")
        assert len(sources(path)) == 5 + 6 + 7 + 1
    assert list(tmp_path.glob("*.theirs.*")) == []


async def test_a_folder_that_is_gone_is_said_and_it_goes_on_when_it_is_back(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    path = folder / "book.ipynb"
    async with running(data_dir) as (app, book):
        await app.mirrors.set(book, path)
        assert app.mirrors.problem(book) == ""
        path.unlink()
        folder.rmdir()
        await app.cells.add(book, "one", CellKind.MARKDOWN)

        async def said() -> bool:
            return app.mirrors.problem(book) != ""

        await until(said, "the trouble")
        assert app.mirrors.problem(book) == (
            f"{path} could not be updated: No such file or directory. The next change tries again."
        )
        folder.mkdir()
        await app.cells.add(book, "two", CellKind.MARKDOWN)
        await follows(path, "two")

        async def well() -> bool:
            return app.mirrors.problem(book) == ""

        await until(well, "no trouble")
        path.unlink()
        folder.rmdir()
        await app.cells.add(book, "three", CellKind.MARKDOWN)
        await until(said, "the trouble")
        folder.mkdir()
    await follows(path, "three")  # the server's end tries once more


async def test_a_link_that_leads_elsewhere_since_is_not_followed(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "book.ipynb"
    async with running(data_dir) as (app, book):
        await app.mirrors.set(book, path)
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").symlink_to("elsewhere")
        await app.cells.add(book, "one", CellKind.MARKDOWN)

        async def said() -> bool:
            return "a link leads elsewhere now" in app.mirrors.problem(book)

        await until(said, "the trouble")
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_what_may_not_be_written_is_not_overwritten(data_dir: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        closed = Path("/sys/kernel/book.ipynb")  # root may write anywhere but there
    else:
        closed = tmp_path / "book.ipynb"
        closed.touch(mode=0o400)
    async with running(data_dir) as (app, book):
        with pytest.raises(OperationFailed, match=r"could not be written: .* Nothing was changed"):
            await app.mirrors.set(book, closed)
        assert (await app.documents.reload(book)).mirror == "" and app.mirrors.problem(book) == ""


SAW = "import json\n[''.join(c['source']) for c in json.load(open('book.ipynb'))['cells']][-1][:9]"


async def test_full_disk_leaves_the_last_version_and_with_space_it_goes_on(
    namespaces: None,
    data_dir: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    program, *arguments = with_mount(
        'mount -t tmpfs -o size=300k,mode=700 quire "$0"', folder, sys.executable, "-m", "quire"
    )
    env = server_environment(data_dir, **QUICK, **IN_MEMORY, workspace=folder)
    async with Client(StdioTransport(program, arguments, env=env, keep_alive=False)) as client:
        book = Book(client=client)
        await book.run("'first'")
        await book.ask("export_notebook_as_ipynb", path="book.ipynb", mirror=True)
        await book.run(FILL)

        async def said() -> bool:
            result = await book.run(SAW)
            assert result.structured_content["return_value"] == "'first'", text(result)  # whole, as it was
            return "book.ipynb could not be updated: No space left on device" in text(result)

        await until(said, "the full disk is said")
        await book.run("import os\nos.remove('fill')")

        async def there() -> bool:
            return bool(await book.value(SAW) != "'first'")

        await until(there, "the mirror goes on")
        assert await book.value("[n for n in os.listdir() if n != 'book.ipynb']") == []
