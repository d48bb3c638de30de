"""A connection to one kernel over a websocket that reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from quire.clients.jupyter.kernels import models
from quire.clients.jupyter.kernels.executions import RunningExecution, died_message
from quire.clients.jupyter.kernels.messages import V1, KernelMessage, decode, encode
from quire.clients.jupyter.kernels.session import READY_TIMEOUT_S, KernelSession, result_unknown, start_failed
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Missing, Unreachable
from quire.clients.jupyter.server.http_client import HttpClient
from quire.clients.jupyter.server.websocket import ConnectionLost, WebSocket, open_websocket

POLL_INTERVAL_S = 3.0  # of a kernel that runs code of this session
MAX_RETRY_DELAY_S = 5.0  # between attempts to reconnect

log = logging.getLogger(__name__)


class RemoteKernel(KernelSession):
    """All websockets use the same session id: for it the server buffers messages while no websocket is open."""

    def __init__(self, http: HttpClient, info: KernelInfo, on_close: Callable[[RemoteKernel], None]) -> None:
        super().__init__(info)
        self._http = http
        self._on_close = on_close
        self._socket: WebSocket | None = None
        self._socket_ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Raises Missing or Unreachable, and JupyterError if the kernel does not start."""
        try:
            socket = await self._connect()
        except KernelDied:
            raise start_failed(self._info) from None
        self._set_socket(socket)
        self._task = asyncio.create_task(self._stay_connected(socket))
        self._watchers.add(asyncio.create_task(self._poll()))
        await self._wait_started()

    async def interrupt(self) -> None:
        await self._post("interrupt")

    async def restart(self) -> None:
        self._router.fail_all(KernelDied(died_message(self._info.id, "restarting")))
        await self._post("restart", timeout=READY_TIMEOUT_S)
        await self._wait_ready()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        tasks = [task, *self._watchers]
        for running in tasks:
            running.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        socket, self._socket = self._socket, None
        self._mark_closed(JupyterError(f"The connection to the kernel {self._info.id} was closed."))
        if socket is not None:
            await socket.close()
        self._on_close(self)

    async def _send(self, message: KernelMessage) -> None:
        socket = await self._wait_connected()
        try:
            async with asyncio.timeout(self._http.timeout):
                await socket.send(encode(message, socket.subprotocol))
        except TimeoutError:
            raise ConnectionLost(reason="sending timed out") from None

    async def _connect(self) -> WebSocket:
        """The websocket opens when the kernel has started. The server ends a kernel that never starts."""
        opening = asyncio.ensure_future(
            open_websocket(
                self._http,
                f"api/kernels/{self._info.id}/channels",
                {"session_id": self._session_id},
                subprotocols=(V1,),
                timeout=max(READY_TIMEOUT_S, self._http.timeout),
                missing=f"There is no kernel {self._info.id!r} any more on the Jupyter server at {self._http.url}.",
            )
        )
        try:
            while not (await asyncio.wait((opening,), timeout=POLL_INTERVAL_S))[0]:
                await self._check_exists()
                if self._closed_error is not None:
                    raise self._closed_error
            return opening.result()
        finally:
            opening.cancel()

    async def _stay_connected(self, socket: WebSocket) -> None:
        """Receive messages, and reconnect as long as the kernel exists."""
        while True:
            try:
                while True:
                    self._router.receive(decode(await socket.receive(), socket.subprotocol))
            except ConnectionLost as lost:
                log.info("the websocket of kernel %s was lost: %s", self._info.id, lost)
            except ValueError as error:
                log.warning("the server sent an invalid message of kernel %s: %s", self._info.id, error)
            self._socket = None
            await socket.close()
            try:
                socket = await self._reconnect()
            except JupyterError as error:
                self._mark_closed(KernelDied(f"{error} What it had in memory is gone."))
                return
            self._set_socket(socket)
            self._resolve_pending(self._router.running)

    async def _reconnect(self) -> WebSocket:
        """Raises Missing if the kernel is gone."""
        delay_s = 0.05
        while True:
            with contextlib.suppress(Unreachable):
                model = await self._http.request_json(
                    "GET", f"api/kernels/{self._info.id}", missing=self._ended_message()
                )
                self._info = replace(self._info, state=models.to_kernel_info(model).state)
                return await self._connect()
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_RETRY_DELAY_S)

    def _ended_message(self) -> str:
        return f"The kernel {self._info.id} ended: the Jupyter server at {self._http.url} has none of that id."

    def _set_socket(self, socket: WebSocket) -> None:
        self._socket = socket
        self._socket_ready.set()

    async def _wait_connected(self) -> WebSocket:
        try:
            async with asyncio.timeout(self._http.timeout):
                while self._socket is None:
                    if self._closed_error is not None:
                        raise self._closed_error
                    self._socket_ready.clear()
                    await self._socket_ready.wait()
                return self._socket
        except TimeoutError:
            raise Unreachable(
                f"The connection to the kernel {self._info.id} is broken and could not be made again within "
                f"{self._http.timeout:g} s; nothing was sent. Check that {self._http.url} runs."
            ) from None

    def _resolve_pending(self, pending: list[RunningExecution]) -> None:
        """Fail executions whose end was missed while the connection was broken. The kernel answers in order: after the
        answer to a new request, each of them has ended or never started."""

        async def wait() -> None:
            with contextlib.suppress(JupyterError):
                for execution in pending:
                    await execution.resend_answer()
                await (await self._request_info())
            for execution in pending:
                execution.fail(result_unknown(self._info.id))

        if pending:
            watcher = asyncio.create_task(wait())
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)

    async def _poll(self) -> None:
        """Check that the kernel exists while it runs code: the server does not report a shutdown, and not every kernel
        does."""
        while self._closed_error is None:
            await asyncio.sleep(POLL_INTERVAL_S)
            if self._router.busy:
                await self._check_exists()

    async def _check_exists(self) -> None:
        try:
            await self._http.request_json("GET", f"api/kernels/{self._info.id}", missing=self._ended_message())
        except Missing as error:
            self._mark_closed(KernelDied(f"{error} What it had in memory is gone."))
        except JupyterError:
            return  # the error concerns the server, not the kernel

    def _mark_closed(self, error: JupyterError) -> None:
        self._closed_error = self._closed_error or error
        self._socket_ready.set()
        self._router.fail_all(error)

    async def _post(self, action: str, timeout: float | None = None) -> None:
        await self._http.request_json(
            "POST", f"api/kernels/{self._info.id}/{action}", missing=self._ended_message(), timeout=timeout
        )
