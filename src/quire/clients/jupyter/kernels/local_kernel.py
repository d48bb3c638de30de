"""One kernel of the Jupyter server that we are part of, over zmq streams of its kernel manager."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq
from jupyter_client.session import Session
from jupyter_server.utils import ensure_async
from tornado.web import HTTPError

from quire.clients.jupyter.documents.local_contents import plain
from quire.clients.jupyter.kernels.executions import died
from quire.clients.jupyter.kernels.messages import KernelMessage
from quire.clients.jupyter.kernels.session import KernelTalk, never_came
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Missing

CHANNELS = ("iopub", "shell", "control", "stdin")
LOOK = 0.2  # seconds between two looks at a kernel that runs something for us
_KNOWN = 5.0  # seconds a kernel that answers has to take our stdin


class InsideKernel(KernelTalk):
    """`kernels` is the server's kernel manager of all kernels."""

    def __init__(self, kernels: Any, info: KernelInfo, closed: Callable[[InsideKernel], None]) -> None:
        super().__init__(info)
        self._kernels = kernels
        self._closed = closed
        self._streams: dict[str, Any] = {}
        self._ports: list[int] = []
        self._signing: Any = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises Missing, and JupyterError where the kernel does not come up."""
        try:
            self._connect()
        except (KeyError, HTTPError):
            raise Missing(f"There is no kernel {self._info.id!r} any more; list those that run.") from None
        self._kernels.notify_connect(self._info.id)
        self._kernels.add_restart_callback(self._info.id, self._restarted)
        self._kernels.add_restart_callback(self._info.id, self._died, "dead")
        self._task = asyncio.create_task(self._watch())
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
        self._manager()
        await ensure_async(self._kernels.interrupt_kernel(self._info.id))

    async def restart(self) -> None:
        self._manager()
        self._board.end(KernelDied(died(self._info.id, "restarting")))
        try:
            await ensure_async(self._kernels.restart_kernel(self._info.id))
        except (HTTPError, RuntimeError, OSError) as error:
            raise JupyterError(f"The kernel {self._info.id} could not be restarted: {error}") from None
        self._connect()
        await self._ready()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._hang_up()
        if self._info.id in self._kernels:
            self._kernels.remove_restart_callback(self._info.id, self._restarted)
            self._kernels.remove_restart_callback(self._info.id, self._died, "dead")
            self._kernels.notify_disconnect(self._info.id)
        self._end(JupyterError(f"The connection to the kernel {self._info.id} was closed."))
        self._closed(self)

    async def _put(self, one: KernelMessage) -> None:
        if self._gone is not None:
            raise self._gone
        if self._manager().ports != self._ports:
            self._connect()
        if one.content.get("allow_stdin"):
            await self._is_known()
            if self._gone is not None:  # meanwhile
                raise self._gone
        self._signing.send(
            self._streams[one.channel],
            {
                "header": one.header,
                "msg_id": one.id,
                "msg_type": one.kind,
                "parent_header": one.parent,
                "metadata": one.metadata,
                "content": one.content,
            },
        )

    def _manager(self) -> Any:
        """The manager of this one kernel."""
        if self._gone is None and self._info.id not in self._kernels:
            self._end(KernelDied(died(self._info.id, "ended")))
        if self._gone is not None:
            raise self._gone
        return self._kernels.get_kernel(self._info.id)

    def _connect(self) -> None:
        self._hang_up()
        manager = self._kernels.get_kernel(self._info.id)
        self._signing = Session(key=manager.session.key, session=self._session, username="quire")
        self._ports = list(manager.ports)
        for channel in CHANNELS:
            if channel == "stdin":
                manager.context.sockopts[zmq.IMMEDIATE] = 1  # one that has not connected cannot be written to
            try:
                stream = getattr(manager, f"connect_{channel}")(identity=self._signing.bsession)
            finally:
                manager.context.sockopts.pop(zmq.IMMEDIATE, None)
            stream.on_recv(partial(self._heard, channel))
            self._streams[channel] = stream

    async def _is_known(self) -> None:
        """What a kernel asks before our stdin has connected is lost, without a word to either: code that may ask waits
        until it has. Each channel connects by itself, and to a kernel that just starts tries again after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN):
                while (stdin := self._streams.get("stdin")) and not stdin.socket.poll(0, zmq.POLLOUT):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    def _hang_up(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if not stream.closed():
                stream.on_recv(None)
                stream.close()

    def _heard(self, channel: str, parts: list[Any]) -> None:
        try:
            _, rest = self._signing.feed_identities(parts)
            told = self._signing.deserialize(rest)
        except (ValueError, IndexError, TypeError):
            return  # not signed with this kernel's key, or torn
        self._board.hear(
            KernelMessage(
                channel=channel,
                header=told["header"],
                parent=told["parent_header"],
                metadata=plain(told["metadata"]),
                content=plain(told["content"]),
                buffers=tuple(bytes(each) for each in told["buffers"]),
            )
        )

    async def _watch(self) -> None:
        """The server itself looks every three seconds only."""
        while True:
            await asyncio.sleep(LOOK)
            if self._info.id not in self._kernels:
                self._end(KernelDied(died(self._info.id, "ended")))
                return
            if self._board.busy and not await ensure_async(self._kernels.is_alive(self._info.id)):
                self._restarted()

    def _restarted(self) -> None:
        self._board.state = "restarting"
        self._board.end(KernelDied(died(self._info.id, "restarting")))

    def _died(self) -> None:
        self._board.state = "dead"
        self._board.end(KernelDied(died(self._info.id, "dead")))

    def _end(self, error: JupyterError) -> None:
        self._gone = self._gone or error
        self._board.end(error)
