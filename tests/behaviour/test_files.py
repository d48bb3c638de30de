"""The files of a workspace, listed, read and written through a real client."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

import quire
from quire.core.app import App
from quire.core.errors import InvalidRequest, NotFound
from quire.core.model import LOCAL, Notebook, NotebookId
from tests.support.notebooks import Book, new_book
from tests.support.servers import SharedServer, call, http_client, http_server, in_process_client, text

# one pixel
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
BINARY = bytes(range(256)) * 4


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {"toolsets": "default,files", "max_file_bytes": 100_000}


@pytest.fixture(scope="module", params=["stdio-2026", "http-2025"])
async def connected(
    request: pytest.FixtureRequest, shared_server: SharedServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client[Any]]:
    """A client of a server that has the set, over each transport and in each era once."""
    if request.param == "stdio-2026":
        yield await shared_server.client()
    else:
        data_dir = tmp_path_factory.mktemp("http") / "data"
        with http_server(data_dir, toolsets="all", max_file_bytes=100_000) as (url, _):
            async with http_client(url, mode="legacy") as client:
                yield client


@pytest.fixture
async def book(connected: Client[Any]) -> AsyncIterator[Book]:
    async with new_book(connected, use=True) as made:
        yield made


@pytest.fixture
def files(book: Book) -> Client[Any]:
    """A client whose current notebook is new."""
    return book.client


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


async def test_the_set_is_offered_only_where_it_is_asked_for(data_dir: Path) -> None:
    async with in_process_client(data_dir) as default:
        assert "read_file" not in {tool.name for tool in await default.list_tools()}
        assert not [each for each in await default.list_resource_templates() if "files" in each.uri_template]
    async with in_process_client(data_dir, toolsets="files") as alone:
        assert {tool.name for tool in await alone.list_tools()} == {"list_files", "read_file", "write_file"}


async def test_a_file_goes_in_is_used_by_a_cell_and_comes_out(files: Client[Any], book: Book) -> None:
    wrote = await call(files, "write_file", path="in/data.csv", text="a,b\n1,2\n")
    assert text(wrote) == "Wrote 8 bytes; in/data.csv has 8 bytes." and not wrote.is_error
    assert wrote.structured_content["uri"] == f"notebook://{book.name}/files/in/data.csv"
    ran = await call(files, "execute", code="open('out.txt', 'w').write(open('in/data.csv').read().upper())")
    assert not ran.is_error, text(ran)
    more = await call(files, "execute", code="open('in/data.csv', 'a').write('3,4\\n'); open('in/new', 'w').close()")
    assert not more.is_error, text(more)  # what a client made is the code's own
    assert (await call(files, "write_file", path="out.txt", text="", append=True)).structured_content["bytes"] == 8
    read = await call(files, "read_file", path="out.txt")
    assert read.content[0].text == "A,B\n1,2\n" and read.structured_content["text"] == "A,B\n1,2\n"
    assert text(read).endswith("[out.txt: text/plain, 8 bytes]")
    listed = (await call(files, "list_files")).structured_content
    assert [(each["name"], each["kind"], each["bytes"]) for each in listed["files"]] == [
        ("in", "folder", 0),
        ("out.txt", "file", 8),
    ]


async def test_bytes_go_in_and_come_out_as_they_are(files: Client[Any], book: Book) -> None:
    assert not (await call(files, "write_file", path="x.bin", base64=encoded(BINARY))).is_error
    read = await call(files, "read_file", path="x.bin")
    (blob,) = [block for block in read.content if block.type == "resource"]
    assert base64.b64decode(blob.resource.blob) == BINARY
    assert read.structured_content["kind"] == "binary" and "text" not in read.structured_content
    for uri in ("notebook://files/x.bin", f"notebook://{book.name}/files/x.bin", "notebook://current/files/x.bin"):
        assert base64.b64decode((await files.read_resource(uri))[0].blob) == BINARY
    part = await call(files, "read_file", path="x.bin", start=10, limit=5)
    assert base64.b64decode(part.content[0].resource.blob) == BINARY[10:15]


async def test_a_picture_is_shown_as_one(files: Client[Any]) -> None:
    await call(files, "write_file", path="dot.png", base64=encoded(PNG))
    shown = await call(files, "read_file", path="dot.png")
    assert [block.type for block in shown.content] == ["image", "text"]
    assert (shown.content[0].mime_type, base64.b64decode(shown.content[0].data)) == ("image/png", PNG)
    await call(files, "write_file", path="no.png", text="not a picture")
    assert (await call(files, "read_file", path="no.png")).content[0].text == "not a picture"


async def test_a_long_text_comes_in_parts_that_say_where_to_go_on(files: Client[Any], book: Book) -> None:
    whole = "".join(f"{number} äöü€\n" for number in range(3_000))
    await call(files, "write_file", path="long.txt", text=whole)
    part = await call(files, "read_file", path="long.txt")
    assert part.structured_content["end"] <= 8_000 and f"whole: notebook://{book.name}/files/long.txt" in text(part)
    read, place = "", 0
    while place < len(whole.encode()):
        part = (await call(files, "read_file", path="long.txt", start=place, limit=9_999)).structured_content
        read, place = read + part["text"], part["end"]
    assert read == whole
    assert (await files.read_resource("notebook://files/long.txt"))[0].text == whole


async def test_appending_in_parts_makes_a_file_of_any_size(files: Client[Any]) -> None:
    too_much = await call(files, "write_file", path="big", base64=encoded(bytes(100_001)))
    assert too_much.is_error and "max_file_bytes" in text(too_much) and "append=true" in text(too_much)
    for _ in range(3):
        last = await call(files, "write_file", path="big", base64=encoded(bytes(90_000)), append=True)
    assert last.structured_content["bytes"] == 270_000
    with pytest.raises(Exception, match="Read it in parts"):
        await files.read_resource("notebook://files/big")
    tail = await call(files, "read_file", path="big", start=269_990, limit=100)
    assert base64.b64decode(tail.content[0].resource.blob) == bytes(10)


async def test_a_name_with_signs_and_spaces_has_an_address(files: Client[Any]) -> None:
    wrote = await call(files, "write_file", path="a b/ü#?%.txt", text="here")
    assert (await files.read_resource(wrote.structured_content["uri"]))[0].text == "here"


async def test_another_notebooks_files_are_its_own(files: Client[Any]) -> None:
    await call(files, "write_file", path="x", text="of this")
    await call(files, "create_notebook", name="other", use=False)
    assert (await call(files, "read_file", path="x", notebook="other")).is_error
    await call(files, "write_file", path="x", text="of other", notebook="other")
    assert (await call(files, "read_file", path="x")).content[0].text == "of this"
    assert (await files.read_resource("notebook://other/files/x"))[0].text == "of other"


async def test_a_list_of_many_files_is_cut_and_says_how_many_more(files: Client[Any]) -> None:
    await call(files, "execute", code="for n in range(250): open(f'{n:03}', 'w').close()")
    listed = await call(files, "list_files")
    assert len(listed.structured_content["files"]) == 200 and listed.structured_content["more"] == 50
    assert "... 50 more" in text(listed)


async def test_an_absolute_path_inside_is_taken_as_cells_print_it(files: Client[Any]) -> None:
    ran = await call(files, "execute", code="import os; open('x', 'w').write('1'); os.path.abspath('x')")
    read = await call(files, "read_file", path=ran.structured_content["return_value"])
    assert read.content[0].text == "1" and read.structured_content["path"] == "x"


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("read_file", {"path": "nothing"}, "There is no file 'nothing'"),
        ("read_file", {"path": "."}, "the workspace itself"),
        ("read_file", {"path": "x", "start": -1}, "start must be 0 or more"),
        ("read_file", {"path": "x", "limit": 0}, "limit 1 to"),
        ("read_file", {"path": "x", "start": 5}, "nothing from 5 on"),
        ("read_file", {"path": "f"}, "is a folder"),
        ("list_files", {"path": "nothing"}, "There is no 'nothing'"),
        ("list_files", {"path": "x"}, "is not a folder"),
        ("write_file", {"path": "x"}, "either text or base64"),
        ("write_file", {"path": "x", "text": "a", "base64": "YQ=="}, "either text or base64"),
        ("write_file", {"path": "x", "base64": "not base64!"}, "not valid base64"),
        ("write_file", {"path": "f", "text": "a"}, "is a folder"),
        ("write_file", {"path": "x/y", "text": "a"}, "not a folder"),
    ],
)
async def test_what_cannot_be_done_is_said_and_changes_nothing(
    shared_server: SharedServer, tool: str, arguments: dict[str, Any], says: str
) -> None:
    async with new_book(await shared_server.client(), use=True) as book:
        await book.ask("write_file", path="x", text="old")
        await book.ask("write_file", path="f/y", text="")
        answer = await book.ask(tool, **arguments)
        assert answer.is_error and says in text(answer), text(answer)
        assert (await book.ask("read_file", path="x")).content[0].text == "old"


async def test_an_old_notebook_called_files_is_found_and_a_new_one_refused(app: App) -> None:
    older = Notebook(id=NotebookId("1" * 32), name="files", owner=LOCAL, runtime="python", created_at=0)
    await app.notebooks._store.create_notebook(older)
    assert (await app.notebooks.get(LOCAL, "files")).id == older.id
    with pytest.raises(InvalidRequest, match="reserved"):
        await app.notebooks.create(LOCAL, "files")


async def test_python_has_the_files_of_a_notebook(data_dir: Path) -> None:
    async with quire.open(data_dir, kernel_preload="") as q:
        book = await q.notebook()
        assert await book.files.write("a/x.bin", BINARY) == len(BINARY)
        assert await book.files.write("a/t.txt", "täxt") == 5
        assert await book.files.write("a/t.txt", "!", append=True) == 6
        assert await book.files.read("a/x.bin") == BINARY
        assert await book.files.read("a/x.bin", 10, 5) == BINARY[10:15]
        assert [each.name for each in (await book.files.list("a")).entries] == ["t.txt", "x.bin"]
        assert (await (await book.add_cell("print(open('a/t.txt').read())")).text()) == "täxt!"
        with pytest.raises(InvalidRequest):
            await book.files.read("../x")
        with pytest.raises(NotFound):
            await book.files.read("nothing")
        assert os.listdir(data_dir / "workspaces")
