"""What is said to a kernel, whatever carries it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

from quire.clients.jupyter.kernels.executions import RunningExecution, Switchboard
from quire.clients.jupyter.kernels.messages import KernelMessage, message
from quire.clients.jupyter.ports import JupyterError, KernelDied, KernelInfo, Unreachable
from quire.clients.jupyter.server.websocket import Cut

READY = 60.0  # seconds a kernel may take to answer the first time, or after a restart
ASK_AGAIN = 1.0  # seconds; what is sent to one that is just starting may be lost


class KernelTalk:
    """One session with a kernel. How a message goes out, and comes in, is for those who inherit this."""

    def __init__(self, info: KernelInfo) -> None:
        self._info = info
        self._session = uuid4().hex
        self._board = Switchboard(info.id)
        self._gone: JupyterError | None = None  # why nothing can be said any more

    @property
    def info(self) -> KernelInfo:
        return replace(self._info, state=self._board.state or self._info.state)

    @property
    def alive(self) -> bool:
        return self._gone is None and self._board.state != "dead"

    async def _put(self, one: KernelMessage) -> None:
        """Raises Cut where it may or may not have gone out, JupyterError where it has not."""
        raise NotImplementedError

    async def _look(self) -> None:
        """Whether there is such a kernel at all; if not, `_gone` says so from now on."""

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
        if self._board.lost:
            await self._ready()  # what is sent to one that is being restarted would be lost, or run unheard
        execution = RunningExecution(message("shell", "execute_request", content, self._session), self._answer)
        self._board.add(execution)
        try:
            await self._put(execution.request)
        except Cut:
            execution.fail(uncertain(self._info.id))
        except BaseException:
            self._board.forget(execution)
            raise
        return execution

    async def _answer(self, question: KernelMessage, text: str) -> None:
        try:
            await self._put(message("stdin", "input_reply", {"value": text}, self._session, question.header))
        except Cut:
            raise Unreachable(f"The connection to the kernel {self._info.id} broke; the answer may be lost.") from None

    async def _ready(self) -> None:
        """Wait until it answers, and what it prints is heard."""
        asked: list[asyncio.Future[dict[str, Any]]] = []
        try:
            async with asyncio.timeout(READY):
                while not any(each.done() and not each.exception() for each in asked):
                    if self._gone is not None:
                        raise self._gone
                    if self._board.state == "dead":
                        raise KernelDied(f"The kernel {self._info.id} died and could not be started; start a new one.")
                    asked.append(await self._ask_info())
                    await asyncio.wait(asked[-1:], timeout=ASK_AGAIN)
                    await self._look()
        except TimeoutError:
            raise Unreachable(
                f"The kernel {self._info.id} does not answer. It may be stuck: interrupt or restart it."
            ) from None
        finally:
            for each in asked:
                each.cancel()
        self._board.lost = False

    async def _ask_info(self) -> asyncio.Future[dict[str, Any]]:
        """Not over before all that was sent before it is: the shell answers in order."""
        request = message("shell", "kernel_info_request", {}, self._session)
        future = self._board.ask(request)
        try:
            await self._put(request)
        except Cut:
            future.cancel()
        return future


def never_came(kernel: KernelInfo) -> JupyterError:
    return JupyterError(
        f"A kernel of the kernelspec {kernel.spec!r} was started and ended before it answered; nothing ran. What its "
        "program said is in the Jupyter server's log. Mend that, or name another kernelspec."
    )


def uncertain(kernel: str) -> Unreachable:
    return Unreachable(
        f"The connection to the kernel {kernel} broke while this ran, and how it ended was missed. It may have run, "
        "wholly or not: look before you run it again."
    )
