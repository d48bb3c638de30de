"""A person in JupyterLab and an agent in one notebook at once, through a separate Quire and through the extension."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from playwright.async_api import BrowserContext, expect

from tests.support.jupyter.lab import chromium, lab
from tests.support.jupyter.quires import release_notebooks, said
from tests.support.jupyter.servers import JupyterServer, jupyter
from tests.support.servers import http_server, variables

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]
QUICK = {"preload": "", "spare_kernels": "0", "snapshot_interval": "0"}


@dataclass(frozen=True, kw_only=True)
class Way:
    """A Jupyter server with JupyterLab, and where its Quire is."""

    name: str
    jupyter: JupyterServer
    url: str
    headers: dict[str, str]
    trusts: bool  # the setting jupyter.trust_outputs

    def agent(self) -> Client[Any]:
        return Client(StreamableHttpTransport(self.url, headers=self.headers))


@pytest.fixture(scope="module")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """A Jupyter server with JupyterLab and the Quire extension."""
    folder = tmp_path_factory.mktemp("lab")
    settings = variables(QUICK)
    environment = {**settings, "QUIRE_STORE_DATA_DIR": str(folder / "quire")}
    with jupyter(folder / "jupyter", lab=True, quire=True, environment=environment) as server:
        yield server


@pytest.fixture(scope="module", params=["standalone", "extension"])
def way(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lab_server: JupyterServer
) -> Iterator[Way]:
    if request.param == "extension":
        headers = {"Authorization": f"token {lab_server.token}"}
        yield Way(name="extension", jupyter=lab_server, url=f"{lab_server.url}mcp", headers=headers, trusts=False)
        return
    reach = {
        "jupyter_url": lab_server.url,
        "jupyter_token": lab_server.token,
        "jupyter_trust_outputs": "true",
        "toolsets": "jupyter",
    }
    with http_server(tmp_path_factory.mktemp("standalone") / "quire", **QUICK, **reach) as (url, _):
        yield Way(name="standalone", jupyter=lab_server, url=url, headers={}, trusts=True)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[BrowserContext]:
    async with chromium() as running:
        yield running


@pytest.fixture
async def agent(way: Way) -> AsyncIterator[Client[Any]]:
    """No notebook is in use before and after the test: with one in use, calls that name none mean that one."""
    async with way.agent() as client:
        yield client
        await release_notebooks(client)


async def use(agent: Client[Any], path: str) -> None:
    await said(agent, "use_notebook", notebook_name=Path(path).stem, notebook_path=path)


@pytest.mark.soak(sample=True)
async def test_a_person_sees_the_agents_cell_run_line_by_line(
    way: Way, browser: BrowserContext, agent: Client[Any], tmp_path: Path
) -> None:
    path, go = way.jupyter.notebook("greeting = 'hello'"), tmp_path / "go"
    async with lab(browser, way.jupyter, path) as page, anyio.create_task_group() as group:
        await use(agent, path)
        await page.put_cursor(0, end=True)
        await page.run()
        await page.prompts(0, "[1]:")
        code = (
            "import pathlib, time\n"
            "print(greeting, 'from the page')\n"  # the kernel is the page's
            f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
            "print('last line')"
        )
        ended: list[str] = []

        async def run() -> None:
            ended.append(await said(agent, "insert_execute_code_cell", cell_index=-1, cell_source=code, timeout=500))

        group.start_soon(run)
        await page.has_cells(2)
        await page.shows(1, code)
        await page.prints(1, "hello from the page")
        await page.prompts(1, "[*]:")  # it runs still
        await page.keep_picture(f"lab-{way.name}-running")
        go.touch()
        await page.prints(1, "last line")
        await page.prompts(1, "[2]:")
    assert "last line" in ended[0]


async def test_edits_of_a_person_and_the_agent_are_merged(
    way: Way, browser: BrowserContext, agent: Client[Any]
) -> None:
    first = "def area(r):\n    return 3 * r * r\n# end"
    path = way.jupyter.notebook(first, "untouched = 1")
    async with lab(browser, way.jupyter, path) as page:
        await use(agent, path)
        await page.put_cursor(0, end=True)
        async with anyio.create_task_group() as group:
            group.start_soon(page.type, " of the person's text")

            async def edit() -> None:
                await said(agent, "edit_cell_source", cell_index=0, old_string="3 * r", new_string="3.14159 * r")
                await said(agent, "overwrite_cell_source", cell_index=1, cell_source="touched = 2")

            group.start_soon(edit)
        await page.shows(0, "def area(r):\n    return 3.14159 * r * r\n# end of the person's text")
        await page.shows(1, "touched = 2")
        await page.type("!")  # the cursor is where it was
        await page.shows(0, "def area(r):\n    return 3.14159 * r * r\n# end of the person's text!")
        read = ""
        with anyio.fail_after(60):
            while "text!" not in read:
                read = await said(agent, "read_cell", cell_index=0)
        assert "3.14159 * r * r" in read


async def test_one_kernel_is_shared_in_both_directions(way: Way, browser: BrowserContext, agent: Client[Any]) -> None:
    path = way.jupyter.notebook("from_the_page = 40", "print(from_the_agent)")
    async with lab(browser, way.jupyter, path) as page:
        await use(agent, path)
        await page.put_cursor(0, end=True)
        await page.run()
        await page.prompts(0, "[1]:")
        code = "from_the_agent = from_the_page + 2; from_the_agent"
        assert await said(agent, "execute_code", code=code) == "42"
        await page.put_cursor(1, end=True)
        await page.run()
        await page.prints(1, "42")


async def test_moves_deletes_and_new_cells_are_seen_by_the_other_side(
    way: Way, browser: BrowserContext, agent: Client[Any]
) -> None:
    path = way.jupyter.notebook("one", "two", "three")
    async with lab(browser, way.jupyter, path) as page:
        await use(agent, path)
        await said(agent, "move_cell", source_index=0, target_index=2)
        await page.shows(2, "one")
        await said(agent, "delete_cell", cell_indices=[0])
        await page.has_cells(2)
        await page.shows(0, "three")
        await page.put_cursor(1, end=True)
        await page.page.keyboard.press("Alt+Enter")  # runs it, and a new cell below
        await page.has_cells(3)
        await page.type("written by hand")
        read = ""
        with anyio.fail_after(60):
            while "written by hand" not in read:
                read = await said(agent, "read_notebook", notebook_name=Path(path).stem)


async def test_page_shows_the_agent_and_trusts_it_only_by_setting(
    way: Way, browser: BrowserContext, agent: Client[Any]
) -> None:
    path = way.jupyter.notebook("written = 'by the person'")
    async with lab(browser, way.jupyter, path) as page:
        await use(agent, path)
        await page.lists_collaborator("Quire", path)
        code = (
            "from IPython.display import SVG\n"
            'SVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="9"/></svg>\')'
        )
        await said(agent, "insert_execute_code_cell", cell_index=-1, cell_source=code)
        await page.shows_cursor_of("Quire", 1)
        if way.trusts:
            await expect(page.outputs(1).locator(".jp-RenderedSVG")).to_have_count(1)
        else:
            await page.prints(1, "<IPython.core.display.SVG object>")
        await page.keep_picture(f"lab-{way.name}-agent")
