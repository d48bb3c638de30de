"""A person's JupyterLab in headless Chromium, with one notebook open: what its page shows, and typing into it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import BrowserContext, Locator, Page, async_playwright, expect

from tests.support.external_programs import missing
from tests.support.jupyter.servers import JupyterServer

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
_PATIENCE = 120_000.0  # ms anything of a page is waited for: a loaded machine shows it late
ARTEFACTS = Path(__file__).parents[3] / ".ci" / "artefacts"


class Lab:
    def __init__(self, page: Page) -> None:
        self.page = page

    def cell(self, place: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(place)

    def source(self, place: int) -> Locator:
        return self.cell(place).locator(".jp-InputArea .cm-content")

    def prompt(self, place: int) -> Locator:
        return self.cell(place).locator(".jp-InputPrompt")

    def outputs(self, place: int) -> Locator:
        return self.cell(place).locator(".jp-OutputArea")

    async def shows(self, place: int, source: str) -> None:
        """Wait until the cell has exactly this source."""
        await expect(self.source(place)).to_have_js_property("innerText", source, timeout=_PATIENCE)

    async def prompts(self, place: int, text: str) -> None:
        await expect(self.prompt(place)).to_have_text(text, timeout=_PATIENCE)

    async def prints(self, place: int, text: str) -> None:
        await expect(self.outputs(place)).to_contain_text(text, timeout=_PATIENCE)

    async def has_cells(self, number: int) -> None:
        await expect(self.page.locator(".jp-Notebook .jp-Cell")).to_have_count(number, timeout=_PATIENCE)

    async def put_cursor(self, place: int, *, end: bool) -> None:
        await self.source(place).click(timeout=_PATIENCE)
        await self.page.keyboard.press("Control+End" if end else "Control+Home")

    async def type(self, text: str) -> None:
        """At the cursor, key by key, as a person does."""
        await self.page.keyboard.type(text, delay=20)

    async def run(self) -> None:
        """The cell that the cursor is in."""
        await self.page.keyboard.press("Control+Enter")

    async def lists_collaborator(self, name: str, path: str) -> None:
        """Wait until the side panel lists a collaborator who has this document open."""
        panel = self.page.locator(".jp-CollaboratorsPanel")
        if not await panel.is_visible():
            await self.page.locator('.jp-SideBar [data-id="jp-collaboration-panel"]').click(timeout=_PATIENCE)
        collaborator = panel.locator(".jp-Collaborator", has_text=name)
        await expect(collaborator.locator(".jp-DirListing-itemText")).to_have_attribute(
            "title", path, timeout=_PATIENCE
        )

    async def shows_cursor_of(self, name: str, place: int) -> None:
        """Wait until the cursor of another is in this cell."""
        await expect(self.cell(place).locator(".jp-remote-cursor")).to_have_count(1, timeout=_PATIENCE)
        await expect(self.page.locator(".jp-remote-userFlag-name", has_text=name)).to_have_count(1, timeout=_PATIENCE)

    async def kernel_is_there(self) -> None:
        indicator = self.page.locator(".jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator")
        await expect(indicator).to_have_attribute("data-status", "idle", timeout=_PATIENCE)

    async def keep_picture(self, name: str) -> None:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png")


@asynccontextmanager
async def chromium() -> AsyncIterator[BrowserContext]:
    """One for all pages: what JupyterLab consists of is loaded once."""
    program = shutil.which("chromium")
    if program is None:
        missing("chromium", "apt-get install chromium, as .ci/run does")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield await browser.new_context(viewport={"width": 1280, "height": 800})
        finally:
            await browser.close()


@asynccontextmanager
async def lab(browser: BrowserContext, server: JupyterServer, path: str) -> AsyncIterator[Lab]:
    """With its kernel started; in a workspace of its own, where no other notebook is open."""
    page = await browser.new_page()
    try:
        waits = page.get_by_role("button", name="Continue waiting")  # asked where the machine is slow
        await page.add_locator_handler(waits, lambda button: button.click())
        workspace = f"lab/workspaces/{Path(path).stem}/tree/{path}"
        await page.goto(f"{server.url}{workspace}?token={server.token}", timeout=_PATIENCE)
        shown = Lab(page)
        await expect(shown.source(0)).to_be_visible(timeout=_PATIENCE)
        await shown.kernel_is_there()
        yield shown
    finally:
        await page.close()
