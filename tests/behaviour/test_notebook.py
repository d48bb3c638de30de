"""The notebook tool set through a real client."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from fastmcp import Client

from tests.support.notebooks import Book
from tests.support.servers import call, http_client, http_server, stdio_client, text

MAX_CELLS = 130


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {"max_cells": MAX_CELLS}


def document(cells: int) -> str:
    """An ipynb document with this number of markdown cells."""
    made = [{"cell_type": "markdown", "id": f"c{n}", "metadata": {}, "source": str(n)} for n in range(cells)]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made})


async def cells(client: Client[Any], **where: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await call(client, "list_cells", **where)).structured_content["cells"]
    return found


async def test_cells_are_added_run_edited_moved_and_deleted(client: Client[Any]) -> None:
    first = (await call(client, "add_cell", code="a = 1", execute=False)).structured_content
    assert first["state"] == "IDLE" and first["cell_number"] == 0
    ran = await call(client, "execute_cell", cell_id_or_number=first["cell_id"])
    assert ran.structured_content["state"] == "SUCCESS"
    await call(client, "add_cell", code="# Title", cell_type="markdown")
    inserted = (await call(client, "add_cell", code="a + 1", cell_number=1)).structured_content
    assert inserted["cell_number"] == 1 and inserted["outputs"][0]["text"] == "2"
    edited = (await call(client, "edit_cell", cell_id_or_number=1, code="a + 2")).structured_content
    assert edited["version"] == 2
    assert (await call(client, "execute_cell", cell_id_or_number="1")).structured_content["outputs"][0]["text"] == "3"
    await call(client, "move_cell", cell_id_or_number=inserted["cell_id"], to_number=2)
    assert [cell["cell_type"] for cell in await cells(client)] == ["code", "markdown", "code"]
    await call(client, "delete_cell", cell_id_or_number=0)
    assert [cell["cell_number"] for cell in await cells(client)] == [0, 1]
    shown = await call(client, "get_cell", cell_id_or_number=1)
    assert shown.structured_content["code"] == "a + 2" and shown.structured_content["execution_count"] == 3


async def test_a_stale_edit_is_refused_with_the_newer_source(client: Client[Any]) -> None:
    await call(client, "add_cell", code="one", execute=False)
    await call(client, "edit_cell", cell_id_or_number=0, code="two", expected_version=1)
    stale = await call(client, "edit_cell", cell_id_or_number=0, code="three", expected_version=1)
    assert stale.is_error and "version 2" in text(stale) and "two" in text(stale)
    assert (await call(client, "get_cell", cell_id_or_number=0)).structured_content["code"] == "two"


async def test_each_notebook_has_its_own_namespace(client: Client[Any], book: Book) -> None:
    await call(client, "execute", code="x = 'first'")
    made = await call(client, "create_notebook", name="other")
    assert made.structured_content["current"]
    assert (await call(client, "execute", code="'x' in globals()")).structured_content["return_value"] is False
    assert (await call(client, "execute", code="x", notebook=book.name)).structured_content["return_value"] == "first"
    await call(client, "use_notebook", name=book.name)
    assert (await call(client, "execute", code="x")).structured_content["notebook"] == book.name
    listed = (await call(client, "list_notebooks")).structured_content["notebooks"]
    named = {each["name"]: each for each in listed}
    assert named[book.name]["current"] and not named["other"]["current"]


async def test_two_sessions_of_one_user_do_not_share_a_current_notebook(data_dir: Path) -> None:
    with http_server(data_dir) as (url, _):
        async with http_client(url, mode="legacy") as one, http_client(url, mode="legacy") as two:
            await call(one, "create_notebook", name="one")
            await call(two, "create_notebook", name="two")
            for client, name in ((one, "one"), (two, "two")):
                assert (await call(client, "execute", code="1")).structured_content["notebook"] == name


async def test_clients_without_sessions_name_their_notebook(data_dir: Path) -> None:
    async def person(*question: Any) -> Any:
        assert "Name it in each call" in text(await call(two, "create_notebook", name="two"))
        return {"value": "Ada"}

    with http_server(data_dir) as (url, _):
        async with http_client(url, person=person) as one, http_client(url) as two:
            ran = await call(one, "execute", code="1")
            assert ran.structured_content["notebook"] == "main"  # the only one
            asked = await call(one, "execute", code="input()")  # the answer goes where it was asked
            assert asked.structured_content["return_value"] == "Ada"
            for client in (one, two):
                refused = await call(client, "execute", code="1")
                assert refused.is_error and "There are 'main', 'two'" in text(refused), text(refused)
                assert "Pass `notebook`" in text(refused)
            listed = (await call(one, "list_notebooks")).structured_content["notebooks"]
            assert [(each["runs"], each["current"]) for each in listed] == [(2, False), (0, False)]
            assert (await call(two, "execute", code="1", notebook="two")).structured_content["notebook"] == "two"
        async with http_client(url, mode="legacy") as session:
            await call(session, "use_notebook", name="two")
            assert (await call(session, "execute", code="1")).structured_content["notebook"] == "two"


async def test_failed_use_notebook_stops_no_other_client_without_session(data_dir: Path) -> None:
    with http_server(data_dir) as (url, _):
        async with http_client(url) as one, http_client(url) as other:
            assert (await call(one, "execute", code="1")).structured_content["notebook"] == "main"
            failed = await call(other, "use_notebook", name="typo")
            assert failed.is_error and "current" not in text(failed), text(failed)
            ran = await call(one, "execute", code="2")
            assert not ran.is_error and ran.structured_content["notebook"] == "main", text(ran)
            await call(other, "create_notebook", name="two")
            assert (await call(other, "use_notebook", name="typo")).is_error
            refused = await call(one, "execute", code="3")
            assert "There are 'main', 'two'" in text(refused) and "typo" not in text(refused), text(refused)
            assert "use_notebook" not in text(refused)


async def test_after_a_failed_use_notebook_no_notebook_is_current(client: Client[Any], book: Book) -> None:
    assert (await call(client, "use_notebook", name="nowhere")).is_error
    refused = await call(client, "execute", code="1")
    assert refused.is_error and "'nowhere' could not be used" in text(refused), text(refused)
    assert f"{book.name!r} was current before" in text(refused) and await cells(client, notebook=book.name) == []
    await call(client, "use_notebook", name=book.name)
    assert (await call(client, "execute", code="1")).structured_content["notebook"] == book.name


async def test_main_can_be_used_before_it_is_there(data_dir: Path) -> None:
    async with stdio_client(data_dir) as client:
        assert (await call(client, "use_notebook", name="nowhere")).is_error
        refused = await call(client, "execute", code="1")
        assert refused.is_error and "'nowhere' could not be used. Nothing was done." in text(refused), text(refused)
        assert not (await call(client, "use_notebook", name="main")).is_error
        assert (await call(client, "execute", code="1")).structured_content["notebook"] == "main"


async def test_notebooks_created_at_once_without_a_name_get_different_names(client: Client[Any]) -> None:
    made = await asyncio.gather(*(call(client, "create_notebook", use=False) for _ in range(8)))
    assert not [text(each) for each in made if each.is_error]
    assert len({each.structured_content["name"] for each in made}) == 8


async def test_a_name_that_is_nearly_right_is_corrected_among_many(client: Client[Any]) -> None:
    await call(client, "create_notebook", name="Quarterly sales", use=False)
    for number in range(25):
        await call(client, "create_notebook", name=f"draft {number}", use=False)
    refused = await call(client, "use_notebook", name="quaterly-sales")
    assert refused.is_error and "The nearest is 'Quarterly sales'. create_notebook makes one." in text(refused)
    assert "There are: draft 5, draft 6" in text(refused) and "older ones. The nearest" in text(refused)
    part = await call(client, "use_notebook", name="sales")
    assert part.is_error and "The nearest is 'Quarterly sales'." in text(part)


async def test_one_cell_and_one_run_are_counted_as_one(client: Client[Any], book: Book) -> None:
    await call(client, "execute", code="1")
    assert f"* {book.name}: 1 cell, kernel idle" in text(await call(client, "list_notebooks"))
    assert text(await call(client, "state")).startswith(f"notebook {book.name}: kernel idle, 1 run\n")


async def test_control_characters_in_a_source_are_shown_and_not_sent(client: Client[Any]) -> None:
    source = "mark = '\x1b[31m\x9b31m'\r\nmark\rend"
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    assert not (await call(client, "import_ipynb", path_or_json=nbformat.writes(document))).is_error
    for answer in (
        await call(client, "get_cell", cell_id_or_number=0),
        await call(client, "list_cells"),
        await call(client, "edit_cell", cell_id_or_number=0, code="other", expected_version=9),
    ):
        said = text(answer) + json.dumps(answer.structured_content, ensure_ascii=False)
        assert "\x1b" not in said and "\x9b" not in said
        assert r"mark = '\x1b[31m\x9b31m'" in text(answer), text(answer)
    exported = nbformat.reads((await call(client, "export_notebook_as_ipynb")).content[0].text, as_version=4)
    assert exported.cells[0].source == source


async def test_clearing_takes_cells_and_variables(client: Client[Any]) -> None:
    await call(client, "execute", code="x = 1")
    await call(client, "clear_notebook")
    assert await cells(client) == []
    assert (await call(client, "execute", code="'x' in globals()")).structured_content["return_value"] is False


async def test_figures_come_in_order_as_references_and_as_pictures(client: Client[Any], science: None) -> None:
    code = "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2])\nplt.show()\n"
    result = await call(client, "add_cell", code=code + "print('after')\nplt.plot([3, 4])\nNone")
    kinds = [output["type"] for output in result.structured_content["outputs"]]
    assert kinds == ["stream", "image", "stream", "image"]
    image = result.structured_content["outputs"][1]["image"]
    assert image["format"] == "png" and image["width"] > 100 and image["source"] == "matplotlib"
    pictures = [block for block in result.content if block.type == "image"]
    assert len(pictures) == 2 and image["uri"] in text(result)
    whole = await call(client, "get_cell_image", cell_id_or_number=0, index=0)
    assert base64.b64decode(whole.content[0].data).startswith(b"\x89PNG")
    assert len(base64.b64decode(whole.content[0].data)) == image["size"]
    read = await client.read_resource(image["uri"])
    assert read[0].mime_type == "image/png" and base64.b64decode(read[0].blob) == base64.b64decode(
        whole.content[0].data
    )


async def test_a_large_picture_is_shown_smaller_and_kept_whole(client: Client[Any], book: Book, science: None) -> None:
    code = "import numpy, matplotlib.pyplot as plt\nfrom PIL import Image\n"
    code += "Image.fromarray(numpy.random.randint(0, 255, (2400, 1800, 3), dtype='uint8'))"
    result = await call(client, "add_cell", code=code)
    assert result.structured_content["outputs"][0]["image"]["height"] == 2400
    shown = [block for block in result.content if block.type == "image"]
    assert all(len(block.data) < 7_000_000 for block in shown)
    whole = await call(client, "get_cell_image", cell_id_or_number=0)
    assert len(base64.b64decode(whole.content[0].data)) == result.structured_content["outputs"][0]["image"]["size"]
    address = f"notebook://{book.name}/ipynb"
    assert address in text(await call(client, "export_notebook_as_ipynb"))
    exported = json.loads((await client.read_resource(address))[0].text)
    assert not any("quire" in mime for mime in exported["cells"][0]["outputs"][0]["data"])


async def test_a_dataframe_is_text_for_the_model_and_html_beside_it(client: Client[Any], science: None) -> None:
    result = await call(client, "add_cell", code="import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    output = result.structured_content["outputs"][0]
    assert output["type"] == "dataframe" and "a" in output["text"]
    read = await client.read_resource(output["uri"])
    assert {content.mime_type for content in read} == {"text/plain", "text/html", "text/vnd.quire.table"}


async def test_rich_objects_keep_their_whole_bundle(client: Client[Any]) -> None:
    code = """
class Rich:
    def _repr_html_(self): return "<b>bold</b>"
    def _repr_svg_(self): return '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="3"></svg>'
    def __repr__(self): return "plain"
display(Rich())
display({"text/markdown": "*hi*"}, raw=True)
"""
    result = await call(client, "add_cell", code=code)
    first, second = result.structured_content["outputs"]
    assert first["type"] == "image" and first["image"]["format"] == "svg" and first["image"]["width"] == 4
    read = await client.read_resource(first["uri"])
    assert {content.mime_type for content in read} == {"text/html", "image/svg+xml", "text/plain"}
    assert [content.text for content in await client.read_resource(second["uri"])] == ["*hi*"]
    svg = await call(client, "get_cell_image", cell_id_or_number=0)
    assert "<svg" in text(svg)


async def test_an_ipynb_goes_out_valid_and_comes_back_the_same(client: Client[Any]) -> None:
    await call(client, "add_cell", code="# Title", cell_type="markdown")
    await call(client, "execute", code="import sys\nprint('out')\nprint('err', file=sys.stderr)\n{'a': 1}")
    await call(client, "execute", code="1/0")
    exported = await call(client, "export_notebook_as_ipynb")
    document = nbformat.reads(exported.content[0].text, as_version=4)
    nbformat.validate(document)
    assert document.nbformat_minor == 5
    assert [output.output_type for output in document.cells[1].outputs] == ["stream", "stream", "execute_result"]
    assert document.cells[2].outputs[0].ename == "ZeroDivisionError"
    await call(client, "create_notebook", name="copy")
    imported = await call(client, "import_ipynb", path_or_json=exported.content[0].text)
    assert imported.structured_content["cells"] == 3
    again = nbformat.reads((await call(client, "export_notebook_as_ipynb")).content[0].text, as_version=4)
    for before, after in zip(document.cells, again.cells, strict=True):
        before.pop("id"), after.pop("id")
        assert before == after


async def test_an_ipynb_is_written_into_the_workspace_read_from_it_and_run(client: Client[Any]) -> None:
    await call(client, "execute", code="x = 40")
    await call(client, "execute", code="x + 2")
    written = await call(client, "export_notebook_as_ipynb", path="sub/book.ipynb")
    assert Path(written.structured_content["path"]).is_file()
    where = (await call(client, "create_notebook", name="fresh")).structured_content["workspace"]
    Path(where).mkdir(parents=True, exist_ok=True)
    Path(where, "book.ipynb").write_bytes(Path(written.structured_content["path"]).read_bytes())
    result = await call(client, "import_ipynb", path_or_json="book.ipynb", execute=True)
    assert "ran 2" in text(result)
    assert (await call(client, "get_cell", cell_id_or_number=1)).structured_content["outputs"][0]["text"] == "42"


@pytest.mark.parametrize("path", ["../../x.ipynb", "/etc/hostname", "a\x00b", "."])
async def test_a_path_outside_the_workspace_is_refused(client: Client[Any], path: str) -> None:
    await call(client, "execute", code="1")
    for tool, arguments in (("export_notebook_as_ipynb", {"path": path}), ("import_ipynb", {"path_or_json": path})):
        assert (await call(client, tool, **arguments)).is_error


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{}", "not a valid ipynb"),
        ('{"nbformat": 4', "not a valid ipynb"),
        ('{"nbformat": 99, "nbformat_minor": 0, "metadata": {}, "cells": []}', "not a valid ipynb"),
        ('{"a":' * 5000, "not"),
        ("no/such/file.ipynb", "no file"),
    ],
)
async def test_a_bad_ipynb_is_refused_with_the_reason(client: Client[Any], document: str, says: str) -> None:
    result = await call(client, "import_ipynb", path_or_json=document)
    assert result.is_error and says in text(result)
    assert (await call(client, "list_cells")).structured_content["total"] == 0


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("get_cell", {"cell_id_or_number": 7}, "No cell 7 in notebook '{here}'. Its last cells: 0 ("),
        ("get_cell", {"cell_id_or_number": "zz"}, "No cell 'zz'"),
        ("execute_cell", {"cell_id_or_number": -1}, "No cell -1"),
        ("delete_cell", {"cell_id_or_number": 3}, "Its last cells"),
        ("edit_cell", {"cell_id_or_number": 0, "code": ""}, "empty"),
        ("move_cell", {"cell_id_or_number": 0, "to_number": 5}, "no place 5"),
        ("add_cell", {"code": "1", "cell_number": 9}, "no place 9"),
        ("add_cell", {"code": "1", "cell_number": -1}, "no place -1"),
        ("add_cell", {"code": "1", "cell_type": "poem"}, "cell_type"),
        ("execute_cell", {"cell_id_or_number": 1}, "markdown"),
        ("get_cell_image", {"cell_id_or_number": 0}, "no images"),
        ("use_notebook", {"name": "none"}, "{here}"),
        ("create_notebook", {"name": "{here}"}, "already"),
        ("create_notebook", {"name": "a/b"}, "cannot name"),
        ("create_notebook", {"name": "x" * 300}, "1 to 100"),
        ("create_notebook", {"name": ""}, "1 to 100"),
        ("create_notebook", {"name": "current"}, "reserved"),
        ("create_notebook", {"runtime": "fortran"}, "there is python"),
        ("list_cells", {"start": -1}, "start must be"),
        ("interrupt", {}, "Nothing is running"),
    ],
)
async def test_bad_input_gets_a_sentence_and_changes_nothing(
    client: Client[Any], book: Book, tool: str, arguments: dict[str, Any], says: str
) -> None:
    arguments = {name: book.name if value == "{here}" else value for name, value in arguments.items()}
    says = says.replace("{here}", str(book.name))
    await call(client, "execute", code="1")
    await call(client, "add_cell", code="text", cell_type="markdown")
    before = await cells(client)
    result = await call(client, tool, **arguments)
    assert result.is_error and says in text(result), text(result)
    assert await cells(client, notebook=book.name) == before


async def test_the_limit_of_cells_is_refused_by_name(client: Client[Any]) -> None:
    await call(client, "import_ipynb", path_or_json=document(MAX_CELLS - 1))
    assert not (await call(client, "execute", code="1")).is_error
    for tool in ("execute", "add_cell"):
        refused = await call(client, tool, code="1")
        assert refused.is_error and "max_cells" in text(refused)


async def test_a_restart_keeps_cells_and_variables_and_the_answer_says_so(data_dir: Path) -> None:
    async with stdio_client(data_dir) as client:
        await call(client, "execute", code="x = 1\nprint('kept')")
    async with stdio_client(data_dir) as client:
        assert "kept" in text(await call(client, "get_cell", cell_id_or_number=0))
        result = await call(client, "execute", code="x")
        assert result.structured_content["return_value"] == 1
        assert "Restored from disk" in result.structured_content["notice"] and "Restored from disk" in text(result)
        assert "notice" not in (await call(client, "execute", code="1")).structured_content


async def test_a_hundred_cells_are_listed_a_page_at_a_time(client: Client[Any]) -> None:
    await call(client, "import_ipynb", path_or_json=document(120))
    page = await call(client, "list_cells")
    assert len(page.structured_content["cells"]) == 100 and "list_cells(start=100)" in text(page)
    assert len(await cells(client, start=100)) == 20
    assert [cell["cell_number"] for cell in await cells(client, start=5, limit=2)] == [5, 6]
