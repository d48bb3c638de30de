"""Running cells: lease the kernel, follow the events, record what came of it.

A run belongs to this room, not to the request that asked for it: a caller who stops waiting leaves it
running, and its outcome is recorded all the same.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from quire.core.capabilities.gateway import CapabilityGateway
from quire.core.errors import InvalidRequest, NotFound, OperationFailed, QuireError
from quire.core.kernels.pool import KernelLease, KernelPool
from quire.core.limits.validation import Limits
from quire.core.limits.workspace_quota import Space
from quire.core.model import Cell, CellId, CellKind, CellState, Died, NewCell, Notebook, Run, RunId
from quire.core.ops.change_bus import Change, Feed
from quire.core.ops.task_groups import background
from quire.core.ports.kernel import Kernel
from quire.core.ports.store import Blobs, Store
from quire.core.runs import transcript as transcripts
from quire.core.runs.active_run import STOP_IT, ActiveRun, ActiveRuns, Question, Stop
from quire.core.runs.outcome import KEPT, outcome, restored
from quire.core.runs.queue import Queue
from quire.core.runs.recorder import Recorder
from quire.core.runs.transcript import Transcript
from quire.wire import messages
from quire.wire.messages import Answer, Asked, Finished

log = logging.getLogger(__name__)
_LAST_WORDS = 5.0  # seconds a killed kernel's end is waited for
_ANSWER = 300.0  # seconds a person has to answer
_PROMPT = 2_000  # characters of a question


class Runs:
    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        kernels: KernelPool,
        feed: Feed,
        limits: Limits,
        active: ActiveRuns,
        relay: CapabilityGateway,
        space: Space,
        queue: Queue,
        ended: Callable[[Run], None] = lambda run: None,
    ) -> None:
        """`ended` is told how each run ended; it returns at once and never raises."""
        self._store = store
        self._kernels = kernels
        self._feed = feed
        self._limits = limits
        self._active = active
        self._relay = relay
        self._space = space
        self._queue = queue
        self._recorder = Recorder(store, blobs)
        self._group: TaskGroup | None = None
        self.ending = False  # the server is about to end, and its callers are sent away
        self._ended = ended

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Runs live in here; leaving it interrupts and records what still runs."""
        async with background() as self._group:
            self._group.start_soon(self._recorder.keep_shown)
            yield

    async def begin(self, notebook: Notebook) -> None:
        """Have its kernel started ahead of its first run."""
        if self._group is not None:
            await self._kernels.start_ahead(notebook, self._group)

    async def start(
        self,
        notebook: Notebook,
        code: str | Cell,
        *,
        at: int | None = None,
        timeout: float | None = None,
        author: str = "agent",
    ) -> ActiveRun:
        """Set a run going, of new code or of a cell there is."""
        timeout = self._limits.check_timeout(timeout)
        asked: Cell | NewCell
        if isinstance(code, Cell):
            if code.kind is not CellKind.CODE:
                raise InvalidRequest(f"Cell {code.number} is {code.kind}, not code: there is nothing to run.")
            if code.state is CellState.RUNNING and self._is_active(notebook, code):
                raise InvalidRequest(f"Cell {code.number} is running already. {STOP_IT}")
            self._limits.check_code(code.source)
            asked = code
        else:
            asked = NewCell(source=self._limits.check_code(code))
            if at is not None or self._kernels.slots.is_busy(notebook):  # shown in its place while it waits its turn
                added = await self._store.add_cells(notebook.id, [asked], at=at, limit=self._limits.max_cells)
                asked = added[0]
                self._feed.tell(Change(notebook=notebook))
        active = self._asked(notebook, asked, timeout, author)
        if self._group is None:
            raise OperationFailed("Quire is shutting down; nothing was run.")
        self._active.add(active)
        self._group.start_soon(self._drive, active)
        return active

    def _asked(self, notebook: Notebook, asked: Cell | NewCell, timeout: float, author: str) -> ActiveRun:
        return ActiveRun(
            notebook=notebook,
            asked=asked,
            timeout=timeout,
            transcript=Transcript(notebook.policy.output or self._limits.max_output_bytes),
            author=author,
        )

    async def wait(
        self,
        active: ActiveRun,
        patience: float | None = None,
        tick: Callable[[ActiveRun], Awaitable[None]] | None = None,
        *,
        asks: bool = False,
        early: bool = False,
    ) -> Cell:
        """The cell when its run is over, or as it stands when patience ends, or with `asks` when it has a question.

        `tick` is called every second meanwhile. Cancelling the wait interrupts the run. One that is `early` hears how
        the run ended before that is on disk, and tells nobody before it is `kept`.
        """
        end = anyio.current_time() + (self._limits.patience if patience is None else patience)
        over = active.settled if early else active.done
        try:
            while not over.is_set() and (left := end - anyio.current_time()) > 0:
                with anyio.move_on_after(min(1.0, left)):
                    await self._news(active, asks, over)
                    if active.question is not None and asks:
                        return active.now()
                if tick is not None and not over.is_set():
                    await tick(active)
            if active.cell is None and isinstance(active.asked, Cell) and not over.is_set():
                return active.asked  # still waiting for its turn
            if not active.begun.is_set():  # a kernel that is being started has a deadline of its own
                await active.begun.wait()
        except anyio.get_cancelled_exc_class():
            if not self.ending:  # the server's end is no interrupt of this run
                active.stop(Stop.INTERRUPT)
            raise
        if active.error is not None:
            raise active.error
        return active.ended if early and active.ended is not None else active.now()

    async def _news(self, active: ActiveRun, asks: bool, over: anyio.Event) -> None:
        """Until it is over, or for one who can have a person asked, has a question."""
        if not asks:
            await over.wait()
            return
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_after, over, group.cancel_scope)
            await active.questioned.wait()
            group.cancel_scope.cancel()

    async def interrupt(self, notebook: Notebook) -> Cell:
        """Stop what runs now, or waits to; back when it has stopped."""
        active = self.current(notebook) or self._active.queued(notebook.id)
        if active is None:
            raise NotFound(f"Nothing is running in notebook {notebook.name!r}; nothing was interrupted.")
        active.stop(Stop.INTERRUPT)
        await active.done.wait()
        if active.cell is None and isinstance(active.asked, Cell):
            return active.asked  # it had not begun
        if active.error is not None:
            raise active.error
        return active.now()

    def current(self, notebook: Notebook) -> ActiveRun | None:
        """What runs in the notebook now."""
        return self._active.current(notebook.id)

    def count(self) -> tuple[int, int]:
        """Runs under way, and those that wait for their turn."""
        return self._active.count()

    def live(self, notebook: Notebook, cell: Cell) -> Cell:
        """The cell as it is this moment, with the output of a run under way."""
        for active in self._active.of(notebook.id):
            if active.cell is not None and active.cell.id == cell.id:
                return replace(cell, run=active.now().run)
        return cell

    def _is_active(self, notebook: Notebook, cell: Cell) -> bool:
        return any(run.cell is not None and run.cell.id == cell.id for run in self._active.of(notebook.id))

    async def _drive(self, active: ActiveRun) -> None:
        notebook = active.notebook
        try:
            async with self._kernels.lease(notebook, lambda: self._queue.enter(active)) as lease:
                again = await self._replay(notebook, lease)
                active.notice = " ".join(filter(None, (lease.notice, again, await self._space.begin(active))))
                if active.stopping is None:  # given up while it waited: the cell stays as it is
                    await self._run(active, lease)
                self._over(active)  # the caller has the answer; a checkpoint is taken while they think
        except QuireError as error:
            active.failed(error)
        except Exception as error:  # a fault of ours costs this run, not the other notebooks
            log.exception("a run in notebook %r", notebook.name)
            active.failed(
                OperationFailed(f"Quire itself failed ({type(error).__name__}: {error}); earlier cells are intact.")
            )
        finally:
            self._over(active)

    async def _replay(self, notebook: Notebook, lease: KernelLease) -> str:
        """Run the cells again that make what did not come back from disk, until one fails; what to say about it."""
        done: list[str] = []
        for cell in lease.replay:
            active = self._asked(notebook, cell, self._limits.cell_timeout, "replay")
            self._active.add(active, first=True)
            try:
                await self._run(active, lease)
            finally:
                self._over(active)
            done.append(f"{cell.number} ({active.now().state})")
            if active.now().state is not CellState.SUCCESS:
                break
        return f"Ran again for what is missing: cell{'s' * (len(done) > 1)} {', '.join(done)}." if done else ""

    def _over(self, active: ActiveRun) -> None:
        if active.done.is_set():
            return
        self._active.remove(active)
        self._queue.leave(active)
        active.over()
        if active.cell is not None:
            self._tell(active)

    async def _run(self, active: ActiveRun, lease: KernelLease) -> None:
        run = Run(
            id=RunId(secrets.token_hex(6)),
            cell=CellId(""),
            count=0,
            source=active.asked.source,
            author=active.author,
            started_at=time.time(),
            parent=lease.lineage.head,
        )
        await self._recorder.pay()
        active.cell = await self._store.begin_run(active.notebook.id, active.asked, run, limit=self._limits.max_cells)
        assert active.cell.run is not None
        run = active.cell.run
        active.started_at = anyio.current_time()
        active.begun.set()
        self._tell(active)
        died: Died | None = None
        try:
            await lease.kernel.offer(await self._relay.catalog(active.notebook.owner))
            await lease.kernel.begin(
                messages.Run(
                    run=run.id,
                    code=run.source,
                    name=f"cell {active.cell.number}, run {run.count}",
                    count=run.count,
                )
            )
            died = await self._follow(active, lease.kernel)
        except anyio.get_cancelled_exc_class():  # only the server's end cancels a run from outside
            active.stopping = Stop.SHUTDOWN
            raise
        finally:
            with anyio.CancelScope(shield=True):  # a cancelled run is recorded like any other
                ended = await self._record(active, lease, run, died)
                active.cell = replace(active.cell, run=ended)
                self._ended(ended)

    async def _follow(self, active: ActiveRun, kernel: Kernel) -> Died | None:
        """Listen until the run is over; past its time, interrupt; past the grace, kill."""
        over = False
        try:
            with active.following:
                with anyio.move_on_after(active.timeout) as active.clock:
                    died = await self._listen(active, kernel)
                    over = True
                    return died
                active.stopping = active.stopping or Stop.TIMEOUT
        finally:
            active.clock = None
            if active.stopping is None and not over and kernel.alive:
                active.stopping = Stop.SHUTDOWN
                await kernel.kill()
        for _ in range(2):  # one that comes before the code has begun is not seen
            kernel.interrupt()
            self._relay.interrupt(active)
            with anyio.move_on_after((self._limits.grace + kernel.patience) / 2):
                return await self._listen(active, kernel)
        await kernel.kill()
        with anyio.move_on_after(_LAST_WORDS):
            return await self._listen(active, kernel)
        return Died(reason="It did not stop when told to and was killed.")

    async def _listen(self, active: ActiveRun, kernel: Kernel) -> Died | None:
        while True:
            event = await kernel.event()
            if isinstance(event, Died):
                return event
            if isinstance(event, Asked):
                await kernel.answer(await self._answer(active, event))
            else:
                active.transcript.add(event)
            if isinstance(event, Finished):
                return None
            self._recorder.heard(active)

    async def _answer(self, active: ActiveRun, asked: Asked) -> Answer:
        """What a person says, where a caller waits who can have one asked."""
        question = Question(number=asked.question, prompt=transcripts.clean(asked.prompt)[:_PROMPT])
        if not active.can_ask:
            active.answer(question, None, "nobody can be asked here. Put the value into the code instead.")
        else:
            with active.asking(question), anyio.move_on_after(_ANSWER):
                await question.answered.wait()
        return Answer(question=question.number, line=question.line, why=question.why)

    async def _record(self, active: ActiveRun, lease: KernelLease, run: Run, died: Died | None) -> Run:
        state, cause, advice = outcome(
            active.transcript.finished, died, active.stopping, active.timeout, active.because
        )
        seconds = max(0.0, anyio.current_time() - active.started_at)
        undo = state.failed and active.notebook.policy.on_error == "rollback"
        ended = died is None and (active.transcript.finished is not None or active.stopping is not Stop.SHUTDOWN)
        lives = died is not None and died.lives  # what it did is there, and goes on
        if lives or (ended and not (undo and lease.is_protected)):
            fate = KEPT if cause and died is None else ""
            if undo:
                why = lease.lineage.why_unprotected or "none was taken"
                fate = f"What it did is not undone: there is no checkpoint of before it ({why})."
            lease.lineage.advance(replace(run, seconds=seconds))
        else:
            lease.lineage.undo(run.id)
            fate = await self._recover(active, lease, state)
        if fate and state is CellState.ERROR:  # its outputs say why; this is beside them
            active.notice = " ".join(filter(None, (active.notice, fate)))
        cause = " ".join(filter(None, (cause, fate, advice)))
        outputs = list(active.transcript.outputs())
        told = died is not None or active.stopping is not None  # the code may have raised KeyboardInterrupt itself
        if cause and told and state not in (CellState.SUCCESS, CellState.ERROR):
            outputs.append(transcripts.error(state.value.capitalize(), cause))
        finished = active.transcript.finished
        recorded = replace(
            run,
            count=(finished.count if finished else 0) or run.count,
            seconds=seconds,
            state=state,
            cause=cause,
            value=finished.value if finished else [],
            imports=tuple(map(transcripts.clean, finished.imports)) if finished else (),
            functions=tuple(map(transcripts.clean, finished.functions)) if finished else (),
        )
        done = await self._recorder.finish(active, recorded, outputs)
        if active.transcript.updates:
            await self._update_elsewhere(active)
        return done

    async def _update_elsewhere(self, active: ActiveRun) -> None:
        try:
            for cell in await self._recorder.update_elsewhere(active):
                self._feed.tell(Change(notebook=active.notebook, cell=cell))
        except QuireError as error:  # a full disk: the run itself is recorded
            active.error = active.error or error

    async def _recover(self, active: ActiveRun, lease: KernelLease, state: CellState) -> str:
        """Put the namespace back to before the run; the sentence that says how far that went."""
        try:
            assert active.cell is not None
            return restored(await lease.recover(f"the last one ended in cell {active.cell.number} ({state})"))
        except Exception as error:  # however that goes, how the run ended is recorded
            log.exception("recovering notebook %r", active.notebook.name)
            return f"How far variables were put back is not known ({type(error).__name__}: {error})."

    def _tell(self, active: ActiveRun) -> None:
        assert active.cell is not None
        self._feed.tell(Change(notebook=active.notebook, cell=active.cell.id, number=active.cell.number))


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
