"""The main features over each transport in each protocol era. Other tests use one transport."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from mcp.client.subscriptions import listen
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import ResourceUpdatedNotification, ToolListChangedNotification

from tests.support.notebooks import Book, new_book, waits_for
from tests.support.servers import call, http_client, http_server, stdio_client, text
from tests.support.waiting import DEADLINE, appears, reached, until

# one pixel
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


class Heard(MessageHandler):
    """The notifications of change that a client of the 2025 era got."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.tool_lists = 0

    async def on_resource_updated(self, message: ResourceUpdatedNotification) -> None:
        self.uris.append(str(message.params.uri))

    async def on_tool_list_changed(self, message: ToolListChangedNotification) -> None:
        self.tool_lists += 1


class Person:
    """Answers each question with the next line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def __call__(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        return {"value": self.lines.pop(0)}


@dataclass(kw_only=True)
class Connection:
    client: Client[Any]
    transport: str
    era: str
    data_dir: Path
    heard: Heard = field(default_factory=Heard)
    person: Person = field(default_factory=Person)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address and the data directory of one server for both eras."""
    data_dir = tmp_path_factory.mktemp("http") / "data"
    with http_server(data_dir) as (url, _):
        yield url, data_dir


@pytest.fixture(scope="module", params=["stdio-2026", "stdio-2025", "http-2026", "http-2025"])
async def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Connection]:
    transport, era = request.param.split("-")
    heard, person = Heard(), Person()
    options = {"mode": "auto" if era == "2026" else "legacy", "handler": heard, "person": person}
    if transport == "stdio":
        data_dir = tmp_path_factory.mktemp("stdio") / "data"
        opened = stdio_client(data_dir, **options)
    else:
        url, data_dir = request.getfixturevalue("http")
        opened = http_client(url, **options)
    async with opened as client:
        yield Connection(client=client, transport=transport, era=era, data_dir=data_dir, heard=heard, person=person)


@pytest.fixture
async def book(connection: Connection) -> AsyncIterator[Book]:
    async with new_book(connection.client) as made:
        yield made


async def test_tools_are_listed_in_the_era_that_was_asked_for(connection: Connection) -> None:
    assert str(connection.client.protocol_version).startswith(connection.era)
    assert {"execute", "add_cell", "interrupt"} <= {tool.name for tool in await connection.client.list_tools()}


async def test_a_run_answers_with_its_output_its_value_and_its_error(book: Book) -> None:
    first = await book.run("x = 20\nprint('printed')\nx + 1")
    assert not first.is_error and first.structured_content["return_value"] == 21
    assert first.structured_content["stdout"] == "printed\n" and text(first).splitlines()[:2] == ["printed", "21"]
    assert await book.value("x * 2") == 40
    failed = await book.run("print('before')\n1 / 0")
    found = failed.structured_content
    assert failed.is_error and "ZeroDivisionError" in text(failed)
    assert (found["state"], found["error_type"], found["stdout"]) == ("ERROR", "ZeroDivisionError", "before\n")


async def test_progress_shows_the_last_line_of_a_long_run(connection: Connection, book: Book, tmp_path: Path) -> None:
    heard: list[tuple[float, str]] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append((value, str(message)))
        if message and message.startswith("step"):
            (tmp_path / "go").touch()

    code = f"print('step 1', flush=True)\n{waits_for(tmp_path / 'go')}"
    arguments = {"code": code, "notebook": book.name, "timeout": DEADLINE}
    await connection.client.call_tool("execute", arguments, progress_handler=progress)
    printed = [message.startswith("step") for _, message in heard]
    assert any(printed) and printed == sorted(printed)  # before the first line it may say that it begins
    assert [value for value, _ in heard] == sorted(value for value, _ in heard)


async def test_interrupt_and_a_cancelled_request_stop_a_run(connection: Connection, book: Book, tmp_path: Path) -> None:
    async def state(number: int) -> str:
        return str((await book.cell(number))["state"])

    def endless(mark: str) -> str:
        return f"import pathlib\npathlib.Path({str(tmp_path / mark)!r}).touch()\nwhile True: pass"

    await book.value("x = 1\nx")
    async with anyio.create_task_group() as group:
        group.start_soon(book.run, endless("first"), DEADLINE)
        await appears(tmp_path / "first")
        assert (await book.ask("interrupt")).structured_content["state"] == "INTERRUPTED"
    async with anyio.create_task_group() as group:
        group.start_soon(book.run, endless("second"), DEADLINE)
        await appears(tmp_path / "second")
        group.cancel_scope.cancel()

    async def over() -> bool:
        return await state(2) != "RUNNING"

    await until(over, "the cancelled run ends")
    assert [await state(1), await state(2)] == ["INTERRUPTED", "INTERRUPTED"]
    assert await book.value("x") == 1


async def test_resources_give_a_cell_a_whole_output_and_an_image(connection: Connection, book: Book) -> None:
    client = connection.client
    ran = await book.run("print('head' + 'x' * 60_000 + 'tail')")
    address = ran.structured_content["stdout"].split("whole: ")[1].split(" ")[0]
    assert (await client.read_resource(address))[0].text == "head" + "x" * 60_000 + "tail\n"
    cell = json.loads((await client.read_resource(f"notebook://{book.name}/cell/0"))[0].text)
    assert cell["cell_id"] == ran.structured_content["cell_id"]
    shown = await book.ask("add_cell", code=f"display({{'image/png': {PNG!r}}}, raw=True)")
    image = shown.structured_content["outputs"][0]["image"]
    assert [block.data for block in shown.content if block.type == "image"] == [PNG]
    assert (await book.ask("get_cell_image", cell_id_or_number=1)).content[0].data == PNG
    read = await client.read_resource(image["uri"])
    assert read[0].mime_type == "image/png" and base64.b64decode(read[0].blob) == base64.b64decode(PNG)
    with pytest.raises(Exception, match="No notebook is called 'nowhere'"):
        await client.read_resource("notebook://nowhere/cells")


@pytest.mark.filterwarnings("ignore:resources/")  # the 2025 era is tested, too
async def test_a_subscriber_is_notified_when_its_cell_changes(connection: Connection, book: Book) -> None:
    ran = (await book.run("1")).structured_content
    uri = f"notebook://{book.name}/cell/{ran['cell_id']}"
    if connection.era == "2026":
        async with listen(connection.client.session, resource_subscriptions=[uri]) as events:
            await book.ask("execute_cell", cell_id_or_number=0)
            with anyio.fail_after(DEADLINE):
                async for event in events:
                    assert isinstance(event, ResourceUpdated) and event.uri == uri
                    break
        return
    heard, session = connection.heard, connection.client.session
    await session.subscribe_resource(uri)
    await book.ask("execute_cell", cell_id_or_number=0)
    await reached(lambda: uri in heard.uris, "the client is notified")
    await session.unsubscribe_resource(uri)
    heard.uris.clear()
    await book.ask("execute_cell", cell_id_or_number=0)
    assert heard.uris == []


async def test_a_client_is_notified_when_the_list_of_tools_changes(connection: Connection, book: Book) -> None:
    async def is_tool() -> bool:
        return "area" in {tool.name for tool in await connection.client.list_tools()}

    publish = "@capability(expose=True)\ndef area(w: int, h: int = 2) -> int:\n    return w * h\n1"
    if connection.era == "2026":
        await book.value("1")
        async with listen(connection.client.session, tools_list_changed=True) as events:
            await book.value(publish)
            with anyio.fail_after(DEADLINE):
                async for event in events:
                    assert type(event).__name__ == "ToolsListChanged"
                    break
        assert await is_tool()
        return
    heard, before = connection.heard, connection.heard.tool_lists
    await book.value(publish)
    await reached(lambda: heard.tool_lists == before + 1, "the client is told of the new tool")
    assert await is_tool()
    await book.value("1")
    await book.ask("reset")
    await reached(lambda: heard.tool_lists == before + 2, "the client is told that the tool is gone")
    assert not await is_tool()


async def test_input_asks_the_person_beside_the_client(connection: Connection, book: Book) -> None:
    connection.person.lines = ["Ada"]
    assert await book.value("input('Name? ')") == "Ada"


async def test_a_line_of_the_audit_log_names_the_client_the_transport_and_the_era(connection: Connection) -> None:
    await call(connection.client, "state")
    said = json.loads((connection.data_dir / "audit.jsonl").read_text().splitlines()[-1])
    assert said["via"] == connection.transport and said["era"].startswith(connection.era)
    assert said["client"].startswith("mcp/")
    assert (said["session"] is not None) == (connection.transport == "http" and connection.era == "2025")
