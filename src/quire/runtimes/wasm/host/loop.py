"""The host's loop: frames in on stdin, each to its guest's thread; frames out on stdout, one at a time."""

from __future__ import annotations

import _thread
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from quire.runtimes.wasm import words
from quire.runtimes.wasm.host import images
from quire.runtimes.wasm.host.guest import Bounds, Ended, Guest, Language, Place
from quire.wire import frames, messages, relay
from quire.wire.messages import Displayed, Inspect, Inspected, Offer, Page, Printed, Read, Run

_TICK = 0.01  # seconds
_REST = 100  # ticks without a run, after which the clock stops until there is one
_PIECE = 1 << 14  # bytes printed that go together


class Loop:
    def __init__(self, read: int, out: BinaryIO, language: Language, layers: dict[str, str]) -> None:
        self._read = read
        self._out = out
        self._layers = layers
        self.language = language
        self._writing = threading.Lock()
        self._seats: dict[int, Seat] = {}
        self._highest = 0  # number of a guest so far
        self._running = 0
        self._waits = False  # something is written that did not go yet
        self._ticks = False  # the clock goes
        self._woken = threading.Event()
        self.spent = threading.Event()
        """A guest was made and answered: the next can be prepared."""

    def serve(self) -> None:
        """Until the server lets go."""
        threading.Thread(target=self._tick, daemon=True).start()
        threading.Thread(target=self._prepare, daemon=True).start()
        self.send(0, _hello(self.language, self._layers))
        opener = words.Opener(frames.FROM_SERVER)
        while data := os.read(self._read, 1 << 20):
            for number, frame in opener.feed(data):
                if number > self._highest:
                    self._highest = number
                    self._seats[number] = Seat(number, self)
                if number in self._seats:  # else it has stopped already
                    self._seats[number].hear(frame)

    def send(self, guest: int, message: Any, *, more: bool = False) -> int:
        """Its bytes. Where `more` is about to follow they go together, or with the next tick."""
        data = words.sealed(guest, message)
        with self._writing:
            self._out.write(data)
            if not more:
                self._out.flush()
            self._waits = more
        return len(data)

    def left(self, number: int) -> None:
        self._seats.pop(number, None)

    def runs(self, by: int) -> None:
        """One more guest runs, or one less."""
        with self._writing:
            self._running += by
            wake, self._ticks = not self._ticks, True
        if wake:
            self._woken.set()

    def _tick(self) -> None:
        """Deadlines are looked at while anything runs, and a while after: to wake the clock costs more than a run."""
        while True:
            self._woken.wait()
            self._woken.clear()
            rests = 0
            while self._goes_on(rests):
                time.sleep(_TICK)
                rests += 1
                if self._running > 0:
                    rests = 0
                    self.language.tick()
                    for seat in list(self._seats.values()):
                        seat.show()
                    if self._waits:
                        self._let_go()

    def _prepare(self) -> None:
        while self.spent.wait():
            self.spent.clear()
            self.language.prepare()

    def _let_go(self) -> None:
        with self._writing:
            self._out.flush()
            self._waits = False

    def _goes_on(self, rests: int) -> bool:
        with self._writing:
            self._ticks = self._running > 0 or rests < _REST
            return self._ticks


class Seat:
    """One guest: what is asked of it waits in a queue, and is done by a thread of its own."""

    def __init__(self, number: int, loop: Loop) -> None:
        self._number = number
        self._loop = loop
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[relay.Answer | None] = queue.SimpleQueue()
        self._decoder = frames.Decoder(words.TO_GUEST)
        self._guest: Guest | None = None
        self._unheard = 0  # bytes
        self._credit = threading.Condition()
        self._ending = False
        self._saying = threading.Lock()
        self._stream, self._printed = "", bytearray()
        _thread.start_new_thread(self._live, ())  # which is not waited for, unlike a Thread's own start

    def hear(self, frame: bytes) -> None:
        """From the loop's thread: never waits."""
        for message in self._decoder.feed(frame):
            match message:
                case words.Interrupt():
                    self._stop()
                case words.Heard(size=size):
                    with self._credit:
                        self._unheard -= size
                        self._credit.notify()
                case words.End():
                    self._ending = True
                    with self._credit:
                        self._credit.notify()
                    self._answers.put(None)
                    self._asked.put(message)
                    self._stop()
                case relay.Returned() | relay.Refused():
                    self._answers.put(message)
                case _:
                    self._asked.put(message)

    def _stop(self) -> None:
        guest = self._guest
        if guest is not None:
            guest.interrupt()

    # What a guest asks of its host

    def say(self, event: Any) -> None:
        with self._saying:
            if isinstance(event, Printed):
                self._print(event)
            else:
                self._flush(more=True)
                self._send(event, more=isinstance(event, Displayed) and event.result)  # a run's end is next

    def _print(self, event: Printed) -> None:
        """Many small pieces go as one: a line at a time would cost the server more than the guest."""
        if self._stream != event.stream:
            self._flush()
            self._stream = event.stream
        self._printed += event.data
        if len(self._printed) >= _PIECE:
            self._flush()

    def _flush(self, *, more: bool = False) -> None:
        if self._printed:
            data, self._printed = bytes(self._printed), bytearray()
            self._send(Printed(stream=self._stream, data=data), more=more)

    def show(self) -> None:
        """Have what was printed seen by now; from the clock's thread, which never waits."""
        if self._printed and self._unheard < words.CREDIT and self._saying.acquire(blocking=False):
            try:
                self._flush()
            except Ended:
                pass  # the guest's own thread hears it, too
            finally:
                self._saying.release()

    def _send(self, event: Any, *, more: bool = False) -> None:
        with self._credit:
            self._credit.wait_for(lambda: self._unheard < words.CREDIT or self._ending)
        if self._ending:
            raise Ended("It was ended.")
        size = self._loop.send(self._number, event, more=more)
        with self._credit:
            self._unheard += size

    def call(self, called: relay.Called) -> relay.Answer:
        self.say(called)
        answer = self._answers.get()
        if answer is None:
            raise Ended("It was ended while it waited for a capability.")
        return answer

    # Its life

    def _live(self) -> None:
        try:
            while not isinstance(asked := self._asked.get(), words.End) and not self._ending:
                self._do(asked)
            stopped = words.Stopped(reason="It was ended.")
        except Ended as ended:
            stopped = words.Stopped(reason=ended.reason, hint=ended.hint)
        except Exception as error:  # a fault of ours costs this guest
            stopped = words.Stopped(reason=f"The program around it failed ({type(error).__name__}: {error}).")
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.close()
        self._loop.left(self._number)
        self._loop.send(self._number, stopped)

    def _do(self, asked: Any) -> None:
        if isinstance(asked, words.Make):
            self._make(asked)
            self.say(words.Made())
            self._timed(lambda guest: guest.settle())
            return
        assert self._guest is not None
        match asked:
            case Run():
                self._timed(lambda guest: guest.run(asked))
            case Inspect() | Read() | Page():
                self._timed(lambda guest: self.say(guest.ask(asked)))
            case Offer():
                self._timed(lambda guest: guest.offer(asked))
            case words.Keep(file=file):
                self._timed(lambda guest: self.say(_keep(guest, Path(file))))
                self._loop.spent.set()

    def _timed(self, do: Callable[[Guest], None]) -> None:
        assert self._guest is not None
        self._loop.runs(+1)
        try:
            do(self._guest)
        finally:
            self._loop.runs(-1)

    def _make(self, make: words.Make) -> None:
        if Path(make.workspace).is_symlink():
            raise Ended("The workspace is a link now, and may lead anywhere.", "Put the folder back.")
        place = Place(
            workspace=Path(make.workspace), mounts=tuple((Path(path), writable) for path, writable in make.mounts)
        )
        bounds = Bounds(memory=make.memory, fuel=make.fuel, files=make.files, calls=make.calls)
        image = images.read(Path(make.image)) if make.image else None
        guest = self._loop.language.make(place, bounds, self)
        self._guest = guest
        if image is not None:
            guest.restore(image)


def _hello(language: Language, layers: dict[str, str]) -> words.Hello:
    packages = list(language.packages)
    return words.Hello(version=language.version, artefact=language.artefact, packages=packages, layers=layers)


def _keep(guest: Guest, file: Path) -> words.Kept:
    """An image is taken, and what the namespace holds is asked first: asking may change it."""
    begun = time.thread_time()
    found = guest.ask(messages.Inspect())
    assert isinstance(found, Inspected)
    try:
        size = images.write(guest.image(), file)
    except OSError as error:
        return words.Kept(why_not=f"it could not be written ({error.strerror})")
    return words.Kept(
        size=size,
        memory=guest.memory(),
        seconds=time.thread_time() - begun,
        variables=found.variables,
        functions=found.functions,
    )
