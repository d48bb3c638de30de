"""Runs that are queued or under way: the handle that callers get, and the state that the run service keeps."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

import anyio

from quire.core.errors import OperationFailed, QuireError
from quire.core.model import Cell, NewCell, Notebook, NotebookId, Run
from quire.core.runs.transcript import Transcript
from quire.wire.messages import Event

log = logging.getLogger(__name__)
STOP_IT = "Let it end, or stop it first (interrupt; among Jupyter's own tools restart_notebook)."
"""Advice for a change that is refused because the cell is running."""


class StopReason(Enum):
    TIMEOUT = "timeout"
    INTERRUPT = "interrupt"
    SHUTDOWN = "shutdown"
    QUOTA = "quota"


@dataclass(eq=False)
class Question:
    """A question to a person: for a line of input, or for the approval of a capability call."""

    number: int  # the worker's number of the input request
    prompt: str
    is_approval: bool = False  # the answer is "yes", or none
    shown: anyio.Event = field(default_factory=anyio.Event)  # it is the first of the run's open questions
    answered: anyio.Event = field(default_factory=anyio.Event)
    line: list[str] = field(default_factory=list)  # [answer]; [] without an answer
    why: str = "there was no answer in time. Put the value into the code instead."  # there is no answer

    def answer(self, line: str | None, why: str = "") -> None:
        """Set the answer, or the reason why it is missing. The first call counts."""
        if not self.answered.is_set():
            self.line, self.why = ([], why) if line is None else ([line], "")
            self.answered.set()


class PausableTimeout:
    """The timeout of a run. It is paused while a person is asked."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scope: anyio.CancelScope | None = None
        self._pauses = 0
        self._left = 0.0  # seconds, while it is paused

    def start(self) -> anyio.CancelScope:
        """Return the scope that the timeout cancels."""
        self._scope = anyio.move_on_after(self._seconds)
        return self._scope

    def stop(self) -> None:
        self._scope = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        scope = self._scope
        if scope is None:
            yield
            return
        self._pauses += 1
        if self._pauses == 1:
            self._left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                scope.deadline = anyio.current_time() + self._left


class RunQuestions:
    """The open questions of one run, in the order they were asked."""

    def __init__(self, timeout: PausableTimeout) -> None:
        self._timeout = timeout
        self._open: list[Question] = []
        self._listeners = 0  # callers that wait and can ask a person
        self._asked = anyio.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count the caller as one that can ask a person, as long as the block lasts."""
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    @property
    def first(self) -> Question | None:
        return self._open[0] if self._open else None

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked. A caller that has a question already will come back with the answer."""
        return bool(self._listeners or self._open)

    async def wait_asked(self) -> None:
        """Wait until a question is open."""
        await self._asked.wait()

    @contextmanager
    def asking(self, question: Question) -> Iterator[None]:
        """Keep the question open as long as the block lasts. The run's timeout is paused meanwhile."""
        self._open.append(question)
        self._open[0].shown.set()
        self._asked.set()
        try:
            with self._timeout.paused():
                yield
        finally:
            self._close(question)

    def answer(self, question: Question, line: str | None, why: str = "") -> None:
        """Answer a question and close it."""
        question.answer(line, why)
        self._close(question)

    def _close(self, question: Question) -> None:
        if question in self._open:
            self._open.remove(question)
        if self._open:
            self._open[0].shown.set()
        else:
            self._asked = anyio.Event()


class ActiveRun:
    """A run that is queued or under way, as callers see it. Only the run service changes it, through `RunState`."""

    def __init__(
        self,
        notebook: Notebook,
        target: Cell | NewCell,
        timeout: float,
        transcript: Transcript,
        author: str,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.notebook = notebook
        self.target = target  # a new cell becomes a cell of the notebook when it has to wait
        self.timeout = timeout
        self.transcript = transcript
        self.author = author
        self.begun = anyio.Event()
        self.outcome_known = anyio.Event()  # it is being written to disk
        self.done = anyio.Event()  # the outcome is on disk, or `error` says why not
        self.cell: Cell | None = None  # None until the run begins
        self.final_cell: Cell | None = None  # with the outcome, once that is known
        self.notice = ""  # what callers should know beside the outcome
        self.error: QuireError | None = None  # why it did not begin, or was not recorded
        self.started_at = 0.0
        self.wait_reason = ""  # why it waits for a run slot; "" while it does not
        self.stop_reason: StopReason | None = None
        self.stop_detail = ""  # a sentence, if the reason needs one
        self.capability_progress = ""  # of the capability call under way
        self._on_event = on_event
        self._stop_scopes: list[anyio.CancelScope] = []
        self.clock = PausableTimeout(timeout)
        self.questions = RunQuestions(self.clock)

    def stop(self, reason: StopReason, detail: str = "") -> None:
        """Stop the run, or give it up while it waits. The first reason counts."""
        if self.stop_reason is None:
            self.stop_reason, self.stop_detail = reason, detail
            for scope in self._stop_scopes:
                scope.cancel()

    def show(self, event: Event) -> None:
        """Add an event to the run's output."""
        self.transcript.add(event)
        if self._on_event is not None:
            self._on_event(event)

    def progress(self) -> str:
        """What the run waits for or does now, or the last line it printed."""
        return self.wait_reason or self.capability_progress or self.transcript.last_line()

    def now(self) -> Cell:
        """The cell with what the run has shown so far."""
        if self.cell is None:
            raise OperationFailed("The run has not begun.")
        if self.done.is_set() or self.cell.run is None:
            return self.cell
        seconds = time.time() - self.cell.run.started_at
        return replace(self.cell, run=replace(self.cell.run, seconds=seconds, outputs=self.transcript.outputs()))

    def outcome(self) -> Cell:
        """The cell with the outcome if that is known, else as it is now."""
        return self.final_cell or self.now()

    async def wait_persisted(self) -> None:
        """Wait until a known outcome is on disk. Raises QuireError if it cannot be written."""
        if self.outcome_known.is_set():
            await self.done.wait()
            if self.error is not None:
                raise self.error


class RunState(ActiveRun):
    """A run as the run service, its queue and its recorder see it."""

    has_slot = False

    def stop_scope(self) -> anyio.CancelScope:
        """A new scope that `stop` cancels."""
        scope = anyio.CancelScope()
        self._stop_scopes.append(scope)
        if self.stop_reason is not None:
            scope.cancel()
        return scope

    def add_notice(self, *notices: str) -> None:
        self.notice = " ".join(filter(None, (self.notice, *notices)))

    def begin(self, cell: Cell) -> None:
        """The cell's run is recorded and begins."""
        self.cell, self.started_at = cell, anyio.current_time()
        self.begun.set()

    def set_outcome(self, run: Run) -> None:
        """Tell callers that do not wait for the disk how the run ended."""
        assert self.cell is not None
        self.final_cell = replace(self.cell, run=run)
        self.outcome_known.set()

    def fail(self, error: QuireError) -> None:
        """Set why the run did not begin or was not recorded. After `finish` the answer stands, so it is only logged."""
        if self.done.is_set():
            log.warning("after a run in notebook %r: %s", self.notebook.name, error)
        else:
            self.error = error

    def finish(self) -> None:
        for event in (self.begun, self.outcome_known, self.done):
            event.set()


class ActiveRuns:
    """The runs that are queued or under way, by notebook."""

    def __init__(self) -> None:
        self._runs: dict[NotebookId, list[ActiveRun]] = {}

    def list_runs(self, notebook: NotebookId) -> list[ActiveRun]:
        return self._runs.get(notebook, [])

    def current(self, notebook: NotebookId) -> ActiveRun | None:
        """The run that has begun in this notebook."""
        return next((run for run in self._runs.get(notebook, []) if run.begun.is_set()), None)

    def queued(self, notebook: NotebookId) -> ActiveRun | None:
        """The run of this notebook that waits for a run slot."""
        return next((run for run in self._runs.get(notebook, []) if run.wait_reason), None)

    def list_begun(self) -> list[ActiveRun]:
        """The runs that have begun, of all notebooks."""
        return [run for runs in self._runs.values() for run in runs if run.begun.is_set()]

    def count(self) -> tuple[int, int]:
        """How many runs have begun, and how many wait."""
        begun, total = len(self.list_begun()), sum(map(len, self._runs.values()))
        return begun, total - begun

    def stop(self, notebook: NotebookId, reason: StopReason) -> None:
        """Stop all runs of this notebook, and those that wait."""
        for run in self._runs.get(notebook, []):
            run.stop(reason)

    def add(self, run: ActiveRun, *, first: bool = False) -> None:
        runs = self._runs.setdefault(run.notebook.id, [])
        runs.insert(0 if first else len(runs), run)

    def remove(self, run: ActiveRun) -> None:
        self._runs[run.notebook.id].remove(run)
