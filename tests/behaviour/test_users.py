"""Two users of one server, over real HTTP: neither reaches what is the other's, unless it was shared."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from fastmcp.exceptions import McpError
from mcp.client.subscriptions import listen
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import ResourceTemplateReference, ResourceUpdatedNotification, ToolListChangedNotification

from tests.support.backends import BACKENDS
from tests.support.http_users import Users, issuer
from tests.support.processes import listening
from tests.support.servers import call, http_server, text
from tests.support.waiting import DEADLINE

DIARY = "alice/diary"
NOTHING = "alice/nothing"
SECRET = "private words of a diary"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    data_dir = tmp_path_factory.mktemp("users") / "data"
    with http_server(
        data_dir, auth="tokens", toolsets="all", preload="", snapshot_interval=0, approve_unasked=True
    ) as (url, _):
        made = Users(url, data_dir)
        made.token("root", admin=True)
        yield made


@pytest.fixture(scope="module")
async def clients(users: Users) -> AsyncIterator[dict[str, Client[Any]]]:
    async with AsyncExitStack() as stack:
        names = ("alice", "bob", "root")
        yield {name: await stack.enter_async_context(users.client(name)) for name in names}


@pytest.fixture(scope="module")
async def alice(clients: dict[str, Client[Any]]) -> Client[Any]:
    """With a notebook `diary` of one cell."""
    client = clients["alice"]
    assert not (await call(client, "create_notebook", name="diary", use=False)).is_error
    wrote = await call(client, "execute", notebook="diary", code=f"secret = {SECRET!r}\nprint(secret)")
    assert not wrote.is_error, text(wrote)
    return client


@pytest.fixture(scope="module")
async def bob(clients: dict[str, Client[Any]], alice: Client[Any]) -> Client[Any]:
    return clients["bob"]


@pytest.fixture
async def shared(alice: Client[Any]) -> AsyncIterator[Any]:
    """Shares the diary with bob for as long as the test takes."""

    async def share(access: str) -> Any:
        return await call(alice, "share_notebook", notebook="diary", with_whom="bob", access=access)

    yield share
    await share("none")


async def read(client: Client[Any], uri: str) -> str:
    """What a resource says, or why it says nothing."""
    try:
        found = await client.read_resource(uri)
    except McpError as error:
        return f"refused: {error}"
    return "".join(getattr(each, "text", "") or getattr(each, "blob", "") for each in found)


# What is not shared


def arguments(tool: Any, notebook: str) -> dict[str, Any]:
    """Something for everything a tool must be given."""
    given = {"cell_id_or_number": 0, "to": 0, "to_number": 0, "code": "1", "name": "x", "path_or_json": "x.ipynb"}
    given |= {"query": "x", "with_whom": "bob", "path": "x.txt", "content": "x"}
    return {each: given[each] for each in tool.input_schema.get("required", []) if each != "notebook"} | {
        "notebook": notebook
    }


async def test_each_tool_treats_anothers_notebook_as_one_that_is_not_there(bob: Client[Any]) -> None:
    tools = [tool for tool in await bob.list_tools() if "notebook" in tool.input_schema["properties"]]
    assert len(tools) > 15
    for tool in tools:
        there, not_there = [await call(bob, tool.name, **arguments(tool, name)) for name in (DIARY, NOTHING)]
        assert there.is_error and not_there.is_error, tool.name
        assert text(there).replace(DIARY, NOTHING) == text(not_there), tool.name
        assert SECRET not in text(there), tool.name
    used = [text(await call(bob, "use_notebook", name=name)) for name in (DIARY, NOTHING)]
    assert used[0].replace(DIARY, NOTHING) == used[1]


async def test_every_resource_answers_so_too(bob: Client[Any]) -> None:
    templates = [each.uri_template for each in await bob.list_resource_templates()]
    named = [each for each in templates if "{name}" in each]
    assert len(named) > 5
    for template in named:
        filled = re.sub(r"\{(?!name)[^}]*\}", "0", template)
        said = [await read(bob, filled.replace("{name}", quote(name, safe=""))) for name in (DIARY, NOTHING)]
        assert said[0].startswith("refused: "), filled
        assert said[0].replace("diary", "nothing") == said[1], filled


async def test_only_own_notebooks_are_listed_and_completed(alice: Client[Any], bob: Client[Any]) -> None:
    await call(bob, "execute", code="1", notebook="main")
    listed = (await call(bob, "list_notebooks")).structured_content["notebooks"]
    assert {"main"} <= {each["name"] for each in listed} and "diary" not in str(listed)
    assert "diary" not in await read(bob, "notebook://notebooks")
    template = ResourceTemplateReference(uri="notebook://{name}/cell/{which}", type="ref/resource")
    assert (await bob.complete(template, {"name": "name", "value": "d"})).values == []
    assert (await bob.complete(template, {"name": "name", "value": "alice"})).values == []
    assert (await bob.complete(template, {"name": "which", "value": ""}, {"name": DIARY})).values == []
    assert (await alice.complete(template, {"name": "name", "value": "d"})).values == ["diary"]


async def test_ids_of_anothers_cells_runs_and_checkpoints_lead_nowhere(alice: Client[Any], bob: Client[Any]) -> None:
    cell = (await call(alice, "get_cell", notebook="diary", cell_id_or_number=0)).structured_content["cell_id"]
    listed = (await call(alice, "list_checkpoints", notebook="diary")).structured_content["checkpoints"]
    await call(bob, "execute", code="1", notebook="main")
    for tool in ("get_cell", "execute_cell", "delete_cell", "get_cell_image"):
        answer = await call(bob, tool, cell_id_or_number=cell, notebook="main")
        assert answer.is_error and "No cell" in text(answer), tool
    assert "No cell" in await read(bob, f"notebook://main/cell/{cell}")
    for place in (cell, *(each["checkpoint"] for each in listed if each["checkpoint"] != "start")):
        assert (await call(bob, "rollback", to=place, notebook="main")).is_error
    assert text(await call(alice, "execute", notebook="diary", code="secret")).startswith(repr(SECRET))


async def test_notebooks_of_one_name_are_two(alice: Client[Any], bob: Client[Any], users: Users) -> None:
    for client, value in ((alice, 1), (bob, 2)):
        await call(client, "create_notebook", name="same", use=False)
        await call(client, "execute", notebook="same", code=f"open('mine.txt', 'w').write('{value}'); mine = {value}")
        saved = await call(client, "save_state", name="mine", notebook="same")
        assert not saved.is_error, text(saved)
    for client, value in ((alice, 1), (bob, 2)):
        ran = await call(client, "execute", notebook="same", code="mine, open('mine.txt').read()")
        assert ran.structured_content["return_value"] == [value, str(value)]
    files = [json.loads(file.read_text()) for file in (users.data_dir / "snapshots").rglob("mine.json")]
    assert sorted(each["variables"]["mine"]["value"] for each in files) == [1, 2]


class Heard(MessageHandler):
    def __init__(self) -> None:
        self.uris: list[str] = []
        self.tools = 0

    async def on_resource_updated(self, message: ResourceUpdatedNotification) -> None:
        self.uris.append(str(message.params.uri))

    async def on_tool_list_changed(self, message: ToolListChangedNotification) -> None:
        self.tools += 1


EXPOSED = "@capability(expose=True)\ndef peek() -> str:\n    '''Whose.'''\n    return {!r}\n"
DIARYS = f"notebook://{quote(DIARY, safe='')}/cells"


@pytest.mark.filterwarnings("ignore:resources/")
async def test_a_subscriber_of_the_older_era_hears_of_others_only_what_is_shared(
    users: Users, alice: Client[Any], bob: Client[Any], shared: Any
) -> None:
    heard = Heard()
    async with users.client("bob", mode="legacy", handler=heard) as old:
        await call(old, "create_notebook", name="diary")
        for uri in ("notebook://diary/cells", "notebook://current/cells", DIARYS):
            await old.session.subscribe_resource(uri)
        await call(alice, "execute", notebook="diary", code="1")
        await call(old, "execute", notebook="diary", code="2")
        await _until(lambda: "notebook://diary/cells" in heard.uris)
        assert DIARYS not in heard.uris and len([each for each in heard.uris if "/diary/" in each]) <= 2
        await shared("read")
        heard.uris.clear()
        await call(alice, "execute", notebook="diary", code="1")
        await _until(lambda: DIARYS in heard.uris)
        assert "notebook://diary/cells" not in heard.uris


async def test_a_listener_of_the_newer_era_hears_of_others_only_what_is_shared(
    users: Users, alice: Client[Any], bob: Client[Any], shared: Any
) -> None:
    await call(alice, "create_notebook", name="journal", use=False)
    await call(bob, "create_notebook", name="bobs", use=False)
    uris = ["notebook://journal/cells", "notebook://bobs/cells", DIARYS]
    async with listen(bob.session, resource_subscriptions=uris, tools_list_changed=True) as events:
        await call(alice, "execute", notebook="journal", code=EXPOSED.format("alice's"))
        await call(alice, "execute", notebook="diary", code="1")
        await call(bob, "add_cell", notebook="bobs", code="1", execute=False)
        assert await _next(events) == "notebook://bobs/cells"
        await shared("read")
        await call(alice, "add_cell", notebook="diary", code="1", execute=False)
        assert await _next(events) == DIARYS
    await call(alice, "reset", notebook="journal")


async def _next(events: Any) -> str:
    with anyio.fail_after(DEADLINE):
        async for event in events:
            assert isinstance(event, ResourceUpdated)
            return event.uri
    raise AssertionError("the stream ended")


async def _until(true: Any) -> None:
    with anyio.fail_after(DEADLINE):
        while not true():
            await anyio.sleep(0.02)


async def test_tools_that_a_notebook_publishes_are_its_owners_alone(
    users: Users, alice: Client[Any], bob: Client[Any]
) -> None:
    heard = Heard()
    async with users.client("bob", mode="legacy", handler=heard) as watching:
        await call(watching, "list_notebooks")
        made = await call(alice, "execute", notebook="diary", code=EXPOSED.format("alice's"))
        assert not made.is_error, text(made)
        assert "peek" in {tool.name for tool in await alice.list_tools()}
        assert "peek" not in {tool.name for tool in await bob.list_tools()}
        refused = await call(bob, "peek")
        assert refused.is_error and "Unknown tool" in text(refused)
        assert heard.tools == 0
        await call(bob, "create_notebook", name="own", use=False)
        await call(bob, "execute", notebook="own", code=EXPOSED.format("bob's"))
        await _until(lambda: heard.tools == 1)
    assert (await call(alice, "peek")).structured_content["return_value"] == "alice's"
    assert (await call(bob, "peek")).structured_content["return_value"] == "bob's"
    assert "peek" not in await read(bob, f"notebook://{quote(DIARY, safe='')}/cells")
    for client, book in ((alice, "diary"), (bob, "own")):
        await call(client, "reset", notebook=book)
    await call(alice, "execute", notebook="diary", code=f"secret = {SECRET!r}")


# What is shared


READS = ("get_cell", "list_cells", "state", "list_checkpoints", "export_notebook_as_ipynb", "list_files")
WRITES = ("execute", "add_cell", "execute_cell", "edit_cell", "move_cell", "delete_cell", "clear_notebook")
WRITES += ("import_ipynb", "save_state", "restore_state", "reset", "interrupt", "rollback")


async def test_a_notebook_shared_to_read_is_looked_at_and_exported_and_no_more(
    bob: Client[Any], alice: Client[Any], shared: Any
) -> None:
    said = await shared("read")
    assert text(said) == f"Notebook 'diary', to others {DIARY}, is shared with bob (read)."
    tools = {tool.name: tool for tool in await bob.list_tools()}
    for name in READS:
        answer = await call(bob, name, **arguments(tools[name], DIARY))
        assert not answer.is_error, text(answer)
    before = (await call(alice, "export_notebook_as_ipynb", notebook="diary")).content[0].text
    for name in WRITES:
        answer = await call(bob, name, **arguments(tools[name], DIARY))
        assert answer.is_error and f"{DIARY} is shared with you read only" in text(answer), (name, text(answer))
    written = await call(bob, "export_notebook_as_ipynb", notebook=DIARY, path="out.ipynb")
    assert written.is_error and "read only" in text(written)
    for name in ("branch_notebook", "share_notebook"):
        answer = await call(bob, name, **arguments(tools[name], DIARY))
        assert answer.is_error and f"Only the owner of {DIARY}" in text(answer)
    assert (await call(alice, "export_notebook_as_ipynb", notebook="diary")).content[0].text == before
    listed = await call(bob, "list_notebooks")
    assert f"{DIARY}: " in text(listed) and "shared with you to read" in text(listed)
    await call(alice, "write_file", notebook="diary", path="page.txt", text="written")
    page = await call(bob, "read_file", notebook=DIARY, path="page.txt")
    assert text(page).startswith("written") and page.structured_content["notebook"] == DIARY
    assert "written" in await read(bob, f"notebook://{quote(DIARY, safe='')}/files/page.txt")
    written = await call(bob, "write_file", notebook=DIARY, path="page.txt", text="x")
    assert written.is_error and "read only" in text(written)
    shown = (await call(bob, "get_cell", notebook=DIARY, cell_id_or_number=0)).structured_content
    assert shown["notebook"] == DIARY
    assert SECRET in await read(bob, shown["outputs"][0]["uri"])


async def test_a_notebook_shared_to_write_is_run_and_edited_and_no_more(
    bob: Client[Any], alice: Client[Any], shared: Any
) -> None:
    await shared("write")
    ran = await call(bob, "execute", notebook=DIARY, code="secret")
    assert ran.structured_content["return_value"] == SECRET
    assert ran.structured_content["notebook"] == DIARY and f"of {DIARY}" in text(ran)
    number = ran.structured_content["cell_number"]
    assert not (await call(bob, "edit_cell", notebook=DIARY, cell_id_or_number=number, code="secret + '!'")).is_error
    seen = (await call(alice, "get_cell", notebook="diary", cell_id_or_number=number)).structured_content
    assert (seen["code"], seen["notebook"]) == ("secret + '!'", "diary")
    for name in ("branch_notebook", "share_notebook"):
        given = {"name": "x"} if name == "branch_notebook" else {"with_whom": "carol", "access": "write"}
        answer = await call(bob, name, notebook=DIARY, **given)
        assert answer.is_error and "Only the owner" in text(answer)


async def test_a_share_that_ends_ends_at_once_also_for_who_had_it_as_current(
    bob: Client[Any], users: Users, shared: Any
) -> None:
    await shared("write")
    async with users.client("bob", mode="legacy") as session:
        assert text(await call(session, "use_notebook", name=DIARY)) == f"Notebook {DIARY!r} is current."
        assert (await call(session, "execute", code="secret")).structured_content["notebook"] == DIARY
        await shared("read")
        assert "read only" in text(await call(session, "execute", code="secret"))
        await shared("none")
        after = await call(session, "execute", code="secret")
        assert after.is_error and f"No notebook is called {DIARY!r}" in text(after)
        assert not (await call(session, "use_notebook", name="main")).is_error


async def test_an_admin_reaches_every_notebook_by_its_owner_and_name(
    clients: dict[str, Client[Any]], alice: Client[Any]
) -> None:
    root = clients["root"]
    assert (await call(root, "execute", notebook=DIARY, code="secret")).structured_content["return_value"] == SECRET
    assert "diary" not in text(await call(root, "list_notebooks"))
    branched = await call(root, "branch_notebook", notebook=DIARY, name="copy", use=False)
    assert branched.structured_content["name"] == "alice/copy"
    assert "copy" in text(await call(alice, "list_notebooks"))


@pytest.mark.parametrize("whom", ["", "a b", "../x", "x" * 300, "a/b", "local user"])
async def test_a_notebook_cannot_be_shared_with_a_bad_name(alice: Client[Any], whom: str) -> None:
    refused = await call(alice, "share_notebook", notebook="diary", with_whom=whom)
    assert refused.is_error and "cannot name a user" in text(refused)


# What only the operator's own may ask for


PUBLIC = "http://203.0.113.7/mcp"  # an address reserved for documentation, where no server is


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"server_command": "true"}, "only admins install one"),
        ({"config": {"command": "true"}}, "only admins install one"),
        ({"config": "cursor"}, "for admins"),
        ({"config": "/etc/passwd"}, "for admins"),
        ({"url": PUBLIC, "headers": {"A": "env:HOME"}}, "refers to a secret"),
        ({"url": PUBLIC, "headers": {"A": "Bearer file:/etc/passwd"}}, "refers to a secret"),
        ({"url": PUBLIC, "headers": {"A": "${HOME}"}}, "refers to a secret"),
        ({"url": "http://127.0.0.1:1/mcp"}, "inside the server's own network"),
        ({"url": "http://localhost:1/mcp"}, "inside the server's own network"),
        ({"url": "http://[::1]:1/mcp"}, "inside the server's own network"),
        ({"url": "http://[::ffff:127.0.0.1]:1/mcp"}, "inside the server's own network"),
        ({"url": "http://169.254.169.254/latest"}, "inside the server's own network"),
        ({"url": "http://10.0.0.1/mcp"}, "inside the server's own network"),
        ({"url": "http://2130706433/mcp"}, "inside the server's own network"),  # 127.0.0.1, in another way
        ({"url": "http://0x7f.1/mcp"}, "inside the server's own network"),
        ({"config": {"url": "http://192.168.0.1/mcp"}}, "inside the server's own network"),
    ],
)
async def test_a_user_cannot_install_a_program_a_secret_or_an_address_of_the_server(
    bob: Client[Any], given: dict[str, Any], says: str
) -> None:
    refused = await call(bob, "install_capability", name="shop", **given)
    assert refused.is_error and says in text(refused), text(refused)
    assert "root:" not in text(refused)


async def test_nor_does_their_code(bob: Client[Any], alice: Client[Any], clients: dict[str, Client[Any]]) -> None:
    """Nor an admin's: what they run may be another person's words."""
    for how, says in (
        ("command='true'", "only admins install one"),
        ("config='/etc/passwd'", "for admins"),
        ("url='http://127.0.0.1:1/mcp'", "inside the server's own network"),
        ("url='http://203.0.113.7/mcp', auth='env:HOME'", "refers to a secret"),
    ):
        for client in (bob, clients["root"]):
            ran = await call(client, "execute", code=f"caps.install('shop', {how})", notebook="main")
            assert ran.is_error and says in text(ran), text(ran)


async def test_a_user_chooses_no_interpreter_and_no_limit_beyond_the_servers(
    bob: Client[Any], clients: dict[str, Client[Any]]
) -> None:
    refused = await call(bob, "create_notebook", name="py", python="/usr/bin/python3")
    assert refused.is_error and "for admins" in text(refused)
    for limits in ({"memory_bytes": 0}, {"memory_bytes": 2**60}, {"processes": 0}, {"output_bytes": 10**9}):
        assert "may be at most" in text(await call(bob, "create_notebook", name="py", limits=limits))
    assert not (await call(bob, "create_notebook", name="less", limits={"processes": 20}, use=False)).is_error
    ample = await call(clients["root"], "create_notebook", name="py", limits={"processes": 0}, use=False)
    assert not ample.is_error, text(ample)


@pytest.mark.parametrize("path", ["../out.ipynb", "/etc/quire.ipynb", "/proc/self/environ", "a/../../b.ipynb"])
async def test_a_users_paths_lead_into_their_notebooks_workspace_only(bob: Client[Any], path: str) -> None:
    for tool, given in (
        ("export_notebook_as_ipynb", {"path": path, "notebook": "main"}),
        ("export_notebook_as_ipynb", {"path": path, "mirror": True, "notebook": "main"}),
        ("import_ipynb", {"path_or_json": path, "notebook": "main"}),
        ("create_notebook", {"mirror": path, "use": False}),
    ):
        refused = await call(bob, tool, **given)
        assert refused.is_error and "outside the notebook's workspace" in text(refused), text(refused)


async def test_hosts_the_operator_allows_are_installed_by_every_user(tmp_path: Path) -> None:
    with listening([sys.executable, str(BACKENDS / "good.py"), "http", "letmein"]) as (port, _):
        hosts = f"127.0.0.1:{port}"
        with http_server(tmp_path / "data", auth="tokens", preload="", capability_hosts=hosts) as (url, _):
            users = Users(url, tmp_path / "data")
            async with users.client("bob") as bob, users.client("alice") as alice:
                made = await call(
                    bob,
                    "install_capability",
                    name="shop",
                    url=f"http://{hosts}/mcp",
                    headers={"Authorization": "Bearer letmein"},
                )
                assert not made.is_error, text(made)
                assert "shop" in text(await call(bob, "state"))
                assert "shop" not in text(await call(alice, "state"))
                there = await call(alice, "describe_capability", name="shop")
                assert there.is_error and "There is no capability 'shop'" in text(there)
                gone = await call(alice, "uninstall_capability", name="shop")
                assert gone.is_error and "There is no capability 'shop'" in text(gone)
                await call(bob, "share_notebook", notebook="main", with_whom="alice", access="read")
                assert "shop" not in text(await call(alice, "state", notebook="bob/main"))


async def test_an_allowed_host_leads_to_no_other_by_a_redirect(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []
    inner = issuer({"/inside": lambda given: asked.append(given)})
    with inner as inside, issuer({"/mcp": lambda given: f"{inside}/inside"}) as outside:
        host = urlsplit(outside).netloc
        with http_server(tmp_path / "data", auth="tokens", preload="", capability_hosts=host) as (url, _):
            async with Users(url, tmp_path / "data").client("bob") as bob:
                refused = await call(bob, "install_capability", name="shop", url=f"{outside}/mcp")
                assert refused.is_error, text(refused)
    assert asked == []
