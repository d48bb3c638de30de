"""Quire inside a real Jupyter server: its endpoints, under the server's own rules."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp.shared.exceptions import MCPError

from tests.support.external_programs import inspector
from tests.support.jupyter import room_behaviours
from tests.support.jupyter.places import REPOSITORY, beside, run_inside
from tests.support.jupyter.quires import kernel_for, kernels, said
from tests.support.jupyter.servers import DEADLINE, JupyterServer, jupyter
from tests.support.processes import alive, processes_of
from tests.support.servers import call, text, variables
from tests.support.waiting import wait_until

MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
ENDPOINTS = (("GET", "mcp"), ("POST", "mcp"), ("DELETE", "mcp"), ("GET", "mcp/healthz"))
ENDPOINTS += (("GET", "mcp/tools/list"), ("POST", "mcp/tools/call"))


def quick(folder: Path, **settings: str) -> dict[str, str]:
    """The environment of a server whose Quire starts fast, with tools that need no document."""
    given = {"toolsets": "notebook,repl", "preload": "", "spare_kernels": "0", "snapshot_interval": "0", **settings}
    return {"QUIRE_STORE_DATA_DIR": str(folder), **variables(given)}


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """Below a base url, with a password beside the token."""
    folder = tmp_path_factory.mktemp("inside")
    how: dict[str, Any] = {"base_url": "/user/ann/", "password": "sesame"}
    with jupyter(folder, quire=True, environment=quick(folder / "quire"), **how) as server:
        yield server


@pytest.fixture
async def http(inside: JupyterServer) -> AsyncIterator[httpx2.AsyncClient]:
    """Brings the token."""
    async with httpx2.AsyncClient(base_url=inside.url, headers=bearer(inside), timeout=DEADLINE) as client:
        yield client


def bearer(server: JupyterServer) -> dict[str, str]:
    return {"Authorization": f"token {server.token}"}


def agent(server: JupyterServer, mode: str = "auto") -> Client[Any]:
    return Client(StreamableHttpTransport(f"{server.url}mcp", headers=bearer(server)), mode=mode)


def rpc(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def modern(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A whole request of the newer era, as httpx2 takes it."""
    headers = {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": name}
    return {"json": rpc("tools/call", name=name, arguments=arguments, _meta=META), "headers": headers}


def answer(response: httpx2.Response) -> Any:
    """The JSON-RPC answer, alone or as the last event of a stream."""
    if response.headers["content-type"].startswith("application/json"):
        return response.json()
    return json.loads([line for line in response.text.splitlines() if line.startswith("data:")][-1][5:])


# The plain endpoints


async def test_health_endpoint_answers(http: httpx2.AsyncClient) -> None:
    found = await http.get("mcp/healthz")
    assert (found.status_code, found.json()) == (200, {"status": "ok"})


async def test_tools_work_over_plain_http(http: httpx2.AsyncClient) -> None:
    listed = (await http.get("mcp/tools/list")).json()["tools"]
    assert {"execute", "add_cell"} <= {tool["name"] for tool in listed}
    for word in ("name", "tool_name"):  # jupyter-mcp-server says tool_name
        done = await http.post("mcp/tools/call", json={word: "execute", "arguments": {"code": "6 * 7"}})
        assert done.status_code == 200 and done.json()["structuredContent"]["return_value"] == 42


async def test_a_tool_that_fails_says_so(http: httpx2.AsyncClient) -> None:
    done = await http.post("mcp/tools/call", json={"name": "execute", "arguments": {"code": "print('so far'); 1/0"}})
    assert done.json()["isError"] and "so far" in str(done.json()) and "ZeroDivisionError" in str(done.json())
    done = await http.post("mcp/tools/call", json={"name": "execute", "arguments": {"cod": "1"}})
    assert done.json()["isError"] and "cod" in str(done.json())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"{", b'{"name": 1}', '{"name": "é"}'.encode()])
async def test_invalid_plain_call_is_refused(http: httpx2.AsyncClient, body: bytes) -> None:
    done = await http.post("mcp/tools/call", content=body)
    assert done.status_code == 400 and "error" in done.json()


# MCP


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_modern_and_legacy_clients_work(inside: JupyterServer, mode: str) -> None:
    async with agent(inside, mode) as client:
        assert "execute" in {tool.name for tool in await client.list_tools()}
        await call(client, "create_notebook", name=mode)
        await call(client, "execute", code="kept = 40", notebook=mode)
        done = await call(client, "execute", code="kept + 2", notebook=mode)
        assert done.structured_content["return_value"] == 42
        failed = await call(client, "execute", code="1/0", notebook=mode)
        assert failed.is_error and "ZeroDivisionError" in text(failed)


async def test_modern_protocol_over_raw_http(http: httpx2.AsyncClient) -> None:
    done = await http.post("mcp", **modern("execute", code="6 * 7", notebook="main"))
    assert done.status_code == 200
    assert answer(done)["result"]["structuredContent"]["return_value"] == 42


async def test_legacy_protocol_over_raw_http(http: httpx2.AsyncClient) -> None:
    hello = await http.post("mcp", json=rpc("initialize", **HELLO), headers=ACCEPT)
    assert answer(hello)["result"]["protocolVersion"] == LEGACY
    session = {**ACCEPT, "Mcp-Session-Id": hello.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
    ready = await http.post("mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    assert ready.status_code == 202
    done = await http.post("mcp", json=rpc("tools/call", 2, name="execute", arguments={"code": "7"}), headers=session)
    assert answer(done)["result"]["structuredContent"]["return_value"] == 7
    async with http.stream("GET", "mcp", headers={**session, "Accept": "text/event-stream"}) as stream:
        assert stream.status_code == 200  # the head is here before any event
    assert (await http.delete("mcp", headers=session)).status_code in (200, 204)
    gone = await http.post("mcp", json=rpc("tools/list", 3), headers=session)
    assert gone.status_code == 404


async def test_progress_is_sent_while_a_cell_runs(inside: JupyterServer, tmp_path: Path) -> None:
    heard = anyio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        if "waiting" in (message or ""):
            heard.set()

    async with agent(inside) as client, anyio.create_task_group() as group:
        await call(client, "create_notebook", name="progress")
        asked = {"code": "print('waiting', flush=True)\nimport time\ntime.sleep(600)", "notebook": "progress"}

        async def run() -> None:
            done = await client.call_tool("execute", asked, progress_handler=progress, raise_on_error=False)
            assert "INTERRUPTED" in text(done)

        group.start_soon(run)
        with anyio.fail_after(DEADLINE):
            await heard.wait()
        await call(client, "interrupt", notebook="progress")


async def test_two_clients_work_at_once(inside: JupyterServer) -> None:
    async with agent(inside) as one, agent(inside, "legacy") as other, anyio.create_task_group() as group:

        async def work(client: Client[Any], name: str) -> None:
            await call(client, "create_notebook", name=name)
            for number in range(5):
                done = await call(client, "execute", code=f"{name!r} * {number}", notebook=name)
                assert done.structured_content["return_value"] == name * number

        group.start_soon(work, one, "one")
        group.start_soon(work, other, "other")


async def test_client_disconnect_ends_only_its_own_run(http: httpx2.AsyncClient) -> None:
    call_ = modern("execute", code="x = 1\nimport time\nwhile True: time.sleep(0.05)", notebook="left", timeout=600)
    call_["json"]["params"]["_meta"] = {**META, "progressToken": 1}

    await http.post("mcp", **modern("create_notebook", name="left"))
    async with http.stream("POST", "mcp", **call_) as running:
        async for line in running.aiter_lines():
            if "progress" in line:
                break  # and leave, with the cell running
    shown = ""
    with anyio.fail_after(DEADLINE):
        while "INTERRUPTED" not in shown:
            shown = (await http.post("mcp", **modern("get_cell", cell_id_or_number=0, notebook="left"))).text
            await anyio.sleep(0.05)
    done = await http.post("mcp", **modern("execute", code="x", notebook="left"))
    assert answer(done)["result"]["structuredContent"]["return_value"] == 1


def test_the_official_inspector_lists_and_calls(inside: JupyterServer) -> None:
    target = [f"{inside.url}mcp", "--transport", "http", "--header", f"Authorization: token {inside.token}"]

    def inspect(*arguments: str) -> Any:
        command = [*inspector(), "--cli", *target, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    assert "execute" in {tool["name"] for tool in inspect("--method", "tools/list")["tools"]}
    done = inspect("--method", "tools/call", "--tool-name", "execute", "--tool-arg", "code=6*7")
    assert done["structuredContent"]["return_value"] == 42


# Who is let in


@pytest.mark.parametrize("given", [{}, {"Authorization": "token wrong"}, {"Authorization": "Bearer wrong"}])
async def test_requests_without_a_token_are_refused(inside: JupyterServer, given: dict[str, str]) -> None:
    for method, path in ENDPOINTS:
        async with httpx2.AsyncClient(timeout=DEADLINE) as client:
            found = await client.request(method, inside.url + path, headers=given)
        assert found.status_code == 403 and "token" in found.text, (method, path, found.status_code)


@pytest.mark.parametrize("how", ["token", "Bearer", "query"])
async def test_token_is_accepted_in_header_and_query(inside: JupyterServer, how: str) -> None:
    headers = {} if how == "query" else {"Authorization": f"{how} {inside.token}"}
    query = f"?token={inside.token}" if how == "query" else ""
    async with httpx2.AsyncClient(timeout=DEADLINE) as client:
        given = modern("execute", code="1")
        done = await client.post(f"{inside.url}mcp{query}", json=given["json"], headers={**given["headers"], **headers})
    assert done.status_code == 200


async def test_a_page_needs_the_xsrf_token_and_the_right_origin(inside: JupyterServer) -> None:
    async with httpx2.AsyncClient(base_url=inside.url, timeout=DEADLINE) as page:
        await page.get("login")
        xsrf = page.cookies["_xsrf"]
        await page.post("login", data={"password": "sesame", "_xsrf": xsrf})
        xsrf = page.cookies["_xsrf"]
        assert (await page.get("mcp/healthz")).status_code == 200
        body = {"name": "execute", "arguments": {"code": "1"}}
        assert (await page.post("mcp/tools/call", json=body)).status_code == 403
        mine = {"X-XSRFToken": xsrf}
        assert (await page.post("mcp/tools/call", json=body, headers=mine)).status_code == 200
        other = await page.post("mcp/tools/call", json=body, headers={**mine, "Origin": "http://evil.example"})
        assert other.status_code == 404
        wrong = await page.post("mcp/tools/call", json=body, headers={"X-XSRFToken": "2|0|0|0"})
        assert wrong.status_code == 403


async def test_foreign_host_name_is_refused(http: httpx2.AsyncClient) -> None:
    found = await http.get("mcp/healthz", headers={"Host": "evil.example"})
    assert found.status_code == 403


async def test_endpoints_are_only_below_the_base_url(inside: JupyterServer) -> None:
    async with httpx2.AsyncClient(headers=bearer(inside), timeout=DEADLINE) as client:
        found = await client.get(f"http://127.0.0.1:{inside.port}/mcp/healthz")
    assert found.status_code == 404


async def test_users_of_the_server_have_separate_notebooks_and_need_rights(tmp_path: Path) -> None:
    options = (
        "--ServerApp.identity_provider_class=tests.support.jupyter.several.Several",
        "--ServerApp.authorizer_class=tests.support.jupyter.several.NotBob",
    )
    environment = {**quick(tmp_path / "quire"), "PYTHONPATH": str(REPOSITORY)}
    with jupyter(tmp_path, quire=True, options=options, environment=environment) as server:

        async def run(name: str, code: str) -> httpx2.Response:
            given = {"Authorization": f"token {name}"}
            async with httpx2.AsyncClient(headers=given, timeout=DEADLINE) as client:
                body = {"name": "execute", "arguments": {"code": code}}
                return await client.post(f"{server.url}mcp/tools/call", json=body)

        first = await run("ann", "secret = 1")
        assert first.json().get("isError") is False, first.text + server.log()
        assert (await run("ann", "secret")).json()["structuredContent"]["return_value"] == 1
        assert "NameError" in (await run("carl", "secret")).text
        assert (await run("bob", "1")).status_code == 403


# What comes and goes


async def test_too_long_body_is_refused_and_a_chunked_body_is_accepted(http: httpx2.AsyncClient) -> None:
    refused = await http.post("mcp", content=b" " * 6_000_000, headers=ACCEPT)
    assert refused.status_code == 413 and "max_request_bytes" in refused.text
    given = modern("execute", code=f"len({'x' * 500_000!r})", notebook="main")

    async def pieces() -> AsyncIterator[bytes]:
        whole = json.dumps(given["json"]).encode()
        for start in range(0, len(whole), 10_000):
            yield whole[start : start + 10_000]

    done = await http.post("mcp", content=pieces(), headers=given["headers"])
    assert answer(done)["result"]["structuredContent"]["return_value"] == 500_000


async def test_after_sigterm_nothing_is_left(tmp_path: Path) -> None:
    with jupyter(tmp_path, quire=True, environment=quick(tmp_path / "quire")) as server:
        async with agent(server) as client:
            await call(client, "execute", code="import subprocess; subprocess.Popen(['sleep', '1000'])")
            ours = processes_of(server.pid)
            assert ours
            running, asked = anyio.Event(), {"code": "print('on')\nimport time; time.sleep(1000)", "timeout": 900}

            async def progress(done: float, total: float | None, message: str | None) -> None:
                running.set()

            async def run() -> None:
                with contextlib.suppress(MCPError):  # the server ended
                    await client.call_tool("execute", asked, progress_handler=progress, raise_on_error=False)

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                with anyio.fail_after(DEADLINE):
                    await running.wait()
                assert server.process is not None
                os.kill(server.pid, signal.SIGTERM)
                await anyio.to_thread.run_sync(lambda: server.process.wait(DEADLINE))  # type: ignore[union-attr]
                group.cancel_scope.cancel()
        wait_until(lambda: not any(map(alive, ours)), "all processes ended")
        assert "Quire did not end well" not in server.log() and "jupyter_extension" not in server.log()


async def test_extension_starts_no_process_before_code_needs_one(tmp_path: Path) -> None:
    with jupyter(tmp_path, quire=True, environment=quick(tmp_path / "quire", spare_kernels="1")) as server:
        async with agent(server) as client:
            await client.list_tools()
            await call(client, "create_notebook", name="one")
            assert not processes_of(server.pid)
            done = await call(client, "execute", code="6 * 7", notebook="one")
            assert done.structured_content["return_value"] == 42
            assert processes_of(server.pid)


async def test_at_sigterm_quire_ends_the_kernels_it_started_and_no_others(tmp_path: Path) -> None:
    environment = quick(tmp_path / "quire", toolsets="jupyter") | {"PYTHONPATH": str(REPOSITORY)}
    options = ("--ServerApp.kernel_manager_class=tests.support.jupyter.witness.Witness",)
    with jupyter(tmp_path, quire=True, environment=environment, options=options) as server:
        theirs = server.notebook("'theirs'")
        mine = server.notebook("import time; open('begun', 'w').close(); time.sleep(1000)")
        kernel = kernel_for(server, theirs)
        async with agent(server) as client:
            await said(client, "use_notebook", notebook_name="t", notebook_path=theirs)
            await said(client, "execute_cell", cell_index=0, notebook_name="t")
            await said(client, "use_notebook", notebook_name="m", notebook_path=mine)
            await said(client, "execute_code", code="'begun'", notebook_name="m")
            [own] = kernels(server) - {kernel}
            processes = [server.kernel_pid(each) for each in (kernel, own)]
            async with anyio.create_task_group() as group:
                group.start_soon(_asked, client, "execute_cell", {"cell_index": 0, "notebook_name": "m"})
                with anyio.fail_after(DEADLINE):
                    while not (server.root / "begun").exists():
                        await anyio.sleep(0.05)
                os.kill(server.pid, signal.SIGTERM)
                assert server.process is not None
                await anyio.to_thread.run_sync(server.process.wait, DEADLINE)
                group.cancel_scope.cancel()
        assert json.loads((tmp_path / "ended").read_text()) == [kernel]  # the server's own, after Quire's end
        wait_until(lambda: not any(map(alive, processes)), "all kernels ended")


async def _asked(client: Client[Any], tool: str, arguments: dict[str, Any]) -> None:
    with contextlib.suppress(MCPError):  # the server ended
        await client.call_tool(tool, arguments, raise_on_error=False)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_with_an_open_document_exits(tmp_path: Path, sign: signal.Signals) -> None:
    environment = quick(tmp_path / "quire", toolsets="jupyter")
    options = ("--ServerApp.answer_yes=True",)  # Ctrl-C asks no question
    held, terminal = pty.openpty()
    with (
        os.fdopen(held),
        os.fdopen(terminal),
        jupyter(tmp_path, quire=True, environment=environment, options=options, stdin=terminal) as server,
    ):
        path = server.notebook("1")
        async with beside(server) as person:
            document = await person.documents.open(path)
            await document.change("cell-0", source="typed")
            await document.save()
            os.kill(server.pid, sign)
            assert server.process is not None
            assert await anyio.to_thread.run_sync(server.process.wait, DEADLINE) == 0
        assert server.saved(path)["cells"][0]["source"] in ("typed", ["typed"])


async def test_rooms_of_closed_documents_are_removed(tmp_path: Path) -> None:
    environment = quick(tmp_path / "quire", toolsets="jupyter") | {"PYTHONPATH": str(REPOSITORY)}
    given: dict[str, Any] = {
        "options": ("--YDocExtension.document_cleanup_delay=0.2",),
        "extensions": {"tests.support.jupyter.inside": True},
    }
    with jupyter(tmp_path, quire=True, environment=environment, **given) as server:
        (server.root / "broken.ipynb").write_text("{")
        async with agent(server) as client:
            for number in range(3):
                path = server.notebook("'ran'")
                await said(client, "use_notebook", notebook_name=f"b{number}", notebook_path=path)
                await said(client, "execute_cell", cell_index=0, notebook_name=f"b{number}")
            await run_inside(server, room_behaviours.three_rooms_are_open)
            for number in range(3):
                await said(client, "unuse_notebook", notebook_name=f"b{number}")
            broken = await call(client, "use_notebook", notebook_name="broken", notebook_path="broken.ipynb")
            assert broken.is_error
            await run_inside(server, room_behaviours.no_room_is_left)
        await run_inside(server, room_behaviours.room_stays_while_a_person_is_in_it)


async def test_invalid_setting_is_reported_and_the_jupyter_server_works(tmp_path: Path) -> None:
    environment = quick(tmp_path / "quire", toolsets="nonsense")
    with jupyter(tmp_path, quire=True, environment=environment) as server:
        async with httpx2.AsyncClient(base_url=server.url, headers=bearer(server), timeout=DEADLINE) as client:
            found = await client.get("mcp/healthz")
            assert found.status_code == 503 and "nonsense" in found.text
            assert (await client.get("api/contents")).status_code == 200


def test_options_in_the_servers_configuration_are_settings(tmp_path: Path) -> None:
    options = ("--QuireExtension.options=toolsets=repl", "--QuireExtension.options=spare_kernels=0")
    environment = quick(tmp_path / "quire")
    with jupyter(tmp_path, quire=True, options=options, environment=environment) as server:
        tools = server.call("GET", "mcp/tools/list")["tools"]
    assert {tool["name"] for tool in tools} == {"execute", "state", "save_state", "restore_state", "reset", "interrupt"}


# How it is installed


def test_wheel_enables_the_extension(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        config = "etc/jupyter/jupyter_server_config.d/quire.json"
        name = next(each for each in wheel.namelist() if each.endswith(f".data/data/{config}"))
        assert json.loads(wheel.read(name)) == {"ServerApp": {"jpserver_extensions": {"quire": True}}}


def test_loading_the_extension_does_not_import_the_app() -> None:
    load = "import quire, sys; quire._jupyter_server_extension_points(); "
    code = load + "print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"fastmcp", "mcp", "pydantic", "uvicorn", "pycrdt"} & set(done.stdout.split())
