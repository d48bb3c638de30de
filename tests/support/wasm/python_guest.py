"""A notebook of one guest, as the tests drive it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from quire.runtimes.wasm.host.guest import Bounds, Place
from quire.runtimes.wasm.host.python.language import PythonLanguage
from quire.wire import messages, relay
from quire.wire.messages import Displayed, Finished, Printed, Raised, Run


@dataclass
class Ran:
    """What came of a cell."""

    events: list[messages.Event]

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]

    @property
    def finished(self) -> Finished:
        last = self.events[-1]
        assert isinstance(last, Finished)
        return last

    @property
    def value(self) -> Any:
        assert self.finished.outcome == "success", self.raised
        return self.finished.value[0] if self.finished.value else None

    @property
    def text(self) -> str:
        return b"".join(each.data for each in self.of(Printed)).decode()

    @property
    def shown(self) -> list[Any]:
        return [each.bundle for each in self.of(Displayed)]

    @property
    def raised(self) -> str:
        return "\n".join(each.traceback for each in self.of(Raised))


class Notebook:
    """A guest, and the host it speaks to."""

    def __init__(self, language: PythonLanguage, place: Place, bounds: Bounds) -> None:
        self.events: list[messages.Event] = []
        self.called: list[relay.Called] = []
        self.answers: Callable[[relay.Called], relay.Answer] = lambda called: relay.Returned(call=called.call, value={})
        self.hears: Callable[[messages.Event], None] = lambda event: None
        self.guest = language.make(place, bounds, self)
        self._count = 0

    def say(self, event: messages.Event) -> None:
        self.events.append(event)
        self.hears(event)

    def call(self, called: relay.Called) -> relay.Answer:
        self.called.append(called)
        return self.answers(called)

    def run(self, code: str) -> Ran:
        self._count += 1
        self.events = []
        self.guest.run(Run(run=f"r{self._count}", code=code, name=f"cell {self._count}", count=self._count))
        return Ran(self.events)


@contextlib.contextmanager
def ticking(language: Any) -> Iterator[None]:
    """Advance the language's clock on a thread, as its host does: it is what interrupts a guest."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.005):
            language.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    yield
    over.set()
    thread.join()


Make = Callable[..., Notebook]


FULL = {
    "crumbs": "a = []\nwhile True: a.append([{} for n in range(1000)])",
    "one large dictionary": "a = {}\nwhile True: a[len(a)] = {}",
    "nothing is left, and the cell went on": "a = []\nfor size in (100_000, 1_000, 100, 1):\n    try:\n"
    "        while True: a.append(bytearray(size))\n    except MemoryError: pass",
}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "about": "The weather.",
    "resources": [],
    "prompts": [],
    "tools": [
        {
            "name": "now",
            "description": "How it is.",
            "input": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
            "output": {},
            "hints": {},
        }
    ],
}
