"""Code on its way through a kernel: what the kernel says, brought to the execution it belongs to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from quire.clients.jupyter.kernels.messages import KernelMessage
from quire.clients.jupyter.ports import JupyterError, KernelDied, Message

RESTARTED = ("restarting", "autorestarting", "dead", "terminating")


class RunningExecution:
    """The reply is held back until the kernel said that it is idle: outputs come another way and may come later."""

    def __init__(self, request: KernelMessage, answer: Callable[[KernelMessage, str], Awaitable[None]]) -> None:
        self.request = request
        self._answer = answer
        self.answered: str | None = None  # while nothing was heard since
        self._messages: deque[Message] = deque()
        self._reply: Message | None = None
        self._idle = False
        self._question: KernelMessage | None = None
        self._asking = False
        self._failure: JupyterError | None = None
        self._more = asyncio.Event()
        self.ended = False

    async def next(self) -> Message:
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
        self.answered = text
        await self._answer(self._question, text)

    async def answer_again(self) -> None:
        """The connection broke: the answer may be lost. One too many does no harm, a kernel drops it when it asks."""
        if self._question is not None and self.answered is not None:
            await self._answer(self._question, self.answered)

    def hear(self, one: KernelMessage) -> None:
        if self.ended:
            return
        self.answered = None
        told = Message(kind=one.kind, content=one.content, metadata=one.metadata, buffers=one.buffers)
        if one.kind == "execute_reply":
            self._reply = told
        else:
            if one.kind == "input_request":
                self._question, self._asking = one, True
            self._idle = self._idle or is_idle(one)
            self._put(told)
        if self._reply is not None and self._idle:
            self.ended = True
            self._put(self._reply)

    def fail(self, error: JupyterError) -> None:
        """What was heard before can still be read."""
        if not self.ended:
            self.ended = True
            self._failure = error
            self._more.set()

    def _put(self, told: Message) -> None:
        self._messages.append(told)
        self._more.set()


class Question:
    """A request that is no execution: answered with its reply and, on the other channel, the kernel's being idle."""

    def __init__(self) -> None:
        self.future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reply: dict[str, Any] | None = None
        self._idle = False

    def hear(self, one: KernelMessage) -> None:
        self._idle = self._idle or is_idle(one)
        if one.kind.endswith("_reply"):
            self._reply = one.content
        if self._idle and self._reply is not None and not self.future.done():
            self.future.set_result(self._reply)


def is_idle(one: KernelMessage) -> bool:
    return one.kind == "status" and one.content.get("execution_state") == "idle"


class Switchboard:
    """Which message belongs to which execution, and whether the kernel is still the one they were sent to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ""
        self.lost = False  # whether the kernel died or was restarted, and has not answered since
        self._running: dict[str, RunningExecution] = {}
        self._asked: dict[str, Question] = {}
        self._process = ""  # the session that the kernel gave itself; a new process has a new one

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def running(self) -> list[RunningExecution]:
        return list(self._running.values())

    def add(self, execution: RunningExecution) -> None:
        self._running[execution.request.id] = execution

    def forget(self, execution: RunningExecution) -> None:
        """It was not sent."""
        self._running.pop(execution.request.id, None)

    def ask(self, request: KernelMessage) -> asyncio.Future[dict[str, Any]]:
        """The content of the reply to a request that is no execution, once all outputs sent before are here, too."""
        question = self._asked[request.id] = Question()
        question.future.add_done_callback(lambda _: self._asked.pop(request.id, None))
        return question.future

    def hear(self, one: KernelMessage) -> None:
        if one.kind == "status":
            self._heed(one)
        elif one.kind == "shutdown_reply":
            self.end(KernelDied(died(self.name, "restarting" if one.content.get("restart") else "ended")))
        asked = self._asked.get(one.answers)
        if asked is not None:
            if one.channel == "shell":
                self._process = str(one.header.get("session", ""))
            asked.hear(one)
        execution = self._running.get(one.answers)
        if execution is not None:
            execution.hear(one)
            if execution.ended:
                del self._running[one.answers]

    def _heed(self, one: KernelMessage) -> None:
        state = str(one.content.get("execution_state", ""))
        self.state = state
        process = str(one.header.get("session", ""))
        if state in RESTARTED:
            self.end(KernelDied(died(self.name, state)))
        elif state == "starting" and self._process and process != self._process:
            self._process = process
            self.end(KernelDied(died(self.name, "restarting")))

    def end(self, error: JupyterError) -> None:
        """Nothing more will come of what was sent."""
        self.lost = True
        running, self._running = list(self._running.values()), {}
        for execution in running:
            execution.fail(error)
        for asked in list(self._asked.values()):
            if not asked.future.done():
                asked.future.set_exception(error)
                asked.future.exception()  # it may be that nobody waits any more


def died(name: str, state: str) -> str:
    if state == "dead":
        return f"The kernel {name} died and could not be started again. What it had in memory is gone; start a new one."
    if state == "ended":
        return f"The kernel {name} was shut down. What it had in memory is gone; start a new one."
    return f"The kernel {name} was restarted or died while this ran. What it had in memory is gone."
