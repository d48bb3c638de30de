"""One kernel over one lasting websocket, made again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from quire.clients.jupyter.kernels import models
from quire.clients.jupyter.kernels.executions import RunningExecution, died
from quire.clients.jupyter.kernels.messages import V1, KernelMessage, decoded, encoded
from quire.clients.jupyter.kernels.session import READY, KernelTalk, never_came, uncertain
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Missing, Unreachable
from quire.clients.jupyter.server.http_client import Server
from quire.clients.jupyter.server.websocket import Cut, Socket, open_socket

LOOK = 3.0  # seconds between two looks at a kernel that runs something for us
LONGEST_PAUSE = 5.0  # seconds between two attempts to reach the kernel again

log = logging.getLogger(__name__)


class RemoteKernel(KernelTalk):
    """The session's name stays over all websockets: for it the server keeps what the kernel says while none is open."""

    def __init__(self, server: Server, info: KernelInfo, closed: Callable[[RemoteKernel], None]) -> None:
        super().__init__(info)
        self._server = server
        self._closed = closed
        self._socket: Socket | None = None
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Raises Missing or Unreachable, and JupyterError where the kernel does not come up."""
        try:
            socket = await self._dial()
        except KernelDied:
            raise never_came(self._info) from None
        self._join(socket)
        self._task = asyncio.create_task(self._keep(socket))
        self._watchers.add(asyncio.create_task(self._watch()))
        if self._info.state != "busy":  # one that is busy answers when it is done
            try:
                await self._ready()
            except KernelDied:
                await self.close()
                raise never_came(self._info) from None
            except BaseException:
                await self.close()
                raise

    async def interrupt(self) -> None:
        await self._post("interrupt")

    async def restart(self) -> None:
        self._board.end(KernelDied(died(self._info.id, "restarting")))
        await self._post("restart", timeout=READY)
        await self._ready()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        tasks = [task, *self._watchers]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        socket, self._socket = self._socket, None
        self._end(JupyterError(f"The connection to the kernel {self._info.id} was closed."))
        if socket is not None:
            await socket.close()
        self._closed(self)

    async def _put(self, one: KernelMessage) -> None:
        socket = await self._connected()
        try:
            async with asyncio.timeout(self._server.timeout):
                await socket.send(encoded(one, socket.subprotocol))
        except TimeoutError:
            raise Cut(why="it takes no more") from None

    async def _dial(self) -> Socket:
        """It opens when the kernel is up; a kernel that never is, its server gives up in the end."""
        opening = asyncio.ensure_future(
            open_socket(
                self._server,
                f"api/kernels/{self._info.id}/channels",
                {"session_id": self._session},
                subprotocols=(V1,),
                timeout=max(READY, self._server.timeout),
                missing=f"There is no kernel {self._info.id!r} any more on the Jupyter server at {self._server.url}.",
            )
        )
        try:
            while not (await asyncio.wait((opening,), timeout=LOOK))[0]:
                await self._look()
                if self._gone is not None:
                    raise self._gone
            return opening.result()
        finally:
            opening.cancel()

    async def _keep(self, socket: Socket) -> None:
        """Listen; when the websocket is cut, make another, for as long as the kernel lives."""
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
            except JupyterError as error:
                self._end(KernelDied(f"{error} What it had in memory is gone."))
                return
            self._join(socket)
            self._look_after(self._board.running)

    async def _dial_again(self) -> Socket:
        """Raises Missing where the kernel is gone."""
        pause = 0.05
        while True:
            with contextlib.suppress(Unreachable):
                model = await self._server.ask("GET", f"api/kernels/{self._info.id}", missing=self._is_gone())
                self._info = replace(self._info, state=models.kernel(model).state)
                return await self._dial()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _is_gone(self) -> str:
        return f"The kernel {self._info.id} ended: the Jupyter server at {self._server.url} has none of that id."

    def _join(self, socket: Socket) -> None:
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
                f"{self._server.timeout:g} s; nothing was sent. Check that {self._server.url} runs."
            ) from None

    def _look_after(self, pending: list[RunningExecution]) -> None:
        """With the answer to a question put now, each of those has ended, or was never begun; what then has not come
        of it will not come."""

        async def wait() -> None:
            with contextlib.suppress(JupyterError):
                for each in pending:
                    await each.answer_again()
                await (await self._ask_info())
            for each in pending:
                each.fail(uncertain(self._info.id))

        if pending:
            watcher = asyncio.create_task(wait())
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)

    async def _watch(self) -> None:
        """The server says nothing of a kernel that is shut down; ipykernel does, not every other one."""
        while self._gone is None:
            await asyncio.sleep(LOOK)
            if self._board.busy:
                await self._look()

    async def _look(self) -> None:
        try:
            await self._server.ask("GET", f"api/kernels/{self._info.id}", missing=self._is_gone())
        except Missing as error:
            self._end(KernelDied(f"{error} What it had in memory is gone."))
        except JupyterError:
            return  # of the server, not of the kernel

    def _end(self, error: JupyterError) -> None:
        self._gone = self._gone or error
        self._joined.set()
        self._board.end(error)

    async def _post(self, what: str, timeout: float | None = None) -> None:
        await self._server.ask("POST", f"api/kernels/{self._info.id}/{what}", missing=self._is_gone(), timeout=timeout)
