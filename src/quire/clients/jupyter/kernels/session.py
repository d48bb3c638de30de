"""What is said to a kernel, whatever carries it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.kernels.executions import MessageRouter, RunningExecution
from quire.clients.jupyter.kernels.messages import KernelMessage, create_message
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Unreachable
from quire.clients.jupyter.server.websocket import ConnectionLost

READY_TIMEOUT_S = 60.0  # seconds a kernel may take to answer the first time, or after a restart
RETRY_INTERVAL_S = 1.0  # seconds; what is sent to one that is just starting may be lost


class KernelSession:
    """One session with a kernel. How a message goes out, and comes in, is for those who inherit this."""

    def __init__(self, info: KernelInfo) -> None:
        self._info = info
        self._session_id = uuid4().hex
        self._router = MessageRouter(info.id)
        self._closed_error: JupyterError | None = None  # why nothing can be said any more

    @property
    def info(self) -> KernelInfo:
        return replace(self._info, state=self._router.state or self._info.state)

    @property
    def alive(self) -> bool:
        return self._closed_error is None and self._router.state != "dead"

    async def _send(self, message: KernelMessage) -> None:
        """Raises ConnectionLost where it may or may not have gone out, JupyterError where it has not."""
        raise NotImplementedError

    async def _check_exists(self) -> None:
        """Whether there is such a kernel at all; if not, `_closed_error` says so from now on."""

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
            await self._wait_ready()  # what is sent to one that is being restarted would be lost, or run unheard
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

    async def _wait_ready(self) -> None:
        """Wait until it answers, and what it prints is heard."""
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
        """Not over before all that was sent before it is: the shell answers in order."""
        request = create_message("shell", "kernel_info_request", {}, self._session_id)
        future = self._router.add_request(request)
        try:
            await self._send(request)
        except ConnectionLost:
            future.cancel()
        return future


def start_failed(kernel: KernelInfo) -> JupyterError:
    return JupyterError(
        f"A kernel of the kernelspec {kernel.spec!r} was started and ended before it answered; nothing ran. What its "
        "program said is in the Jupyter server's log. Mend that, or name another kernelspec."
    )


def result_unknown(kernel: str) -> Unreachable:
    return Unreachable(
        f"The connection to the kernel {kernel} broke while this ran, and how it ended was missed. It may have run, "
        "wholly or not: look before you run it again."
    )
