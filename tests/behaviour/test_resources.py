"""Resources, subscriptions, completions, prompts and the surface itself, through a real client."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from mcp.client.subscriptions import listen
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import PromptReference, ResourceTemplateReference, ResourceUpdatedNotification

from tests.support.servers import call, http_client, http_server, stdio_client
from tests.support.waiting import DEADLINE


async def read(client: Client[Any], uri: str) -> Any:
    return json.loads((await client.read_resource(uri))[0].text)


async def test_notebooks_and_cells_are_read_by_their_addresses(client: Client[Any]) -> None:
    ran = (await call(client, "execute", code="print('hello')")).structured_content
    await call(client, "create_notebook", name="a b", use=False)
    assert [book["name"] for book in await read(client, "notebook://notebooks")] == ["main", "a b"]
    assert (await read(client, "notebook://current/info"))["name"] == "main"
    assert (await read(client, "notebook://a%20b/info"))["name"] == "a b"
    assert (await read(client, "notebook://current/cells"))[0]["code"] == "print('hello')"
    assert (await read(client, "notebook://main/cells"))[0]["cell_id"] == ran["cell_id"]
    for which in ("0", ran["cell_id"]):
        for place in ("cell", "main/cell", "current/cell"):
            assert (await read(client, f"notebook://{place}/{which}"))["outputs"][0]["text"] == "hello\n"
    assert (await client.read_resource("notebook://cell/0/output/0"))[0].text == "hello\n"
    assert (await read(client, "notebook://current/ipynb"))["nbformat"] == 4
    assert (await read(client, "notebook://main/ipynb"))["cells"][0]["source"] == "print('hello')"


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("notebook://nowhere/cells", "No notebook is called 'nowhere'"),
        ("notebook://cell/9", "No cell '9'"),
        ("notebook://cell/0/image/0", "no images"),
        ("notebook://cell/0/output/7", "no output 7"),
    ],
)
async def test_a_resource_that_is_not_there_says_what_is(client: Client[Any], uri: str, says: str) -> None:
    await call(client, "execute", code="1")
    with pytest.raises(Exception, match=says):
        await client.read_resource(uri)


async def test_the_fixed_resources_and_the_templates_are_listed(client: Client[Any]) -> None:
    fixed = {str(resource.uri) for resource in await client.list_resources()}
    assert fixed == {f"notebook://{path}" for path in ("notebooks", "current/cells", "current/info", "current/ipynb")}
    templates = {template.uri_template for template in await client.list_resource_templates()}
    assert "notebook://cell/{which}/image/{index}" in templates and "notebook://{name}/cell/{which}" in templates


async def test_names_and_cells_are_completed(client: Client[Any]) -> None:
    ran = (await call(client, "execute", code="1")).structured_content
    await call(client, "create_notebook", name="mountain", use=False)
    template = ResourceTemplateReference(type="ref/resource", uri="notebook://{name}/cell/{which}")
    assert (await client.complete(template, {"name": "name", "value": "m"})).values == ["main", "mountain"]
    found = await client.complete(template, {"name": "which", "value": ran["cell_id"][:3]}, {"name": "main"})
    assert found.values == [ran["cell_id"]]
    prompt = PromptReference(type="ref/prompt", name="continue_from_cell")
    assert "0" in (await client.complete(prompt, {"name": "cell", "value": ""})).values


async def test_prompts_name_the_resource_to_read(client: Client[Any]) -> None:
    prompts = {prompt.name for prompt in await client.list_prompts()}
    assert prompts == {"analyse_notebook", "continue_from_cell"}
    said = await client.get_prompt("continue_from_cell", {"cell": "3", "name": "main"})
    assert "notebook://main/cells" in said.messages[0].content.text


class Heard(MessageHandler):
    def __init__(self) -> None:
        self.uris: list[str] = []

    async def on_resource_updated(self, message: ResourceUpdatedNotification) -> None:
        self.uris.append(str(message.params.uri))


@pytest.mark.filterwarnings("ignore:resources/")  # the older era is what is tested
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_subscriber_of_the_older_era_hears_of_its_cell(data_dir: Path, transport: str) -> None:
    heard = Heard()

    async def use(client: Client[Any]) -> None:
        ran = (await call(client, "execute", code="1")).structured_content
        uri = f"notebook://main/cell/{ran['cell_id']}"
        await client.session.subscribe_resource(uri)
        await call(client, "execute_cell", cell_id_or_number=0)
        with anyio.fail_after(DEADLINE):
            while uri not in heard.uris:
                await anyio.sleep(0.01)
        await client.session.unsubscribe_resource(uri)
        heard.uris.clear()
        await call(client, "execute_cell", cell_id_or_number=0)
        assert heard.uris == []

    if transport == "stdio":
        async with stdio_client(data_dir, mode="legacy", handler=heard) as client:
            await use(client)
    else:
        with http_server(data_dir) as (url, _):
            async with http_client(url, mode="legacy", handler=heard) as client:
                await use(client)


async def test_a_listener_of_the_newer_era_hears_of_its_cell(stdio: Client[Any]) -> None:
    ran = (await call(stdio, "execute", code="1")).structured_content
    uri = f"notebook://main/cell/{ran['cell_id']}"
    async with listen(stdio.session, resource_subscriptions=[uri]) as events:
        await call(stdio, "execute_cell", cell_id_or_number=0)
        with anyio.fail_after(DEADLINE):
            async for event in events:
                assert isinstance(event, ResourceUpdated) and event.uri == uri
                break


@pytest.mark.parametrize("toolsets", ["default", "sandbox", "jupyter", "repl", "notebook,sandbox"])
async def test_instructions_name_the_tools_there_are_and_no_others(data_dir: Path, toolsets: str) -> None:
    async with stdio_client(data_dir, toolsets="all") as client:
        every = {tool.name for tool in await client.list_tools()}
    async with stdio_client(data_dir, toolsets=toolsets) as client:
        named = set(re.findall(r"\w+", client.instructions or "")) & (every - {"state"})  # which is a word, too
        assert named <= {tool.name for tool in await client.list_tools()} and named


async def test_instructions_and_icon_are_given(client: Client[Any]) -> None:
    assert "interrupt ends it" in (client.instructions or "")
    assert client.server_info is not None and client.server_info.icons
