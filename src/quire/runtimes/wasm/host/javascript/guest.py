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

from quire.runtimes.wasm.host.guest import PAGE, Bounds, Ended, Host, Image, Place
from quire.runtimes.wasm.host.javascript import calls, memory, sources, tracebacks
from quire.runtimes.wasm.host.javascript.answers import RESERVE, Inside
from quire.runtimes.wasm.host.javascript.exports import Exports, Trapped
from quire.runtimes.wasm.host.javascript.freezing import Marks
from quire.runtimes.wasm.host.javascript.imports import running
from quire.runtimes.wasm.host.javascript.values import NoRoom, Values
from quire.wire import messages
from quire.wire.messages import Displayed, Finished, Inspect, Inspected, Page, Paged, Printed, Raised, Read, Run, Value

_ASYNC, _COMPILE = 1 << 7, 1 << 5
_SHARE = 0.85  # of the memory there is, code may allocate: the rest is for how allocations lie in it
_HEADROOM = 1 << 20  # bytes of memory for what tells that there is none left
_KEPT = 256 * 1024  # characters of cells' text for tracebacks
_REDECLARED = "redeclaration of '"
_PENDING, _REJECTED = 0, 2


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
        self._runs = False
        self._cells: dict[str, str] = {}
        with self._entered():
            self._begin_anew()

    def _begin_anew(self) -> None:
        """What no image has: chance of its own, and this guest's limits."""
        self._exports.write(self._marks.random, (int.from_bytes(os.urandom(8), "little") | 1).to_bytes(8, "little"))
        self._limit(0)

    def _limit(self, more: int) -> None:
        """How much code may allocate: a little more than it has, at least, so that some can be let go of."""
        if self._bounds.memory:
            allowed = int((self._bounds.memory - len(self._base)) * _SHARE)
            used = self._exports.word(self._marks.used)
            self._exports.qjs_set_memory_limit(max(allowed, used + _HEADROOM // 4) + more)

    # Running

    def run(self, run: Run) -> None:
        with self._entered():
            self._inside.calls, self._inside.stopped, self._inside.asked = 0, "", 0.0
            self._woken.clear()
            self._limit(0)
            if self._bounds.fuel:
                self._store.set_fuel(self._bounds.fuel + RESERVE)
            self._runs = True
            try:
                outcome, value = self._ran(run)
            finally:
                self._runs = False
                self._inside.asked = 0.0
            self._host.say(Finished(run=run.run, outcome=outcome, value=value))

    def _ran(self, run: Run) -> tuple[str, list[Any]]:
        timers = self._due()
        try:
            value = self._outcome(run)
            self._drain()
            said = self._shown(value)
            self._tell_rejected()
            if self._due() != timers and self._due() is not None:
                self._note(
                    "A timer is still set: it fires while a later cell waits. Await it to have it fire in this one."
                )
        except Stopped:
            return self._stopped(), []
        except Threw as threw:
            self._tell_rejected()
            return self._raised(threw.box), []
        except NeverSettles:
            self._say_raised(
                "NeverSettles",
                "The promise that is waited for never settles: no job and no timer is left that could settle it.",
            )
            return "error", []
        except NoRoom as error:
            self._out_of_memory(str(error))
            return "error", []
        return "success", said

    def _outcome(self, run: Run) -> int:
        """The box with the value of the cell's last expression, awaited."""
        code = sources.rewritten(run.code)
        self._keep(run.name, run.code)
        for _each in range(200):
            promise = self._evaluated(self._wrapped(code, run.name), run.name)
            self._inside.rejected.pop(self._values.address(promise), None)
            self._exports.qjs_promise_mark_as_handled(promise)
            if self._exports.qjs_promise_state(promise) != _REJECTED:
                break
            error = self._exports.qjs_promise_result(promise)
            name = self._redeclared(error, run.name)
            if name is None:
                raise Threw(error)
            self._forget(name)
        found = self._awaited(promise)
        value = self._values.call("settled", found)
        self._exports.qjs_free_value(found)
        if self._exports.qjs_is_promise(value):
            self._exports.qjs_promise_mark_as_handled(value)
            self._inside.rejected.pop(self._values.address(value), None)
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
        self._values.unlock(name)
        self._values.do("forget", name)

    def _awaited(self, promise: int) -> int:
        while (state := self._exports.qjs_promise_state(promise)) == _PENDING:
            if not self._advance():
                raise NeverSettles
        self._inside.rejected.pop(self._values.address(promise), None)
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
        self._uncaught(fired)
        return True

    def _job(self) -> bool:
        done = self._exports.qjs_execute_pending_job()
        self._check_stopped()
        if done > 0x7FFFFFFF:
            self._tell_uncaught(self._exports.qjs_get_exception())
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
            said = {"text": str(number), "value": number}
        else:
            said = self._values.told("shown", box) or {"text": "<a value that cannot be shown>"}
            self._check_stopped()
        self._exports.qjs_free_value(box)
        text = said["text"].encode("utf-8", "replace").decode()
        self._host.say(Displayed(kind="execute_result", bundle={"text/plain": text}, result=True))
        return [_sayable(said["value"])] if "value" in said else []

    def _raised(self, box: int) -> str:
        self._limit(_HEADROOM // 2)
        said = self._told_of(box)
        self._exports.qjs_free_value(box)
        self._limit(0)
        empty = said["name"] == "Thrown" and said["message"] == "null" and self._full()  # no room for an error either
        if empty or (said["name"] == "InternalError" and said["message"] == "out of memory"):
            self._out_of_memory("the code needs more")
            return "error"
        self._say_raised(said["name"], said["message"], said["stack"], said["causes"])
        return "error"

    def _full(self) -> bool:
        allowed = (self._bounds.memory - len(self._base)) * _SHARE
        return bool(self._bounds.memory) and self._exports.word(self._marks.used) > allowed * 0.9

    def _told_of(self, box: int) -> dict[str, Any]:
        said = self._values.told("failed", box)
        return said or {"name": "Thrown", "message": "a value that cannot be shown", "stack": "", "causes": []}

    def _out_of_memory(self, why: str) -> None:
        self._exports.qjs_run_gc()
        limit = f"{self._bounds.memory / (1 << 20):,.0f} MiB" if self._bounds.memory else "4 GiB"
        self._say_raised(
            "OutOfMemory",
            f"Out of memory at {limit}: {why}. Variables are kept; free some, or raise wasm_memory_bytes.",
        )

    def _say_raised(self, name: str, message: str, stack: str = "", causes: list[str] | None = None) -> None:
        name, message = _sayable(name), _sayable(message)
        told = tracebacks.told(name, message, stack, causes or [], self._source)
        self._host.say(Raised(name=name, message=message, traceback=_sayable(told)))

    def _source(self, name: str) -> str | None:
        return self._cells.get(name) or self._inside.modules.known.get(name)

    def _stopped(self) -> str:
        """After a stop: nothing goes on that code has left to be done."""
        why, self._inside.stopped, self._inside.asked = self._inside.stopped, "", 0.0
        if self._bounds.fuel:
            self._store.set_fuel(RESERVE)
        self._exports.qjs_free_value(self._exports.qjs_get_exception())
        head = self._marks.jobs.to_bytes(4, "little")
        self._exports.write(self._marks.jobs, head + head)  # the jobs themselves stay, and cost only their memory
        self._values.do("clear")
        self._free_rejected()
        if why != "fuel":
            return "interrupted"
        self._say_raised(
            "FuelExhausted",
            f"This run has used its {self._bounds.fuel:,} instructions and was stopped. Variables are kept."
            " Do less in one cell, or raise wasm_fuel.",
        )
        return "error"

    def _tell_rejected(self) -> None:
        for _promise, reason in list(self._inside.rejected.values()):
            said = self._told_of(reason)
            text = tracebacks.told(said["name"], said["message"], said["stack"], said["causes"], self._source)
            self._note(f"Unhandled rejection: {text}")
        self._free_rejected()

    def _free_rejected(self) -> None:
        for promise, reason in self._inside.rejected.values():
            self._exports.qjs_free_value(promise)
            self._exports.qjs_free_value(reason)
        self._inside.rejected.clear()

    def _uncaught(self, box: int) -> None:
        failed = self._values.is_exception(box)
        self._exports.qjs_free_value(box)
        if failed:
            self._tell_uncaught(self._exports.qjs_get_exception())

    def _tell_uncaught(self, error: int) -> None:
        said = self._told_of(error)
        self._exports.qjs_free_value(error)
        text = tracebacks.told(said["name"], said["message"], said["stack"], said["causes"], self._source)
        self._note(f"Uncaught in a callback: {text}")

    def _note(self, text: str) -> None:
        self._host.say(Printed(stream="stderr", data=f"{text}\n".encode("utf-8", "replace")))

    def _keep(self, name: str, code: str) -> None:
        self._cells.pop(name, None)
        self._cells[name] = code[:50_000]
        while sum(map(len, self._cells.values())) > _KEPT:
            del self._cells[next(iter(self._cells))]

    # Questions

    def ask(self, question: Inspect | Read | Page) -> messages.Event:
        with self._entered():
            match question:
                case Page():
                    return Paged(why_not="JavaScript shows no tables that have pages; slice the data in a cell.")
                case Inspect():
                    said = self._values.told("inspect") or {"variables": {}, "functions": []}
                    return Inspected(variables=_sayable(said["variables"]), functions=_sayable(said["functions"]))
                case Read(name=name):
                    return self._read(name)

    def _read(self, name: str) -> Value:
        box = self._values.string(name)
        said = self._values.told("read", box) or {"text": "a value that cannot be shown"}
        self._exports.qjs_free_value(box)
        if said.get("missing"):
            return Value(value=[], what=f"There is no variable {name!r}.")
        return Value(value=[_sayable(said["value"])] if "value" in said else [], what=_sayable(said["text"]))

    def offer(self, offer: messages.Offer) -> None:
        self._inside.offer = offer
        with self._entered():
            self._values.do("offer", json.dumps(calls.simplified(offer)))

    # Stops

    def interrupt(self) -> None:
        if self._runs:
            self._inside.asked = self._inside.asked or time.monotonic()
            self._woken.set()
            self._engine.increment_epoch()

    def overdue(self, now: float, grace: float) -> bool:
        """Whether it was to stop long ago and still runs; then a new epoch ends it."""
        if self._runs and self._inside.asked and now - self._inside.asked > grace:
            self._inside.killed = True
        return self._inside.killed

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        here = threading.get_ident()
        running[here] = self._inside
        if self._bounds.fuel:
            self._store.set_fuel(RESERVE)
        self._store.set_epoch_deadline(1)
        try:
            yield
        except Trapped as trapped:
            raise self._ended(trapped) from None
        except NoRoom as error:
            raise Ended(f"Out of memory: {error}.", "Raise wasm_memory_bytes.") from None
        finally:
            del running[here]

    def _ended(self, trapped: Trapped) -> Ended:
        said, failed = str(trapped), self._inside.failed
        if isinstance(failed, Ended):
            return failed
        if failed is not None:
            return Ended(f"The program around the guest failed ({type(failed).__name__}: {failed}).")
        if self._inside.killed:
            return Ended("The code was asked to stop and did not within a second.", "Give the run a longer timeout.")
        if "fuel" in said:
            return Ended(f"The run has used its {self._bounds.fuel:,} instructions.", "Do less, or raise wasm_fuel.")
        if "stack" in said:
            return Ended("The code recursed too deeply for the program that runs it.", "Recurse less deeply.")
        return Ended(f"The program of the guest broke off ({said.splitlines()[-1].strip() if said else 'a trap'}).")

    # Its state

    def image(self) -> Image:
        stack = self._exports.stack_pointer
        rest = {"stack": stack, "cells": self._cells}
        pages = memory.pages(self._exports, self._base, stack)
        return Image(artefact=self._artefact, size=self._exports.size(), pages=pages, rest=json.dumps(rest))

    def restore(self, image: Image) -> None:
        if image.artefact != self._artefact:
            raise Ended("That state is of another program, or of another version of it.", "Start anew.")
        limit = self._bounds.memory or 1 << 32
        whole = image.size % 65536 == 0 and len(self._base) <= image.size
        if not whole or any(len(data) != PAGE or not 0 <= at < image.size // PAGE for at, data in image.pages.items()):
            raise Ended("That state is damaged.", "Start anew.")
        if image.size > limit:
            raise Ended(f"That state needs {image.size:,} bytes of memory.", "Raise wasm_memory_bytes.")
        try:
            rest = json.loads(image.rest)
            cells = {str(name): str(code) for name, code in rest["cells"].items()}
            stack = int(rest["stack"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Ended("That state is damaged.", "Start anew.") from None
        with self._entered():
            memory.put(self._exports, self._base, image.size, image.pages)
            self._exports.stack_pointer = stack
            self._cells = cells
            self._begin_anew()

    def memory(self) -> int:
        return self._exports.size()

    def close(self) -> None:
        self._inside.rejected.clear()
        self._store.close()


def _sayable(value: Any) -> Any:
    """Text without halves of characters, which no file and no frame can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_sayable(each) for each in value]
    if isinstance(value, dict):
        return {_sayable(key): _sayable(each) for key, each in value.items()}
    return value
