"""What a language gives the host: guests that run code, can be stopped, and whose whole state is an image."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quire.wire import messages, relay

PAGE = 4096  # bytes of an image's page


MORE_MEMORY = "Make a session with more memory_bytes (create_session, setting wasm.memory_bytes)."
"""What to do where it is too little."""


class Ended(Exception):
    """The guest cannot go on: a limit it ran into, a trap, an end it asked for. Its memory is not to be trusted."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason  # a sentence: what happened, and what was spent
        self.hint = hint  # a sentence: what to do, and how to raise the limit


class NotReady(Exception):
    """The program of a language is not there, or not compiled."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a guest sees of the machine."""

    workspace: Path  # its folder, to read and to write
    mounts: tuple[tuple[Path, bool], ...] = ()  # others of the operator's, and whether it may write there


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a guest may use; 0 is no limit."""

    memory: int = 0  # bytes of linear memory
    fuel: int = 0  # instructions a run may take
    files: int = 0  # open at once
    calls: int = 0  # of the host, by one run


@dataclass(frozen=True, kw_only=True)
class Image:
    """A guest's whole state, as what differs from one that was just made of the same artefact."""

    artefact: str  # which program it is of: an image fits no other
    size: int  # bytes of linear memory
    pages: dict[int, bytes] = field(default_factory=dict)  # those that differ, by number
    rest: str = ""  # what is not in linear memory, in the language's own words


class Host(Protocol):
    """What a guest may ask of the program around it; called from the guest's own thread."""

    def say(self, event: messages.Event) -> None:
        """Have the server hear it, in order. Waits while the server does not listen."""

    def call(self, called: relay.Called) -> relay.Answer:
        """Call a capability and wait for the answer. Raises Ended if none can come."""
        ...


class Guest(Protocol):
    """One namespace. Every method but `interrupt` is called from one thread, one at a time."""

    def settle(self) -> None:
        """Prepare what the first request needs, while no request waits. Raises Ended."""

    def run(self, run: messages.Run) -> None:
        """Its events, the last of them Finished, are said to the host. Raises Ended."""

    def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event:
        """The answer to a question about the namespace. Raises Ended."""
        ...

    def offer(self, offer: messages.Offer) -> None:
        """These are the capabilities code finds from now on."""

    def interrupt(self) -> None:
        """Have what runs now stop soon, from any thread: softly where the language can, else `run` raises Ended."""

    def image(self) -> Image:
        """The state as it is, between runs."""
        ...

    def restore(self, image: Image) -> None:
        """Have a guest that was just made be as that image says. Raises Ended where it does not fit."""

    def memory(self) -> int:
        """Bytes of its own that it holds, about."""
        ...

    def close(self) -> None:
        """Let go of everything."""


class Language(Protocol):
    """A program compiled once, of which guests are made."""

    @property
    def version(self) -> str:
        """For people: what language, which version."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """For people: libraries that it has beside its own, each with its version."""
        ...

    @property
    def artefact(self) -> str:
        """Names what is compiled: another program, another compiler or another option have another."""
        ...

    def make(self, place: Place, bounds: Bounds, host: Host) -> Guest:
        """A new guest. Raises Ended where none can be made."""
        ...

    def prepare(self) -> None:
        """Prepare what the next guest needs; called while no request waits."""

    def tick(self) -> None:
        """Called every few milliseconds while guests run, from a thread of its own: deadlines are looked at."""
