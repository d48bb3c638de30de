"""What came of a run, told to the server: errors with their places, rejections, the memory that was not enough."""

from __future__ import annotations

from typing import Any

from quire.runtimes.wasm.host.guest import Bounds, Ended, Host
from quire.runtimes.wasm.host.javascript import tracebacks
from quire.runtimes.wasm.host.javascript.answers import Inside
from quire.runtimes.wasm.host.javascript.exports import Trapped
from quire.runtimes.wasm.host.javascript.values import Values
from quire.wire.messages import Printed, Raised

_SHARE = 0.85  # of the memory there is, code may allocate: the rest is for how allocations lie in it
_HEADROOM = 1 << 20  # bytes of memory for the message that memory is full
_KEPT = 256 * 1024  # characters of cells' text for tracebacks


class Tells:
    def __init__(self, values: Values, inside: Inside, host: Host, bounds: Bounds, base: int) -> None:
        self._values = values
        self._exports = values.exports
        self._marks = values.marks
        self._inside = inside
        self._host = host
        self._bounds = bounds
        self._base = base  # bytes of memory a guest begins with
        self.recall({})

    def limit(self, more: int) -> None:
        """How much code may allocate: a little more than it has, at least, so that some can be let go of."""
        if self._bounds.memory:
            allowed = int((self._bounds.memory - self._base) * _SHARE)
            used = self._exports.word(self._marks.used)
            self._exports.qjs_set_memory_limit(max(allowed, used + _HEADROOM // 4) + more)

    def raised(self, box: int) -> str:
        self.limit(_HEADROOM // 2)
        said = self._told_of(box)
        self._exports.qjs_free_value(box)
        self.limit(0)
        empty = said["name"] == "Thrown" and said["message"] == "null" and self._full()  # no room for an error either
        if empty or (said["name"] == "InternalError" and said["message"] == "out of memory"):
            self.out_of_memory("the code needs more")
            return "error"
        self.say(said["name"], said["message"], said["stack"], said["causes"])
        return "error"

    def out_of_memory(self, why: str) -> None:
        self._exports.qjs_run_gc()
        limit = f"{self._bounds.memory / (1 << 20):,.0f} MiB" if self._bounds.memory else "4 GiB"
        self.say(
            "OutOfMemory",
            f"Out of memory at {limit}: {why}. Variables are kept; free some, or make a session with more "
            "memory_bytes (create_session, setting wasm.memory_bytes).",
        )

    def say(self, name: str, message: str, stack: str = "", causes: list[str] | None = None) -> None:
        name, message = sayable(name), sayable(tracebacks.plain(message))
        told = tracebacks.told(name, message, stack, causes or [], self._source)
        self._host.say(Raised(name=name, message=message, traceback=sayable(told)))

    def rejections(self) -> None:
        for _promise, reason in list(self._inside.rejected.values()):
            said = self._told_of(reason)
            text = tracebacks.told(said["name"], said["message"], said["stack"], said["causes"], self._source)
            self.note(f"Unhandled rejection: {text}")
        self.forget_rejections()

    def forget_rejections(self) -> None:
        for promise, reason in self._inside.rejected.values():
            self._exports.qjs_free_value(promise)
            self._exports.qjs_free_value(reason)
        self._inside.rejected.clear()

    def uncaught(self, box: int) -> None:
        failed = self._values.is_exception(box)
        self._exports.qjs_free_value(box)
        if failed:
            self.thrown_in_callback(self._exports.qjs_get_exception())

    def thrown_in_callback(self, error: int) -> None:
        said = self._told_of(error)
        self._exports.qjs_free_value(error)
        text = tracebacks.told(said["name"], said["message"], said["stack"], said["causes"], self._source)
        self.note(f"Uncaught in a callback: {text}")

    def note(self, text: str) -> None:
        self._host.say(Printed(stream="stderr", data=f"{text}\n".encode("utf-8", "replace")))

    def recall(self, cells: dict[str, str]) -> None:
        self.cells = cells  # their texts by name, for tracebacks
        self._kept = sum(map(len, cells.values()))

    def keep(self, name: str, code: str) -> None:
        self._kept -= len(self.cells.pop(name, ""))
        self.cells[name] = code[:50_000]
        self._kept += len(self.cells[name])
        while self._kept > _KEPT:
            self._kept -= len(self.cells.pop(next(iter(self.cells))))

    def _full(self) -> bool:
        allowed = (self._bounds.memory - self._base) * _SHARE
        return bool(self._bounds.memory) and self._exports.word(self._marks.used) > allowed * 0.9

    def _told_of(self, box: int) -> dict[str, Any]:
        said = self._values.told("failed", box)
        return said or {"name": "Thrown", "message": "a value that cannot be shown", "stack": "", "causes": []}

    def _source(self, name: str) -> str | None:
        return self.cells.get(name) or self._inside.modules.known.get(name)


def sayable(value: Any) -> Any:
    """Text without halves of characters, which no file and no frame can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [sayable(each) for each in value]
    if isinstance(value, dict):
        return {sayable(key): sayable(each) for key, each in value.items()}
    return value


def faithful(said: dict[str, Any]) -> list[Any]:
    """The value as [value]; [] if there is no value, or if it has halves of characters."""
    return [said["value"]] if "value" in said and sayable(said["value"]) == said["value"] else []


def ended(trapped: Trapped, inside: Inside, bounds: Bounds) -> Ended:
    """Why a guest that was left by a trap is no more."""
    said, failed = str(trapped), inside.failed
    if isinstance(failed, Ended):
        return failed
    if failed is not None:
        return Ended(f"The program around the guest failed ({type(failed).__name__}: {failed}).")
    if inside.killed:
        return Ended("The code was asked to stop and did not within a second.", "Give the run a longer timeout.")
    if "fuel" in said:
        return Ended(
            f"The run has used its {bounds.fuel:,} instructions.",
            "Do less, or make a session with more fuel (create_session, setting wasm.fuel).",
        )
    if "stack" in said:
        return Ended("The code recursed too deeply for the program that runs it.", "Recurse less deeply.")
    return Ended(f"The program of the guest broke off ({said.splitlines()[-1].strip() if said else 'a trap'}).")
