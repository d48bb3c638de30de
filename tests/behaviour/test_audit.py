"""Each call leaves one line in the audit log, with its outcome and without its contents."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastmcp import Client
from mcp.shared.exceptions import MCPError

from tests.support import preloaded
from tests.support.notebooks import Book, new_book
from tests.support.servers import SharedServer, call, http_client, http_server, server_environment, stdio_client, text
from tests.support.waiting import DEADLINE, appears, reached


def lines(data_dir: Path) -> list[dict[str, Any]]:
    files = [*sorted(data_dir.glob("audit-*.jsonl")), data_dir / "audit.jsonl"]
    return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


class Log:
    """The lines of a server's log since this was made."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._before = len(lines(data_dir))

    def lines(self) -> list[dict[str, Any]]:
        return lines(self.data_dir)[self._before :]


@pytest.fixture
def log(book: Book, shared_server: SharedServer) -> Log:
    """The log of the module's server since the test began."""
    assert shared_server.data_dir is not None
    return Log(shared_server.data_dir)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address and the data directory of a server over HTTP."""
    data_dir = tmp_path_factory.mktemp("http") / "data"
    with http_server(data_dir) as (url, _):
        yield url, data_dir


def digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()[:16]


async def test_a_line_with_the_outcome_is_there_when_a_call_is_answered(
    client: Client[Any], book: Book, log: Log
) -> None:
    expected: list[tuple[str, str, int | None]] = []

    async def tried(outcome: str, cell: int | None, tool: str, **arguments: Any) -> None:
        await call(client, tool, **arguments)
        expected.append((tool, outcome, cell))
        assert [(each["tool"], each["outcome"], each["cell"]) for each in log.lines()] == expected

    await tried("ok", 0, "execute", code="x = 1")
    await tried("error", 1, "execute", code="1/0")
    await tried("crashed", 2, "execute", code="import os; os._exit(3)")
    await tried("timeout", 3, "execute", code="while True: pass", timeout=0.3)
    await tried("refused", None, "execute", code="1", notebook="nowhere")
    await tried("refused", None, "execute", kode="1")
    await tried("refused", None, "no_such_tool")
    await tried("ok", 0, "execute_cell", cell_id_or_number=0)
    await tried("error", 1, "execute_cell", cell_id_or_number="0-2")
    await tried("ok", None, "list_cells")
    said = log.lines()
    assert said[0]["digest"] == said[7]["digest"] == digest("x = 1") and said[9]["digest"] is None
    assert [each["notebook"] for each in said] == [book.name] * 4 + [None] * 3 + [book.name] * 3
    assert all(each["kind"] == "call" and each["who"] == "local" and each["ms"] > 0 for each in said)
    assert all(each["in"] == 5 for each in said[:1]) and all(each["out"] > 10 for each in said)


@pytest.mark.parametrize("name", ["z approved?2026-11-19 caps.install ok", "a\nb", "a.b", ""])
async def test_what_is_no_name_is_refused_and_written_as_one_word(client: Client[Any], log: Log, name: str) -> None:
    code = f"caps._known.ask('approve', capability='own', method={name!r}, given={{}})"
    found = await call(client, "execute", code=code)
    assert "is no name of a method. Nothing was called." in text(found), text(found)
    word = re.sub(r"\s", "?", name)
    said = [(each["tool"], each["outcome"]) for each in log.lines()]
    assert said == [(f"own.{word}", "refused"), ("execute", "error")]


async def test_resources_and_prompts_are_calls_too(client: Client[Any], book: Book, log: Log) -> None:
    await call(client, "execute", code="1")
    await client.read_resource(f"notebook://{book.name}/cells")
    for uri in ("notebook://nowhere/cells", f"notebook://{book.name}/cell/77", "other://thing"):
        with pytest.raises(MCPError):
            await client.read_resource(uri)
    await client.get_prompt("analyse_notebook")
    with pytest.raises(MCPError):
        await client.get_prompt("no such prompt")
    said = [(each["tool"], each["outcome"], each["notebook"]) for each in log.lines()[1:]]
    assert said == [
        ("resources/read", "ok", book.name),
        ("resources/read", "refused", None),
        ("resources/read", "refused", book.name),
        ("resources/read", "refused", None),
        ("prompts/get", "ok", None),
        ("prompts/get", "refused", None),
    ]


async def test_a_cancelled_and_an_interrupted_call_are_recorded_as_that(
    client: Client[Any], book: Book, log: Log, tmp_path: Path
) -> None:
    def endless(mark: Path) -> str:
        return f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\nwhile True: time.sleep(0.01)"

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: call(client, "execute", code=endless(tmp_path / "first"), timeout=600))
        await appears(tmp_path / "first")
        group.cancel_scope.cancel()
    await reached(log.lines, "the line of the cancelled call")
    assert [(each["outcome"], each["notebook"], each["cell"]) for each in log.lines()] == [("cancelled", book.name, 0)]
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: call(client, "execute", code=endless(tmp_path / "second"), timeout=600))
        await appears(tmp_path / "second")
        await call(client, "interrupt")
    said = [(each["tool"], each["outcome"]) for each in log.lines()]
    assert ("execute", "interrupted") in said and ("interrupt", "ok") in said


async def test_a_call_that_is_answered_before_its_run_is_over_says_so(data_dir: Path) -> None:
    async with stdio_client(data_dir, patience=0.3) as client:
        await call(client, "execute", code="import time; time.sleep(1000)", timeout=1000)
        await call(client, "execute", code="'waits for its turn'")
        said = [(each["outcome"], each["cell"], each["digest"]) for each in lines(data_dir)]
        waits = digest("'waits for its turn'")
        assert said == [("running", 0, digest("import time; time.sleep(1000)")), ("running", 1, waits)]
        await call(client, "interrupt")


@pytest.mark.parametrize(("mode", "outcomes"), [("auto", ["asked", "ok"]), ("legacy", ["ok"])])
async def test_a_call_that_ends_with_a_question_says_so(web: tuple[str, Path], mode: str, outcomes: list[str]) -> None:
    url, data_dir = web

    async def person(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return {"value": "Ada"}

    async with http_client(url, mode=mode, person=person) as client, new_book(client) as book:
        log = Log(data_dir)
        assert "Ada" in text(await book.run("input('Name?')"))
        assert [each["outcome"] for each in log.lines()] == outcomes


def test_malformed_calls_leave_a_line(web: tuple[str, Path]) -> None:
    url, data_dir = web
    log = Log(data_dir)
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x\ny" * 1000, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
    }
    odd = "a secret\n that is no tool's name" * 9
    for params in ({}, {"name": 7}, {"name": "execute", "arguments": []}, {"name": odd}):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": about}}
        named = {"Mcp-Name": str(params["name"]).replace("\n", "")} if "name" in params else {}
        httpx2.post(url, json=body, headers={**headers, **named})
    said = log.lines()
    assert {(each["tool"], each["outcome"], each["client"]) for each in said} <= {
        ("?", "refused", "?"),
        ("execute", "refused", "?"),
    }
    assert len(said) >= 2 and "secret" not in json.dumps(said)


# Secrets

TOKEN = "sk-planted-0123456789abcdef"
BACKEND = """
import os, sys
from fastmcp import FastMCP
server = FastMCP("vault")
@server.tool
def look(of: str) -> str:
    return os.environ["VAULT_TOKEN"] + of
server.run(show_banner=False)
"""


async def test_no_secret_reaches_the_log_the_metrics_or_the_greeting(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", TOKEN)
    with http_server(data_dir) as (url, process):
        async with http_client(url, mode="legacy") as client:
            token = client.transport.get_session_id() if hasattr(client.transport, "get_session_id") else None
            config = {"command": sys.executable, "args": ["-c", BACKEND], "env": {"VAULT_TOKEN": "env:PLANTED"}}
            installed = await call(client, "install_capability", name="vault", config=config)
            assert not installed.is_error, text(installed)
            web = {"type": "http", "url": f"http://127.0.0.1:9/{TOKEN}", "headers": {"Authorization": TOKEN}}
            await call(client, "install_capability", name="web", config=web)
            ran = await call(client, "execute", code=f"print({TOKEN!r}); vault.look({TOKEN!r})")
            assert TOKEN in text(ran)
            await call(client, "execute", code=f"raise ValueError({TOKEN!r})")
            await call(client, "add_cell", code=f"# {TOKEN}", execute=False)
            await call(client, "execute", code="1", notebook=TOKEN)
            await call(client, TOKEN + "\n")
            with suppress(MCPError):
                await client.read_resource(f"notebook://{TOKEN}/cells")
        metrics = httpx2.get(url.replace("/mcp", "/metrics")).text
        assert "quire_calls_total" in metrics and TOKEN not in metrics
    said = (data_dir / "audit.jsonl").read_text()
    assert len(said.splitlines()) == 9 and TOKEN not in said and (token is None or token not in said)
    assert {each["kind"] for each in lines(data_dir)} == {"call", "capability"}
    assert TOKEN not in (process.stderr.read() if process.stderr and not process.stderr.closed else "")


# Two servers, and one that is killed


async def test_two_servers_write_one_log_and_a_killed_one_loses_no_line(data_dir: Path) -> None:
    settings: dict[str, Any] = {"preload": "", "audit_bytes": 100_000}
    with http_server(data_dir, **settings) as (url, process):
        async with stdio_client(data_dir, **settings) as one, http_client(url) as other:
            for n in range(150):
                for client in (one, other):
                    await call(client, "list_notebooks")
                if n == 100:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    break
            for _ in range(50):
                await call(one, "list_notebooks")
    said = lines(data_dir)
    assert sum(each["via"] == "stdio" for each in said) == 151 and sum(each["via"] == "http" for each in said) == 101


# quire audit


def shown(data_dir: Path, *arguments: str) -> list[str]:
    command = preloaded.quire("audit", *arguments)
    done = subprocess.run(command, env=server_environment(data_dir), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_quire_audit_shows_the_calls_that_are_asked_for(data_dir: Path) -> None:
    assert shown(data_dir) == []
    async with stdio_client(data_dir) as client:
        await call(client, "execute", code="1")
        await call(client, "execute", code="1/0")
        await call(client, "create_notebook", name="other")
        await call(client, "execute", code="2", notebook="other")
        await call(client, "list_cells", notebook="other")
    every = shown(data_dir)
    assert [line.split()[1:4] for line in every] == [
        ["ok", "execute", "main:0"],
        ["error", "execute", "main:1"],
        ["ok", "create_notebook", "-"],
        ["ok", "execute", "other:0"],
        ["ok", "list_cells", "other"],
    ]
    assert shown(data_dir, "--tool", "execute") == [every[0], every[1], every[3]]
    assert shown(data_dir, "--tool", "*_*s", "--who", "local") == [every[4]]
    assert shown(data_dir, "--outcome", "error") == [every[1]]
    assert shown(data_dir, "--notebook", "other", "--limit", "1") == [every[4]]
    assert shown(data_dir, "--who", "unknown") == shown(data_dir, "--kind", "capability") == []
    assert shown(data_dir, "--since", "1h") == every and shown(data_dir, "--since", "2999-01-01") == []
    at = every[3].split()[0]
    assert shown(data_dir, "--since", at) == every[3:]
    assert [json.loads(line)["tool"] for line in shown(data_dir, "--json", "--limit", "2")] == ["execute", "list_cells"]


async def test_call_over_the_rate_limit_leaves_a_line(data_dir: Path) -> None:
    with http_server(data_dir, requests_per_minute=1, requests_burst=10) as (url, _):
        async with http_client(url) as client:
            with pytest.raises(MCPError, match="Too many requests"):
                for _ in range(11):
                    await call(client, "list_notebooks")
    (*answered, refused) = [(entry["tool"], entry["outcome"]) for entry in lines(data_dir)]
    assert refused == ("list_notebooks", "refused") and {*answered} <= {("list_notebooks", "ok")}


async def test_quire_audit_follows_what_comes(client: Client[Any], book: Book, log: Log) -> None:
    await call(client, "execute", code="1")
    filters = ["--tool", "execute", "--notebook", str(book.name)]
    command = [sys.executable, "-m", "quire", "audit", "--follow", *filters]
    env = {**server_environment(log.data_dir), "PYTHONUNBUFFERED": "1"}
    following = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert following.stdout is not None
    try:
        assert f"{book.name}:0" in await anyio.to_thread.run_sync(following.stdout.readline)
        await call(client, "list_cells")
        await call(client, "execute", code="2")
        assert f"{book.name}:1" in await anyio.to_thread.run_sync(following.stdout.readline)
        os.kill(following.pid, signal.SIGINT)
        assert following.wait(DEADLINE) == 130
    finally:
        following.kill()
        following.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--since", "soon"], "is no time"), (["--outcome", "fine"], "There is no outcome 'fine'")]
)
def test_quire_audit_says_what_it_does_not_understand(data_dir: Path, arguments: list[str], says: str) -> None:
    command = preloaded.quire("audit", *arguments)
    done = subprocess.run(command, env=server_environment(data_dir), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
