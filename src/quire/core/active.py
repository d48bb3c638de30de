"""A run under way: what it has shown, what it asks, how it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

import anyio

from quire.core.errors import Failed, QuireError
from quire.core.model import Cell, NewCell, Notebook
from quire.core.transcript import Transcript


class Stop(Enum):
    TIMEOUT = "timeout"
    INTERRUPT = "interrupt"
    SHUTDOWN = "shutdown"


@dataclass(eq=False)
class Question:
    """The code waits for a line from a person."""

    number: int
    prompt: str
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
    done: anyio.Event = field(default_factory=anyio.Event)
    cell: Cell | None = None  # with the run as it stands; None until it is begun
    notice: str = ""
    error: QuireError | None = None  # why it never began, or could not be recorded
    started_at: float = 0.0
    stopping: Stop | None = None
    following: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    listeners: int = 0  # callers who wait and can have a person asked
    question: Question | None = None
    questioned: anyio.Event = field(default_factory=anyio.Event)  # there is a question

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A caller waits who can have a person asked."""
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    def answer(self, question: Question, line: str | None, why: str = "") -> None:
        """What a person said, or why nobody did; the first answer counts."""
        if not question.answered.is_set():
            question.line, question.why = ([], why) if line is None else ([line], "")
            question.answered.set()
        self.close_question(question)

    def close_question(self, question: Question) -> None:
        if self.question is question:
            self.question = None
            self.questioned = anyio.Event()

    def stop(self, why: Stop) -> None:
        if self.stopping is None:
            self.stopping = why
            self.following.cancel()

    def now(self) -> Cell:
        """The cell with what the run has shown so far."""
        if self.cell is None:
            raise Failed("The run has not begun.")
        if self.done.is_set() or self.cell.run is None:
            return self.cell
        seconds = time.time() - self.cell.run.started_at
        return replace(self.cell, run=replace(self.cell.run, seconds=seconds, outputs=self.transcript.outputs()))
