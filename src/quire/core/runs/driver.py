"""Driving a run: lease the kernel, follow its events, restore the namespace after a failure, record the outcome."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace

import anyio

from quire.core.capabilities.gateway import CapabilityGateway
from quire.core.errors import OperationFailed, QuireError
from quire.core.kernels.pool import KernelLease, KernelPool
from quire.core.limits.validation import Limits
from quire.core.limits.workspace_quota import WorkspaceQuota
from quire.core.model import Cell, CellId, CellState, Died, NewCell, Notebook, Run, RunId
from quire.core.ports.kernel import Kernel
from quire.core.runs import transcript as transcripts
from quire.core.runs.active_run import ActiveRuns, Question, RunState, StopReason
from quire.core.runs.outcome import VARIABLES_KEPT, describe_restored, outcome
from quire.core.runs.queue import RunQueue
from quire.core.runs.recorder import Recorder
from quire.core.runs.transcript import Transcript
from quire.wire import messages
from quire.wire.messages import Answer, Asked, Event, Finished

log = logging.getLogger(__name__)
_KILLED_WAIT_S = 5.0  # for the last events of a killed kernel
_ANSWER_TIMEOUT_S = 300.0  # for a person
_MAX_PROMPT_CHARS = 2_000


class RunDriver:
    def __init__(
        self,
        kernels: KernelPool,
        active: ActiveRuns,
        queue: RunQueue,
        quota: WorkspaceQuota,
        gateway: CapabilityGateway,
        recorder: Recorder,
        limits: Limits,
    ) -> None:
        self._kernels = kernels
        self._active = active
        self._queue = queue
        self._quota = quota
        self._gateway = gateway
        self._recorder = recorder
        self._limits = limits

    def new_run(
        self,
        notebook: Notebook,
        target: Cell | NewCell,
        timeout: float,
        author: str,
        on_event: Callable[[Event], None] | None = None,
    ) -> RunState:
        transcript = Transcript(notebook.policy.output or self._limits.max_output_bytes)
        return RunState(notebook, target, timeout, transcript, author, on_event)

    async def drive(self, state: RunState) -> None:
        """Run it when its turn comes. All failures go to `state`."""
        notebook = state.notebook
        try:
            async with self._kernels.lease(notebook, lambda: self._queue.enter(state)) as lease:
                state.add_notice(lease.notice, await self._replay(notebook, lease), await self._quota.begin_run(state))
                if state.stop_reason is None:  # else it was stopped while it waited, and the cell is unchanged
                    await self._run(state, lease)
                self._finish(state)  # callers have the outcome; leaving the lease takes a checkpoint
        except QuireError as error:
            state.fail(error)
        except Exception as error:  # a bug here costs this run, not other notebooks
            log.exception("a run in notebook %r", notebook.name)
            state.fail(
                OperationFailed(f"Quire itself failed ({type(error).__name__}: {error}); earlier cells are intact.")
            )
        finally:
            self._finish(state)

    async def _replay(self, notebook: Notebook, lease: KernelLease) -> str:
        """Run the cells whose variables could not be restored from disk, until one fails. Returns what was run."""
        done: list[str] = []
        for cell in lease.replay:
            state = self.new_run(notebook, cell, self._limits.cell_timeout, "replay")
            self._active.add(state, first=True)
            try:
                await self._run(state, lease)
            finally:
                self._finish(state)
            done.append(f"{cell.number} ({state.now().state})")
            if state.now().state is not CellState.SUCCESS:
                break
        return f"Ran again for what is missing: cell{'s' * (len(done) > 1)} {', '.join(done)}." if done else ""

    def _finish(self, state: RunState) -> None:
        if state.done.is_set():
            return
        self._active.remove(state)
        self._queue.leave(state)
        state.finish()
        if state.cell is not None:
            self._recorder.publish(state)

    async def _run(self, state: RunState, lease: KernelLease) -> None:
        run = Run(
            id=RunId(secrets.token_hex(6)),
            cell=CellId(""),
            count=0,
            source=state.target.source,
            author=state.author,
            started_at=time.time(),
            parent=lease.lineage.head,
        )
        run = await self._recorder.begin(state, run)
        assert state.cell is not None
        name = f"cell {state.cell.number}, run {run.count}"
        died: Died | None = None
        try:
            await lease.kernel.offer(await self._gateway.catalog(state.notebook.owner))
            await lease.kernel.begin(messages.Run(run=run.id, code=run.source, name=name, count=run.count))
            died = await self._follow(state, lease.kernel)
        except anyio.get_cancelled_exc_class():  # only the shutdown of the server cancels this task
            state.stop_reason = StopReason.SHUTDOWN
            raise
        finally:
            with anyio.CancelScope(shield=True):  # a cancelled run is recorded like any other
                await self._record(state, lease, run, died)

    async def _follow(self, state: RunState, kernel: Kernel) -> Died | None:
        """Handle events until the run ends. After the timeout interrupt it, after the grace period kill it."""
        ended = False
        try:
            with state.stop_scope():
                with state.clock.start():
                    died = await self._handle_events(state, kernel)
                    ended = True
                    return died
                state.stop_reason = state.stop_reason or StopReason.TIMEOUT
        finally:
            state.clock.stop()
            if state.stop_reason is None and not ended and kernel.alive:
                state.stop_reason = StopReason.SHUTDOWN
                await kernel.kill()
        for _ in range(2):  # an interrupt that arrives before the code has begun is lost
            kernel.interrupt()
            self._gateway.interrupt(state)
            with anyio.move_on_after((self._limits.grace + kernel.patience) / 2):
                return await self._handle_events(state, kernel)
        await kernel.kill()
        with anyio.move_on_after(_KILLED_WAIT_S):
            return await self._handle_events(state, kernel)
        return Died(reason="It did not stop when told to and was killed.")

    async def _handle_events(self, state: RunState, kernel: Kernel) -> Died | None:
        """Handle events until the run finishes or the kernel dies."""
        while True:
            event = await kernel.event()
            if isinstance(event, Died):
                return event
            if isinstance(event, Asked):
                await kernel.answer(await self._ask(state, event))
            else:
                state.show(event)
            if isinstance(event, Finished):
                return None
            self._recorder.mark_dirty(state)

    async def _ask(self, state: RunState, asked: Asked) -> Answer:
        """Ask a person for a line of input, if a caller waits that can do so."""
        question = Question(number=asked.question, prompt=transcripts.to_utf8_text(asked.prompt)[:_MAX_PROMPT_CHARS])
        if not state.questions.can_ask:
            question.answer(None, "no person can be asked here. Put the value into the code instead.")
        else:
            with state.questions.asking(question), anyio.move_on_after(_ANSWER_TIMEOUT_S):
                await question.answered.wait()
        return Answer(question=question.number, line=question.line, why=question.why)

    async def _record(self, state: RunState, lease: KernelLease, run: Run, died: Died | None) -> None:
        finished = state.transcript.finished
        cell_state, cause, advice = outcome(finished, died, state.stop_reason, state.timeout, state.stop_detail)
        run = replace(run, seconds=max(0.0, anyio.current_time() - state.started_at))
        fate = await self._settle_namespace(state, lease, run, died, cell_state, explain=bool(cause))
        if fate and cell_state is CellState.ERROR:  # its outputs say why it failed; this goes beside them
            state.add_notice(fate)
        cause = " ".join(filter(None, (cause, fate, advice)))
        outputs = list(state.transcript.outputs())
        was_stopped = died is not None or state.stop_reason is not None  # else the code raised KeyboardInterrupt itself
        if cause and was_stopped and cell_state not in (CellState.SUCCESS, CellState.ERROR):
            outputs.append(transcripts.error_output(cell_state.value.capitalize(), cause))
        recorded = replace(
            run,
            count=(finished.count if finished else 0) or run.count,
            state=cell_state,
            cause=cause,
            value=finished.value if finished else [],
            imports=tuple(map(transcripts.to_utf8_text, finished.imports)) if finished else (),
            functions=tuple(map(transcripts.to_utf8_text, finished.functions)) if finished else (),
        )
        await self._recorder.finish(state, recorded, outputs)

    async def _settle_namespace(
        self, state: RunState, lease: KernelLease, run: Run, died: Died | None, cell_state: CellState, *, explain: bool
    ) -> str:
        """Keep what the run did to the namespace, or undo it. Returns what became of variables, as a sentence."""
        undo = cell_state.failed and state.notebook.policy.on_error == "rollback"
        shut_down = state.transcript.finished is None and state.stop_reason is StopReason.SHUTDOWN
        kernel_lives_on = died is not None and died.lives
        if not kernel_lives_on and (died is not None or shut_down or (undo and lease.is_protected)):
            lease.lineage.undo(run.id)
            return await self._recover(state, lease, cell_state)
        fate = VARIABLES_KEPT if explain and died is None else ""
        if undo:
            why = lease.lineage.why_unprotected or "none was taken"
            fate = f"What it did is not undone: there is no checkpoint of before it ({why})."
        lease.lineage.advance(run)
        return fate

    async def _recover(self, state: RunState, lease: KernelLease, cell_state: CellState) -> str:
        """Restore the namespace from before the run. Returns what could not be restored."""
        try:
            assert state.cell is not None
            return describe_restored(
                await lease.recover(f"the last one ended in cell {state.cell.number} ({cell_state})")
            )
        except Exception as error:  # the outcome is recorded in any case
            log.exception("recovering notebook %r", state.notebook.name)
            return f"How far variables were put back is not known ({type(error).__name__}: {error})."
