"""The runs that led to a live namespace's state, and what a crash would cost. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from quire.core.model import CellId, ForkReport, Run, RunId
from quire.core.ports.kernel import START

_CHEAP_CHECKPOINT_S = 0.02  # a checkpoint that costs no more is taken at once after a run
_BURST_RUNS = 100  # runs without a pause; in a longer burst not every run is followed by a checkpoint
_PAUSE_S = 0.05  # without a request
_MAX_RISK = 10  # times the cost of a checkpoint: running time that is always protected


@dataclass(frozen=True)
class Step:
    """A run that changed the namespace."""

    parent: RunId | None  # the run before it; None for the kernel's first
    cell: CellId
    count: int


@dataclass
class RunLineage:
    """The tree of a kernel's runs, and where in it the namespace is. A rollback moves `head` and keeps the tree."""

    head: RunId | None = None  # the last run that the namespace contains; None: the kernel's initial state
    steps: dict[RunId, Step] = field(default_factory=dict)
    start: ForkReport = field(default_factory=lambda: ForkReport(quality="clean"))  # of the initial state
    undone: dict[RunId, RunId | None] = field(default_factory=dict)  # runs without effect, and the head they started at
    checkpoint_cost: float = 0.0  # seconds of work for the last checkpoint
    seconds_at_risk: float = 0.0  # running time that a crash would cost
    burst_length: int = 0  # runs that came without a pause
    why_unprotected: str = ""  # why the current state has no checkpoint
    lacks_base: bool = False  # the current state's checkpoint was used up, or is still to be taken after a restore

    def advance(self, run: Run) -> None:
        """Add a run whose effects are in the namespace."""
        self.steps[run.id] = Step(self.head, run.cell, run.count)
        self.head = run.id
        self.seconds_at_risk += run.seconds or 0.0

    def undo(self, run: RunId) -> None:
        """Note a run whose effects are not in the namespace."""
        self.undone[run] = self.head

    def checkpoint_taken(self, cost: float) -> None:
        self.checkpoint_cost, self.seconds_at_risk, self.why_unprotected = cost, 0.0, ""

    def count_request(self, idle: float) -> None:
        """Count the requests of a burst; `idle` is the time in seconds since the last one."""
        self.burst_length = self.burst_length + 1 if 0 <= idle < _PAUSE_S else 0

    def enter_burst(self) -> None:
        """Treat the next run as one of a burst."""
        self.burst_length = max(self.burst_length, _BURST_RUNS)

    def checkpoint_delay(self) -> float:
        """Idle time in seconds required before a checkpoint is taken.

        In a burst, or if it is expensive, a checkpoint must not delay the next request by more than it is worth. One
        that replaces a used checkpoint never waits.
        """
        is_cheap = self.checkpoint_cost <= _CHEAP_CHECKPOINT_S and self.burst_length < _BURST_RUNS
        if self.lacks_base or is_cheap or self.seconds_at_risk >= _MAX_RISK * self.checkpoint_cost:
            return 0.0
        return max(_PAUSE_S, 2 * self.checkpoint_cost)

    def find_state(self, run: RunId, *, before: bool) -> str | None:
        """The name of the state after a run, or before it. None for a run of another kernel."""
        if run in self.steps:
            return (self.steps[run].parent or START) if before else run
        return (self.undone[run] or START) if run in self.undone else None

    def ancestors(self, run: RunId | None) -> list[RunId]:
        """The run and the runs that led to it, newest first."""
        found: list[RunId] = []
        while run is not None and run in self.steps:
            found.append(run)
            run = self.steps[run].parent
        return found

    def nearest_checkpoint(self, checkpoints: Container[str]) -> tuple[str, list[RunId]]:
        """The newest of the checkpoints among the ancestors of `head`, and the runs since it, oldest first."""
        since: list[RunId] = []
        for run in self.ancestors(self.head):
            if run in checkpoints:
                return run, since[::-1]
            since.append(run)
        return START, since[::-1]

    def move_to(self, checkpoint: str) -> None:
        """The kernel was restored to this checkpoint, which is used up by that."""
        self.head = RunId(checkpoint) if checkpoint != START else None
        self.seconds_at_risk, self.why_unprotected, self.lacks_base = 0.0, "", True

    def stale_marks(self, checkpoint: str) -> dict[RunId, bool]:
        """For each run, whether the state at this checkpoint is without it."""
        contained = set(self.ancestors(RunId(checkpoint) if checkpoint != START else None))
        return {run: run not in contained for run in self.steps}
