"""A notebook's kernel on a Jupyter server. A person may use it too: Quire shuts down only kernels that it started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from quire.clients.jupyter.ports import Execution, JupyterError, KernelConnection, KernelDied
from quire.clients.jupyter.server.registry import Server
from quire.core.capabilities.model import Catalog
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.model import Died, ForkReport, KernelSpec, Restored
from quire.core.ports.kernel import START, Relay
from quire.core.ports.snapshots import Draft, Recipe, Written
from quire.runtimes.jupyter import kernel_queries
from quire.runtimes.jupyter.capability_stubs import CapabilityStubs
from quire.runtimes.jupyter.event_translator import EventTranslator
from quire.runtimes.jupyter.previews import with_preview
from quire.wire import messages

log = logging.getLogger(__name__)
_NO_CHECKPOINTS = "a kernel of a Jupyter server can be neither copied nor written down"
_RUN_AGAIN = "Run the cell again; cells before it too, where it needs what they made."
_WAIT_OR_RESTART = "Wait and look again (get_cell), or end it with restart_notebook, which empties its variables."
_STILL_RUNNING = "Nothing ran: code that did not stop when told to still runs in the kernel."
_NOT_STOPPED = "It did not stop when interrupted, and still runs: others use its kernel, which was not ended."
_NOT_STARTED = "It did not begin: the kernel was busy with something else all the time, and comes to it after that."
_INTERRUPT_TIMEOUT_S = 8.0  # long, since no checkpoint restores what a restart deletes
_QUESTION_INTERRUPT_INTERVAL_S = 2.0  # between interrupts of code that waits for an answer
_MAX_QUESTION_INTERRUPTS = 5
_START_MESSAGES = ("status", "execute_input")  # on another channel than input requests, which may overtake them
_RESTART_TIMEOUT_S = 20.0  # for a kernel that its server restarts


class JupyterKernel:
    def __init__(
        self, server: Server, connection: KernelConnection, spec: KernelSpec, calls: Relay, *, fresh: bool
    ) -> None:
        self._server = server
        self._connection = connection
        self._spec = spec
        self._fresh = fresh
        self._stubs = CapabilityStubs(calls, spec)
        self._is_empty = False  # it was restarted since the last run
        self._execution: Execution | None = None
        self._next_event: asyncio.Future[messages.Event | None] | None = None  # the next event of the execution
        self._translator = EventTranslator("", python=False)
        self._abandoned: Execution | None = None  # code that did not stop when interrupted
        self._abandoned_task: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[Died] | None = None  # ends the current run whatever the kernel sends
        self._interrupts: set[asyncio.Task[None]] = set()
        self._message_count = 0  # messages of executions, except those about their start
        self._closed = False
        server.owned_kernels.use(self.id)

    @property
    def id(self) -> str:
        return self._connection.info.id

    @property
    def is_owned(self) -> bool:
        return self.id in self._server.owned_kernels

    @property
    def alive(self) -> bool:
        return not self._closed and self._connection.alive

    @property
    def fresh(self) -> bool:
        return self._fresh

    @property
    def patience(self) -> float:
        return _INTERRUPT_TIMEOUT_S

    @property
    def _python(self) -> bool:
        return "python" in self._connection.info.language.lower()

    # Runs

    async def begin(self, run: messages.Run) -> None:
        self._translator = EventTranslator(run.run, python=self._python)
        self._outcome = asyncio.get_running_loop().create_future()
        self._execution, self._is_empty = None, False
        self._stop_listening()
        if self._abandoned is not None:
            self._outcome.set_result(Died(reason=_STILL_RUNNING, hint=_WAIT_OR_RESTART, lives=True))
            return
        try:
            self._execution = await self._connection.execute(run.code, allow_stdin=True, stop_on_error=False)
        except JupyterError as error:
            self._outcome.set_result(self._outcome_of(error))

    async def event(self) -> messages.Event | Died:
        assert self._outcome is not None
        if self._translator.pending_event is not None:
            pending_event, self._translator.pending_event = self._translator.pending_event, None
            return pending_event
        while not self._outcome.done():
            assert self._execution is not None
            if self._next_event is None:  # kept when the caller is cancelled: its result is for the next call
                self._next_event = asyncio.ensure_future(self._next(self._execution))
            waited: set[asyncio.Future[Any]] = {self._next_event, self._outcome}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not self._next_event.done():
                continue
            next_event, self._next_event = self._next_event, None
            try:
                event = next_event.result()
            except JupyterError as error:
                return self._outcome_of(error)
            if event is not None:
                return event
        self._stop_listening()
        return self._outcome.result()

    async def _next(self, execution: Execution) -> messages.Event | None:
        """The next event; None for a message that has no event."""
        message = await execution.next_message()
        self._message_count += message.kind not in _START_MESSAGES
        if self._stubs.handle_call(message, execution):
            return None
        event = self._translator.event(message)
        return await with_preview(event) if isinstance(event, messages.Displayed) else event

    def _stop_listening(self) -> None:
        """Stop waiting for events of the execution."""
        self._stubs.cancel_call()
        if self._next_event is not None:
            self._next_event.cancel()
            self._next_event = None

    def _outcome_of(self, error: JupyterError) -> Died:
        self._is_empty = isinstance(error, KernelDied)
        if self._is_empty:
            self._stubs.forget()
        lives = not isinstance(error, KernelDied)
        return Died(reason=str(error), lives=lives)

    async def answer(self, answer: messages.Answer) -> None:
        """Without an answer the code is interrupted and the error says why: Jupyter cannot refuse an input request."""
        if answer.line and self._execution is not None:
            try:
                await self._execution.reply(answer.line[0])
            except JupyterError as error:
                log.warning("answering a Jupyter kernel: %s", error)
            return
        self._translator.unanswered = answer.why or "no one answered"
        self._start_task(self._interrupt_question(self._message_count))

    def interrupt(self) -> None:
        """Only after our code started: before that, a person's cell may be running."""
        if self._translator.has_begun:
            self._start_task(self._interrupt())

    def _start_task(self, action: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(action)
        self._interrupts.add(task)
        task.add_done_callback(self._interrupts.discard)

    async def _interrupt_question(self, message_count: int) -> None:
        """Interrupt more than once: a kernel that is about to wait for input may miss an interrupt."""
        for _ in range(_MAX_QUESTION_INTERRUPTS):
            if self._message_count == message_count:  # no message since
                await self._interrupt()
                await asyncio.sleep(_QUESTION_INTERRUPT_INTERVAL_S)

    async def _interrupt(self) -> None:
        try:
            await self._connection.interrupt()
        except JupyterError as error:
            log.warning("interrupting a Jupyter kernel: %s", error)

    async def kill(self) -> None:
        """Restart the kernel if Quire started it and has it alone. Otherwise end the run and let its code go on."""
        if self._outcome is None or self._outcome.done():
            return
        has_begun = self._translator.has_begun
        if has_begun and self.is_owned and not await self._has_other_users():
            self._outcome.set_result(Died(reason="It did not stop when told to; its kernel was restarted."))
            await self._restart()
            return
        if self._execution is not None:
            self._stop_listening()
            self._abandoned = self._execution
            self._abandoned_task = asyncio.ensure_future(self._wait_abandoned(self._execution))
        self._outcome.set_result(
            Died(reason=_NOT_STOPPED if has_begun else _NOT_STARTED, hint=_WAIT_OR_RESTART, lives=True)
        )

    async def _has_other_users(self) -> bool:
        try:
            running = {kernel.id: kernel for kernel in await self._server.kernels.list_running()}
        except JupyterError:
            return True
        return self.id in running and running[self.id].connections > 1

    async def _wait_abandoned(self, execution: Execution) -> None:
        """Wait until abandoned code has ended, and ignore its output."""
        try:
            while (await execution.next_message()).kind != "execute_reply":
                pass
        except JupyterError:
            pass
        finally:
            if self._abandoned is execution:
                self._abandoned = None

    # Questions

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event | Died:
        if not self._python:
            language = self._connection.info.language or "not known"
            raise InvalidRequest(
                f"The kernel's language is {language}: what it holds can be listed of Python only. Run code."
            )
        return await kernel_queries.ask(self._connection, question)

    async def offer(self, catalog: Catalog) -> None:
        if self._python and self._abandoned is None:
            await self._stubs.offer(self._connection, catalog)

    # Restart

    async def restart(self) -> None:
        """Restart the kernel on request, even if code runs in it or a person started it."""
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(Died(reason="The kernel was restarted while the cell ran.", hint=_RUN_AGAIN))
        await self._restart()

    async def _restart(self) -> None:
        self._abandoned = None
        try:
            await self._connection.restart()
        except JupyterError as error:
            raise OperationFailed(f"The Jupyter kernel was not restarted: {error}") from error
        self._is_empty = self._fresh = True
        self._stubs.forget()

    async def restore(self, name: str) -> None:
        if name != START:
            raise OperationFailed(f"There is no such state: {_NO_CHECKPOINTS}.")
        if self._connection.alive and not self._is_empty:
            await self._restart()
        elif not await self._wait_restarted():
            raise OperationFailed("its kernel is dead")
        self._fresh = True

    async def _wait_restarted(self) -> bool:
        """Whether a kernel that died is running again: the server restarts most kernels automatically."""
        deadline = asyncio.get_running_loop().time() + _RESTART_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            if self._connection.alive:
                return True
            try:
                states = {kernel.id: kernel.state for kernel in await self._server.kernels.list_running()}
            except JupyterError:
                return False
            if states.get(self.id) in (None, "dead"):
                return False
            await asyncio.sleep(0.1)
        return False

    async def close(self) -> None:
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        for task in filter(None, (*self._interrupts, self._abandoned_task)):
            task.cancel()
        for action in (self._connection.close(), self._server.owned_kernels.release(self.id)):
            try:
                await action
            except JupyterError as error:
                log.warning("closing a Jupyter kernel: %s", error)

    # Not supported

    @property
    def checkpoints(self) -> dict[str, ForkReport]:
        return {}

    async def checkpoint(self, name: str) -> float | str:
        return _NO_CHECKPOINTS

    async def thin_out(self, named: set[str]) -> None:
        pass

    async def sizes(self) -> dict[str, int]:
        return {}

    def forget(self, name: str) -> None:
        pass

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        raise OperationFailed(f"Nothing was written: {_NO_CHECKPOINTS}.")

    async def load(self, recipe: Recipe) -> Restored:
        raise OperationFailed(f"nothing can be loaded: {_NO_CHECKPOINTS}")

    async def branch(self, name: str, spec: KernelSpec) -> Any:
        raise OperationFailed(f"There is no second one of it: {_NO_CHECKPOINTS}.")

    def memory(self) -> int:
        return 0
