"""Jupyter server extension: reads its configuration and runs Quire as long as the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Dict

from quire.frontends.jupyter_extension import worker_threads
from quire.frontends.jupyter_extension.background_app import BackgroundApp
from quire.frontends.jupyter_extension.handler import PATTERN, McpHandler

if TYPE_CHECKING:
    from quire.frontends.jupyter_extension.mounted_app import MountedApp
    from quire.settings import Settings

TOOLSETS = ("jupyter",)


class QuireExtension(ExtensionApp):
    """`c.QuireExtension.options = {"server": {"toolsets": "jupyter,repl"}}` in jupyter_server_config.py.

    These settings override quire.toml and the environment."""

    name = "quire"
    options = Dict(help="Settings of Quire by their names, as in quire.toml").tag(config=True)

    def initialize_handlers(self) -> None:
        self._background_app = BackgroundApp(self._open_app)
        self.handlers.append((PATTERN, McpHandler, {"background_app": self._background_app}))

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        worker_threads.stop_with_process()  # now: Ctrl-C without a terminal does not call stop_extension
        self._background_app.start()

    async def stop_extension(self) -> None:
        await self._background_app.stop()

    @asynccontextmanager
    async def _open_app(self) -> AsyncIterator[MountedApp]:
        compose, local_client, mount = await _import_in_thread()
        settings = self._settings()
        async with compose.app(settings, clients={"jupyter": local_client(self.serverapp)}) as app:
            server = compose.mcp(app, settings)
            async with mount(server, app, compose.http_limits(settings)) as mounted_app:
                yield mounted_app
                app.runs.announce_shutdown()

    def _settings(self) -> Settings:
        from quire.settings import load

        settings = load(self.options)
        if "toolsets" in settings.server.model_fields_set:
            return settings
        server = settings.server.model_copy(update={"toolsets": TOOLSETS})
        return settings.model_copy(update={"server": server})


async def _import_in_thread() -> tuple[Any, ...]:
    """Import in a thread, since it takes a second. Python reports a deadlock if another thread imports the same modules
    at the same time; then import again here."""
    try:
        return await asyncio.to_thread(_import_modules)
    except RuntimeError:
        return _import_modules()


def _import_modules() -> tuple[Any, ...]:
    from quire import compose
    from quire.clients.jupyter.client import local_client
    from quire.frontends.jupyter_extension.mounted_app import mount

    return compose, local_client, mount
