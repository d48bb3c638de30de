"""Notebooks of a Jupyter server, beside it and inside it, against jupyter-mcp-server 2.2.4 on the same server; an edit
on its way to another replica, and to a page of JupyterLab in Chromium.

PEER_JUPYTER names the Python of an environment with jupyter-mcp-server 2.2.4; without it one is made with uv.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from tests.support.jupyter.lab import Lab, chromium, lab
from tests.support.jupyter.servers import JupyterServer, jupyter
from tests.support.servers import variables

from bench.servers import bare_http, timed
from quire.clients.jupyter.client import remote_client

_PEER = "jupyter-mcp-server==2.2.4"
_ROUNDS, _PEER_ROUNDS = 100, 5
_CELLS, _BOOKS, _EDITS, _SHOWN = 50, 10, 50, 20

Found = list[tuple[str, float, float]]


async def main() -> Found:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        python = _peer_python(place)
        environment = {
            "QUIRE_STORE_DATA_DIR": str(place / "inside"),
            "QUIRE_KERNEL_SPARE_KERNELS": "0",
            "QUIRE_KERNEL_PRELOAD": "",
        }
        with jupyter(place / "jupyter", quire=True, lab=True, environment=environment) as server:
            return await _compare(server, place, python)


async def _compare(server: JupyterServer, folder: Path, python: Path) -> Found:
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(_beside(server, folder))
        inside = await stack.enter_async_context(_inside(server))
        peer = await stack.enter_async_context(_peer(server, python))
        theirs = await _one_plus_one(peer, server, _PEER_ROUNDS)
        ours, within = await _one_plus_one(beside, server, _ROUNDS), await _one_plus_one(inside, server, _ROUNDS)
        _say("1+1", peer=theirs, standalone=ours, extension=within)
        read_theirs = await _read(peer, server, _PEER_ROUNDS)
        read, read_within = await _read(beside, server, _ROUNDS), await _read(inside, server, _ROUNDS)
        bare = await stack.enter_async_context(bare_http())
        floor = await _bare(bare)
        _say("read of 50 cells", peer=read_theirs, standalone=read, extension=read_within, bare_tool_over_http=floor)
        sleeps, sleeps_within = await _sleeps(beside, server), await _sleeps(inside, server)
        edit, edit_within = await _edits(beside, server), await _edits(inside, server)
        page, page_within = await _pages(beside, inside, server)
        _say("an edit shown by JupyterLab, p95", standalone=page, extension=page_within)
        sizes = [await _listed(client) for client in (inside, peer)]
        _say("tools/list, kB", peer=sizes[1] / 1e6, extension=sizes[0] / 1e6)
    return [
        ("execute_cell of 1+1 standalone / jupyter-mcp-server, p50", ours / theirs, 1 / 20),
        ("execute_cell of 1+1 in the extension / jupyter-mcp-server, p50", within / theirs, 1 / 5),
        ("read_notebook of 50 cells standalone / jupyter-mcp-server, p50", read / read_theirs, 1 / 5),
        ("read_notebook of 50 cells in the extension / jupyter-mcp-server, p50", read_within / read_theirs, 1 / 5),
        ("read_notebook of 50 cells in the extension / a bare fastmcp tool over HTTP, p50", read_within / floor, 1.5),
        ("ten notebooks that sleep 1 s at once, standalone, s", sleeps, 2.0),
        ("ten notebooks that sleep 1 s at once, in the extension, s", sleeps_within, 2.0),
        ("an edit reaches another replica, standalone, ms, p95", edit * 1000, 300),
        ("an edit reaches another replica, in the extension, ms, p95", edit_within * 1000, 300),
        ("an edit is shown by an open page of JupyterLab, standalone, ms, p95", page * 1000, 300),
        ("an edit is shown by an open page of JupyterLab, in the extension, ms, p95", page_within * 1000, 300),
        ("tools/list / jupyter-mcp-server, characters", sizes[0] / sizes[1], 0.5),
    ]


def _say(what: str, **seconds: float) -> None:
    print(f"     {what}: " + ", ".join(f"{who} {1000 * each:.1f} ms" for who, each in seconds.items()), file=sys.stderr)


# Who is measured


@asynccontextmanager
async def _beside(server: JupyterServer, folder: Path) -> AsyncIterator[Client[Any]]:
    settings = {"data_dir": folder / "beside", "jupyter_url": server.url, "jupyter_token": server.token}
    env = {**os.environ, **variables(settings)}
    env |= {"QUIRE_SERVER_TOOLSETS": "jupyter", "QUIRE_KERNEL_SPARE_KERNELS": "0", "QUIRE_KERNEL_PRELOAD": ""}
    async with Client(StdioTransport(sys.executable, ["-m", "quire"], env=env, keep_alive=False)) as client:
        yield client


@asynccontextmanager
async def _inside(server: JupyterServer) -> AsyncIterator[Client[Any]]:
    transport = StreamableHttpTransport(f"{server.url}mcp", headers={"Authorization": f"token {server.token}"})
    async with Client(transport) as client:
        yield client


@asynccontextmanager
async def _peer(server: JupyterServer, python: Path) -> AsyncIterator[Client[Any]]:
    command = str(python.with_name("jupyter-mcp-server"))
    env = {**os.environ, "JUPYTER_URL": server.url.rstrip("/"), "JUPYTER_TOKEN": server.token}
    env |= {"ALLOW_IMG_OUTPUT": "true", "START_NEW_CODE_SANDBOX": "false", "START_NEW_RUNTIME": "false"}
    arguments = ["start", "--transport", "stdio"]
    async with Client(StdioTransport(command, arguments, env=env, keep_alive=False), init_timeout=120) as client:
        yield client


def _peer_python(folder: Path) -> Path:
    if given := os.environ.get("PEER_JUPYTER"):
        return Path(given)
    made, uv = folder / "peer", str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(made)], check=True)
    python = made / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), _PEER], check=True)
    return python


# What is measured


async def _called(client: Client[Any], tool: str, **arguments: Any) -> Any:
    done = await client.call_tool(tool, arguments, raise_on_error=False)
    assert not done.is_error, (tool, done.content)
    return done


async def _use(client: Client[Any], server: JupyterServer, *sources: str) -> str:
    """The path of a new notebook with these cells, taken up under its own name, its kernel started."""
    path = server.notebook(*sources)
    await _called(client, "use_notebook", notebook_name=Path(path).stem, notebook_path=path)
    await _called(client, "execute_code", code="pass")
    return path


async def _one_plus_one(client: Client[Any], server: JupyterServer, rounds: int) -> float:
    await _use(client, server, "1+1")
    taken = []
    for _ in range(rounds + 3):
        start = time.perf_counter()
        done = await _called(client, "execute_cell", cell_index=0)
        taken.append(time.perf_counter() - start)
        assert "2" in str(done.content), done
    return statistics.median(taken[3:])


async def _read(client: Client[Any], server: JupyterServer, rounds: int) -> float:
    name = Path(
        await _use(client, server, *(f"x{number} = {number}\nprint(x{number})" for number in range(_CELLS)))
    ).stem
    asked = {"notebook_name": name, "response_format": "detailed", "limit": _CELLS}
    taken = [await timed(lambda: _called(client, "read_notebook", **asked)) for _ in range(rounds + 3)]
    return statistics.median(taken[3:])


async def _bare(client: Client[Any]) -> float:
    """A tool that adds two numbers, of a bare fastmcp server over HTTP: what any call inside costs at the least."""
    asked = {"a": 1, "b": 1}
    return statistics.median([await timed(lambda: _called(client, "add", **asked)) for _ in range(_ROUNDS)][3:])


async def _sleeps(client: Client[Any], server: JupyterServer) -> float:
    """Their kernels are there already."""
    names = [Path(await _use(client, server, "import time; time.sleep(1)")).stem for _ in range(_BOOKS)]
    runs = [_called(client, "execute_cell", cell_index=0, notebook_name=name) for name in names]
    return await timed(lambda: asyncio.gather(*runs))


async def _edits(client: Client[Any], server: JupyterServer) -> float:
    """From the call to another client's copy of the document, as an open page has one."""
    path = await _use(client, server, "x = 0")
    page = remote_client(server.url, server.token)
    taken = []
    document = await page.documents.open(path)
    try:
        changed = asyncio.Event()
        document.watch(changed.set)
        for number in range(1, _EDITS + 1):
            start = time.perf_counter()
            asked = asyncio.create_task(
                _called(client, "overwrite_cell_source", cell_index=0, cell_source=f"x = {number}")
            )
            while document.cells()[0]["source"] != f"x = {number}":
                changed.clear()
                async with asyncio.timeout(30):
                    await changed.wait()
            taken.append(time.perf_counter() - start)
            await asked
    finally:
        await document.close()
        await page.close()
    return statistics.quantiles(taken, n=20)[-1]


async def _pages(beside: Client[Any], inside: Client[Any], server: JupyterServer) -> tuple[float, float]:
    async with chromium() as browser:
        taken = []
        for client in (beside, inside):
            path = await _use(client, server, "x = 0")
            async with lab(browser, server, path) as page:
                taken.append(await _shown(client, page))
        return taken[0], taken[1]


async def _shown(client: Client[Any], page: Lab) -> float:
    """From the call to what a person sees: the page itself looks at its cell whenever that changes."""
    watch = """([cell, wanted]) => new Promise(seen => {
        const look = () => cell.innerText === wanted && (watcher.disconnect(), seen())
        const watcher = new MutationObserver(look)
        watcher.observe(cell, {subtree: true, childList: true, characterData: true})
        look()
    })"""
    taken, cell = [], await page.source(0).element_handle()
    for number in range(1, _SHOWN + 1):
        wanted = f"x = {number}"
        shows = asyncio.create_task(page.page.evaluate(watch, [cell, wanted]))
        await asyncio.sleep(0.05)  # until the page looks
        start = time.perf_counter()
        asked = asyncio.create_task(_called(client, "overwrite_cell_source", cell_index=0, cell_source=wanted))
        async with asyncio.timeout(30):
            await shows
        taken.append(time.perf_counter() - start)
        await asked
    return statistics.quantiles(taken, n=20)[-1]


async def _listed(client: Client[Any]) -> float:
    tools = (await client.list_tools_mcp()).tools
    return float(len(json.dumps([tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools])))
