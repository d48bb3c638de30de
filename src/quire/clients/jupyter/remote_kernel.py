"""One kernel over one lasting websocket, made again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from quire.clients.jupyter import kernel_models
from quire.clients.jupyter.executions import RunningExecution, Switchboard, died
from quire.clients.jupyter.kernel_messages import V1, KernelMessage, decoded, encoded, message
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Missing, Unreachable
from quire.clients.jupyter.server import Server
from quire.clients.jupyter.sockets import Cut, Socket, open_socket

LONGEST_PAUSE = 5.0  # seconds between two attempts to reach the kernel again
READY = 60.0  # seconds a kernel may take to answer the first time, or after a restart


log = logging.getLogger(__name__)


class RemoteKernel:
    """The session's name stays over all websockets: for it the server keeps what the kernel says while none is open."""

    def __init__(self, server: Server, info: KernelInfo, closed: Callable[[RemoteKernel], None]) -> None:
        self._server = server
        self._info = info
        self._closed = closed
        self._session = uuid4().hex
        self._board = Switchboard(info.id)
        self._socket: Socket | None = None
        self._joined = asyncio.Event()
        self._gone: JupyterError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def info(self) -> KernelInfo:
        return replace(self._info, state=self._board.state or self._info.state)

    @property
    def alive(self) -> bool:
        return self._gone is None and self._board.state != "dead"

    async def open(self) -> None:
        """Raises Missing or Unreachable."""
        socket = await self._dial()
        self._joined_with(socket)
        self._task = asyncio.create_task(self._keep(socket))
        if self._info.state not in ("busy",):  # one that is busy answers when it is done
            try:
                await self._ready()
            except BaseException:
                await self.close()
                raise

    async def execute(
        self,
        code: str,
        *,
        silent: bool = False,
        store_history: bool = True,
        allow_stdin: bool = False,
        stop_on_error: bool = True,
        user_expressions: dict[str, str] | None = None,
    ) -> RunningExecution:
        content = {
            "code": code,
            "silent": silent,
            "store_history": store_history,
            "allow_stdin": allow_stdin,
            "stop_on_error": stop_on_error,
            "user_expressions": user_expressions or {},
        }
        execution = RunningExecution(message("shell", "execute_request", content, self._session), self._answer)
        socket = await self._connected()
        self._board.add(execution)
        try:
            await self._send(socket, execution.request)
        except Cut:
            execution.fail(uncertain(self._info.id))
        return execution

    async def interrupt(self) -> None:
        await self._post("interrupt")

    async def restart(self) -> None:
        self._board.end(KernelDied(died(self._info.id, "restarting")))
        await self._post("restart", timeout=READY)
        self._gone = None
        await self._ready()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        socket, self._socket = self._socket, None
        self._end(JupyterError(f"The connection to the kernel {self._info.id} was closed."))
        if socket is not None:
            await socket.close()
        self._closed(self)

    # --- the websocket

    async def _dial(self) -> Socket:
        return await open_socket(
            self._server,
            f"api/kernels/{self._info.id}/channels",
            {"session_id": self._session},
            subprotocols=(V1,),
            timeout=max(READY, self._server.timeout),  # it opens when the kernel is up
            missing=f"There is no kernel {self._info.id!r} any more on the Jupyter server at {self._server.url}.",
        )

    async def _keep(self, socket: Socket) -> None:
        while True:
            try:
                while True:
                    self._board.hear(decoded(await socket.receive(), socket.subprotocol))
            except Cut as cut:
                log.info("the websocket of kernel %s was cut: %s", self._info.id, cut)
            except ValueError as error:
                log.warning("the server sent what is no message of kernel %s: %s", self._info.id, error)
            self._socket = None
            await socket.close()
            try:
                socket = await self._dial_again()
            except Missing as error:
                self._end(KernelDied(f"{error} What it had in memory is gone."))
                return
            self._joined_with(socket)
            self._look_after()

    async def _dial_again(self) -> Socket:
        """Raises Missing where the kernel is gone."""
        pause = 0.05
        while True:
            with contextlib.suppress(Unreachable):
                model = await self._server.ask("GET", f"api/kernels/{self._info.id}", missing=self._is_gone())
                self._info = replace(self._info, state=kernel_models.kernel(model).state)
                return await self._dial()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _is_gone(self) -> str:
        return f"The kernel {self._info.id} ended: the Jupyter server at {self._server.url} has none of that id."

    def _joined_with(self, socket: Socket) -> None:
        self._socket = socket
        self._joined.set()

    async def _connected(self) -> Socket:
        try:
            async with asyncio.timeout(self._server.timeout):
                while self._socket is None:
                    if self._gone is not None:
                        raise self._gone
                    self._joined.clear()
                    await self._joined.wait()
                return self._socket
        except TimeoutError:
            raise Unreachable(
                f"The connection to the kernel {self._info.id} is broken and could not be made again within "
                f"{self._server.timeout:g} s; nothing was run. Check that {self._server.url} runs."
            ) from None

    async def _send(self, socket: Socket, one: KernelMessage) -> None:
        try:
            async with asyncio.timeout(self._server.timeout):
                await socket.send(encoded(one, socket.subprotocol))
        except TimeoutError:
            raise Unreachable(self._server.silent(self._server.timeout)) from None

    async def _answer(self, question: KernelMessage, text: str) -> None:
        socket = await self._connected()
        try:
            await self._send(socket, message("stdin", "input_reply", {"value": text}, self._session, question.header))
        except Cut:
            raise Unreachable(f"The connection to the kernel {self._info.id} broke; the answer may be lost.") from None

    # --- whether the kernel is well

    async def _ready(self) -> None:
        """It answers. Asked again now and then: what is sent to one that is just starting may be lost."""
        asked: list[asyncio.Future[dict[str, Any]]] = []
        try:
            async with asyncio.timeout(max(READY, self._server.timeout)):
                while not any(each.done() for each in asked):
                    asked.append(await self._ask_info())
                    await asyncio.wait(asked, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise Unreachable(
                f"The kernel {self._info.id} does not answer. It may be stuck: interrupt or restart it."
            ) from None
        finally:
            for each in asked:
                each.cancel()

    async def _ask_info(self) -> asyncio.Future[dict[str, Any]]:
        request = message("shell", "kernel_info_request", {}, self._session)
        future = self._board.ask(request)
        with contextlib.suppress(Cut):
            await self._send(await self._connected(), request)
        return future

    def _look_after(self) -> None:
        """Of what ran when the websocket broke: the shell answers in order, so with the answer to a question put now
        each has ended, or was never begun; what then has not come will not come."""
        pending = self._board.running
        if pending:
            self._watcher = asyncio.create_task(self._wait_for(pending))

    async def _wait_for(self, pending: list[RunningExecution]) -> None:
        with contextlib.suppress(JupyterError, asyncio.CancelledError):
            future = await self._ask_info()
            await future
            await asyncio.sleep(1.0)  # outputs come another way than the answer
        for each in pending:
            each.fail(uncertain(self._info.id))

    def _end(self, error: JupyterError) -> None:
        self._gone = self._gone or error
        self._joined.set()
        self._board.end(error)

    async def _post(self, what: str, timeout: float | None = None) -> None:
        await self._server.ask("POST", f"api/kernels/{self._info.id}/{what}", missing=self._is_gone(), timeout=timeout)


def uncertain(kernel: str) -> Unreachable:
    return Unreachable(
        f"The connection to the kernel {kernel} broke while this ran, and how it ended was missed. It may have run, "
        "wholly or not: look before you run it again."
    )
