"""Requests to a kernel, independent of the transport."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.kernels.executions import MessageRouter, RunningExecution
from quire.clients.jupyter.kernels.messages import KernelMessage, create_message
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Unreachable
from quire.clients.jupyter.server.websocket import ConnectionLost

READY_TIMEOUT_S = 60.0  # for the first answer after a start or restart
RETRY_INTERVAL_S = 1.0  # a request to a kernel that is starting may be lost


class KernelSession:
    """One session with a kernel. Subclasses send and receive the messages."""

    def __init__(self, info: KernelInfo) -> None:
        self._info = info
        self._session_id = uuid4().hex
        self._router = MessageRouter(info.id)
        self._closed_error: JupyterError | None = None  # why nothing can be sent any more

    @property
    def info(self) -> KernelInfo:
        return replace(self._info, state=self._router.state or self._info.state)

    @property
    def alive(self) -> bool:
        return self._closed_error is None and self._router.state != "dead"

    async def _send(self, message: KernelMessage) -> None:
        """Raises ConnectionLost if the message may have been sent, JupyterError if it was not."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def _check_exists(self) -> None:
        """Set `_closed_error` if the kernel no longer exists."""

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
        if self._router.needs_ready_check:
            await self._wait_ready()  # during a restart a request or its outputs would be lost
        execution = RunningExecution(
            create_message("shell", "execute_request", content, self._session_id), self._send_answer
        )
        self._router.add(execution)
        try:
            await self._send(execution.request)
        except ConnectionLost:
            execution.fail(result_unknown(self._info.id))
        except BaseException:
            self._router.remove(execution)
            raise
        return execution

    async def _send_answer(self, question: KernelMessage, text: str) -> None:
        try:
            await self._send(create_message("stdin", "input_reply", {"value": text}, self._session_id, question.header))
        except ConnectionLost:
            raise Unreachable(f"The connection to the kernel {self._info.id} broke; the answer may be lost.") from None

    async def _wait_started(self) -> None:
        """Wait until a new connection works, and close it if it does not. A busy kernel answers when it is done."""
        if self._info.state == "busy":
            return
        try:
            await self._wait_ready()
        except KernelDied:
            await self.close()
            raise start_failed(self._info) from None
        except BaseException:
            await self.close()
            raise

    async def _wait_ready(self) -> None:
        """Wait until the kernel answers on all channels."""
        replies: list[asyncio.Future[dict[str, Any]]] = []
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while not any(reply.done() and not reply.exception() for reply in replies):
                    if self._closed_error is not None:
                        raise self._closed_error
                    if self._router.state == "dead":
                        raise KernelDied(f"The kernel {self._info.id} died and could not be started; start a new one.")
                    replies.append(await self._request_info())
                    await asyncio.wait(replies[-1:], timeout=RETRY_INTERVAL_S)
                    await self._check_exists()
        except TimeoutError:
            raise Unreachable(
                f"The kernel {self._info.id} does not answer. It may be stuck: interrupt or restart it."
            ) from None
        finally:
            for reply in replies:
                reply.cancel()
        self._router.needs_ready_check = False

    async def _request_info(self) -> asyncio.Future[dict[str, Any]]:
        """Request kernel_info. The shell channel answers in order: the reply comes after those of earlier requests."""
        request = create_message("shell", "kernel_info_request", {}, self._session_id)
        future = self._router.add_request(request)
        try:
            await self._send(request)
        except ConnectionLost:
            future.cancel()
        return future


def start_failed(kernel: KernelInfo) -> JupyterError:
    return JupyterError(
        f"A kernel of the kernelspec {kernel.spec!r} was started and ended before it answered; nothing ran. The "
        "output of its program is in the Jupyter server's log. Fix it, or name another kernelspec."
    )


def result_unknown(kernel: str) -> Unreachable:
    return Unreachable(
        f"The connection to the kernel {kernel} broke while the code ran, and its end was missed. It may have run "
        "completely or in part: check before you run it again."
    )
