"""Routes messages of a kernel to the executions and requests that they answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from quire.clients.jupyter.kernels.messages import KernelMessage
from quire.clients.jupyter.ports import JupyterError, KernelDied, Message

RESTART_STATES = ("restarting", "autorestarting", "dead", "terminating")
MEMORY_GONE = "What it had in memory is gone"


class RunningExecution:
    """The reply is delivered after the kernel is idle: outputs use another channel and may arrive after the reply."""

    def __init__(self, request: KernelMessage, send_answer: Callable[[KernelMessage, str], Awaitable[None]]) -> None:
        self.request = request
        self._send_answer = send_answer
        self.sent_answer: str | None = None  # None after the next message
        self._messages: deque[Message] = deque()
        self._reply: Message | None = None
        self._idle = False
        self._question: KernelMessage | None = None
        self._asking = False
        self._failure: JupyterError | None = None
        self._more = asyncio.Event()
        self.is_ended = False

    async def next_message(self) -> Message:
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            self._more.clear()
            await self._more.wait()
        return self._messages.popleft()

    async def reply(self, text: str) -> None:
        if self._question is None or not self._asking:
            raise JupyterError("The kernel asked for nothing that is still to be answered.")
        self._asking = False
        self.sent_answer = text
        await self._send_answer(self._question, text)

    async def resend_answer(self) -> None:
        """Send the last answer again after the connection broke. A kernel ignores an answer it did not ask for."""
        if self._question is not None and self.sent_answer is not None:
            await self._send_answer(self._question, self.sent_answer)

    def receive(self, message: KernelMessage) -> None:
        if self.is_ended:
            return
        self.sent_answer = None
        received = Message(
            kind=message.kind, content=message.content, metadata=message.metadata, buffers=message.buffers
        )
        if message.kind == "execute_reply":
            self._reply = received
        else:
            if message.kind == "input_request":
                self._question, self._asking = message, True
            self._idle = self._idle or is_idle(message)
            self._queue(received)
        if self._reply is not None and self._idle:
            self.is_ended = True
            self._queue(self._reply)

    def fail(self, error: JupyterError) -> None:
        """Messages received before can still be read."""
        if not self.is_ended:
            self.is_ended = True
            self._failure = error
            self._more.set()

    def _queue(self, received: Message) -> None:
        self._messages.append(received)
        self._more.set()


class PendingRequest:
    """A request other than an execution. It is complete with its reply and the kernel's idle status."""

    def __init__(self) -> None:
        self.future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reply: dict[str, Any] | None = None
        self._idle = False

    def receive(self, message: KernelMessage) -> None:
        self._idle = self._idle or is_idle(message)
        if message.kind.endswith("_reply"):
            self._reply = message.content
        if self._idle and self._reply is not None and not self.future.done():
            self.future.set_result(self._reply)


def is_idle(message: KernelMessage) -> bool:
    return message.kind == "status" and message.content.get("execution_state") == "idle"


class MessageRouter:
    """Finds the execution that a message belongs to, and detects that the kernel was restarted."""

    def __init__(self, kernel_id: str) -> None:
        self.kernel_id = kernel_id
        self.state = ""
        self.needs_ready_check = False  # the kernel died or was restarted, and has not answered since
        self._running: dict[str, RunningExecution] = {}
        self._requests: dict[str, PendingRequest] = {}
        self._process = ""  # the kernel's session id; a new process has a new one

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def running(self) -> list[RunningExecution]:
        return list(self._running.values())

    def add(self, execution: RunningExecution) -> None:
        self._running[execution.request.id] = execution

    def remove(self, execution: RunningExecution) -> None:
        """The request of the execution was not sent."""
        self._running.pop(execution.request.id, None)

    def add_request(self, request: KernelMessage) -> asyncio.Future[dict[str, Any]]:
        """The content of the reply, after all outputs that the kernel sent before."""
        pending = self._requests[request.id] = PendingRequest()
        pending.future.add_done_callback(lambda _: self._requests.pop(request.id, None))
        return pending.future

    def receive(self, message: KernelMessage) -> None:
        if message.kind == "status":
            self._update_state(message)
        elif message.kind == "shutdown_reply":
            self.fail_all(
                KernelDied(died_message(self.kernel_id, "restarting" if message.content.get("restart") else "ended"))
            )
        request = self._requests.get(message.parent_id)
        if request is not None:
            if message.channel == "shell":
                self._process = str(message.header.get("session", ""))
            request.receive(message)
        execution = self._running.get(message.parent_id)
        if execution is not None:
            execution.receive(message)
            if execution.is_ended:
                del self._running[message.parent_id]

    def _update_state(self, message: KernelMessage) -> None:
        state = str(message.content.get("execution_state", ""))
        self.state = state
        process = str(message.header.get("session", ""))
        if state in RESTART_STATES:
            self.fail_all(KernelDied(died_message(self.kernel_id, state)))
        elif state == "starting" and self._process and process != self._process:
            self._process = process
            self.fail_all(KernelDied(died_message(self.kernel_id, "restarting")))

    def fail_all(self, error: JupyterError) -> None:
        """Everything that was sent before fails with this error."""
        self.needs_ready_check = True
        running, self._running = list(self._running.values()), {}
        for execution in running:
            execution.fail(error)
        for request in list(self._requests.values()):
            if not request.future.done():
                request.future.set_exception(error)
                request.future.exception()  # marks it as retrieved: the waiting task may be gone


def died_message(kernel_id: str, state: str) -> str:
    if state == "dead":
        return f"The kernel {kernel_id} died and could not be started again. {MEMORY_GONE}; start a new one."
    if state == "ended":
        return f"The kernel {kernel_id} was shut down. {MEMORY_GONE}; start a new one."
    return f"The kernel {kernel_id} was restarted or died while this ran. {MEMORY_GONE}."
