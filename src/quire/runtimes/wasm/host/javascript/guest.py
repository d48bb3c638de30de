"""One JavaScript namespace: its cells run one after another, and its whole state is its memory."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import wasmtime

from quire.runtimes.wasm.host.guest import MORE_MEMORY, PAGE, Bounds, Ended, Host, Image, Place
from quire.runtimes.wasm.host.javascript import calls, memory, sources
from quire.runtimes.wasm.host.javascript.answers import RESERVE, Inside
from quire.runtimes.wasm.host.javascript.exports import Exports, Trapped
from quire.runtimes.wasm.host.javascript.freezing import Marks
from quire.runtimes.wasm.host.javascript.imports import running
from quire.runtimes.wasm.host.javascript.telling import Tells, ended, faithful, sayable
from quire.runtimes.wasm.host.javascript.values import NoRoom, Values
from quire.wire import messages
from quire.wire.messages import Displayed, Finished, Inspect, Inspected, Page, Paged, Read, Run, Value

_ASYNC, _COMPILE = 1 << 7, 1 << 5
_REDECLARED = "redeclaration of '"
_PENDING, _REJECTED = 0, 2
_LOOSE = 4 << 20  # bytes of memory that nothing is in, beyond which they are looked for


class Stopped(Exception):
    """Code was stopped before its end; what it has done stays."""


class Threw(Exception):
    """Code threw: the value, as a box."""

    def __init__(self, box: int) -> None:
        self.box = box


class NeverSettles(Exception):
    """A promise is waited for that nothing is left to settle."""


class JavaScriptGuest:
    def __init__(
        self,
        engine: wasmtime.Engine,
        store: wasmtime.Store,
        exports: Exports,
        marks: Marks,
        place: Place,
        bounds: Bounds,
        host: Host,
        base: bytes,
        artefact: str,
    ) -> None:
        self._engine = engine
        self._store = store
        self._exports = exports
        self._marks = marks
        self._bounds = bounds
        self._host = host
        self._base = base
        self._artefact = artefact
        self._values = Values(exports, marks)
        self._inside = Inside(store, self._values, place, bounds, host)
        self._woken = threading.Event()
        self._busy = False
        self._closed = False
        self._timers = False  # one was left behind, and that was said
        self._tells = Tells(self._values, self._inside, host, bounds, len(base))
        with self._entered():
            self._start_fresh()

    def _start_fresh(self) -> None:
        """What no image has: chance of its own, and this guest's limits."""
        self._exports.write(self._marks.random, (int.from_bytes(os.urandom(8), "little") | 1).to_bytes(8, "little"))
        self._tells.limit(0)

    # Running

    def settle(self) -> None:
        """Nothing is left to do."""

    def run(self, run: Run) -> None:
        with self._entered():
            self._inside.calls, self._inside.stopped, self._inside.asked = 0, "", 0.0
            self._woken.clear()
            self._tells.limit(0)
            if self._bounds.fuel:
                self._store.set_fuel(self._bounds.fuel + RESERVE)
            outcome, value = self._ran(run)
            self._inside.asked = 0.0
            self._host.say(Finished(run=run.run, outcome=outcome, value=value))

    def _ran(self, run: Run) -> tuple[str, list[Any]]:
        try:
            value = self._outcome(run)
            self._drain()
            said = self._shown(value)
            self._tells.rejections()
            self._look_at_timers()
        except Stopped:
            return self._stopped(), []
        except Threw as threw:
            self._tells.rejections()
            return self._tells.raised(threw.box), []
        except NeverSettles:
            self._tells.rejections()
            self._tells.say(
                "NeverSettles",
                "The promise that is waited for never settles: no job and no timer is left that could settle it.",
            )
            return "error", []
        except NoRoom as error:
            self._tells.out_of_memory(str(error))
            return "error", []
        return "success", said

    def _look_at_timers(self) -> None:
        """Said once, by the run that leaves one behind."""
        left, self._timers = self._timers, self._due() is not None
        if self._timers and not left:
            self._tells.note(
                "A timer is still set: it fires while a later cell waits. Await it to have it fire in this one."
            )

    def _outcome(self, run: Run) -> int:
        """The box with the value of the cell's last expression, awaited."""
        code = sources.rewritten(run.code)
        self._tells.keep(run.name, run.code)
        for _each in range(200):
            promise = self._evaluated(self._wrapped(code, run.name), run.name)
            self._look_after(promise)
            if self._exports.qjs_promise_state(promise) != _REJECTED:
                break
            error = self._exports.qjs_promise_result(promise)
            self._exports.qjs_free_value(promise)
            name = self._redeclared(error, run.name)
            if name is None:
                raise Threw(error)
            self._exports.qjs_free_value(error)
            self._forget(name)
        else:
            raise NoRoom("too many names are declared again")
        found = self._awaited(promise)
        value = self._values.call("settled", found)
        self._exports.qjs_free_value(found)
        if self._exports.qjs_is_promise(value):
            self._look_after(value)
            return self._awaited(value)
        return value

    def _evaluated(self, code: str, name: str, flags: int = _ASYNC) -> int:
        """The promise of a cell. Raises Threw where it is not JavaScript."""
        data = code.encode("utf-8", "replace")
        called = self._exports.wasm_malloc(4 * len(name) + 1)
        if not called:
            raise NoRoom("there is no memory left to run anything")
        self._exports.write(called, name.encode("utf-8", "replace").replace(b"\0", b"?") + b"\0")
        at, own = self._values.put(data)
        box = self._exports.qjs_eval(at, len(data), called, flags)
        for each in (called, *([at] if own else ())):
            self._exports.wasm_free(each)
        self._check_stopped()
        if self._values.is_exception(box):
            raise Threw(self._exports.qjs_get_exception())
        return box

    def _wrapped(self, code: str, name: str) -> str:
        """An object literal is one, as a reader takes it, and not a block."""
        bare = code.strip()
        if not (bare.startswith("{") and bare.endswith("}")):
            return code
        try:
            box = self._evaluated(f"({code}\n)", name, _ASYNC | _COMPILE)
        except Threw as threw:
            self._exports.qjs_free_value(threw.box)
            return code
        self._exports.qjs_free_value(box)
        return f"({code}\n)"

    def _redeclared(self, error: int, name: str) -> str | None:
        """Which name a cell could not declare: told before anything of it has run, at its first character."""
        said = self._values.told("failed", error)
        if not said or said["name"] != "SyntaxError" or not said["message"].startswith(_REDECLARED):
            return None
        return said["message"][len(_REDECLARED) : -1] if said["stack"].strip() == f"at <eval> ({name}:1:1)" else None

    def _forget(self, name: str) -> None:
        box = self._values.string(name)
        if not self._values.told("forget", box):
            self._values.unlock(name)
            self._values.told("forget", box)
        self._exports.qjs_free_value(box)

    def _look_after(self, promise: int) -> None:
        """What it is rejected with is told by us."""
        self._inside.forgive(self._values.address(promise))
        self._exports.qjs_promise_mark_as_handled(promise)

    def _awaited(self, promise: int) -> int:
        while (state := self._exports.qjs_promise_state(promise)) == _PENDING:
            if not self._advance():
                raise NeverSettles
        self._inside.forgive(self._values.address(promise))
        result = self._exports.qjs_promise_result(promise)
        self._exports.qjs_free_value(promise)
        if state == _REJECTED:
            raise Threw(result)
        return result

    def _advance(self) -> bool:
        """One job done, or the next timer waited for and fired; False where there is neither."""
        if self._job():
            return True
        due = self._due()
        if due is None:
            return False
        if due > 0:
            self._woken.wait(due)
        self._check_stopped()
        fired = self._values.call("fire")
        self._check_stopped()
        self._tells.uncaught(fired)
        return True

    def _job(self) -> bool:
        done = self._exports.qjs_execute_pending_job()
        self._check_stopped()
        if done > 0x7FFFFFFF:
            self._tells.thrown_in_callback(self._exports.qjs_get_exception())
        return done != 0

    def _drain(self) -> None:
        while self._job():
            pass

    def _due(self) -> float | None:
        box = self._values.call("due")
        self._check_stopped()
        said = "" if self._values.is_exception(box) else self._values.text(box)
        self._exports.qjs_free_value(box)
        return float(said) / 1000 if said else None

    def _check_stopped(self) -> None:
        if self._inside.asked:
            self._inside.stopped = "interrupt"
        if self._inside.stopped:
            raise Stopped

    # What came of it

    def _shown(self, box: int) -> list[Any]:
        number = self._values.integer(box)
        if self._values.is_undefined(box):
            return []
        if number is not None:
            said: dict[str, Any] = {"text": str(number), "value": number}
        else:
            said = self._values.told("shown", box) or {"text": "<a value that cannot be shown>"}
            self._check_stopped()
        self._exports.qjs_free_value(box)
        text = said["text"].encode("utf-8", "replace").decode()
        self._host.say(Displayed(kind="execute_result", bundle={"text/plain": text}, result=True))
        return faithful(said)

    def _stopped(self) -> str:
        """After a stop: nothing goes on that code has left to be done."""
        why, self._inside.stopped, self._inside.asked = self._inside.stopped, "", 0.0
        if self._bounds.fuel:
            self._store.set_fuel(RESERVE)
        self._exports.qjs_free_value(self._exports.qjs_get_exception())
        head = self._marks.jobs.to_bytes(4, "little")
        self._exports.write(self._marks.jobs, head + head)  # the jobs themselves stay, and cost only their memory
        self._values.do("clear")
        self._tells.forget_rejections()
        if why != "fuel":
            return "interrupted"
        self._tells.say(
            "FuelExhausted",
            f"This run has used its {self._bounds.fuel:,} instructions and was stopped. Variables are kept."
            " Do less in one cell, or make a session with more fuel (create_session, setting wasm.fuel).",
        )
        return "error"

    # Questions

    def ask(self, question: Inspect | Read | Page) -> messages.Event:
        with self._entered():
            match question:
                case Page():
                    return Paged(why_not="JavaScript shows no tables that have pages; slice the data in a cell.")
                case Inspect():
                    said = self._values.told("inspect") or {"variables": {}, "functions": []}
                    return Inspected(variables=sayable(said["variables"]), functions=sayable(said["functions"]))
                case Read(name=name):
                    return self._read(name)

    def _read(self, name: str) -> Value:
        box = self._values.string(name)
        said = self._values.told("read", box) or {"text": "a value that cannot be shown"}
        self._exports.qjs_free_value(box)
        if said.get("missing"):
            return Value(value=[], what=f"There is no variable {name!r}.")
        return Value(value=faithful(said), what=sayable(said["text"]))

    def offer(self, offer: messages.Offer) -> None:
        self._inside.offer = offer
        with self._entered():
            self._values.do("offer", json.dumps(calls.simplified(offer)))

    # Stops

    def interrupt(self) -> None:
        if self._busy:
            self._inside.asked = self._inside.asked or time.monotonic()
            self._woken.set()
            self._engine.increment_epoch()

    def overdue(self, now: float, grace: float) -> bool:
        """Whether it was to stop long ago and still runs; then a new epoch ends it."""
        if self._busy and self._inside.asked and now - self._inside.asked > grace:
            self._inside.killed = True
        return self._inside.killed

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        if self._closed:
            raise Ended("The guest was closed.")
        here = threading.get_ident()
        running[here] = self._inside
        self._busy = True
        if self._bounds.fuel:
            self._store.set_fuel(RESERVE)
        self._store.set_epoch_deadline(1)
        try:
            yield
        except Trapped as trapped:
            raise ended(trapped, self._inside, self._bounds) from None
        except NoRoom as error:
            raise Ended(f"Out of memory: {error}.", MORE_MEMORY) from None
        finally:
            self._busy = False
            self._inside.asked = 0.0
            del running[here]

    # Its state

    def image(self) -> Image:
        if self._closed:
            raise Ended("The guest was closed.")
        if self._exports.size() - len(self._base) > max(_LOOSE, 2 * self._exports.word(self._marks.used)):
            self._sweep()
        stack = self._exports.stack_pointer
        rest = {"stack": stack, "cells": self._tells.cells}
        pages = memory.pages(self._exports, self._base, stack)
        return Image(artefact=self._artefact, size=self._exports.size(), pages=pages, rest=json.dumps(rest))

    def _sweep(self) -> None:
        with self._entered():
            self._exports.qjs_run_gc()
            self._store.set_limits(memory_size=self._exports.size())
            memory.sweep(self._exports)
            self._store.set_limits(memory_size=self._bounds.memory or -1)

    def restore(self, image: Image) -> None:
        if image.artefact != self._artefact:
            raise Ended("That state is of another program, or of another version of it.", "Start a new session.")
        limit = self._bounds.memory or 1 << 32
        whole = image.size % 65536 == 0 and len(self._base) <= image.size
        if not whole or any(len(data) != PAGE or not 0 <= at < image.size // PAGE for at, data in image.pages.items()):
            raise Ended("That state is damaged.", "Start a new session.")
        if image.size > limit:
            raise Ended(f"That state needs {image.size:,} bytes of memory.", MORE_MEMORY)
        try:
            rest = json.loads(image.rest)
            cells = {str(name): str(code) for name, code in rest["cells"].items()}
            stack = int(rest["stack"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Ended("That state is damaged.", "Start a new session.") from None
        with self._entered():
            memory.put(self._exports, self._base, image.size, image.pages)
            self._exports.stack_pointer = stack
            self._tells.recall(cells)
            self._start_fresh()

    def memory(self) -> int:
        return 0 if self._closed else self._exports.size()

    def close(self) -> None:
        self._closed = True
        self._store.close()
