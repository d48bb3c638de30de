"""What an answer says to do next, when a call or a cell is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import Client

from tests.support.notebooks import Book, new_book
from tests.support.servers import SharedServers, call, text


async def test_a_wrong_name_is_answered_with_the_nearest_one(book: Book) -> None:
    await book.run("total = 1")
    wrong = await book.run("totl + 1")
    assert wrong.structured_content["error_message"] == "name 'totl' is not defined"
    assert "Did you mean: 'total'?" in text(wrong)
    caught = await book.run("try:\n    totl\nexcept NameError as error:\n    print(error)")
    assert caught.structured_content["stdout"] == "name 'totl' is not defined\n"


async def test_a_wrong_name_is_answered_so_where_ipython_runs_the_cells(client: Client[Any]) -> None:
    async with new_book(client, shell="ipython") as book:
        wrong = await book.run("total = 1\ntotl + 1")
        assert text(wrong).count("Did you mean: 'total'?") == 1


async def test_a_missing_module_is_answered_with_its_package(shared_servers: SharedServers) -> None:
    async with new_book(await shared_servers.client(sandbox="off")) as book:
        missing = await book.run("import MySQLdb")
        assert missing.structured_content["error_message"] == "No module named 'MySQLdb'"
        assert "To install it: %pip install mysqlclient" in text(missing)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("exekute", "Did you mean execute?"),
        ("quire_execute", "Did you mean execute?"),
        ("read_file", "read_file is in the tool set files, not offered by this server (setting server.toolsets)."),
        ("execute_code", "execute_code is in the tool sets sandbox and jupyter, not offered by this server"),
        ("execute_code", "execute runs code."),
        ("run_python", "execute runs code."),
        ("bash", "execute runs code."),
        ("get_workspace_inf", "Did you mean get_workspace_info?"),
        ("get_workspace_inf", "get_workspace_info is in the tool set sandbox"),
        ("zzzz", "There are: create_notebook, "),
        ("z" * 5_000, "There are: create_notebook, "),
    ],
)
async def test_an_unknown_tool_is_answered_with_where_it_is(client: Client[Any], name: str, says: str) -> None:
    unknown = await call(client, name)
    assert unknown.is_error and text(unknown).startswith("Unknown tool '") and says in text(unknown), text(unknown)
    assert len(text(unknown)) < 1_000


async def test_a_cell_that_is_not_there_is_answered_with_the_numbers(client: Client[Any]) -> None:
    await call(client, "execute", code="1")
    for which in (-1, 9):
        assert "The only number is 0." in text(await call(client, "get_cell", cell_id_or_number=which))
    await call(client, "execute", code="2")
    assert "Numbers go from 0 to 1." in text(await call(client, "get_cell", cell_id_or_number=-1))


async def test_a_place_that_is_no_place_is_answered_with_what_is(client: Client[Any]) -> None:
    await call(client, "execute", code="x = 1")
    for tool, given in (("rollback", {"to": "yesterday"}), ("branch_notebook", {"at": "yesterday", "name": "other"})):
        refused = await call(client, tool, **given)
        assert refused.is_error and "'yesterday' names no state of this notebook. Nothing was changed." in text(refused)
        assert '"before 3", "start"' in text(refused) and "list_checkpoints" in text(refused)
        assert "nothing is saved yet" in text(refused)
    await call(client, "save_state", name="good")
    assert "a saved state ('good')" in text(await call(client, "rollback", to="yesterday"))
    assert "Numbers go" in text(await call(client, "rollback", to=99)) or "only number" in text(
        await call(client, "rollback", to=99)
    )


@pytest.mark.parametrize("name", ["../x", "a b/x", "/x"])
async def test_a_name_with_a_slash_is_answered_with_how_notebooks_are_named(client: Client[Any], name: str) -> None:
    refused = await call(client, "execute", code="1", notebook=name)
    assert text(refused) == f"{name!r} names no notebook: your own go by their names, another user's by USER/NAME."


async def test_without_capabilities_a_search_is_answered_with_how_to_install_one(client: Client[Any]) -> None:
    found = await call(client, "search_capabilities", query="orders")
    assert text(found) == "Nothing fits 'orders'. No capability is installed: install_capability adds one."


async def test_cells_are_listed_by_their_first_statement(client: Client[Any]) -> None:
    await call(client, "add_cell", execute=False, code="# Load the data\nimport json\n\nrows = json.loads('[]')")
    listed = text(await call(client, "list_cells"))
    assert listed.endswith("| rows = json.loads('[]')")


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        (
            "execute",
            {"code": "1", "language": "python"},
            "no argument language. It takes code, timeout, notebook.",
        ),
        ("list_notebooks", {"limit": 1}, "there is no argument limit. It takes no arguments."),
        ("create_notebook", {"limits": {"memory": 1}}, "argument limits.memory. limits takes memory_bytes, cpu_s"),
        (
            "create_notebook",
            {"limits": {"memory_bytes": "1GB"}},
            "limits.memory_bytes: input should be a",
        ),
        (
            "get_cell",
            {"cell_id_or_number": None},
            "cell_id_or_number: input should be a valid integer or input",
        ),
        ("edit_cell", {"cell_id_or_number": 0}, "nothing to change: give code, cell_type or metadata"),
        ("execute_cell", {"cell_id_or_number": "0..2"}, 'execute_cell alone takes several: "2-5", "3-" or "all".'),
        ("move_cell", {"cell_id_or_number": 0, "to_number": 9}, "places go from 0 to 0"),
        ("save_state", {"name": "a/b"}, "'a/b' cannot name a saved state"),
    ],
)
async def test_a_wrong_argument_is_answered_with_what_is_taken(
    client: Client[Any], tool: str, given: dict[str, Any], says: str
) -> None:
    await call(client, "execute", code="x = 1")
    refused = await call(client, tool, **given)
    assert refused.is_error and says in text(refused), text(refused)


async def test_cells_past_the_end_are_answered_with_the_last_number(client: Client[Any]) -> None:
    await call(client, "execute", code="x = 1")
    assert text(await call(client, "list_cells", start=9)) == "no cells from 9 on: the last one is 0"


async def test_a_mirror_that_is_refused_does_not_hide_that_the_notebook_was_made(client: Client[Any]) -> None:
    refused = await call(client, "create_notebook", name="no mirror", mirror="../outside.ipynb", use=False)
    assert refused.is_error and text(refused).startswith("Made notebook 'no mirror', but without a mirror: ")


async def test_a_cell_that_never_ran_is_answered_with_where_to_look(client: Client[Any]) -> None:
    await call(client, "execute", code="x = 1")
    await call(client, "add_cell", code="y", execute=False)
    assert "list_checkpoints shows the states there are." in text(await call(client, "rollback", to=1))


async def test_without_a_jupyter_server_it_is_said_how_to_connect_one(shared_servers: SharedServers) -> None:
    client = await shared_servers.client(toolsets="jupyter")
    assert text(await call(client, "list_files")) == (
        "No Jupyter server is connected. connect_to_jupyter connects one, or start Quire with --jupyter-url and "
        "--jupyter-token."
    )
