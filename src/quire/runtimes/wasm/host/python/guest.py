"""One Python namespace: a component in a store of its own, asked by strings, imaged through its window."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import wasmtime

from quire.runtimes.wasm.host.guest import MORE_MEMORY, PAGE, Bounds, Ended, Host, Image, Place
from quire.runtimes.wasm.host.python.opened import Opened
from quire.runtimes.wasm.host.python.program import FOR_EVER, Program
from quire.wire import frames, messages, relay, texts

WORKSPACE = "/workspace"
_OWN_FUEL = 10**10  # for what we ask ourselves
_GRACE = 0.1  # seconds that code has to hear an interrupt
_HEEDED = 1.5  # and then to come to its end: less than the server waits before it ends the process
_SAID = (messages.Printed, messages.Displayed, messages.Cleared, messages.Raised, messages.Native)
_SOFT = (messages.Printed, messages.Displayed, messages.Cleared)  # where code can be interrupted as it says them
_WORDS: dict[str, type] = {kind.__name__: kind for kind in (*_SAID, relay.Called)}
_ANSWERS = {messages.Inspect: messages.Inspected, messages.Read: messages.Value, messages.Page: messages.Paged}
_OWN = 2 << 20  # bytes of the memory it began with that a guest has written to, about


@dataclass
class _Run:
    """What a run has spent."""

    calls: int = 0


class PythonGuest:
    folders = 1  # that each has open, before those that are mounted

    def __init__(self, program: Program, place: Place, bounds: Bounds, host: Host) -> None:
        self._program = program
        self._place = place
        self._bounds = bounds
        self._host = host
        self._interrupted = 0.0  # when that was asked for
        self._told = False  # and code has heard it
        self._over = ""  # why it cannot go on
        self._running: _Run | None = None
        self._opened = Opened(place, bounds.files)
        self._greedy = False  # it holds more files than it may
        self._begin()

    def _begin(self) -> None:
        """Be one that was just made."""
        blank = self._program.blank(self._bounds.memory)
        self._store, self._instance, self._memory = blank.store, blank.instance, blank.memory
        self._store.set_wasi(self._wasi())
        self._instance.host, self._instance.stopped = self._heard, self._is_to_stop
        self._entered, self._over = False, ""

    def _wasi(self) -> wasmtime.WasiConfig:
        return self._granted(wasmtime.WasiConfig())

    def _granted(self, wasi: wasmtime.WasiConfig) -> wasmtime.WasiConfig:
        wasi.preopen_dir(str(self._place.workspace), WORKSPACE, True)
        for path, writable in self._place.mounts:
            wasi.preopen_dir(str(path), path.as_posix(), writable)
        return wasi  # stdin, stdout and stderr are nothing: a callback for them would come from other threads

    # The Guest

    def settle(self) -> None:
        self._enter()

    def run(self, run: messages.Run) -> None:
        self._enter()
        self._running = _Run()
        try:
            size, _, rest = self._ask(run, self._bounds.fuel or FOR_EVER).partition("\n")
            if size != "0":
                self._heard(rest[: int(size[:9])])
            finished = texts.load(messages.EVENTS, rest[int(size[:9]) :])
            if not isinstance(finished, messages.Finished):
                raise messages.BadMessage("it did not say how")
        except ValueError as error:  # BadMessage is one
            raise self._broken(f"The guest ended a run without words of ours: {error}.") from error
        finally:
            self._running = None
        if self._has_too_many_files(now=True):
            raise self._ended(wasmtime.WasmtimeError("too many files"))
        self._host.say(dataclasses.replace(finished, run=run.run))

    def ask(self, question: messages.Inspect | messages.Read | messages.Page) -> messages.Event:
        self._enter()
        answer = self._answer(question)
        if not isinstance(answer, _ANSWERS[type(question)]):
            raise self._broken("The guest answered something else than was asked.")
        return answer

    def offer(self, offer: messages.Offer) -> None:
        self._enter()
        self._ask(offer)

    def interrupt(self) -> None:
        """Code that prints or sleeps is raised a KeyboardInterrupt; other code, and what goes on, is ended."""
        self._interrupted = self._interrupted or time.monotonic()  # asked again, there is no more time

    def image(self) -> Image:
        self._enter()
        asleep = self._answer(messages.Checkpoint(name=""))
        lost = asleep.lost if isinstance(asleep, messages.Checkpointed) else []
        self._fuel(FOR_EVER)
        try:
            size, pages = self._memory.size(), self._memory.read(self._program.fresh.changed(self._memory))
        except wasmtime.WasmtimeError as error:
            raise self._ended(error) from error
        self._answer(messages.Load())
        return Image(artefact=self._program.artefact, size=size, pages=pages, rest="; ".join(lost)[:1_000])

    def restore(self, image: Image) -> None:
        self._check(image)
        if self._entered or self._over:
            self._store.close()
            self._begin()
        self._enter()  # what the guest has outside its memory is made by this, and by nothing else
        self._fuel(FOR_EVER)
        try:
            if not self._memory.grow(image.size):
                raise Ended(
                    f"The checkpoint needs {image.size:,} bytes of memory, and {self._bounds.memory:,} are the limit.",
                    MORE_MEMORY,
                )
            changed = self._program.fresh.changed(self._memory)
            back = self._program.fresh.pages([number for number in changed if number not in image.pages])
            self._memory.write({**back, **image.pages})
        except wasmtime.WasmtimeError as error:
            raise self._ended(error) from error
        self._entered = False
        self._enter()

    def _check(self, image: Image) -> None:
        if image.artefact != self._program.artefact:
            raise Ended("The checkpoint is of another version of the Python guest.", "Run the cells again.")
        if any(len(page) != PAGE or not 0 <= number < image.size // PAGE for number, page in image.pages.items()):
            raise Ended("The checkpoint is damaged.", "Go back to an earlier one, or run the cells again.")

    def memory(self) -> int:
        return self._memory.size() - self._program.fresh.size + _OWN

    def close(self) -> None:
        self._store.close()

    # Asking

    def _enter(self) -> None:
        """Before the first request, and the first after an image was put back."""
        if self._entered:
            return
        folders = self.folders + len(self._place.mounts)
        environ = {"HOME": WORKSPACE, "PWD": WORKSPACE, "QUIRE_FILES": f"{self._bounds.files} {folders}"}
        entered = self._answer(messages.Enter(workspace=WORKSPACE, environ=environ))
        if not isinstance(entered, messages.Entered) or entered.why_not:
            raise Ended(f"The guest could not begin: {getattr(entered, 'why_not', 'it answered something else')}.")
        self._entered = True

    def _answer(self, request: Any) -> messages.Event:
        try:
            answer: messages.Event = texts.load(messages.EVENTS, self._ask(request))
        except messages.BadMessage as error:
            raise self._broken(f"The guest answered what is no answer: {error}.") from error
        return answer

    def _ask(self, request: Any, fuel: int = _OWN_FUEL) -> str:
        if self._over:
            raise Ended(f"This guest has ended before: {self._over}", "Put it back to its checkpoint.")
        self._interrupted, self._told = 0.0, False
        self._fuel(fuel)
        try:
            return str(self._instance.call("handle", texts.dump(request, frames.FROM_SERVER)))
        except wasmtime.WasmtimeError as error:
            raise self._ended(error) from error
        except Ended as ended:  # of the host's, in the middle of a call
            self._over = ended.reason
            raise

    def _fuel(self, fuel: int) -> None:
        if self._program.metered:
            self._store.set_fuel(fuel)

    def _heard(self, said: str) -> str:
        """What the guest says while it is asked something; hostile."""
        if not said:
            return self._soft()
        try:
            word = texts.load(_WORDS, said)
        except messages.BadMessage as error:
            raise Ended(f"The guest said what is no word of ours: {error}.") from error
        return self._done(word, self._running) if self._running is not None else ""

    def _done(self, word: Any, run: _Run) -> str:
        if isinstance(word, relay.Called):
            return texts.dump(self._called(word, run), frames.FROM_SERVER)
        try:
            self._host.say(word)
        except frames.TooLarge as error:
            raise Ended(f"The guest said too much at once: {error}") from error
        return self._soft() if isinstance(word, _SOFT) else ""

    def _soft(self) -> str:
        """Told once; then there is more time, to come to an end."""
        if not self._interrupted or self._told:
            return ""
        self._told, self._interrupted = True, time.monotonic()
        return "interrupt"

    def _is_to_stop(self) -> bool:
        grace = _HEEDED if self._told else _GRACE
        late = bool(self._interrupted) and time.monotonic() - self._interrupted > grace
        return late or self._has_too_many_files()

    def _has_too_many_files(self, *, now: bool = False) -> bool:
        if self._bounds.files and self._opened.too_many(now=now):
            self._greedy = True
        return self._greedy

    def _called(self, called: relay.Called, run: _Run) -> relay.Answer:
        run.calls += 1
        if self._bounds.calls and run.calls > self._bounds.calls:
            return relay.Refused(
                call=called.call,
                kind="refused",
                message=f"This run has made {self._bounds.calls:,} calls, the most allowed.",
                hint="Call with more at once, go on in another run, or raise capabilities.max_calls_per_run.",
            )
        return self._host.call(called)

    # Why it ended

    def _broken(self, reason: str) -> Ended:
        self._over = reason
        return Ended(reason, "Code has changed how the guest itself works: leave that out.")

    def _ended(self, error: wasmtime.WasmtimeError) -> Ended:
        ended = self._reason(error)
        self._over = ended.reason
        return ended

    def _reason(self, error: wasmtime.WasmtimeError) -> Ended:
        text = str(error)
        if isinstance(error, wasmtime.ExitTrap):
            return Ended(
                "The code ended its own process, as os._exit() does.", "Leave that out; sys.exit() ends a cell only."
            )
        if self._greedy:
            return Ended(
                f"The code had far more than {self._bounds.files} files open.",
                "Close them, as `with` does, or raise wasm.open_files.",
            )
        if self._is_to_stop():
            return Ended("The run was stopped.", "What it had done to variables is lost; files it wrote are there.")
        if "all fuel consumed" in text:
            return Ended(
                f"The run used up its {self._bounds.fuel:,} units of fuel.",
                "Do less in one run, or make a session with more fuel (create_session, setting wasm.fuel).",
            )
        if "call stack exhausted" in text or "out of bounds memory access" in text:
            return Ended(
                "The stack overflowed: calls or values were nested too deeply for WebAssembly.",
                "Use a loop in place of recursion, and flatter values.",
            )
        cause = text.rpartition("Caused by:")[2].strip() or text
        return Ended(
            f"Python itself gave up: {cause[:300]}.",
            "os.abort() does that, and running out of memory in the middle of something (wasm.memory_bytes).",
        )
