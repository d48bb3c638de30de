"""A run under way: what it has shown, what it asks, how it is told to stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

import anyio

from quire.core.errors import OperationFailed, QuireError
from quire.core.model import Cell, NewCell, Notebook, NotebookId, Run
from quire.core.runs.transcript import Transcript

log = logging.getLogger(__name__)
STOP_IT = "Let it end, or stop it first (interrupt; among Jupyter's own tools restart_notebook)."
"""What is said of a cell that runs and must not."""


class Stop(Enum):
    TIMEOUT = "timeout"
    INTERRUPT = "interrupt"
    SHUTDOWN = "shutdown"
    QUOTA = "quota"


@dataclass(eq=False)
class Question:
    """The code waits for a person: for a line, or for a yes before a capability is called."""

    number: int  # the worker's, of a line
    prompt: str
    approves: bool = False  # it is the yes that is asked for: the answer is "yes", or none
    shown: anyio.Event = field(default_factory=anyio.Event)  # it is its turn among the run's questions
    answered: anyio.Event = field(default_factory=anyio.Event)
    line: list[str] = field(default_factory=list)  # [line] once answered; [] where nobody did
    why: str = "nobody answered in time. Put the value into the code instead."


@dataclass(eq=False)
class ActiveRun:
    """A run under way, or waiting for its turn."""

    notebook: Notebook
    asked: Cell | NewCell
    timeout: float
    transcript: Transcript
    author: str
    begun: anyio.Event = field(default_factory=anyio.Event)
    settled: anyio.Event = field(default_factory=anyio.Event)  # how it ended is known, and goes to disk
    done: anyio.Event = field(default_factory=anyio.Event)
    ended: Cell | None = None  # once it is settled
    cell: Cell | None = None  # with the run as it stands; None until it is begun
    notice: str = ""
    error: QuireError | None = None  # why it never began, or could not be recorded
    started_at: float = 0.0
    stopping: Stop | None = None
    because: str = ""  # a sentence's end: why, where the kind of stop does not say
    waits: str = ""  # what it waits for, where that is a place among all runs
    queued: anyio.CancelScope | None = None  # meanwhile; to be cancelled where it is given up
    placed: bool = False  # it has one
    following: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    clock: anyio.CancelScope | None = None  # ends it when its time is over
    doing: str = ""  # what a capability it called says of its progress
    calls: int = 0  # of capabilities, so far
    listeners: int = 0  # callers who wait and can have a person asked
    questions: list[Question] = field(default_factory=list)  # open ones, in the order they are asked
    questioned: anyio.Event = field(default_factory=anyio.Event)  # there is a question
    _pauses: int = 0
    _left: float = 0.0  # seconds, while the clock stands

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A caller waits who can have a person asked."""
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    @property
    def question(self) -> Question | None:
        return self.questions[0] if self.questions else None

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked; one who is asked already will come back."""
        return bool(self.listeners or self.questions)

    @contextmanager
    def asking(self, question: Question) -> Iterator[None]:
        """The question is open meanwhile, and the person's time is not the run's."""
        self.questions.append(question)
        self.questions[0].shown.set()
        self.questioned.set()
        try:
            with self._paused():
                yield
        finally:
            self.close_question(question)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        clock = self.clock
        if clock is None:
            yield
            return
        self._pauses += 1
        if self._pauses == 1:
            self._left, clock.deadline = clock.deadline - anyio.current_time(), math.inf
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                clock.deadline = anyio.current_time() + self._left

    def answer(self, question: Question, line: str | None, why: str = "") -> None:
        """What a person said, or why nobody did; the first answer counts."""
        if not question.answered.is_set():
            question.line, question.why = ([], why) if line is None else ([line], "")
            question.answered.set()
        self.close_question(question)

    def close_question(self, question: Question) -> None:
        if question in self.questions:
            self.questions.remove(question)
        if self.questions:
            self.questions[0].shown.set()
        else:
            self.questioned = anyio.Event()

    def stop(self, why: Stop, because: str = "") -> None:
        if self.stopping is None:
            self.stopping, self.because = why, because
            self.following.cancel()
            if self.queued is not None:
                self.queued.cancel()

    def settle(self, run: Run) -> None:
        """How it ended, for whoever waits for it; for others it goes on until it is on disk."""
        assert self.cell is not None
        self.ended = replace(self.cell, run=run)
        self.settled.set()

    def failed(self, error: QuireError) -> None:
        """Nothing more comes of it. Of one that is over the answer is right, whatever came of the checkpoint after."""
        if self.done.is_set():
            log.warning("after a run in notebook %r: %s", self.notebook.name, error)
        else:
            self.error = error

    def over(self) -> None:
        for event in (self.begun, self.settled, self.done):
            event.set()

    async def kept(self) -> None:
        """How it ended is on disk, where it has. Raises QuireError where it cannot be."""
        if self.settled.is_set():
            await self.done.wait()
            if self.error is not None:
                raise self.error

    def now(self) -> Cell:
        """The cell with what the run has shown so far."""
        if self.cell is None:
            raise OperationFailed("The run has not begun.")
        if self.done.is_set() or self.cell.run is None:
            return self.cell
        seconds = time.time() - self.cell.run.started_at
        return replace(self.cell, run=replace(self.cell.run, seconds=seconds, outputs=self.transcript.outputs()))


class ActiveRuns:
    """The runs under way, and those that wait for their turn, by notebook."""

    def __init__(self) -> None:
        self._runs: dict[NotebookId, list[ActiveRun]] = {}

    def of(self, notebook: NotebookId) -> list[ActiveRun]:
        return self._runs.get(notebook, [])

    def current(self, notebook: NotebookId) -> ActiveRun | None:
        """What runs there now."""
        return next((run for run in self.of(notebook) if run.begun.is_set()), None)

    def begun(self) -> list[ActiveRun]:
        """All that run now, in every notebook."""
        return [run for runs in self._runs.values() for run in runs if run.begun.is_set()]

    def queued(self, notebook: NotebookId) -> ActiveRun | None:
        """What waits there for a place among all runs."""
        return next((run for run in self.of(notebook) if run.queued is not None), None)

    def count(self) -> tuple[int, int]:
        """Runs under way, and those that wait for their turn."""
        runs = [run for runs in self._runs.values() for run in runs]
        begun = sum(run.begun.is_set() for run in runs)
        return begun, len(runs) - begun

    def stop(self, notebook: NotebookId, why: Stop) -> None:
        """Stop what runs there and what waits to."""
        for run in self.of(notebook):
            run.stop(why)

    def add(self, active: ActiveRun, *, first: bool = False) -> None:
        runs = self._runs.setdefault(active.notebook.id, [])
        runs.insert(0 if first else len(runs), active)

    def remove(self, active: ActiveRun) -> None:
        self._runs[active.notebook.id].remove(active)
