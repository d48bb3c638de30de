"""An app that lives as long as the Jupyter server: one task opens it, keeps it and closes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from quire.core.errors import OperationFailed

if TYPE_CHECKING:  # what it holds takes long to load
    from quire.frontends.jupyter_extension.mounted_app import Mounted

    Opened = AbstractAsyncContextManager[Mounted]

log = logging.getLogger(__name__)
_GRACE = 3.0  # seconds open requests have when the server ends


class Running:
    def __init__(self, opened: Callable[[], Opened], patience: float = 60) -> None:
        """`opened` is entered and left in one task; `patience`: seconds a request waits for that."""
        self._opened = opened
        self._patience = patience
        self._app: asyncio.Future[Mounted] | None = None
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._app = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(self._app))

    async def app(self) -> Mounted:
        """Raises OperationFailed where it cannot be had, with the reason."""
        if self._app is None or self._ending.is_set():
            raise OperationFailed(
                "Quire does not run: the Jupyter server has not started it, or is ending. Call again later."
            )
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(self._app)
        except TimeoutError:
            raise OperationFailed("Quire is still starting. Call again in a few seconds.") from None

    def follow(self, request: asyncio.Task[None]) -> None:
        """A request that must not outlive the server."""
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def stop(self) -> None:
        """Back when everything that was opened is closed."""
        self._ending.set()
        if self._task is not None:
            await self._task

    async def _live(self, told: asyncio.Future[Mounted]) -> None:
        try:
            async with self._opened() as app:
                told.set_result(app)
                await self._ending.wait()
        except Exception as error:
            if told.done():
                log.exception("Quire did not end well")
            else:
                log.error("Quire could not be started: %s", error)
                told.set_exception(
                    OperationFailed(f"Quire could not be started: {error} The Jupyter server's log says more.")
                )
                told.exception()  # seen, should nobody ever ask
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        left = list(self._requests)
        if left:
            await asyncio.wait(left, timeout=_GRACE)
        for request in left:
            request.cancel()
