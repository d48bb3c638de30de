"""The guest's life: one request at a time, its events said to the host while it is answered."""

from __future__ import annotations

import builtins
import contextlib
import getpass
import io
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from quire.runtimes.wasm.guest import absent, displays, figures
from quire.runtimes.wasm.guest.files import Files
from quire.wire import messages, texts
from quire.wire.messages import (
    Checkpoint,
    Checkpointed,
    Enter,
    Entered,
    Finished,
    Inspect,
    Inspected,
    Load,
    Loaded,
    Offer,
    Page,
    Printed,
    Read,
    Run,
    Value,
)
from quire.worker.capabilities import relay
from quire.worker.capabilities.kernel_capabilities import KernelCapabilities
from quire.worker.execution import memory_reserve, namespace
from quire.worker.execution.errors import InputNotAvailable, raised_event
from quire.worker.execution.executor import Executor
from quire.worker.execution.interrupts import Interrupts
from quire.worker.output import tables

_FIRST = (
    "1 + 1",
    "print('a')",
    "def f(): return {'a': [1, 2.5]}\nf()",
    "1 / 0",
    "import json\njson.dumps([1])",
    "[1][2",
)
_AT_ONCE = 1_000  # writes of a run that are said as they come; then they are gathered
_GATHERED = 1 << 15  # bytes
_SECONDS = 0.01
_FULL = texts.dump(raised_event(MemoryError()))  # made while there is memory for it
_FAILED = texts.dump(Finished(run="", outcome="error"))  # whose run it is the host says


class Kernel:
    def __init__(self, host: Callable[[str], str]) -> None:
        self._host = host
        self.streams = [Stream(self, name) for name in ("stdout", "stderr")]
        self._own: list[Any] = []
        self._executor = Executor(self.emit)
        relay.ask = self._ask  # type: ignore[attr-defined]  # of the one that is in its place
        self._known = KernelCapabilities(Interrupts(), self._executor.namespace)
        self._files = Files()
        self._inside = False
        self._held = ""  # an event that waits for the next
        self._ran = False  # since the last request came
        figures.shows = self._executor.display
        self._executor.display.after_cell = figures.flush
        builtins.display = displays.display  # type: ignore[attr-defined]
        builtins.input = _no_input
        getpass.getpass = _no_input
        self._own_streams()
        absent.polls[:] = [self.poll]
        os.write = self._write

    def handle(self, request: str) -> str:
        """Answered also where memory is full: what is set aside for it is given, and what can be is done again."""
        self._ran = False
        try:
            return self._answer(request)
        except MemoryError:
            memory_reserve.release()
            if not self._ran:
                return self._answer(request)
        self._held = ""
        self._host(_FULL)
        return f"0\n{_FAILED}"

    def _answer(self, request: str) -> str:
        asked = texts.load(messages.REQUESTS, request)
        match asked:
            case Run():
                return self._run(asked)
            case Offer(catalog=catalog):
                self._known.apply(catalog)
            case Enter():
                return texts.dump(self._enter(asked))
            case Checkpoint(name=name):
                return texts.dump(Checkpointed(name=name, lost=self._files.sleep()))
            case Load():
                self._files.wake()
                return texts.dump(Loaded())
            case Inspect():
                variables, functions = namespace.describe(self._executor.namespace)
                return texts.dump(Inspected(variables=variables, functions=functions))
            case Read(name=name):
                return texts.dump(self._read(name))
            case Page():
                return texts.dump(tables.read_page(asked))
        return ""

    def emit(self, event: Any, more: bool = False) -> None:
        """Have the host hear it, after what was printed before it; what has `more` to follow may wait for it."""
        for stream in self.streams:
            stream.say()
        if more:
            self._say_held()
            self._held = texts.dump(event)
        else:
            self.tell(event)

    def tell(self, event: Any) -> None:
        self._say_held()
        self._check_interrupt(self._host(texts.dump(event)))

    def _say_held(self) -> None:
        if self._held:
            held, self._held = self._held, ""
            self._host(held)

    def poll(self) -> None:
        """Called now and then while code waits, so that it sees an interrupt."""
        self._check_interrupt(self._host(""))

    @staticmethod
    def _check_interrupt(answer: str) -> None:
        if answer == "interrupt":
            raise KeyboardInterrupt

    def _ask(self, called: Any) -> str:
        for stream in self.streams:
            stream.say()
        self._say_held()
        return self._host(texts.dump(called))

    def _enter(self, request: Enter) -> Entered:
        """At the start, and again when an image was put back: another clock, other dice."""
        self._files.most, self._files.folders = (int(each) for each in request.environ["QUIRE_FILES"].split())
        if not self._inside:
            try:
                os.chdir(request.workspace)
            except OSError as error:
                return Entered(why_not=str(error))
            self._inside = True
            os.environ.clear()
            os.environ.update({name: value for name, value in request.environ.items() if name != "QUIRE_FILES"})
            sys.addaudithook(self._files)
            self._executor.history.folders[:] = [pathlib.Path(request.workspace)]
            _touch_streams()
        else:
            self._known.tell_again()
        self._files.wake()
        random.seed()
        return Entered()

    def _run(self, request: Run) -> str:
        """How it ended, and before it, with its length, what the host has not heard yet: most runs need no call."""
        self._own_streams()
        for stream in self.streams:
            stream.begin()
        self._ran = True
        try:
            finished = self._executor.execute(request)
        except KeyboardInterrupt as late:  # it came while the outcome was being reported
            self.emit(raised_event(late))
            finished = Finished(run=request.run, outcome="interrupted")
        self._flush()
        news = self._known.news()
        if news is not None:
            self.emit(news)
        memory_reserve.release()  # or the next request may not even come in
        held, self._held = self._held, ""
        return f"{len(held)}\n{held}{texts.dump(finished)}"

    def _flush(self) -> None:
        for name, own in zip(("stdout", "stderr"), self._own, strict=True):
            if (put := getattr(sys, name, own)) is not own:
                with contextlib.suppress(Exception):  # whatever a cell has put there
                    put.flush()
        for stream in self.streams:
            stream.say()

    def _read(self, name: str) -> Value:
        if name not in self._executor.namespace:
            return Value(value=[], what="")
        value = self._executor.namespace[name]
        return Value(value=namespace.as_json(value), what=namespace.type_of(value))

    def _write(self, fd: int, data: Any, /) -> int:
        """os.write(), which for the descriptors of stdout and stderr is what Python's own streams are."""
        if fd not in (1, 2):
            return int(_write(fd, data))
        said = bytes(data)
        self.streams[fd - 1].write(said)
        self.streams[fd - 1].say()
        return len(said)

    def _own_streams(self) -> None:
        """A cell before may have closed, replaced or redirected them: this one's prints are seen again."""
        if not self._own or not all(_usable(each) for each in self._own):
            self._own = [_text_stream(each) for each in self.streams]
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = self._own  # type: ignore[misc]


class Stream:
    """What was written to stdout or stderr and the host has not heard yet."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self.name = name
        self._waiting = bytearray()
        self._since = 0.0  # when what waits began to
        self._times = 0

    def begin(self) -> None:
        self._times = 0

    def write(self, data: bytes) -> None:
        if not self._waiting:
            for other in self._kernel.streams:
                if other is not self:
                    other.say()
            self._since = time.monotonic()
        self._waiting += data
        full, line = len(self._waiting) >= _GATHERED, b"\n" in data and self._times < _AT_ONCE
        if full or line or time.monotonic() - self._since > _SECONDS:  # where it is said, an interrupt is heard
            self.say()

    def say(self) -> None:
        if self._waiting:
            data = bytes(self._waiting)
            self._waiting.clear()
            self._times += 1
            for at in range(0, len(data), _GATHERED):
                self._kernel.tell(Printed(stream=self.name, data=data[at : at + _GATHERED]))


class _Buffer(io.BufferedIOBase):
    """What a text stream writes to; nothing stays here."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        self.name = f"<{stream.name}>"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        said = bytes(data)
        self._stream.write(said)
        return len(said)

    def flush(self) -> None:
        super().flush()
        self._stream.say()

    def fileno(self) -> int:
        return 1 if self._stream.name == "stdout" else 2


def _usable(stream: io.TextIOWrapper) -> bool:
    try:
        return not stream.closed and not stream.buffer.closed
    except ValueError:  # detached
        return False


def _text_stream(stream: Stream) -> io.TextIOWrapper:
    buffer: Any = _Buffer(stream)
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", write_through=True)


_write = os.write


def _touch_streams() -> None:
    """From here on they are known outside the memory, as they are wherever an image of it is put back."""
    os.read(0, 1)
    _write(1, b"\n")
    _write(2, b"\n")


def warm_up(*more: str) -> None:
    """When the component is built: what a first cell would load and work out is there for all of them."""
    displays.install()
    kernel = Kernel(lambda said: "")
    for code in (*_FIRST, *more):
        kernel.handle(texts.dump(Run(run="r", code=code, name="cell 1", count=1)))
    kernel.handle(texts.dump(Inspect()))


def _no_input(prompt: object = "", /, *given: Any, **named: Any) -> NoReturn:
    raise InputNotAvailable(
        f"input({str(prompt)!r}): no person can be asked from WebAssembly. Put the value into the code, or into a file."
    )
