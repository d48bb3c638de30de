"""One kernel of a Jupyter server. It may be a person's: what we did not start is never ended, only let go of."""

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
from quire.runtimes.jupyter.capability_stubs import Offering
from quire.runtimes.jupyter.event_translator import Translation
from quire.runtimes.jupyter.previews import with_preview
from quire.wire import messages

log = logging.getLogger(__name__)
_NO_STATES = "a kernel of a Jupyter server can be neither copied nor written down"
_AGAIN = "Run the cell again; cells before it too, where it needs what they made."
_RESTART = "Wait and look again (get_cell), or end it with restart_notebook, which empties its variables."
_STILL = "Nothing ran: code that did not stop when told to still runs in the kernel."
_LET_GO = "It did not stop when interrupted, and still runs: others use its kernel, which was not ended."
_NOT_BEGUN = "It did not begin: the kernel was busy with something else all the time, and comes to it after that."
_PATIENCE = 8.0  # seconds, since no checkpoint brings back what a restart costs
_ASIDE = 2.0, 5  # seconds until code that nobody answered is interrupted again where it says nothing, and how often
_BEGINS = ("status", "execute_input")  # on another channel than a question, which may overtake them
_AWAKE = 20.0  # seconds a kernel that its server starts anew is waited for


class JupyterKernel:
    def __init__(
        self, server: Server, connection: KernelConnection, spec: KernelSpec, calls: Relay | None, *, fresh: bool
    ) -> None:
        self._server = server
        self._connection = connection
        self._spec = spec
        self._fresh = fresh
        self._offering = Offering(calls, spec) if calls is not None else None
        self._emptied = False  # it was begun anew since the last run
        self._execution: Execution | None = None
        self._coming: asyncio.Future[messages.Event | None] | None = None  # what it says next
        self._translation = Translation("", python=False)
        self._left: Execution | None = None  # code that did not stop and was let go of
        self._follower: asyncio.Task[None] | None = None
        self._end: asyncio.Future[Died] | None = None  # what the run under way ends with, whatever the kernel says
        self._interrupts: set[asyncio.Task[None]] = set()
        self._heard = 0  # messages of executions, but for those that say that one begins
        self._closed = False
        server.use(self.id)

    @property
    def id(self) -> str:
        return self._connection.info.id

    @property
    def ours(self) -> bool:
        return self.id in self._server.ours

    @property
    def alive(self) -> bool:
        return not self._closed and self._connection.alive

    @property
    def fresh(self) -> bool:
        return self._fresh

    @property
    def patience(self) -> float:
        return _PATIENCE

    @property
    def _python(self) -> bool:
        return "python" in self._connection.info.language.lower()

    # Runs

    async def begin(self, run: messages.Run) -> None:
        self._translation = Translation(run.run, python=self._python)
        self._end = asyncio.get_running_loop().create_future()
        self._execution, self._emptied = None, False
        self._hush()
        if self._left is not None:
            self._end.set_result(Died(reason=_STILL, hint=_RESTART, lives=True))
            return
        try:
            self._execution = await self._connection.execute(run.code, allow_stdin=True, stop_on_error=False)
        except JupyterError as error:
            self._end.set_result(self._died(error))

    async def event(self) -> messages.Event | Died:
        assert self._end is not None
        if self._translation.left is not None:
            left, self._translation.left = self._translation.left, None
            return left
        while not self._end.done():
            assert self._execution is not None
            if self._coming is None:  # it outlives a caller who gives up: what it brings is for the next
                self._coming = asyncio.ensure_future(self._next(self._execution))
            either: set[asyncio.Future[Any]] = {self._coming, self._end}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._coming.done():
                continue
            coming, self._coming = self._coming, None
            try:
                event = coming.result()
            except JupyterError as error:
                return self._died(error)
            if event is not None:
                return event
        self._hush()
        return self._end.result()

    async def _next(self, execution: Execution) -> messages.Event | None:
        """What comes next of it; None for what is not the transcript's."""
        message = await execution.next()
        self._heard += message.kind not in _BEGINS
        if self._offering is not None and self._offering.take(message, execution):
            return None
        event = self._translation.event(message)
        return await with_preview(event) if isinstance(event, messages.Displayed) else event

    def _hush(self) -> None:
        """Nobody waits any more for what the execution says next."""
        if self._offering is not None:
            self._offering.give_up()
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _died(self, error: JupyterError) -> Died:
        self._emptied = isinstance(error, KernelDied)
        if self._emptied:
            self._forgot()
        lives = not isinstance(error, KernelDied)
        return Died(reason=str(error), lives=lives)

    async def answer(self, answer: messages.Answer) -> None:
        """Jupyter has no way to say that nobody answers: the code is interrupted, and the error says why."""
        if answer.line and self._execution is not None:
            try:
                await self._execution.reply(answer.line[0])
            except JupyterError as error:
                log.warning("answering a Jupyter kernel: %s", error)
            return
        self._translation.unanswered = answer.why or "nobody answered"
        self._set_going(self._give_up_asking(self._heard))

    def interrupt(self) -> None:
        """Only where our code is what runs: a person's cell before it is theirs."""
        if self._translation.begun:
            self._set_going(self._interrupt())

    def _set_going(self, act: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(act)
        self._interrupts.add(task)
        task.add_done_callback(self._interrupts.discard)

    async def _give_up_asking(self, heard: int) -> None:
        """A kernel that just begins to wait for an answer may miss an interrupt, and would wait for ever."""
        pause, times = _ASIDE
        for _ in range(times):
            if self._heard == heard:  # it has said nothing since
                await self._interrupt()
                await asyncio.sleep(pause)

    async def _interrupt(self) -> None:
        try:
            await self._connection.interrupt()
        except JupyterError as error:
            log.warning("interrupting a Jupyter kernel: %s", error)

    async def kill(self) -> None:
        """Restart it, if we started it and nobody else uses it; else let go of the run."""
        if self._end is None or self._end.done():
            return
        begun = self._translation.begun
        if begun and self.ours and not await self._others():
            self._end.set_result(Died(reason="It did not stop when told to; its kernel was restarted."))
            await self._restart()
            return
        if self._execution is not None:
            self._hush()
            self._left = self._execution
            self._follower = asyncio.ensure_future(self._follow(self._execution))
        self._end.set_result(Died(reason=_LET_GO if begun else _NOT_BEGUN, hint=_RESTART, lives=True))

    async def _others(self) -> bool:
        try:
            there = {each.id: each for each in await self._server.kernels.listing()}
        except JupyterError:
            return True
        return self.id in there and there[self.id].connections > 1

    async def _follow(self, execution: Execution) -> None:
        """Until code that was let go of has ended, whatever it shows."""
        try:
            while (await execution.next()).kind != "execute_reply":
                pass
        except JupyterError:
            pass
        finally:
            if self._left is execution:
                self._left = None

    # Questions

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event | Died:
        if not self._python:
            language = self._connection.info.language or "not known"
            raise InvalidRequest(
                f"The kernel's language is {language}: what it holds can be listed of Python only. Run code."
            )
        return await kernel_queries.ask(self._connection, question)

    async def offer(self, catalog: Catalog) -> None:
        if self._python and self._offering is not None and self._left is None:
            await self._offering.offer(self._connection, catalog)

    def _forgot(self) -> None:
        if self._offering is not None:
            self._offering.begun_anew()

    # Beginning anew

    async def restart(self) -> None:
        """Empty it, whatever runs in it, whoever started it: somebody asked for that."""
        if self._end is not None and not self._end.done():
            self._end.set_result(Died(reason="The kernel was restarted while the cell ran.", hint=_AGAIN))
        await self._restart()

    async def _restart(self) -> None:
        self._left = None
        try:
            await self._connection.restart()
        except JupyterError as error:
            raise OperationFailed(f"The Jupyter kernel was not restarted: {error}") from error
        self._emptied = self._fresh = True
        self._forgot()

    async def restore(self, name: str) -> None:
        if name != START:
            raise OperationFailed(f"There is no such state: {_NO_STATES}.")
        if self._connection.alive and not self._emptied:
            await self._restart()
        elif not await self._awake():
            raise OperationFailed("its kernel is dead")
        self._fresh = True

    async def _awake(self) -> bool:
        """Whether a kernel that died is there again: its server starts most anew by itself."""
        deadline = asyncio.get_running_loop().time() + _AWAKE
        while asyncio.get_running_loop().time() < deadline:
            if self._connection.alive:
                return True
            try:
                states = {each.id: each.state for each in await self._server.kernels.listing()}
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
        self._hush()
        for task in (*self._interrupts, *([self._follower] if self._follower is not None else [])):
            task.cancel()
        for act in (self._connection.close(), self._server.leave(self.id)):
            try:
                await act
            except JupyterError as error:
                log.warning("letting go of a Jupyter kernel: %s", error)

    # What there is none of

    @property
    def checkpoints(self) -> dict[str, ForkReport]:
        return {}

    async def checkpoint(self, name: str) -> float | str:
        return _NO_STATES

    async def thin_out(self, named: set[str]) -> None:
        pass

    async def sizes(self) -> dict[str, int]:
        return {}

    def forget(self, name: str) -> None:
        pass

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        raise OperationFailed(f"Nothing was written: {_NO_STATES}.")

    async def load(self, recipe: Recipe) -> Restored:
        raise OperationFailed(f"nothing can be loaded: {_NO_STATES}")

    async def branch(self, name: str, spec: KernelSpec) -> Any:
        raise OperationFailed(f"There is no second one of it: {_NO_STATES}.")

    def memory(self) -> int:
        return 0
