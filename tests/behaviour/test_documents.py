"""Import and export of ipynb documents and scripts, and mirrors that are kept current on disk."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import nbformat
import pytest
from fastmcp import Client

import quire
from quire.core.app import App
from quire.core.errors import InvalidRequest, NotFound, OperationFailed
from quire.core.model import LOCAL
from quire.notebook_format import ipynb
from tests.support.servers import call, http_client, http_server, in_process_client, text
from tests.support.waiting import DEADLINE, reached

SPEC = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x28\x00\x00\x00\x1e\x08\x06" + bytes(90)


def code(source: str, *outputs: dict[str, Any], count: int | None = None, **more: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "metadata": {}, "source": source, "execution_count": count, "outputs": list(outputs)}
    return {**cell, **more}


def document(*cells: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    named = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {**SPEC, **metadata}, "cells": named}


PERSONS = document(
    {
        "cell_type": "markdown",
        "metadata": {"tags": ["intro"]},
        "source": "# Prices\n![](attachment:p.png)",
        "attachments": {"p.png": {"image/png": base64.b64encode(PNG).decode()}},
    },
    {"cell_type": "raw", "metadata": {"format": "text/html"}, "source": "<hr>"},
    code("prices = [3, 4]", count=5),
    code(
        "sum(prices)",
        {"output_type": "stream", "name": "stderr", "text": "careful\n"},
        {
            "output_type": "display_data",
            "data": {"image/png": base64.b64encode(PNG).decode() + "\n", "application/vnd.own+json": {"a": [1]}},
            "metadata": {"image/png": {"width": 40}},
        },
        {"output_type": "execute_result", "data": {"text/plain": "7"}, "metadata": {}, "execution_count": 6},
        count=6,
        metadata={"collapsed": True, "own": {"deep": [1, None]}},
    ),
    own={"of": "theirs"},
)  # fmt: skip


def served(data_dir: Path, workspace: Path, **more: Any) -> AbstractAsyncContextManager[Client[Any]]:
    """A client of a server in this process, whose notebooks all work in one folder."""
    return in_process_client(data_dir, workspace=workspace, **more)


@pytest.fixture
async def quick(data_dir: Path, tmp_path: Path) -> AsyncIterator[Client[Any]]:
    async with served(data_dir, tmp_path) as client:
        yield client


def sources(path: Path) -> list[str]:
    """Of a document, which must be whole whenever it is looked at."""
    if not path.exists():
        return []
    found = json.loads(path.read_text("utf-8"))
    nbformat.validate(nbformat.from_dict(found))
    return ["".join(cell["source"]) for cell in found["cells"]]


def shown(path: Path, number: int) -> str:
    outputs = json.loads(path.read_text("utf-8"))["cells"][number]["outputs"]
    return "".join("".join(output.get("text", "")) for output in outputs)


# In and out


async def test_a_persons_notebook_is_handed_back_as_it_was(quick: Client[Any], tmp_path: Path) -> None:
    (tmp_path / "in.ipynb").write_text(json.dumps(PERSONS))
    imported = await call(quick, "import_ipynb", path_or_json="in.ipynb")
    assert text(imported) == "Imported 4 cells. Outputs and counts are the document's."
    out = await call(quick, "export_notebook_as_ipynb", path="out.ipynb")
    assert out.structured_content["cells"] == 4
    same = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert same == nbformat.reads(json.dumps(PERSONS), as_version=4)
    picture = await call(quick, "get_cell_image", cell_id_or_number="cell-3")
    assert base64.b64decode(picture.content[0].data) == PNG


async def test_after_it_was_run_only_what_ran_is_different(quick: Client[Any]) -> None:
    ran = await call(quick, "import_ipynb", path_or_json=json.dumps(PERSONS), execute=True)
    assert text(ran) == "Imported 4 cells, ran 2."
    after = nbformat.reads(text(await call(quick, "export_notebook_as_ipynb")), as_version=4)
    nbformat.validate(after)
    before = nbformat.reads(json.dumps(PERSONS), as_version=4)
    assert after.metadata == before.metadata and after.cells[:2] == before.cells[:2]
    assert after.cells[3].metadata == before.cells[3].metadata
    assert [(cell.execution_count, cell.outputs) for cell in after.cells[2:]] == [
        (1, []),
        (2, [{"output_type": "execute_result", "data": {"text/plain": "7"}, "metadata": {}, "execution_count": 2}]),
    ]


async def test_it_is_run_until_a_cell_fails(quick: Client[Any]) -> None:
    given = document(code("x = 1"), code("1/0"), code("x = 2"))
    result = await call(quick, "import_ipynb", path_or_json=json.dumps(given), execute=True)
    assert result.is_error and "Imported 3 cells; ran 2, the last one failed." in text(result)
    assert (await call(quick, "execute", code="x")).structured_content["return_value"] == 1


async def test_what_the_caller_should_know_of_a_document_is_said(quick: Client[Any]) -> None:
    given = {"nbformat": 3, "metadata": {"language_info": {"name": "R"}}, "worksheets": [{"cells": []}]}
    said = text(await call(quick, "import_ipynb", path_or_json=json.dumps(given)))
    assert said == "Imported 0 cells. Upgraded from nbformat 3. Its language is R: its cells are not Python."


async def test_metadata_of_the_first_document_stay_and_others_add_to_them(app: App) -> None:
    book = await app.notebooks.create(LOCAL)
    for each in (document(code("1"), mine=1, both="first"), document(code("2"), yours=2, both="second")):
        given = ipynb.loads(json.dumps(each))
        await app.documents.import_cells(book, given.cells, given.metadata)
    fresh, cells = await app.documents.contents(book)
    assert fresh.metadata == {**SPEC, "mine": 1, "yours": 2, "both": "first"}
    assert cells[0].id == "cell-0" and cells[1].id != "cell-0"


async def test_a_document_that_is_too_much_changes_nothing(data_dir: Path) -> None:
    async with served(data_dir, data_dir.parent, max_cells=2) as client:
        refused = await call(client, "import_ipynb", path_or_json=json.dumps(document(*[code("1")] * 3, own=1)))
        assert refused.is_error and "max_cells" in text(refused)
        assert "own" not in text(await call(client, "export_notebook_as_ipynb"))


async def test_a_bad_path_or_document_gets_a_short_sentence(quick: Client[Any], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "latin.ipynb").write_bytes(b'{"\xe9": 1}')
    os.mkfifo(tmp_path / "pipe")
    for tool, arguments, says in BAD:
        result = await call(quick, tool, **arguments)
        assert result.is_error and says in text(result) and len(text(result)) < 800, text(result)
    assert (await call(quick, "list_cells")).structured_content["total"] == 0


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("import_ipynb", {"path_or_json": "[]"}, "no object with cells"),
    ("import_ipynb", {"path_or_json": "not\njson"}, "at line 1, column 1"),
    ("import_ipynb", {"path_or_json": "x" * 100_000}, "There is no file 'xxx"),
    ("import_ipynb", {"path_or_json": "x/" * 3_000 + ".py"}, "There is no file"),
    ("import_ipynb", {"path_or_json": ""}, "There is no file"),
    ("import_ipynb", {"path_or_json": "pipe"}, "There is no file"),
    ("import_ipynb", {"path_or_json": "latin.ipynb"}, "is not UTF-8 text: byte 2 cannot be read"),
    ("export_notebook_as_ipynb", {"mirror": True}, "mirror needs a path"),
    ("export_notebook_as_ipynb", {"path": "x.html"}, "has the ending '.html'; use .ipynb, .py, .md."),
    ("export_notebook_as_ipynb", {"path": "x.txt", "mirror": True}, "has the ending '.txt'"),
    ("create_notebook", {"name": "never made", "mirror": "x.txt"}, "has the ending '.txt'"),
    ("export_notebook_as_ipynb", {"path": "../x.ipynb", "mirror": True}, "outside the notebook's workspace"),
    ("export_notebook_as_ipynb", {"path": "out/x.ipynb", "mirror": True}, "outside the notebook's workspace"),
    ("export_notebook_as_ipynb", {"path": "folder", "mirror": True}, "it is not a file"),
    ("export_notebook_as_ipynb", {"path": "pipe/x.ipynb"}, "could not be written"),
    ("export_notebook_as_ipynb", {"path": "x" * 300}, "File name too long"),
]


async def test_a_script_with_cells_goes_in_and_out(quick: Client[Any], tmp_path: Path) -> None:
    script = '# %% [markdown]\n# # Title\n\n# %% tags=["parameters"]\nx = 40\n\n# %%\n# %matplotlib inline\nx + 2\n'
    (tmp_path / "in.py").write_text(script)
    assert text(await call(quick, "import_ipynb", path_or_json="in.py")) == "Imported 3 cells."
    await call(quick, "export_notebook_as_ipynb", path="out.py")
    assert (tmp_path / "out.py").read_text() == script
    assert (await call(quick, "import_ipynb", path_or_json=script)).structured_content["cells"] == 3
    exported = nbformat.reads(text(await call(quick, "export_notebook_as_ipynb")), as_version=4)
    assert exported.cells[1].metadata == {"tags": ["parameters"]} and exported.cells[2].source.startswith("%matplotlib")


async def test_ten_megabytes_of_300_cells_come_in_within_a_second(app: App) -> None:
    def large() -> str:
        pictures = [base64.b64encode(PNG + os.urandom(50_000)).decode() for _ in range(150)]
        display = [{"output_type": "display_data", "data": {"image/png": each}, "metadata": {}} for each in pictures]
        cells = [code("plot()", display[number // 2], count=number) for number in range(0, 300, 2)]
        return json.dumps(document(*[each for cell in cells for each in (code("x = 1"), cell)]))

    took = []
    for _ in range(3):
        given, book = large(), await app.notebooks.create(LOCAL)
        assert 10_000_000 < len(given) < 11_000_000
        begun = time.process_time()  # not what other processes take
        read = ipynb.loads(given)
        await app.documents.import_cells(book, read.cells, read.metadata)
        took.append(time.process_time() - begun)
    assert min(took) < 1.0, took


# The mirror


async def test_a_mirror_follows_every_change(quick: Client[Any], tmp_path: Path) -> None:
    path = tmp_path / "sub" / "book.ipynb"
    await call(quick, "add_cell", code="x = 1")
    set_ = await call(quick, "export_notebook_as_ipynb", path="sub/book.ipynb", mirror=True)
    assert text(set_) == f"Wrote 1 cell to {path}, which is kept current from now on."
    assert sources(path) == ["x = 1"]
    await call(quick, "add_cell", code="print(x)")
    await reached(lambda: sources(path) == ["x = 1", "print(x)"] and shown(path, 1) == "1\n", "the new cell")
    await call(quick, "edit_cell", cell_id_or_number=0, code="x = 2")
    await reached(lambda: sources(path)[0] == "x = 2", "the edit")
    await call(quick, "move_cell", cell_id_or_number=0, to_number=1)
    await reached(lambda: sources(path) == ["print(x)", "x = 2"], "the move")
    await call(quick, "delete_cell", cell_id_or_number=0)
    await reached(lambda: sources(path) == ["x = 2"], "the deletion")
    await call(quick, "import_ipynb", path_or_json=json.dumps(document(code("3"), own=1)))
    await reached(lambda: json.loads(path.read_text())["metadata"].get("own") == 1, "the metadata")
    assert [each.name for each in path.parent.iterdir()] == ["book.ipynb"]
    ended = await call(quick, "export_notebook_as_ipynb", path="sub/book.ipynb")
    assert "no longer kept current" in text(ended)
    before = path.stat().st_mtime_ns
    other = tmp_path / "other.ipynb"
    await call(quick, "export_notebook_as_ipynb", path="other.ipynb", mirror=True)
    await call(quick, "execute", code="4")
    await reached(lambda: sources(other)[-1] == "4", "the change in the mirror that is kept current")
    assert path.stat().st_mtime_ns == before


async def test_a_mirror_shows_what_a_running_cell_has_printed(quick: Client[Any], tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    await call(quick, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
    endless = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: call(quick, "execute", code=endless))
        await reached(lambda: sources(path) and shown(path, 0) == "begun\n", "what it printed")
        await call(quick, "interrupt")
    await reached(lambda: "KeyboardInterrupt" in path.read_text(), "how it ended")


async def test_a_mirror_is_a_script_where_its_name_says_so(quick: Client[Any], tmp_path: Path) -> None:
    await call(quick, "export_notebook_as_ipynb", path="book.py", mirror=True)
    await call(quick, "execute", code="x = 1")
    await reached(lambda: (tmp_path / "book.py").read_text() == "# %%\nx = 1\n", "the script")


async def test_a_mirror_goes_on_in_the_next_servers_life(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    async with served(data_dir, tmp_path) as client:
        await call(client, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
        await call(client, "execute", code="x = 1")
    assert sources(path) == ["x = 1"]  # the end of a server writes it at once
    before = path.stat()
    async with served(data_dir, tmp_path) as client:
        await call(client, "list_cells")
        assert path.stat() == before
        result = await call(client, "execute", code="x + 1")
        await reached(lambda: sources(path) == ["x = 1", "x + 1"], "the new cell")
        assert "Somebody" not in str(result.structured_content.get("notice"))
        path.unlink()
    async with served(data_dir, tmp_path) as client:
        await call(client, "list_cells")
        await reached(lambda: sources(path) == ["x = 1", "x + 1"], "the file that was missing")
    assert [each.name for each in tmp_path.glob("*.ipynb")] == ["book.ipynb"]


async def test_what_a_person_wrote_meanwhile_is_kept_and_said(quick: Client[Any], tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    await call(quick, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
    theirs = json.dumps(document(code("theirs")))
    path.write_text(theirs)
    await call(quick, "execute", code="ours = 1")
    await reached(lambda: sources(path) == ["ours = 1"], "our version")
    (aside,) = tmp_path.glob("book.*.theirs.ipynb")
    assert aside.read_text() == theirs
    told = None
    with anyio.fail_after(DEADLINE):  # the file is there before its word is
        while told is None:
            told = (await call(quick, "execute", code="2")).structured_content.get("notice")
    assert told == f"book.ipynb was changed outside of Quire: that version is kept beside it as {aside.name}."
    path.touch()  # the same content is not a new version
    await call(quick, "execute", code="3")
    await reached(lambda: sources(path)[-1:] == ["3"], "the next cell")
    assert list(tmp_path.glob("*.theirs.*")) == [aside]


async def test_a_link_is_written_through_and_rights_stay(quick: Client[Any], tmp_path: Path) -> None:
    (tmp_path / "real.ipynb").write_text("{}")
    (tmp_path / "real.ipynb").chmod(0o640)
    (tmp_path / "link.ipynb").symlink_to("real.ipynb")
    await call(quick, "export_notebook_as_ipynb", path="link.ipynb", mirror=True)
    await call(quick, "execute", code="1")
    await reached(lambda: sources(tmp_path / "real.ipynb") == ["1"], "the file the link leads to")
    assert (tmp_path / "link.ipynb").is_symlink()
    assert (tmp_path / "real.ipynb").stat().st_mode & 0o777 == 0o640


async def test_two_notebooks_cannot_share_a_mirror(quick: Client[Any]) -> None:
    await call(quick, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
    await call(quick, "create_notebook", name="other")
    refused = await call(quick, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
    assert refused.is_error and "is the mirror of notebook 'main'" in text(refused)


async def test_two_clients_at_once_lose_nothing(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    with http_server(data_dir, preload="", workspace=tmp_path, snapshot_interval=0, auto_save=0) as (url, _):
        async with http_client(url) as one, http_client(url) as two, anyio.create_task_group() as group:
            await call(one, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
            for number in range(5):
                given = json.dumps(document(code(f"a = {number}"), **{f"key{number}": number}))
                group.start_soon(lambda given=given: call(one, "import_ipynb", path_or_json=given))
                group.start_soon(lambda number=number: call(two, "execute", code=f"b = {number}"))
    assert sorted(sources(path)) == sorted([f"{name} = {number}" for name in "ab" for number in range(5)])
    assert {f"key{number}" for number in range(5)} <= json.loads(path.read_text())["metadata"].keys()
    assert list(tmp_path.glob("*.theirs.*")) == []


async def test_two_servers_on_one_mirror_make_no_conflict_copies(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    async with served(data_dir, tmp_path) as one, served(data_dir, tmp_path) as two:
        await call(one, "export_notebook_as_ipynb", path="book.ipynb", mirror=True)
        for number, client in enumerate((one, two, one, two)):
            await call(client, "add_cell", code=f"x = {number}", execute=False, notebook="main")
            await reached(lambda number=number: len(sources(path)) == number + 1, "the cell of either")
        await call(one, "export_notebook_as_ipynb", path="other.ipynb", mirror=True)
        await call(two, "add_cell", code="later", execute=False, notebook="main")
        await reached(
            lambda: len(sources(tmp_path / "other.ipynb")) == 5, "the cell in the mirror that is kept current"
        )
        assert len(sources(path)) == 4
    (tmp_path / "other.ipynb").unlink()
    assert [each.name for each in tmp_path.glob("*.ipynb")] == ["book.ipynb"]


# Embedded


async def test_documents_in_a_python_program(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ipynb").write_text("\ufeff" + json.dumps(PERSONS))
    async with quire.open(data_dir=data_dir, kernel_preload="") as q:
        book = await q.notebook()
        cells = await book.load(tmp_path / "in.ipynb")
        assert [cell.number for cell in cells] == [0, 1, 2, 3]
        assert len(await book.load(str(tmp_path / "in.ipynb"))) == 4
        assert len(await book.load("# %%\nx = 1\n# %%\nx")) == 2
        whole = await book.export()
        assert len(json.loads(whole)["cells"]) == 10
        await book.export(tmp_path / "out.ipynb")
        assert (tmp_path / "out.ipynb").read_text() == whole
        assert (await book.export(str(tmp_path / "out.py"))).startswith("# %% [markdown]")
        await book.mirror(tmp_path / "mirror.ipynb")
        await book.add_cell("last = 1")
        await reached(lambda: sources(tmp_path / "mirror.ipynb")[-1] == "last = 1", "the mirror")
        await book.mirror("")
        with pytest.raises(NotFound, match="There is no file"):
            await book.load(tmp_path / "none.ipynb")
        with pytest.raises(InvalidRequest, match="not a valid ipynb"):
            await book.load("{}")
        with pytest.raises(OperationFailed, match="could not be written"):
            await book.mirror(tmp_path / "in.ipynb" / "x.ipynb")
