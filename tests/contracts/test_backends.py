"""The contract of connections to capability backends: over stdio and HTTP, to ours and to third-party servers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.capabilities.connections import McpBackends, McpConnection
from quire.core.capabilities.model import Backend
from quire.core.errors import CallTimeout, ConnectionLost, OperationFailed, WrongArguments
from quire.wire.messages import is_shallow
from tests.support.backend_listener import Heard, misbehaving
from tests.support.backends import BACKENDS
from tests.support.external_programs import EVERYTHING_SERVER, FILESYSTEM_SERVER, node_program
from tests.support.processes import alive, free_port, listening, processes_of
from tests.support.waiting import DEADLINE, wait_until

TOKEN = "tok-5f2c91d7"
GOOD = Backend(command=(sys.executable, str(BACKENDS / "good.py")))
CONNECT = 30.0


def backends(**environment: str) -> McpBackends:
    return McpBackends(environ={**os.environ, **environment})


@contextlib.asynccontextmanager
async def connected(
    backend: Backend, heard: Heard | None = None, *, timeout: float = CONNECT, **environment: str
) -> AsyncIterator[McpConnection]:
    connection = await backends(**environment).connect(backend, heard or Heard(), timeout=timeout)
    try:
        yield connection
    finally:
        await connection.close()


async def refusal(backend: Backend, *, timeout: float = CONNECT, **environment: str) -> str:
    """What is said where it cannot be connected to; and nothing of it runs on."""
    before = set(processes_of(os.getpid()))
    with pytest.raises(OperationFailed) as failed:
        await backends(**environment).connect(backend, Heard(), timeout=timeout)
    assert set(processes_of(os.getpid())) <= before
    assert failed.value.__cause__ is None
    return str(failed.value)


async def call(connection: McpConnection, tool: str, /, _timeout: float = DEADLINE, **arguments: Any) -> Any:
    return await connection.call(tool, arguments, timeout=_timeout, progress=lambda *_: None)


def texts(result: Any) -> list[str]:
    return [block["text"] for block in result.content if block["type"] == "text"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The good backend over HTTP, which wants a token."""
    with listening([sys.executable, str(BACKENDS / "good.py"), "http", TOKEN]) as (port, _):
        yield f"http://127.0.0.1:{port}/mcp"


Connected = tuple[McpConnection, Heard]


@pytest.fixture(scope="module", params=["stdio", "http"])
def good_backend(request: pytest.FixtureRequest) -> Backend:
    """Ours, in the newer era."""
    if request.param == "stdio":
        return GOOD
    url = request.getfixturevalue("address")
    return Backend(url=url, headers={"Authorization": "Bearer env:TOKEN"})


@pytest.fixture(scope="module")
async def shared_good(good_backend: Backend) -> AsyncIterator[Connected]:
    heard = Heard()
    async with connected(good_backend, heard, TOKEN=TOKEN) as connection:
        yield connection, heard


@pytest.fixture
def good(shared_good: Connected) -> Connected:
    """A connection that the tests of the module share, and a listener that has heard nothing."""
    shared_good[1].clear()
    return shared_good


@pytest.fixture(scope="module", params=["stdio", "http"])
async def everything(request: pytest.FixtureRequest) -> AsyncIterator[McpConnection]:
    """The reference server, in the older era."""
    if request.param == "stdio":
        async with connected(Backend(command=node_program(EVERYTHING_SERVER))) as connection:
            yield connection
    else:
        with listening(list(node_program(EVERYTHING_SERVER, "streamableHttp"))) as (port, _):
            async with connected(Backend(url=f"http://127.0.0.1:{port}/mcp")) as connection:
                yield connection


# What is offered


async def test_what_is_offered_is_what_the_server_declares(good: Connected) -> None:
    offered = good[0].offered
    assert good[0].protocol == "2026-07-28"
    tools = {tool.name: tool for tool in offered.tools}
    assert (offered.server, offered.about) == ("good 1.2.3", "A backend of the tests.")
    assert offered.resources and offered.prompts
    assert tools["add"].description == "The sum."
    assert tools["add"].input["required"] == ["a"]
    assert tools["add"].hints["readOnlyHint"] is True and tools["add"].hints["destructiveHint"] is False
    assert tools["sloppy"].output == {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }
    assert tools["picture"].output is None


async def test_a_tool_added_later_is_offered(good: Connected) -> None:
    connection, heard = good
    name = f"later_{os.urandom(3).hex()}"
    await call(connection, "grow", name=name)
    await heard.until(lambda: heard.offers)
    assert name in {tool.name for tool in connection.offered.tools}
    assert connection.offered == heard.offers[-1]
    assert (await call(connection, name)).structured == {"result": name}


async def test_a_server_of_the_older_era_says_that_its_tools_changed() -> None:
    heard = Heard()
    async with connected(misbehaving("grows"), heard) as connection:
        for number in (1, 2):
            await call(connection, "poke")
            await heard.until(lambda wanted=number: len(heard.offers) == wanted)
        assert [tool.name for tool in connection.offered.tools] == ["poke", "poke1", "poke2"]


async def test_a_hostile_list_is_cut_to_what_can_be_called() -> None:
    async with connected(misbehaving("hostile")) as connection:
        tools = {tool.name: tool for tool in connection.offered.tools}
        assert len(connection.offered.tools) == len(tools) == 2000
        assert tools["twice"].description == "first"
        assert len(tools["long"].description) == 10_000
        assert (tools["listed"].input, tools["listed"].output, tools["listed"].hints) == ({}, None, {})
        assert all(name.isprintable() and len(name) <= 200 for name in tools)
        assert all(is_shallow(tool.input, 40) for tool in tools.values())


# Calls


async def test_a_call_is_answered(good: Connected) -> None:
    connection, _ = good
    assert texts(await call(connection, "echo", text="hé ↯ 𝄞")) == ["hé ↯ 𝄞"]
    assert (await call(connection, "add", a=2, b=3)).structured == {"result": 5}
    person = (await call(connection, "person", name="Ada")).structured
    assert person == {"name": "Ada", "tags": ["a", "b"], "address": {"city": "Bern", "zip": None}}
    assert len(texts(await call(connection, "large", size=3_000_000))[0]) == 3_000_000


async def test_a_picture_comes_as_base64(good: Connected) -> None:
    [block] = (await call(good[0], "picture")).content
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(block["data"]).startswith(b"\x89PNG")


async def test_a_tool_that_fails_is_a_result_with_its_words(good: Connected) -> None:
    result = await call(good[0], "fail", why="no such mailbox")
    assert result.is_error and "no such mailbox" in texts(result)[0]


async def test_an_answer_that_is_not_what_its_schema_says_is_an_answer(good: Connected) -> None:
    assert (await call(good[0], "sloppy")).structured == {"n": "one"}


async def test_arguments_are_checked_against_what_is_declared_now(good: Connected) -> None:
    connection, heard = good
    connection.check("add", {"a": 1})
    with pytest.raises(WrongArguments, match="must be an integer, not 'one'"):
        connection.check("add", {"a": "one"})
    name = f"later_{os.urandom(3).hex()}"
    connection.check(name, {"anything": 1})
    await call(connection, "grow", name=name)
    await heard.until(lambda: heard.offers)
    with pytest.raises(WrongArguments, match="anything is not known; there are none"):
        connection.check(name, {"anything": 1})


async def test_progress_and_logs_are_heard_while_a_call_runs(good: Connected) -> None:
    connection, heard = good
    seen: list[tuple[float, float | None, str]] = []
    result = await connection.call("work", {"steps": 3}, timeout=DEADLINE, progress=lambda *step: seen.append(step))
    assert texts(result) == ["done"]
    assert seen == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]
    await heard.until(lambda: len(heard.logs) == 3)
    assert heard.logs == [("info", "did 1"), ("info", "did 2"), ("info", "did 3")]


async def test_hundreds_of_calls_at_once_are_each_answered(good: Connected) -> None:
    connection, _ = good
    names = [str(number) for number in range(300)]
    async with asyncio.timeout(DEADLINE):
        answers = await asyncio.gather(*(call(connection, "sleep", seconds=0.3, name=name) for name in names))
    assert [texts(answer)[0] for answer in answers] == names


async def test_timed_out_call_is_cancelled_in_the_backend(good: Connected) -> None:
    connection, _ = good
    with pytest.raises(CallTimeout, match=r"within 0\.2 s"):
        await call(connection, "sleep", _timeout=0.2, seconds=DEADLINE, name="late")
    await nothing_sleeps(connection)


async def test_cancelled_call_is_cancelled_in_the_backend(good: Connected) -> None:
    connection, _ = good
    task = asyncio.create_task(call(connection, "sleep", seconds=DEADLINE, name="given up"))
    async with asyncio.timeout(DEADLINE):
        while (await call(connection, "asleep")).structured != {"result": ["given up"]}:
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_sleeps(connection)
    assert texts(await call(connection, "echo", text="still there")) == ["still there"]


async def nothing_sleeps(connection: McpConnection) -> None:
    async with asyncio.timeout(DEADLINE):
        while (await call(connection, "asleep")).structured != {"result": []}:
            await asyncio.sleep(0.02)


async def test_arguments_that_json_cannot_say_are_refused_here() -> None:
    async with connected(misbehaving("behaves")) as connection:
        for bad in (float("nan"), {1, 2}, b"bytes"):
            with pytest.raises(OperationFailed, match="cannot be sent as JSON"):
                await call(connection, "poke", value=bad)
        assert texts(await call(connection, "poke")) == ["call 1"]


# Resources and prompts


async def test_resources_and_prompts_can_be_read(good: Connected) -> None:
    connection, _ = good
    listed = await connection.resources(timeout=DEADLINE)
    assert [one["uri"] for one in listed["resources"]] == ["notes://all"]
    assert [one["uriTemplate"] for one in listed["templates"]] == ["notes://{name}"]
    assert (await connection.read("notes://x", timeout=DEADLINE))["contents"][0]["text"] == "note x"
    prompts = await connection.prompts(timeout=DEADLINE)
    assert [one["name"] for one in prompts["prompts"]] == ["greet"]
    said = await connection.prompt("greet", {"who": "Bob"}, timeout=DEADLINE)
    assert said["messages"][0]["content"]["text"] == "Say hello to Bob."
    assert said["description"] == "A greeting."
    with pytest.raises(OperationFailed, match="nowhere"):
        await connection.read("nowhere://x", timeout=DEADLINE)


async def test_a_server_without_resources_and_prompts_has_none() -> None:
    async with connected(misbehaving("behaves")) as connection:
        assert await connection.resources(timeout=DEADLINE) == {"resources": [], "templates": []}
        assert await connection.prompts(timeout=DEADLINE) == {"prompts": []}
        with pytest.raises(OperationFailed, match="no resources/read"):
            await connection.read("x://y", timeout=DEADLINE)


# Third-party servers


async def test_the_reference_server_is_understood(everything: McpConnection) -> None:
    connection = everything
    offered = connection.offered
    assert connection.protocol == "2025-11-25"
    assert {"echo", "get-sum", "get-tiny-image"} <= {tool.name for tool in offered.tools}
    assert offered.resources and offered.prompts and offered.about
    assert texts(await call(connection, "echo", message="hi")) == ["Echo: hi"]
    weather = await call(connection, "get-structured-content", location="Chicago")
    assert set(weather.structured) == {"temperature", "conditions", "humidity"}
    assert any(block["type"] == "image" for block in (await call(connection, "get-tiny-image")).content)
    links = await call(connection, "get-resource-links", count=2)
    assert [block["type"] for block in links.content].count("resource_link") == 2
    wrong = await call(connection, "get-sum", a="one")
    assert wrong.is_error
    listed = await connection.resources(timeout=DEADLINE)
    assert listed["resources"] and listed["templates"]
    first = await connection.read(listed["resources"][0]["uri"], timeout=DEADLINE)
    assert first["contents"]
    assert {"simple-prompt", "args-prompt"} <= {
        one["name"] for one in (await connection.prompts(timeout=DEADLINE))["prompts"]
    }
    said = await connection.prompt("args-prompt", {"city": "Bern"}, timeout=DEADLINE)
    assert "Bern" in said["messages"][0]["content"]["text"]


async def test_the_reference_server_reports_progress(everything: McpConnection) -> None:
    seen: list[tuple[float, float | None, str]] = []
    await everything.call(
        "trigger-long-running-operation",
        {"duration": 0.2, "steps": 4},
        timeout=DEADLINE,
        progress=lambda *step: seen.append(step),
    )
    assert [step[:2] for step in seen] == [(1.0, 4.0), (2.0, 4.0), (3.0, 4.0), (4.0, 4.0)]


async def test_a_file_server_reads_and_writes(tmp_path: Path) -> None:
    command = node_program(FILESYSTEM_SERVER, str(tmp_path))
    async with connected(Backend(command=command)) as connection:
        await call(connection, "write_file", path=str(tmp_path / "a.txt"), content="one\ntwo")
        assert (tmp_path / "a.txt").read_text() == "one\ntwo"
        assert texts(await call(connection, "read_text_file", path=str(tmp_path / "a.txt"))) == ["one\ntwo"]
        outside = await call(connection, "read_text_file", path="/etc/passwd")
        assert outside.is_error and "denied" in texts(outside)[0]


# What cannot be connected to


async def test_a_command_that_does_not_exist_is_said_to_be_missing(tmp_path: Path) -> None:
    said = await refusal(Backend(command=("no-such-program", "--serve")))
    assert said.startswith("no-such-program is not installed or not on PATH.")
    assert "does not exist" in await refusal(Backend(command=("./no/such",)))
    plain = tmp_path / "plain"
    plain.write_text("hi")
    assert "chmod +x" in await refusal(Backend(command=(str(plain),)))
    plain.chmod(0o755)
    assert "Exec format error" in await refusal(Backend(command=(str(plain),)))
    assert "no folder" in await refusal(Backend(command=("sh",), folder=str(tmp_path / "none")))


async def test_a_command_that_ends_at_once_is_quoted() -> None:
    said = await refusal(misbehaving("exits"))
    assert "exited with status 1" in said
    assert "no database at 10.0.0.1\nset DB_URL" in said


async def test_a_command_that_never_answers_is_stopped_within_the_time() -> None:
    for mode in ("silent", "stubborn"):
        said = await refusal(misbehaving(mode), timeout=2.0)
        assert "did not answer as an MCP server within 2 s and was stopped" in said
        assert "ready to serve" in said and "Listening on port 80" in said


async def test_junk_on_stdout_does_no_harm() -> None:
    async with connected(misbehaving("junk")) as connection:
        assert [texts(await call(connection, "poke"))[0] for _ in range(3)] == ["call 1", "call 2", "call 3"]


async def test_strict_older_server_is_greeted_in_the_older_era() -> None:
    async with connected(misbehaving("strict")) as connection:
        assert texts(await call(connection, "poke")) == ["call 1"]


async def test_mute_older_server_is_greeted_in_the_older_era() -> None:
    async with connected(misbehaving("mute"), timeout=6.0) as connection:
        assert texts(await call(connection, "poke")) == ["call 1"]


async def test_invalid_address_is_refused() -> None:
    for url in ("ftp://host/x", "nonsense", "http://", "http://[broken", "http://host:99999/mcp"):
        assert "begins with http:// or https://" in await refusal(Backend(url=url))
    assert "either a command or a url" in await refusal(Backend())
    assert "either a command or a url" in await refusal(Backend(command=("sh",), url="http://localhost"))


async def test_unused_address_is_unreachable() -> None:
    said = await refusal(Backend(url=f"http://user:hidden@127.0.0.1:{free_port()}/mcp?key=hidden"))
    assert "could not be reached" in said and "hidden" not in said


async def test_a_server_that_wants_a_login_is_said_to(address: str) -> None:
    for headers in ({}, {"Authorization": "Bearer env:WRONG"}):
        said = await refusal(Backend(url=address, headers=headers), WRONG="wrong-token-1")
        assert "needs a login" in said and "Bearer env:NAME" in said and "wrong-token-1" not in said
    assert "no MCP server at this path" in await refusal(
        Backend(url=address.removesuffix("/mcp") + "/other", headers={"Authorization": f"Bearer {TOKEN}"})
    )


async def test_what_is_no_mcp_server_is_said_not_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>hi")
    serve = "import http.server as h, os; h.SimpleHTTPRequestHandler.do_POST = h.SimpleHTTPRequestHandler.do_GET; "
    serve += f"os.chdir({str(tmp_path)!r}); h.test(h.SimpleHTTPRequestHandler, port=int(os.environ['PORT']))"
    with listening([sys.executable, "-c", serve]) as (port, _):
        assert "is not an MCP server: it answered with text/html" in await refusal(
            Backend(url=f"http://127.0.0.1:{port}/index.html")
        )


async def test_a_web_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as quiet:
        port = quiet.getsockname()[1]
        assert "within 1 s" in await refusal(Backend(url=f"http://127.0.0.1:{port}/mcp"), timeout=1.0)


async def test_connecting_that_is_cancelled_leaves_nothing() -> None:
    before = set(processes_of(os.getpid()))
    task = asyncio.create_task(backends().connect(misbehaving("stubborn"), Heard(), timeout=DEADLINE))
    async with asyncio.timeout(DEADLINE):
        while set(processes_of(os.getpid())) <= before:
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(DEADLINE):
        while not set(processes_of(os.getpid())) <= before:
            await asyncio.sleep(0.02)


# What goes wrong later


@pytest.mark.parametrize("which", ["the launcher", "the server"])
async def test_a_backend_that_is_killed_ends_every_call_in_flight(which: str) -> None:
    heard = Heard()
    before = set(processes_of(os.getpid()))
    async with connected(GOOD, heard) as connection:
        launcher, server = sorted(set(processes_of(os.getpid())) - before)
        calls = [asyncio.create_task(call(connection, "sleep", seconds=500, name=str(n))) for n in range(50)]
        async with asyncio.timeout(DEADLINE):
            while len((await call(connection, "asleep")).structured["result"]) < 50:
                await asyncio.sleep(0.02)
            os.kill(server if which == "the server" else launcher, signal.SIGKILL)
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(end) for end in ended} == {ConnectionLost}
        assert "was killed by SIGKILL" in str(ended[0])
        await heard.until(lambda: heard.losses)
        with pytest.raises(ConnectionLost, match="was killed by SIGKILL"):
            await call(connection, "echo", text="hi")
    assert not alive(server) and not alive(launcher)
    assert len(heard.losses) == 1


async def test_a_backend_that_dies_of_a_call_is_quoted() -> None:
    heard = Heard()
    async with connected(misbehaving("dies", "3"), heard) as connection:
        assert texts(await call(connection, "poke")) == ["call 1"]
        assert texts(await call(connection, "poke")) == ["call 2"]
        with pytest.raises(ConnectionLost, match="was killed by SIGKILL"):
            await call(connection, "poke")
        await heard.until(lambda: heard.losses)
        assert "out of memory" in heard.losses[0]


async def test_a_web_server_that_ends_ends_every_call_in_flight() -> None:
    heard = Heard()
    with listening([sys.executable, str(BACKENDS / "good.py"), "http"]) as (port, process):
        async with connected(Backend(url=f"http://127.0.0.1:{port}/mcp"), heard) as connection:
            calls = [asyncio.create_task(call(connection, "sleep", seconds=500, name=str(n))) for n in range(50)]
            async with asyncio.timeout(DEADLINE):
                while len((await call(connection, "asleep")).structured["result"]) < 50:
                    await asyncio.sleep(0.02)
                process.kill()
                ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(end) for end in ended} == {ConnectionLost}
            await heard.until(lambda: heard.losses)
            with pytest.raises(ConnectionLost):
                await call(connection, "echo", text="hi")
    assert len(heard.losses) == 1


async def test_a_backend_that_hears_no_more_is_lost() -> None:
    heard = Heard()
    async with connected(misbehaving("earless"), heard) as connection:
        first = asyncio.create_task(call(connection, "poke"))
        with pytest.raises(ConnectionLost, match="stopped listening"):
            await first
        await heard.until(lambda: heard.losses)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, "{}", "refused the login"),
        (429, "slow down", "wants fewer calls"),
        (500, "<html>", "HTTP status 500"),
        (500, '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"the disk is full"}}', "the disk is full"),
        (200, '{"jsonrpc":', "Failed to parse"),
        (200, "x" * (65 * 2**20), "longer than 64 MB"),
        (404, "", "Not Found"),
    ],
)
async def test_a_call_that_a_web_server_refuses_fails_alone(status: int, body: str, words: str) -> None:
    async with web_server(status, body) as url, connected(Backend(url=url)) as connection:
        with pytest.raises(OperationFailed, match=words) as failed:
            await call(connection, "refused")
        assert type(failed.value) is OperationFailed
        assert texts(await call(connection, "poke")) == ["hi"]


@contextlib.asynccontextmanager
async def web_server(status: int, body: str) -> AsyncIterator[str]:
    """A small server of the older era, which answers calls of `refused` with this."""
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "w", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "poke"}]},
        "tools/call": {"content": [{"type": "text", "text": "hi"}]},
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = head.partition("content-length:")[2].split("\r\n")[0]
                said = json.loads(await reader.readexactly(int(size))) if size else {}
                code, text = 202, ""
                if (said.get("params") or {}).get("name") == "refused":
                    code, text = status, body
                elif said.get("method") in results:
                    code, text = (
                        200,
                        json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": results[said["method"]]}),
                    )
                elif "id" in said:
                    code = 404
                answer = f"HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
                writer.write((answer + text).encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


async def test_answers_that_are_no_results_fail_one_by_one() -> None:
    async with connected(misbehaving("garbage")) as connection:
        for words in ("neither a result", "no list of objects", "no list of objects", "no list of objects"):
            with pytest.raises(OperationFailed, match=words):
                await call(connection, "poke")
        with pytest.raises(OperationFailed):
            await call(connection, "poke", _timeout=1.0)
        assert (await call(connection, "poke")).content == [{"type": "text"}]


async def test_an_error_comes_with_the_servers_words() -> None:
    async with connected(misbehaving("errors")) as connection:
        with pytest.raises(OperationFailed) as failed:
            await call(connection, "poke")
        assert type(failed.value) is OperationFailed and str(failed.value) == "the table is locked."


async def test_an_answer_longer_than_any_may_be_is_refused() -> None:
    async with connected(misbehaving("wide")) as connection:
        with pytest.raises(OperationFailed, match="longer than 64 MB"):
            await call(connection, "poke")


async def test_sampling_request_of_a_server_is_refused() -> None:
    async with connected(misbehaving("curious")) as connection:
        assert "does not offer sampling/createMessage" in texts(await call(connection, "poke"))[0]


# The end


async def test_close_ends_all_processes_without_a_loss_event() -> None:
    heard = Heard()
    before = set(processes_of(os.getpid()))
    connection = await backends().connect(misbehaving("deaf"), heard, timeout=CONNECT)
    family = set(processes_of(os.getpid())) - before
    assert len(family) == 3  # its launcher, itself, its child
    waiting = asyncio.create_task(call(connection, "poke"))
    await waiting
    await asyncio.gather(connection.close(), connection.close())
    assert not any(alive(process) for process in family)
    assert heard.losses == []
    with pytest.raises(ConnectionLost, match="closed"):
        await call(connection, "poke")


async def test_closing_ends_calls_in_flight(good_backend: Backend) -> None:
    heard = Heard()
    async with connected(good_backend, heard, TOKEN=TOKEN) as connection:
        waiting = asyncio.create_task(call(connection, "sleep", seconds=500, name="closing"))
        async with asyncio.timeout(DEADLINE):
            while (await call(connection, "asleep")).structured != {"result": ["closing"]}:
                await asyncio.sleep(0.02)
            await connection.close()
            with pytest.raises(ConnectionLost):
                await waiting
    assert heard.losses == []


async def test_connecting_and_closing_many_times_leaves_no_descriptor() -> None:
    async def once() -> None:
        async with connected(misbehaving("behaves")) as connection:
            await call(connection, "poke")
        await refusal(misbehaving("exits"))
        await refusal(Backend(url=f"http://127.0.0.1:{free_port()}/mcp"))

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await once()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_one_task_connects_another_closes() -> None:
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(backends().connect(misbehaving("behaves"), Heard(), timeout=CONNECT))
    connection = opening.result()
    assert texts(await call(connection, "poke")) == ["call 1"]
    async with asyncio.TaskGroup() as group:
        group.create_task(connection.close())


def test_a_backend_dies_with_a_server_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, os
from quire.capabilities.connections import McpBackends
from tests.support.backend_listener import Heard, misbehaving
async def main():
    await McpBackends(environ=os.environ).connect(misbehaving("deaf"), Heard(), timeout=30)
    print("connected", flush=True)
    await asyncio.sleep({DEADLINE})
asyncio.run(main())
"""
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"connected\n"
        leader = min(processes_of(server.pid))
        rest = set(processes_of(server.pid)) - {leader}
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    try:
        wait_until(lambda: not alive(leader), "the backend ends")
    finally:
        for process in rest:  # a grandchild that reads no input cannot know
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


# Secrets


async def test_secret_is_resolved_for_the_backend_and_redacted() -> None:
    secret = "s3cr3t-value-77"
    heard = Heard()
    said: list[str] = []
    async with connected(misbehaving("leaks", env={"SECRET": "env:REAL"}), heard, REAL=secret) as connection:
        result = await call(connection, "poke")
        said += [str(result.content), str(result.structured)]
        for _ in range(2):
            with pytest.raises(OperationFailed) as failed:
                await call(connection, "poke")
            said.append(str(failed.value))
        await heard.until(lambda: heard.losses)
    said += [*heard.losses, *(text for _, text in heard.logs)]
    assert len(heard.logs) == 3 and "bad key [secret]" in heard.losses[0]
    assert secret not in "".join(said) and "".join(said).count("[secret]") >= 6


async def test_server_of_another_clients_file_gets_its_secrets(tmp_path: Path) -> None:
    said = {
        "mcpServers": {"our-server": {"command": sys.executable, "args": [str(BACKENDS / "misbehaving.py"), "leaks"]}}
    }
    said["mcpServers"]["our-server"]["env"] = {"SECRET": "inline-${REAL}"}  # type: ignore[assignment]
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(said))
    backend = backends().described(str(path), "our_server")
    assert backend == Backend(config=str(path), entry="our-server")
    async with connected(backend, REAL="s3cr3t-9") as connection:
        assert texts(await call(connection, "poke")) == ["[secret]"]
    path.write_text("{}")
    assert "has no MCP server 'our-server'" in await refusal(backend)


async def test_a_backend_gets_no_more_of_the_environment_than_it_needs(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("12345678\n")
    backend = Backend(
        command=GOOD.command, env={"GIVEN": "as it is", "FROM_FILE": f"file:{token}"}, folder=str(tmp_path)
    )
    async with connected(backend, OTHER_TOKEN="not for you") as connection:
        assert texts(await call(connection, "variable", name="GIVEN")) == ["as it is"]
        assert texts(await call(connection, "variable", name="OTHER_TOKEN")) in ([], [""])
        assert texts(await call(connection, "variable", name="HOME")) == [os.environ["HOME"]]
        assert texts(await call(connection, "variable", name="FROM_FILE")) == ["[secret]"]
