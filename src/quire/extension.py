"""Quire in a Jupyter server: its configuration to Settings, then run as long as the server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Dict

from quire.frontends.jupyter_extension import worker_threads
from quire.frontends.jupyter_extension.background_app import Running
from quire.frontends.jupyter_extension.handler import PATTERN, ToQuire

if TYPE_CHECKING:
    from quire.frontends.jupyter_extension.mounted_app import Mounted
    from quire.settings import Settings

TOOLSETS = "jupyter"


class QuireExtension(ExtensionApp):
    """`c.QuireExtension.options = {"toolsets": "jupyter,repl"}` in jupyter_server_config.py: settings by their names,
    over those of quire.toml and the environment."""

    name = "quire"
    options = Dict(help="Settings of Quire by their names, as in quire.toml").tag(config=True)

    def initialize_handlers(self) -> None:
        self._running = Running(self._opened)
        self.handlers.append((PATTERN, ToQuire, {"running": self._running}))

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        worker_threads.stop_with_process()  # from the start: Ctrl-C without a terminal stops no extension
        self._running.start()

    async def stop_extension(self) -> None:
        await self._running.stop()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Mounted]:
        compose, local_client, mounted = await _imported()
        settings = self._settings()
        async with compose.app(settings, clients={"jupyter": local_client(self.serverapp)}) as app:
            server = compose.mcp(app, settings)
            async with mounted(server, app, compose.bounds(settings)) as running:
                yield running
                app.runs.ending = True

    def _settings(self) -> Settings:
        from quire.settings import load

        settings = load(self.options)
        if "toolsets" in settings.model_fields_set:
            return settings
        return load({**self.options, "toolsets": TOOLSETS})


async def _imported() -> tuple[Any, ...]:
    """Beside the server's other work, which must not wait a second; again in line with it where two imported the same
    modules at once, which Python calls a deadlock."""
    try:
        return await asyncio.to_thread(_loaded)
    except RuntimeError:
        return _loaded()


def _loaded() -> tuple[Any, ...]:
    from quire import compose
    from quire.clients.jupyter.client import local_client
    from quire.frontends.jupyter_extension.mounted_app import mounted

    return compose, local_client, mounted
