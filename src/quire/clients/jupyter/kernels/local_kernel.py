"""A connection to one kernel of the Jupyter server that Quire runs in, over ZeroMQ streams of its kernel manager."""

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

from quire.clients.jupyter.documents.local_contents import to_json
from quire.clients.jupyter.kernels.executions import died_message
from quire.clients.jupyter.kernels.messages import KernelMessage
from quire.clients.jupyter.kernels.session import KernelSession
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Missing

CHANNELS = ("iopub", "shell", "control", "stdin")
POLL_INTERVAL_S = 0.2  # of a kernel that runs code of this session
_STDIN_TIMEOUT_S = 5.0  # for the stdin channel to connect to a kernel that answers


class LocalKernel(KernelSession):
    """`kernels` is the server's manager of all kernels."""

    def __init__(self, kernels: Any, info: KernelInfo, on_close: Callable[[LocalKernel], None]) -> None:
        super().__init__(info)
        self._kernels = kernels
        self._on_close = on_close
        self._streams: dict[str, Any] = {}
        self._ports: list[int] = []
        self._signer: Any = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises Missing, and JupyterError if the kernel does not start."""
        try:
            self._connect()
        except (KeyError, HTTPError):
            raise Missing(f"There is no kernel {self._info.id!r} any more; list those that run.") from None
        self._kernels.notify_connect(self._info.id)
        self._kernels.add_restart_callback(self._info.id, self._on_restart)
        self._kernels.add_restart_callback(self._info.id, self._on_death, "dead")
        self._task = asyncio.create_task(self._poll())
        await self._wait_started()

    async def interrupt(self) -> None:
        self._manager()
        await ensure_async(self._kernels.interrupt_kernel(self._info.id))

    async def restart(self) -> None:
        self._manager()
        self._router.fail_all(KernelDied(died_message(self._info.id, "restarting")))
        try:
            await ensure_async(self._kernels.restart_kernel(self._info.id))
        except (HTTPError, RuntimeError, OSError) as error:
            raise JupyterError(f"The kernel {self._info.id} could not be restarted: {error}") from None
        self._connect()
        await self._wait_ready()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._close_streams()
        if self._info.id in self._kernels:
            self._kernels.remove_restart_callback(self._info.id, self._on_restart)
            self._kernels.remove_restart_callback(self._info.id, self._on_death, "dead")
            self._kernels.notify_disconnect(self._info.id)
        self._mark_closed(JupyterError(f"The connection to the kernel {self._info.id} was closed."))
        self._on_close(self)

    async def _send(self, message: KernelMessage) -> None:
        if self._closed_error is not None:
            raise self._closed_error
        if self._manager().ports != self._ports:
            self._connect()
        if message.content.get("allow_stdin"):
            await self._wait_stdin_connected()
            if self._closed_error is not None:  # meanwhile
                raise self._closed_error
        self._signer.send(
            self._streams[message.channel],
            {
                "header": message.header,
                "msg_id": message.id,
                "msg_type": message.kind,
                "parent_header": message.parent,
                "metadata": message.metadata,
                "content": message.content,
            },
        )

    def _manager(self) -> Any:
        """The manager of this one kernel."""
        if self._closed_error is None and self._info.id not in self._kernels:
            self._mark_closed(KernelDied(died_message(self._info.id, "ended")))
        if self._closed_error is not None:
            raise self._closed_error
        return self._kernels.get_kernel(self._info.id)

    def _connect(self) -> None:
        self._close_streams()
        manager = self._kernels.get_kernel(self._info.id)
        self._signer = Session(key=manager.session.key, session=self._session_id, username="quire")
        self._ports = list(manager.ports)
        for channel in CHANNELS:
            if channel == "stdin":
                manager.context.sockopts[zmq.IMMEDIATE] = 1  # so that poll() tells whether it has connected
            try:
                stream = getattr(manager, f"connect_{channel}")(identity=self._signer.bsession)
            finally:
                manager.context.sockopts.pop(zmq.IMMEDIATE, None)
            stream.on_recv(partial(self._on_message, channel))
            self._streams[channel] = stream

    async def _wait_stdin_connected(self) -> None:
        """Wait until the stdin channel has connected: an input request that the kernel sends before is lost without an
        error. Each channel connects separately, and retries if the kernel is still starting."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STDIN_TIMEOUT_S):
                while (stdin := self._streams.get("stdin")) and not stdin.socket.poll(0, zmq.POLLOUT):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    def _close_streams(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if not stream.closed():
                stream.on_recv(None)
                stream.close()

    def _on_message(self, channel: str, parts: list[Any]) -> None:
        try:
            _, frames = self._signer.feed_identities(parts)
            received = self._signer.deserialize(frames)
        except (ValueError, IndexError, TypeError):
            return  # not signed with this kernel's key, or incomplete
        self._router.receive(
            KernelMessage(
                channel=channel,
                header=received["header"],
                parent=received["parent_header"],
                metadata=to_json(received["metadata"]),
                content=to_json(received["content"]),
                buffers=tuple(bytes(buffer) for buffer in received["buffers"]),
            )
        )

    async def _poll(self) -> None:
        """Detect a dead kernel faster than the server, which checks every three seconds."""
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            if self._info.id not in self._kernels:
                self._mark_closed(KernelDied(died_message(self._info.id, "ended")))
                return
            if self._router.busy and not await ensure_async(self._kernels.is_alive(self._info.id)):
                self._on_restart()

    def _on_restart(self) -> None:
        self._router.state = "restarting"
        self._router.fail_all(KernelDied(died_message(self._info.id, "restarting")))

    def _on_death(self) -> None:
        self._router.state = "dead"
        self._router.fail_all(KernelDied(died_message(self._info.id, "dead")))

    def _mark_closed(self, error: JupyterError) -> None:
        self._closed_error = self._closed_error or error
        self._router.fail_all(error)
