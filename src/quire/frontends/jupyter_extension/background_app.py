"""Runs the app in a background task from the start of the Jupyter server to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from quire.core.errors import OperationFailed

if TYPE_CHECKING:  # slow to import
    from quire.frontends.jupyter_extension.mounted_app import MountedApp

    AppContext = AbstractAsyncContextManager[MountedApp]

log = logging.getLogger(__name__)
_REQUEST_GRACE_S = 3.0  # for open requests when the server stops


class BackgroundApp:
    def __init__(self, open_app: Callable[[], AppContext], start_timeout: float = 60) -> None:
        """`open_app` is entered and left in the same task. `start_timeout`: seconds that a request waits for it."""
        self._open_app = open_app
        self._start_timeout = start_timeout
        self._app: asyncio.Future[MountedApp] | None = None
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._app = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_app(self._app))

    async def wait_ready(self) -> MountedApp:
        """Wait for the app. Raises OperationFailed with the reason if it is not available."""
        if self._app is None or self._ending.is_set():
            raise OperationFailed(
                "Quire does not run: the Jupyter server has not started it, or is ending. Call again later."
            )
        try:
            async with asyncio.timeout(self._start_timeout):
                return await asyncio.shield(self._app)
        except TimeoutError:
            raise OperationFailed("Quire is still starting. Call again in a few seconds.") from None

    def add_request(self, request: asyncio.Task[None]) -> None:
        """Cancel this request if it still runs when the server stops."""
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def stop(self) -> None:
        """Return when the app is closed."""
        self._ending.set()
        if self._task is not None:
            await self._task

    async def _run_app(self, started: asyncio.Future[MountedApp]) -> None:
        try:
            async with self._open_app() as app:
                started.set_result(app)
                await self._ending.wait()
        except Exception as error:
            if started.done():
                log.exception("Quire did not end well")
            else:
                log.error("Quire could not be started: %s", error)
                started.set_exception(
                    OperationFailed(f"Quire could not be started: {error} The Jupyter server's log says more.")
                )
                started.exception()  # marks it as retrieved: there may be no request
        finally:
            await self._end_requests()

    async def _end_requests(self) -> None:
        requests = list(self._requests)
        if requests:
            await asyncio.wait(requests, timeout=_REQUEST_GRACE_S)
        for request in requests:
            request.cancel()
