"""A JavaScript guest on its own thread, and a host that records all its events."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from quire.runtimes.wasm.host.guest import Bounds, Place
from quire.wire import messages, relay
from tests.support.waiting import DEADLINE


class Hears:
    """A host: what is said, and who answers calls."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.calls: list[relay.Called] = []
        self.answer: Callable[[relay.Called], relay.Answer] = lambda called: relay.Returned(call=called.call, value={})
        self.heard = threading.Event()

    def say(self, event: Any) -> None:
        self.events.append(event)
        self.heard.set()

    def call(self, called: relay.Called) -> relay.Answer:
        self.calls.append(called)
        return self.answer(called)


class Session:
    """A guest whose every method but interrupt runs on its one thread."""

    def __init__(self, made: Any, place: Place, bounds: Bounds) -> None:
        self.host = Hears()
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._count = 0
        threading.Thread(target=self._live, daemon=True).start()
        self.guest = self.on_thread(lambda: made.make(place, bounds, self.host))

    def _live(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._done.put((asked(), None))
            except BaseException as error:
                self._done.put((None, error))

    def start(self, act: Callable[[], Any]) -> None:
        self._asked.put(act)

    def wait(self) -> Any:
        value, error = self._done.get(timeout=DEADLINE)
        if error is not None:
            raise error
        return value

    def on_thread(self, act: Callable[[], Any]) -> Any:
        self.start(act)
        return self.wait()

    def request(self, code: str) -> messages.Run:
        self._count += 1
        self.host.events.clear()
        self.host.heard.clear()
        return messages.Run(run=f"r{self._count}", code=code, name=f"cell-{self._count}")

    def run(self, code: str) -> Ran:
        asked = self.request(code)
        self.on_thread(lambda: self.guest.run(asked))
        return Ran(list(self.host.events), asked)

    def value(self, code: str) -> Any:
        ran = self.run(code)
        assert ran.outcome == "success", ran.events
        return ran.value

    def close(self) -> None:
        self.on_thread(self.guest.close)
        self._asked.put(None)


class Ran:
    def __init__(self, events: list[Any], asked: messages.Run) -> None:
        self.events = events
        self.finished = events[-1]
        assert isinstance(self.finished, messages.Finished)
        assert self.finished.run == asked.run
        for event in events:  # each is what the wire can say
            if not isinstance(event, relay.Called):
                header, parts = messages.dump(event)
                messages.parse(messages.EVENTS, header, parts)
        self.outcome = self.finished.outcome
        self.value = self.finished.value[0] if self.finished.value else None
        self.values = self.finished.value

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]

    @property
    def text(self) -> str:
        (shown,) = [each for each in self.of(messages.Displayed) if each.result]
        return str(shown.bundle["text/plain"])

    @property
    def error(self) -> messages.Raised:
        (found,) = self.of(messages.Raised)
        assert self.outcome == "error"
        return found

    def printed(self, stream: str = "stdout") -> str:
        return b"".join(each.data for each in self.of(messages.Printed) if each.stream == stream).decode()
