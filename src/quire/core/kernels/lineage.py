"""Where a live namespace stands: after which run, how it came there, and what a crash would cost. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from quire.core.model import CellId, ForkReport, Run, RunId
from quire.core.ports.kernel import START

_CHEAP = 0.02  # seconds: a checkpoint that costs no more is taken at once after a run
_BURST = 100  # runs without a pause between them; of a longer burst not each is followed by a checkpoint
_PAUSE = 0.05  # seconds nobody wanted the kernel
_WORTH = 10  # times the cost of a checkpoint: running time that is never left without one


@dataclass(frozen=True)
class Step:
    """A run that moved the namespace."""

    parent: RunId | None  # the one before it; None: it was the kernel's first
    cell: CellId
    count: int


@dataclass
class RunLineage:
    """The runs that made the namespace what it is. A rollback moves `head` back; what it left stays known."""

    head: RunId | None = None  # the run after which the namespace stands; None: as the kernel began
    steps: dict[RunId, Step] = field(default_factory=dict)
    start: ForkReport = field(default_factory=lambda: ForkReport(quality="clean"))  # of the state the kernel began with
    undone: dict[RunId, RunId | None] = field(default_factory=dict)  # runs that left no trace, and where they began
    cost: float = 0.0  # seconds of work the last checkpoint took
    at_risk: float = 0.0  # seconds of running that a crash would cost
    hurry: int = 0  # runs that came without a pause
    why: str = ""  # there is no checkpoint of the newest state
    bare: bool = False  # the checkpoint it stands at was woken, and is to be taken again before anything runs

    def advance(self, run: Run) -> None:
        """The run is over and what it did is in the namespace."""
        self.steps[run.id] = Step(self.head, run.cell, run.count)
        self.head = run.id
        self.at_risk += run.seconds or 0.0

    def protected(self, cost: float) -> None:
        self.cost, self.at_risk, self.why = cost, 0.0, ""

    def used(self, idle: float) -> None:
        """Somebody wants the kernel, so many seconds after it was last used."""
        self.hurry = self.hurry + 1 if 0 <= idle < _PAUSE else 0

    def hurried(self) -> None:
        """The next run is one of many."""
        self.hurry = max(self.hurry, _BURST)

    def patience(self) -> float:
        """How long nobody must want the kernel before a checkpoint is taken: in a long burst, or over a namespace
        that is dear to copy, it must not cost a hurried caller more than what it protects is worth. What takes the
        place of a checkpoint that was woken is never waited with."""
        if self.bare or self.at_risk >= _WORTH * self.cost or (self.cost <= _CHEAP and self.hurry < _BURST):
            return 0.0
        return max(_PAUSE, 2 * self.cost)

    def around(self, run: RunId, *, before: bool) -> str | None:
        """The state after a run, or before it: of one that left no trace it is the same. None: another kernel's."""
        if run in self.steps:
            return (self.steps[run].parent or START) if before else run
        return (self.undone[run] or START) if run in self.undone else None

    def way(self, to: RunId | None) -> list[RunId]:
        """The runs that led there, newest first."""
        found: list[RunId] = []
        while to is not None and to in self.steps:
            found.append(to)
            to = self.steps[to].parent
        return found

    def nearest(self, kept: Container[str]) -> tuple[str, list[RunId]]:
        """The newest checkpoint on the way here, and the runs since it, oldest first."""
        since: list[RunId] = []
        for run in self.way(self.head):
            if run in kept:
                return run, since[::-1]
            since.append(run)
        return START, since[::-1]

    def move(self, to: str) -> None:
        """The namespace is that of this checkpoint now."""
        self.head = RunId(to) if to != START else None
        self.at_risk, self.why, self.bare = 0.0, "", True

    def stale(self, at: str) -> dict[RunId, bool]:
        """Of each run, whether the namespace at this checkpoint is without it."""
        on_the_way = set(self.way(RunId(at) if at != START else None))
        return {run: run not in on_the_way for run in self.steps}
