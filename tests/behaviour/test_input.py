"""A cell's input(), answered by the person beside the client, over each transport in each protocol era."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult

from tests.support.servers import call, http_client, http_server, stdio_client, text
from tests.support.waiting import until

WAYS = ["stdio-2026", "stdio-2025", "http-2026", "http-2025"]


@dataclass
class Person:
    """What they were asked, and how they answer: each line in turn, or as `reply` does."""

    lines: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    reply: Callable[[str], Awaitable[Any]] | None = None

    async def __call__(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        self.asked.append(message)
        if self.reply is not None:
            return await self.reply(message)
        line = self.lines.pop(0)
        return line if isinstance(line, ElicitResult) else {"value": line}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A client of a server, the person beside it, and a notebook of the case's own."""

    client: Client[Any]
    person: Person
    name: str
    era: str

    async def run(self, code: str, timeout: float = 30) -> Any:
        return await self.ask("execute", code=code, timeout=timeout)

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return await call(self.client, tool, notebook=self.name, **arguments)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with http_server(tmp_path_factory.mktemp("http") / "data", preload="", grace=0.5) as (found, _):
        yield found


@pytest.fixture(scope="module", params=WAYS)
async def connected(
    request: pytest.FixtureRequest, url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Client[Any], Person, str]]:
    person = Person()
    async with connection(request.param, url, tmp_path_factory, person) as client:
        yield client, person, request.param.split("-")[1]


@pytest.fixture
async def table(connected: tuple[Client[Any], Person, str]) -> AsyncIterator[Table]:
    client, person, era = connected
    person.lines, person.asked, person.reply = [], [], None
    made = await call(client, "create_notebook", use=False)
    here = Table(client=client, person=person, name=made.structured_content["name"], era=era)
    yield here
    await here.ask("reset")


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_client_that_can_ask_input_is_an_error_that_says_so(
    way: str, url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with connection(way, url, tmp_path_factory, None) as client:
        name = (await call(client, "create_notebook", use=False)).structured_content["name"]
        found = (
            await call(client, "execute", code="x = 41\nx = input('Your name? ')", notebook=name)
        ).structured_content
        assert (found["state"], found["error_type"]) == ("ERROR", "InputNotAvailable")
        assert "Your name? " in found["error_message"] and "no person can be asked here" in found["error_message"]
        assert (await call(client, "execute", code="x", notebook=name)).structured_content["return_value"] == 41


async def test_each_era_is_the_one_it_says(table: Table) -> None:
    assert table.client.protocol_version is not None
    assert table.client.protocol_version.startswith(table.era)


async def test_an_answer_is_what_input_returns(table: Table) -> None:
    table.person.lines = ["Ada"]
    found = (
        await table.run("print('before')\nname = input('Your name? ')\nprint('hello', name)\nname")
    ).structured_content
    assert (found["state"], found["stdout"], found["return_value"]) == ("SUCCESS", "before\nhello Ada\n", "Ada")
    assert table.person.asked == ["Your name?"]
    assert (await table.run("name")).structured_content["return_value"] == "Ada"
    listed = (await table.ask("list_cells")).structured_content["cells"]
    assert [cell["state"] for cell in listed] == ["SUCCESS", "SUCCESS"]  # the cell ran once


async def test_every_tool_that_runs_one_cell_can_ask(table: Table) -> None:
    table.person.lines = ["added", "again"]
    added = await table.ask("add_cell", code="line = input()\nline")
    assert added.structured_content["state"] == "SUCCESS" and "'added'" in text(added)
    again = await table.ask("execute_cell", cell_id_or_number=0)
    assert again.structured_content["state"] == "SUCCESS" and "'again'" in text(again)
    assert table.person.asked == ["A cell asks for input."] * 2
    assert len((await table.ask("list_cells")).structured_content["cells"]) == 1


@pytest.mark.parametrize(
    "code", ["x = 41\nbreakpoint()", "def f():\n    breakpoint()\nf()\nx = 41", "import pdb; pdb.set_trace()"]
)
async def test_a_debugger_stays_in_the_cell(table: Table, code: str) -> None:
    table.person.lines = ["step"] * 8
    found = (await table.run(code)).structured_content
    assert (found["state"], "/worker/" in found["stdout"]) == ("SUCCESS", False), found
    assert "<cell " in found["stdout"] and 0 < len(table.person.asked) < 8
    assert (await table.run("40 + 2")).structured_content["return_value"] == 42


async def test_several_questions_are_asked_one_after_the_other(table: Table) -> None:
    table.person.lines = ["Ada", "", "grün 数\ttab"]
    found = (await table.run("[input(f'question {n}') for n in range(3)]")).structured_content
    assert found["return_value"] == ["Ada", "", "grün 数\ttab"]
    assert table.person.asked == ["question 0", "question 1", "question 2"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_no_answer_is_an_error_in_the_cell_which_can_go_on(table: Table, action: Any) -> None:
    table.person.lines = [ElicitResult(action=action), ElicitResult(action=action), "Ada"]
    found = (await table.run("x = 41\ninput('Your name? ')")).structured_content
    assert (found["state"], found["error_type"]) == ("ERROR", "InputNotAvailable")
    assert "Your name? " in found["error_message"] and "the person gave no answer" in found["error_message"]
    code = "try:\n    name = input()\nexcept RuntimeError:\n    name = 'none'\n[x, name]"
    assert (await table.run(code)).structured_content["return_value"] == [41, "none"]
    assert (await table.run(code)).structured_content["return_value"] == [41, "Ada"]


async def test_an_interrupt_before_the_answer_ends_the_cell_and_keeps_variables(table: Table) -> None:
    answered = anyio.Event()

    async def think(message: str) -> Any:
        await answered.wait()
        return {"value": "too late"}

    table.person.reply = think
    results: list[Any] = []

    async def run() -> None:
        results.append(await table.run("x = 41\nx = input('Think: ')"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(is_asked(table, 1), "the person is asked")
        stopped = await table.ask("interrupt")
        assert stopped.structured_content["state"] == "INTERRUPTED"
        answered.set()
    found = results[0].structured_content
    assert (results[0].is_error, found["state"]) == (True, "INTERRUPTED")
    assert "Variables are kept" in found["error_message"]
    table.person.reply, table.person.lines = None, ["in time"]
    after = (await table.run("[x, input('Again: ')]")).structured_content
    assert (after["return_value"], after.get("notice")) == ([41, "in time"], None)


async def test_the_persons_time_is_not_the_runs(table: Table) -> None:
    answered = anyio.Event()

    async def think(message: str) -> Any:
        await answered.wait()
        return {"value": "thought through"}

    table.person.reply = think
    results: list[Any] = []

    async def run() -> None:
        results.append(await table.run("line = input('Think: ')\nline", timeout=1))

    async def outlasted() -> bool:
        shown = (await table.ask("get_cell", cell_id_or_number=0)).structured_content
        assert shown["state"] == "RUNNING"
        return bool(shown["seconds"] > 2)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(is_asked(table, 1), "the person is asked")
        await until(outlasted, "the cell runs for longer than its timeout")
        answered.set()
    found = results[0].structured_content
    assert (found["state"], found["return_value"]) == ("SUCCESS", "thought through")


async def test_after_the_answer_the_runs_time_goes_on(table: Table) -> None:
    table.person.lines = ["Ada"]
    found = (await table.run("line = input('Think: ')\nwhile True: pass", timeout=1)).structured_content
    assert found["state"] == "TIMEOUT" and "Stopped after 1 s" in found["error_message"]
    assert (await table.run("line")).structured_content["return_value"] == "Ada"


async def test_a_password_is_never_asked_for(table: Table) -> None:
    found = (await table.run("import getpass\ngetpass.getpass('Password: ')")).structured_content
    assert (found["state"], found["error_type"]) == ("ERROR", "InputNotAvailable")
    assert "A password cannot be asked for here" in found["error_message"]
    assert table.person.asked == []


THREAD = """
import threading
said = []
def ask():
    try:
        said.append(input('From a thread: '))
    except RuntimeError as error:
        said.append(f'{type(error).__name__}: {error}')
thread = threading.Thread(target=ask)
thread.start()
thread.join()
said[0]
"""

CHILD = """
import os
told, tell = os.pipe()
if os.fork() == 0:
    try:
        line = input('From a child: ')
    except RuntimeError as error:
        line = f'{type(error).__name__}: {error}'
    os.write(tell, line.encode())
    os._exit(0)
os.wait()
os.read(told, 1000).decode()
"""


@pytest.mark.parametrize("code", [pytest.param(THREAD, id="thread"), pytest.param(CHILD, id="child")])
async def test_threads_and_child_processes_cannot_ask(table: Table, code: str) -> None:
    found = (await table.run(code)).structured_content
    assert found["return_value"].startswith("InputNotAvailable: input() is for the cell itself")
    assert table.person.asked == []
    table.person.lines = ["Ada"]
    assert (await table.run("input('And now? ')")).structured_content["return_value"] == "Ada"


async def test_cells_of_a_document_cannot_ask_and_say_so(table: Table) -> None:
    cells = [
        {"cell_type": "code", "id": f"c{n}", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for n, source in enumerate(["x = 41", "x = input('Your name? ')", "x = 43"])
    ]
    document = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})
    done = await table.ask("import_ipynb", path_or_json=document, execute=True)
    assert done.is_error and "ran 2, the last one failed" in text(done)
    assert "InputNotAvailable" in text(done) and "Put the value into the code" in text(done)
    assert table.person.asked == []
    assert (await table.run("x")).structured_content["return_value"] == 41


async def test_a_question_longer_than_a_person_reads_is_shortened(table: Table) -> None:
    table.person.lines = ["Ada"]
    found = (await table.run("input('x' * 1_000_000)")).structured_content
    assert found["return_value"] == "Ada"
    assert [len(asked) for asked in table.person.asked] == [2_000]


def connection(way: str, url: str, folders: pytest.TempPathFactory, person: Person | None) -> Client[Any]:
    transport, era = way.split("-")
    mode = "auto" if era == "2026" else "legacy"
    if transport == "http":
        return http_client(url, mode=mode, person=person)
    return stdio_client(folders.mktemp("stdio") / "data", mode=mode, person=person, preload="", grace=0.5)


def is_asked(table: Table, times: int) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return len(table.person.asked) >= times

    return asked
