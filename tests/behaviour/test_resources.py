"""Resources, completions, prompts and instructions, through a real client."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import PromptReference, ResourceTemplateReference

from tests.support.notebooks import Book
from tests.support.servers import call, in_process_client


async def read(client: Client[Any], uri: str) -> Any:
    return json.loads((await client.read_resource(uri))[0].text)


async def test_notebooks_and_cells_are_read_by_their_addresses(client: Client[Any], book: Book) -> None:
    here = book.name
    ran = (await call(client, "execute", code="print('hello')")).structured_content
    await call(client, "create_notebook", name="a b", use=False)
    listed = [each["name"] for each in await read(client, "notebook://notebooks")]
    assert listed[-2:] == [here, "a b"] and len(listed) == len(set(listed))
    assert (await read(client, "notebook://current/info"))["name"] == here
    assert (await read(client, "notebook://a%20b/info"))["name"] == "a b"
    assert (await read(client, "notebook://current/cells"))[0]["code"] == "print('hello')"
    assert (await read(client, f"notebook://{here}/cells"))[0]["cell_id"] == ran["cell_id"]
    for which in ("0", ran["cell_id"]):
        for place in ("cell", f"{here}/cell", "current/cell"):
            assert (await read(client, f"notebook://{place}/{which}"))["outputs"][0]["text"] == "hello\n"
    assert (await client.read_resource("notebook://cell/0/output/0"))[0].text == "hello\n"
    assert (await read(client, "notebook://current/ipynb"))["nbformat"] == 4
    assert (await read(client, f"notebook://{here}/ipynb"))["cells"][0]["source"] == "print('hello')"


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


async def test_names_and_cells_are_completed(client: Client[Any], book: Book) -> None:
    ran = (await call(client, "execute", code="1")).structured_content
    for name in ("mountain", "mount"):
        await call(client, "create_notebook", name=name, use=False)
    template = ResourceTemplateReference(type="ref/resource", uri="notebook://{name}/cell/{which}")
    assert (await client.complete(template, {"name": "name", "value": "mo"})).values == ["mountain", "mount"]
    assert book.name in (await client.complete(template, {"name": "name", "value": "notebook-"})).values
    found = await client.complete(template, {"name": "which", "value": ran["cell_id"][:3]}, {"name": book.name})
    assert found.values == [ran["cell_id"]]


async def test_cells_of_the_current_notebook_are_completed_for_a_prompt(client: Client[Any]) -> None:
    await call(client, "execute", code="1")
    prompt = PromptReference(type="ref/prompt", name="continue_from_cell")
    for given in (None, {"name": "current"}):
        assert "0" in (await client.complete(prompt, {"name": "cell", "value": ""}, given)).values


async def test_prompts_name_the_resource_to_read(client: Client[Any]) -> None:
    prompts = {prompt.name for prompt in await client.list_prompts()}
    assert prompts == {"analyse_notebook", "continue_from_cell"}
    said = await client.get_prompt("continue_from_cell", {"cell": "3", "name": "main"})
    assert "notebook://main/cells" in said.messages[0].content.text


@pytest.mark.parametrize("toolsets", ["default", "sandbox", "jupyter", "repl", "notebook,sandbox"])
async def test_instructions_name_only_tools_that_are_there(tmp_path: Path, toolsets: str) -> None:
    async with in_process_client(tmp_path / "all", toolsets="all") as client:
        every = {tool.name for tool in await client.list_tools()}
    async with in_process_client(tmp_path / "some", toolsets=toolsets) as client:
        named = set(re.findall(r"\w+", client.instructions or "")) & (every - {"state"})  # which is a word, too
        assert named <= {tool.name for tool in await client.list_tools()} and named


async def test_instructions_and_icon_are_given(client: Client[Any]) -> None:
    assert "interrupt ends it" in (client.instructions or "")
    assert client.server_info is not None and client.server_info.icons
