"""Kernels, the runtimes that start them, and the machine they run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from quire.core.capabilities.model import Catalog
from quire.core.model import (
    Died,
    ForkReport,
    KernelSpec,
    Restored,
    RuntimeInfo,
)
from quire.core.ports.snapshots import Draft, Recipe, Written
from quire.wire import messages, relay


class Kernel(Protocol):
    """One live namespace. One run or question at a time; the caller takes turns.

    A checkpoint is the namespace as it was when it was taken, under a name; START is the kernel as it began,
    which is always there.
    """

    @property
    def alive(self) -> bool:
        """Whether code can run in it now. One that is not may still be restored."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it began empty: one that was there before may hold anything."""
        ...

    @property
    def patience(self) -> float:
        """More seconds to react to an interrupt before it is killed, for kernels that lose their variables then."""
        ...

    async def begin(self, run: messages.Run) -> None:
        """Hand over the code; its events follow from `event`."""

    async def event(self) -> messages.Event | Died:
        """The next event of the run, in order; the last is Finished or Died. Safe to cancel and call again."""
        ...

    async def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event | Died:
        """The answer to a question about the namespace, between runs."""
        ...

    async def answer(self, answer: messages.Answer) -> None:
        """What a person said to Asked."""

    async def offer(self, catalog: Catalog) -> None:
        """Have the code find these capabilities, from the next run on; nothing where it has that catalog already."""

    def interrupt(self) -> None:
        """Ask the running code to stop, as Ctrl-C does. The namespace is kept."""

    async def kill(self) -> None:
        """End what runs the code now, whatever it does, with all it started. Checkpoints stay."""

    @property
    def checkpoints(self) -> Mapping[str, ForkReport]:
        """Those there are, oldest first."""
        ...

    async def checkpoint(self, name: str) -> float | str:
        """Take one, between runs: the seconds of work it took, or a sentence's end: why it was not taken."""
        ...

    async def thin_out(self, named: set[str]) -> None:
        """Drop what exceeds the memory checkpoints may hold: oldest first, named ones last, never the newest."""

    async def sizes(self) -> Mapping[str, int]:
        """Bytes that dropping each checkpoint would free."""
        ...

    async def restore(self, name: str) -> None:
        """Put the namespace back to a checkpoint, which is used up by that: take another of the same name. Raises
        OperationFailed where it cannot be."""

    def forget(self, name: str) -> None:
        """Let a checkpoint go."""

    async def write(self, name: str, draft: Draft, *, base: str, limit: int, values: bool) -> Written:
        """Write a checkpoint down, while cells run. `base` is the checkpoint that the draft's base was written of,
        `limit` how many bytes at the most, `values` whether JSON is to say what it can. Raises OperationFailed."""
        ...

    async def load(self, recipe: Recipe) -> Restored:
        """Start a fresh process and load a snapshot; checkpoints stay. If loading fails, the process is fresh."""
        ...

    async def branch(self, name: str, spec: KernelSpec) -> Kernel:
        """A second kernel that begins at a checkpoint of this one and outlives it. Raises OperationFailed."""
        ...

    def memory(self) -> int:
        """Bytes of its own that it holds now, about: what runs the code, and its checkpoints."""
        ...

    async def close(self) -> None:
        """End everything, checkpoints too, whatever it does; wait until it is gone. Twice is once."""


START = ""
"""The name of the state a kernel began with."""


class Runtime(Protocol):
    """A way to make kernels."""

    async def start(self, spec: KernelSpec) -> Kernel:
        """A new kernel, ready to run. Raises OperationFailed with the reason where none can be had."""
        ...

    async def about(self) -> RuntimeInfo:
        """How it stands, and the walls its kernels are put behind on this machine; waits until it is warm."""
        ...

    @property
    def spares(self) -> int:
        """Kernels that are kept ready, for new notebooks."""
        ...

    async def ready(self) -> None:
        """Wait until a kernel could be started at once. Raises OperationFailed with the reason where none could."""
        ...


@dataclass(frozen=True)
class Memory:
    """Of a machine, in bytes."""

    total: int
    available: int


class Machine(Protocol):
    """What everything here runs on."""

    def memory(self) -> Memory:
        """As it is now; quick."""
        ...


class Relay(Protocol):
    """What a runtime brings its kernels' calls to; it is the core's."""

    async def call(self, spec: KernelSpec, called: relay.Called) -> relay.Answer:
        """Answer a call of a capability. Never raises; cancelled if the caller stopped waiting."""
        ...

    def native(self, spec: KernelSpec, capabilities: list[dict[str, Any]]) -> None:
        """The capabilities a kernel's code offers itself, all there are now."""
