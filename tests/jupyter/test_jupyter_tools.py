"""The tool set `jupyter` on a real Jupyter server: the answers that users of jupyter-mcp-server expect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from bench.surface import wire_chars
from fastmcp import Client

from quire.clients.jupyter.client import remote_client
from tests.support.jupyter.quires import kernel_for, kernels, quire, refused, release_notebooks, said, saved_when
from tests.support.jupyter.servers import JupyterServer
from tests.support.notebooks import waits_for
from tests.support.servers import call, http_client, http_server, text
from tests.support.waiting import DEADLINE, appears

PEER = 41_800  # characters of jupyter-mcp-server's tools/list


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory, collaborating: JupyterServer) -> Iterator[str]:
    """The address of a Quire with no other tools than those of the tool set."""
    settings = {"jupyter_url": collaborating.url, "jupyter_token": collaborating.token, "toolsets": "jupyter"}
    with http_server(tmp_path_factory.mktemp("http") / "quire", **settings) as (url, _):
        yield url


async def use(client: Client[Any], server: JupyterServer, *sources: str) -> str:
    path = server.notebook(*sources)
    await said(client, "use_notebook", notebook_name="book", notebook_path=path)
    return path


async def test_the_list_of_tools_is_at_most_half_of_the_peers(over_http: str) -> None:
    async with http_client(over_http) as client:
        tools = await client.list_tools()
    assert wire_chars(tools) <= PEER // 2
    assert {"list_files", "use_notebook", "insert_execute_code_cell", "connect_to_jupyter"} <= {
        each.name for each in tools
    }


async def test_files_are_listed_with_types_and_filtered_by_pattern(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    collaborating.notebook("1", name="listed/deep/one.ipynb")
    (collaborating.root / "listed" / "data.csv").write_text("a,b\n")
    found = await said(client, "list_files", path="listed", max_depth=1)
    assert found.startswith("Showing 0-3 of 3 files\n\nPath\tType\tSize\tLast_Modified\n")
    assert "listed/data.csv\tfile\t4B\t20" in found and "listed/deep/one.ipynb\tnotebook" in found
    chosen = await said(client, "list_files", path="listed", max_depth=1, pattern="**/*.ipynb")
    assert "one.ipynb" in chosen and "data.csv" not in chosen
    assert "deep/one" not in await said(client, "list_files", path="listed", max_depth=0)
    assert await said(client, "list_files", path="listed", pattern="*.nothing") == (
        "No files matching pattern '*.nothing' found in path 'listed'"
    )


async def test_notebook_is_used_read_and_released(client: Client[Any], collaborating: JupyterServer) -> None:
    path = collaborating.notebook("1+1", "x = 5\nx")
    taken = await said(client, "use_notebook", notebook_name="book", notebook_path=path)
    assert "[INFO] Successfully activate notebook 'book'." in taken
    assert "Notebook has 2 cells.\nShowing first 2 cells:\n\nIndex\tType\tCount\tFirst Line\n0\tcode\tN/A\t1+1" in taken
    brief = await said(client, "read_notebook", notebook_name="book")
    assert brief == (
        "Notebook book has 2 cells.\n\nIndex\tType\tCount\tFirst Line\n"
        "0\tcode\tN/A\t1+1\n1\tcode\tN/A\tx = 5...(1 line hidden)"
    )
    detailed = await said(client, "read_notebook", notebook_name="book", response_format="detailed")
    assert "=====Cell 1 | type: code | execution count: N/A=====\n\nx = 5\nx" in detailed
    assert f"book\t{path}\t-\tnot started\t✓" in await said(client, "list_notebooks")
    assert await said(client, "unuse_notebook", notebook_name="book") == (
        "Notebook 'book' unused successfully. No notebook is current now."
    )
    gone = await refused(client, "read_notebook", notebook_name="book")
    assert gone.startswith("Notebook 'book' is not connected. All currently connected notebooks: []")
    assert (collaborating.root / path).exists()


async def test_a_notebook_is_created_once(client: Client[Any], collaborating: JupyterServer) -> None:
    made = await said(client, "use_notebook", notebook_name="n", notebook_path="made/new.ipynb", mode="create")
    assert made.endswith("Notebook has 0 cells.\n\nNotebook is empty")
    again = await refused(client, "use_notebook", notebook_name="n", notebook_path="made/new.ipynb", mode="create")
    assert again.endswith("is already created. DO NOT CREATE AGAIN.")
    other = await refused(client, "use_notebook", notebook_name="m", notebook_path="made/new.ipynb", mode="create")
    assert "made/new.ipynb" in other


async def test_cells_are_inserted_overwritten_edited_moved_and_deleted(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = await use(client, collaborating, "a = 1", "b = 2")
    inserted = await said(client, "insert_cell", cell_index=0, cell_type="markdown", cell_source="# Title")
    assert inserted.startswith("Cell inserted successfully at index 0 (markdown)!\nNotebook now has 3 cells")
    written = await said(client, "overwrite_cell_source", cell_index=1, cell_source="a = 10")
    assert "Cell 1 overwritten successfully!\n\n```diff\n" in written and "-a = 1\n+a = 10" in written
    edited = await said(client, "edit_cell_source", cell_index=2, old_string="2", new_string="20")
    assert "+b = 20" in edited
    moved = await said(client, "move_cell", source_index=0, target_index=2)
    assert moved.startswith("Cell moved successfully from index 0 to 2 (markdown).\nNotebook has 3 cells")
    deleted = await said(client, "delete_cell", cell_indices=[2, 0])
    assert deleted.startswith("Cell 2 (markdown) deleted successfully.\ndeleted cell source:\n# Title")
    cells = saved_when(collaborating, path, lambda cells: len(cells) == 1)
    assert "".join(cells[0]["source"]) == "b = 20" and cells[0]["id"] == "cell-1"


async def test_edit_with_an_unknown_old_string_changes_nothing(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    await use(client, collaborating, "a = a + a")
    assert "not found" in await refused(client, "edit_cell_source", cell_index=0, old_string="z", new_string="y")
    assert "not unique" in await refused(client, "edit_cell_source", cell_index=0, old_string="a", new_string="y")
    assert await refused(client, "read_cell", cell_index=7) == "Cell index 7 is out of range. Notebook has 1 cell."
    assert "outside valid range" in await refused(
        client, "insert_cell", cell_index=5, cell_type="code", cell_source="1"
    )
    assert "a = a + a" in await said(client, "read_cell", cell_id="cell-0")


async def test_overwrite_is_refused_after_a_person_edited_the_cell(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = await use(client, collaborating, "a = 1", "b = 1")
    person = remote_client(collaborating.url, collaborating.token, agent="a person")
    try:
        document = await person.documents.open(path)

        async def types(number: int, before: str, source: str) -> None:
            with anyio.fail_after(DEADLINE):
                while document.cells()[number]["source"] != before:  # else it is merged with what comes meanwhile
                    await anyio.sleep(0.01)
                await document.change(f"cell-{number}", source=source)
                while source not in await said(client, "read_notebook", notebook_name="book"):  # shows first lines only
                    pass

        async def overwrite(number: int, source: str) -> str:
            return await said(client, "overwrite_cell_source", cell_index=number, cell_source=source)

        assert "a = 1" in await said(client, "read_cell", cell_index=0)
        await types(0, "a = 1", "a = 'typed'")
        stale = await refused(client, "overwrite_cell_source", cell_index=0, cell_source="a = 2")
        assert "edited since it was shown" in stale and "a = 'typed'" in stale
        assert "+a = 2" in await overwrite(0, "a = 2")  # what is there is known now
        await said(client, "edit_cell_source", cell_index=0, old_string="2", new_string="3")
        assert "+a = 4" in await overwrite(0, "a = 4")  # so is what it did itself
        await types(0, "a = 4", "a = 'again'")
        await said(client, "edit_cell_source", cell_index=0, old_string="again", new_string="afresh")
        assert "a = 'afresh'" in await refused(client, "overwrite_cell_source", cell_index=0, cell_source="a = 5")
        await types(1, "b = 1", "b = 'typed'")
        assert "+b = 2" in await overwrite(1, "b = 2")  # this one was never shown
    finally:
        await person.close()


async def test_a_cell_runs_and_its_output_and_count_are_in_the_file(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = await use(client, collaborating, "print('hello')\n1+1")
    shown = await said(client, "execute_cell", cell_index=0)
    assert shown.startswith("hello\n2\n[COMPLETED in ")
    cells = saved_when(collaborating, path, lambda cells: cells[0]["execution_count"] == 1)
    assert [each["output_type"] for each in cells[0]["outputs"]] == ["stream", "execute_result"]
    assert await said(client, "read_cell", cell_index=0) == (
        "=====Cell 0 | type: code | execution count: 1=====\nprint('hello')\n1+1\nhello\n2"
    )
    await said(client, "insert_execute_code_cell", cell_index=-1, cell_source="print('more')")
    assert "more" in await said(client, "read_cell", cell_index=1)
    cleared = await said(client, "clear_cell_output", cell_index=0)
    assert cleared == "Cell 0 output cleared successfully (2 output(s) removed)."
    assert await said(client, "clear_cell_output", cell_index=0) == "Cell 0 had no output to clear."


async def test_exceptions_and_timeouts_are_errors_with_earlier_output(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    await use(client, collaborating, "print('before')\n1/0", "import time\nprint('slow')\ntime.sleep(600)")
    failed = await refused(client, "execute_cell", cell_index=0)
    assert failed.startswith("before\n") and "ZeroDivisionError: division by zero" in failed
    late = await refused(client, "execute_cell", cell_index=1, timeout=2)
    assert late.startswith("[TIMEOUT ERROR: Execution exceeded 2 seconds]\nslow\n")
    assert await said(client, "execute_code", code="6 * 7") == "42"


async def test_code_runs_beside_the_cells_in_the_same_kernel(client: Client[Any], collaborating: JupyterServer) -> None:
    await use(client, collaborating, "x = 5")
    await said(client, "execute_cell", cell_index=0)
    assert await said(client, "execute_code", code="x * 2") == "10"
    kernel = (await said(client, "list_notebooks")).splitlines()[1].split("\t")[2]
    assert await said(client, "execute_code", code="x * 3", kernel_id=kernel) == "15"
    assert "Notebook book has 1 cell." in await said(client, "read_notebook", notebook_name="book")
    assert "not found in jupyter server" in await refused(client, "execute_code", code="1", kernel_id="none")


async def test_legacy_tool_names_work_and_are_not_listed(client: Client[Any], collaborating: JupyterServer) -> None:
    await use(client, collaborating, "x = 5\nx")
    names = {each.name for each in await client.list_tools()}
    assert "list_cells" in names and not names & {"list_notebook", "execute_ipython", "execute_cell_streaming"}
    for older in ("execute_cell_simple_timeout", "execute_cell_with_progress", "execute_cell_streaming"):
        assert (await said(client, older, cell_index=0)).startswith("5")
    assert await said(client, "execute_ipython", code="x + 1") == "6"
    assert "book" in await said(client, "list_notebook")
    assert "=====Cell 0" in await said(client, "read_cells")


async def test_image_output_is_returned_as_an_image(client: Client[Any], collaborating: JupyterServer) -> None:
    await use(client, collaborating, "0")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()"
    shown = await call(client, "insert_execute_code_cell", cell_index=-1, cell_source=f"%matplotlib inline\n{code}")
    assert not shown.is_error and [each.mime_type for each in shown.content if each.type == "image"] == ["image/png"]
    assert shown.content[0].type == "image"
    read = await call(client, "read_cell", cell_index=1)
    assert [each.type for each in read.content] == ["text", "text", "image"]
    code = "from IPython.display import display\nprint('before')\nplt.plot([1]); display(plt.gcf())\nprint('after')"
    shown = await call(client, "insert_execute_code_cell", cell_index=-1, cell_source=code)
    assert [each.type for each in shown.content][:3] == ["text", "image", "text"]


async def test_large_picture_is_shown_smaller_and_saved_whole(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    code = (
        "import io, os\nfrom IPython.display import Image, display\nfrom PIL import Image as Pixels\n"
        "data = io.BytesIO()\nPixels.frombytes('RGB', (700, 700), os.urandom(700 * 700 * 3)).save(data, 'PNG')\n"
        "display(Image(data.getvalue()))\nlen(data.getvalue())"
    )
    path = await use(client, collaborating, code)
    shown = await call(client, "execute_cell", cell_index=0, timeout=60)
    [picture] = [each for each in shown.content if each.type == "image"]
    assert picture.mime_type == "image/png" and len(picture.data) < 410_000  # base64 of at most 300,000 bytes
    assert "[image 0: png 700x700, 1," in text(shown) and "/image/0]" in text(shown)
    cells = saved_when(collaborating, path, lambda cells: len(cells[0]["outputs"]) == 2)
    assert len("".join(cells[0]["outputs"][0]["data"]["image/png"])) > 1_400_000
    assert not [mime for mime in cells[0]["outputs"][0]["data"] if "quire" in mime]


async def test_invalid_large_picture_is_not_shown(client: Client[Any], collaborating: JupyterServer) -> None:
    picture = "Image(b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 1_000_000)"
    code = f"from IPython.display import Image, display\ndisplay({picture})\n'on'"
    await use(client, collaborating, code)
    shown = await call(client, "execute_cell", cell_index=0, timeout=60)
    assert not shown.is_error and "'on'" in text(shown), text(shown)
    assert [each.type for each in shown.content].count("image") == 0


async def test_long_output_is_shortened(client: Client[Any], collaborating: JupyterServer) -> None:
    await use(client, collaborating, "0")
    shown = await said(client, "insert_execute_code_cell", cell_index=-1, cell_source="print('x' * 200_000)")
    assert len(shown) < 20_000 and "characters left out" in shown


async def test_two_clients_have_their_own_current_notebook(over_http: str, collaborating: JupyterServer) -> None:
    first, second = collaborating.notebook("'one'"), collaborating.notebook("'two'")
    async with http_client(over_http, mode="legacy") as ann, http_client(over_http, mode="legacy") as ben:
        await said(ann, "use_notebook", notebook_name="a", notebook_path=first)
        await said(ben, "use_notebook", notebook_name="b", notebook_path=second)
        assert "'one'" in await said(ann, "read_cell", cell_index=0)
        assert "'two'" in await said(ben, "read_cell", cell_index=0)


async def test_clients_without_sessions_name_notebook_and_server(
    over_http: str, collaborating: JupyterServer, plain: JupyterServer
) -> None:
    first, second = collaborating.notebook("'one'"), collaborating.notebook("'two'")
    async with http_client(over_http) as ann, http_client(over_http) as ben:
        await release_notebooks(ann)
        await said(ann, "use_notebook", notebook_name="a", notebook_path=first)
        assert "'one'" in await said(ann, "read_cell", cell_index=0)  # the only one in use
        taken = await said(ben, "use_notebook", notebook_name="b", notebook_path=second)
        assert "Pass notebook_name in each call" in taken
        for tool, arguments in (
            ("insert_execute_code_cell", {"cell_index": -1, "cell_source": "1"}),
            ("execute_code", {"code": "1"}),
            ("execute_ipython", {"code": "1"}),
            ("read_cell", {"cell_index": 0}),
        ):
            which = await refused(ann, tool, **arguments)
            assert "There are 'a', 'b'" in which and "`notebook_name`" in which, which
        assert await said(ann, "execute_code", code="x = 'one'; x", notebook_name="a") == "'one'"
        assert "NameError" in await refused(ben, "execute_code", code="x", notebook_name="b")
        assert "'two'" in await said(ben, "execute_cell", cell_index=0, notebook_name="b")
        connected = {"jupyter_url": plain.url, "jupyter_token": plain.token, "server": "plain"}
        assert "Pass server='plain'" in await said(ben, "connect_to_jupyter", **connected)
        assert "There are 'jupyter', 'plain'" in await refused(ann, "list_files")
        assert first in await said(ann, "list_files", server="jupyter", limit=0)


async def test_answers_to_clients_without_sessions_name_no_current_notebook(
    over_http: str, collaborating: JupyterServer
) -> None:
    async with http_client(over_http) as client:
        await release_notebooks(client)
        first = {"notebook_name": "a", "notebook_path": collaborating.notebook("1"), "server": "jupyter"}
        second = {"notebook_name": "b", "notebook_path": collaborating.notebook("2"), "server": "jupyter"}
        await said(client, "use_notebook", **first)
        again = await said(client, "use_notebook", notebook_name="a")
        assert again.startswith("[INFO] Reactivating notebook 'a'.\n")
        await refused(client, "use_notebook", notebook_name="typo")
        assert await said(client, "execute_code", code="2 * 3") == "6"  # in the only notebook
        await said(client, "use_notebook", **second)
        for name in ("a", "b"):
            unused = await said(client, "unuse_notebook", notebook_name=name)
            assert unused == f"Notebook '{name}' unused successfully."


async def test_after_a_failed_use_notebook_no_notebook_is_current(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = await use(client, collaborating, "1")
    for failing in (
        {"notebook_name": "other", "notebook_path": "nowhere.ipynb"},
        {"notebook_name": "other"},
        {"notebook_name": "book", "notebook_path": path, "mode": "create"},
    ):
        await refused(client, "use_notebook", **failing)
        stopped = await refused(client, "insert_execute_code_cell", cell_index=-1, cell_source="2")
        assert "could not be used. 'book' was current before" in stopped
        await said(client, "use_notebook", notebook_name="book")
    assert "Notebook book has 1 cell." in await said(client, "read_notebook", notebook_name="book")


async def test_wrong_path_or_name_is_answered_with_the_nearest_one(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = collaborating.notebook("1", name="near/zz_sales_report.ipynb")
    for number in range(25):
        collaborating.notebook("1", name=f"near/draft {number}.ipynb")
    for wrong in ("near/zz_sales_reprot.ipynb", "near/sales.ipynb"):
        missing = await refused(client, "use_notebook", notebook_name="b", notebook_path=wrong)
        assert missing.endswith(f" The nearest is {path!r}."), missing
    missing = await refused(client, "use_notebook", notebook_name="b", notebook_path="far/x.ipynb")
    assert "nearest" not in missing
    taken = await said(client, "use_notebook", notebook_name="quarterly sales", notebook_path=path)
    assert "\nNotebook has 1 cell.\n\nIndex" in taken
    assert "The nearest is 'quarterly sales'." in await refused(client, "read_notebook", notebook_name="sales")


async def test_control_characters_in_a_source_are_shown_and_not_sent(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    path = await use(client, collaborating, "mark = '\x1b[31m'")
    for answer in (
        await said(client, "read_cell", cell_index=0),
        await said(client, "read_notebook", notebook_name="book"),
        await said(client, "read_notebook", notebook_name="book", response_format="detailed"),
        await said(client, "edit_cell_source", cell_index=0, old_string="mark", new_string="sign"),
        await said(client, "delete_cell", cell_indices=[0]),
    ):
        assert "\x1b" not in answer and r"'\x1b[31m'" in answer, answer
    saved_when(collaborating, path, lambda cells: not cells)


async def test_deleted_kernel_is_named_with_what_to_do(client: Client[Any], collaborating: JupyterServer) -> None:
    await use(client, collaborating, "1")
    kernel = collaborating.call("POST", "api/kernels", {"name": "python3"})["id"]
    assert await said(client, "execute_code", code="1 + 1", kernel_id=kernel) == "2"
    collaborating.call("DELETE", f"api/kernels/{kernel}")
    for _ in range(2):
        gone = await refused(client, "execute_code", code="1 + 1", kernel_id=kernel)
        assert f"Kernel '{kernel}' not found" in gone and "Without kernel_id" in gone, gone
    assert await said(client, "execute_code", code="1 + 1") == "2"


async def test_code_runs_in_a_new_kernel_after_its_own_was_shut_down(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    await use(client, collaborating, "kept = 1")
    await said(client, "execute_cell", cell_index=0)
    before, begun = kernels(collaborating), tmp_path / "begun"
    kernel = (await said(client, "list_notebooks")).splitlines()[1].split("\t")[2]
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    async with anyio.create_task_group() as group:

        async def run() -> None:
            ended = await refused(client, "execute_code", code=code, timeout=600)
            assert "What it had in memory is gone" in ended and "next run" not in ended, ended

        group.start_soon(run)
        await appears(begun)
        collaborating.call("DELETE", f"api/kernels/{kernel}")
    answer = await said(client, "execute_code", code="'kept' in globals()")
    assert answer.startswith("False") and "This is a fresh kernel: it was shut down on the Jupyter server" in answer
    assert kernel in before and kernel not in kernels(collaborating)
    assert await said(client, "execute_code", code="1 + 1") == "2"


async def test_error_without_a_notebook_says_what_to_do(client: Client[Any]) -> None:
    assert await refused(client, "read_cell", cell_index=0) == (
        "No active notebook. Use the use_notebook tool to activate a notebook first."
    )


async def test_a_kernel_is_chosen_started_and_restarted(client: Client[Any], collaborating: JupyterServer) -> None:
    path = collaborating.notebook("try:\n    n += 1\nexcept NameError:\n    n = 1\nn")
    theirs = kernel_for(collaborating, path)
    taken = await said(client, "use_notebook", notebook_name="book", notebook_path=path)
    assert f"[INFO] It runs in kernel '{theirs}'." in taken
    assert (await said(client, "execute_cell", cell_index=0)).startswith("1\n")
    other = await said(client, "use_notebook", notebook_name="own", notebook_path=path, kernel_id="NEW")
    mine = other.partition("Connected to kernel '")[2].partition("'")[0]
    assert mine != theirs and {mine, theirs} <= kernels(collaborating)
    assert (await said(client, "execute_cell", cell_index=0, notebook_name="own")).startswith("1\n")
    assert mine in await said(client, "list_kernels")
    restarted = await said(client, "restart_notebook", notebook_name="book")
    assert restarted.startswith("Notebook 'book' kernel restarted successfully.")
    assert (await said(client, "execute_cell", cell_index=0, notebook_name="book")).startswith("1\n")
    await said(client, "unuse_notebook", notebook_name="own")
    await said(client, "unuse_notebook", notebook_name="book")
    assert theirs in kernels(collaborating) and mine not in kernels(collaborating)


async def test_shared_kernel_lives_until_its_last_notebook_is_unused(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    first, second = collaborating.notebook("kept = 41"), collaborating.notebook("kept + 1")
    await said(client, "use_notebook", notebook_name="first", notebook_path=first)
    await said(client, "execute_cell", cell_index=0)
    (kernel,) = [line.split("\t")[2] for line in (await said(client, "list_notebooks")).splitlines() if first in line]
    await said(client, "use_notebook", notebook_name="second", notebook_path=second, kernel_id=kernel)
    assert "42" in await said(client, "execute_cell", cell_index=0)
    await said(client, "unuse_notebook", notebook_name="second")
    assert "41" in await said(
        client, "insert_execute_code_cell", cell_index=-1, cell_source="kept", notebook_name="first"
    )
    await said(client, "unuse_notebook", notebook_name="first")
    assert kernel not in kernels(collaborating)


@pytest.mark.parametrize("how", ["execute_code", "NEW"])
async def test_unused_notebook_leaves_no_kernel(client: Client[Any], collaborating: JupyterServer, how: str) -> None:
    before = kernels(collaborating)
    path = collaborating.notebook("1")
    kernel_id = "NEW" if how == "NEW" else None
    await said(client, "use_notebook", notebook_name="book", notebook_path=path, kernel_id=kernel_id)
    if how == "execute_code":
        assert await said(client, "execute_code", code="6 * 7") == "42"
    assert len(kernels(collaborating) - before) == 1
    await said(client, "unuse_notebook", notebook_name="book")
    assert kernels(collaborating) == before


async def test_notebook_stays_in_use_while_code_runs_in_its_kernel(
    client: Client[Any], collaborating: JupyterServer, tmp_path: Path
) -> None:
    await use(client, collaborating, "1")
    code = f"import pathlib\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\n{waits_for(tmp_path / 'go')}"
    async with anyio.create_task_group() as group:
        group.start_soon(partial(said, client, "execute_code", code=code, timeout=int(DEADLINE)))
        await appears(tmp_path / "begun")
        assert "runs in the kernel" in await refused(client, "unuse_notebook", notebook_name="book")
        (tmp_path / "go").touch()


async def test_restart_without_a_kernel_says_that_there_was_none(
    client: Client[Any], collaborating: JupyterServer
) -> None:
    await use(client, collaborating, "1")
    assert await said(client, "restart_notebook", notebook_name="book") == (
        "Notebook 'book' kernel restarted successfully. No kernel was running: the next run starts one."
    )


async def test_a_document_that_is_not_there_is_not_found(client: Client[Any]) -> None:
    wrong = await refused(client, "use_notebook", notebook_name="n", notebook_path="nowhere.ipynb")
    assert "'nowhere.ipynb' was not found on" in wrong and "list_files" in wrong


async def test_unknown_kernel_creates_no_document(client: Client[Any], collaborating: JupyterServer) -> None:
    new = {"notebook_name": "n", "notebook_path": "not-made.ipynb", "mode": "create"}
    wrong = await refused(client, "use_notebook", **new, kernel_id="none")
    assert "'none' not found in jupyter server" in wrong and "python3" in wrong
    assert not (collaborating.root / "not-made.ipynb").exists()
    assert "Successfully" in await said(client, "use_notebook", **new, kernel_id="python3")


async def test_a_server_is_connected_at_run_time_and_used_by_name(
    tmp_path: Path, collaborating: JupyterServer, plain: JupyterServer
) -> None:
    path = plain.notebook("'plain'")
    async with quire(tmp_path, collaborating) as client:
        connected = await said(
            client, "connect_to_jupyter", jupyter_url=plain.url, jupyter_token=plain.token, server="files"
        )
        assert connected.startswith(f"Successfully connected to Jupyter server: {plain.url.rstrip('/')}")
        taken = await said(client, "use_notebook", notebook_name="p", notebook_path=path)
        assert "No jupyter-collaboration there" in taken
        assert (await said(client, "execute_cell", cell_index=0)).startswith("'plain'")
        there = await said(client, "list_files", server="jupyter", max_depth=0, limit=0)
        assert path not in there
    assert plain.saved(path)["cells"][0]["execution_count"] == 1
