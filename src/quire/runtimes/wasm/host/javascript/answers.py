"""What the running program asks of its host: to print, to show, of files, of capabilities, of the time.

Whatever arrives here may have been made up by the code that runs: it is of the right kind or is refused.
"""

from __future__ import annotations

import json
import os
import time

import wasmtime

from quire.runtimes.wasm.host.guest import Bounds, Host, Place
from quire.runtimes.wasm.host.javascript import calls
from quire.runtimes.wasm.host.javascript.calls import Failed
from quire.runtimes.wasm.host.javascript.files import Files, NotAllowed
from quire.runtimes.wasm.host.javascript.modules import Modules
from quire.runtimes.wasm.host.javascript.values import NoRoom, Unfit, Values
from quire.wire import frames, messages

RESERVE = 2_000_000_000  # of fuel, for what runs between two looks at it
_PRINTED = 8 << 20  # bytes of one print
_SHOWN = 2_000_000  # characters of HTML or SVG: a frame holds six bytes for each
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_RANDOM = 65536  # bytes at once


class Inside:
    """One guest's host, as its program knows it."""

    def __init__(self, store: wasmtime.Store, values: Values, place: Place, bounds: Bounds, host: Host) -> None:
        self._store = store
        self._values = values
        self._exports = values.exports
        self._host = host
        self._bounds = bounds
        self._files = Files(place)
        self.modules = Modules(self._files)
        self.offer = messages.Offer(catalog=[])
        self.failed: BaseException | None = None
        self.killed = False
        self.asked = 0.0  # when it was asked to stop, by the monotonic clock
        self.stopped = ""  # why code was stopped: interrupt, fuel
        self.calls = 0
        self.rejected: dict[int, tuple[int, int]] = {}  # unhandled rejections: promises with their reasons
        self._does = (
            self._print,
            self._display,
            self._class,
            self._target,
            self._state,
            self._result,
            self._file,
            self._call,
            self._encode,
            self._decode,
            self._random,
        )

    # Stops

    def host_interrupt(self) -> int:
        if self.asked:
            self.stopped = "interrupt"
        elif self._bounds.fuel and self._store.get_fuel() < RESERVE:
            self.stopped = "fuel"
        return 1 if self.stopped else 0

    def look(self) -> None:
        if self.asked:
            self._exports.write(self._values.marks.looks, b"\x01\0\0\0")

    # Calls of the prelude, and of code that got hold of its function

    def host_call(self, name: int, length: int, this: int, count: int, given: int) -> int:
        boxes = [self._exports.word(given + 4 * at) for at in range(min(count, 8))]
        does = self._values.integer(boxes[0]) if boxes else None
        try:
            if does is None or not 0 <= does < len(self._does) or len(boxes) < 2:
                raise Unfit("there is no such call")
            return self._does[does](*boxes[1:4])
        except (Unfit, TypeError) as error:
            return self._refused("TypeError", str(error) if isinstance(error, Unfit) else "wrong arguments")
        except NotAllowed as error:
            return self._refused("FileError", str(error))
        except NoRoom as error:
            return self._refused("OutOfMemory", str(error))
        except Failed as error:
            return self._refused(error.name, str(error))
        except frames.BadFrame as error:
            return self._refused("TooLarge", str(error))

    def _refused(self, name: str, message: str) -> int:
        try:
            return self._values.string("!" + json.dumps({"name": name, "message": message}))
        except NoRoom:
            return self._values.undefined()

    def _said(self, text: str) -> int:
        return self._values.string("=" + text)

    def _print(self, stream: int, text: int) -> int:
        data = self._values.text(text, _PRINTED).encode("utf-8", "replace")
        where = "stderr" if self._values.text(stream) == "stderr" else "stdout"
        if data:
            self._host.say(messages.Printed(stream=where, data=data))
        return self._values.undefined()

    def _display(self, mime: int, what: int) -> int:
        kind = self._values.text(mime, 100)
        bundle: messages.Bundle
        if kind in ("text/plain", "text/html"):
            bundle = {kind: self._shown(self._values.text(what))}
            shown = "html" if kind == "text/html" else "execute_result"
        elif kind in _IMAGES:
            data = self._values.data(what)
            bundle = {kind: self._shown(data.decode("utf-8", "replace")) if kind == "image/svg+xml" else data}
            shown = "image"
        else:
            raise Unfit(f"An image is one of {', '.join(_IMAGES)}")
        self._host.say(messages.Displayed(kind=shown, bundle=bundle))
        return self._values.undefined()

    def _shown(self, text: str) -> str:
        if len(text) > _SHOWN:
            raise Failed("TooLarge", f"At most {_SHOWN:,} characters are shown at once. Write them to a file.")
        return text

    def _class(self, value: int) -> int:
        return self._exports.number(self._exports.qjs_get_class_id(value))

    def _target(self, value: int) -> int:
        if not self._exports.qjs_is_proxy(value):
            raise Unfit("a proxy is wanted")
        found = self._exports.qjs_get_proxy_target(value)
        if self._values.is_exception(found):
            self._exports.qjs_free_value(self._exports.qjs_get_exception())
            return self._values.undefined()
        return found

    def _state(self, value: int) -> int:
        if not self._exports.qjs_is_promise(value):
            raise Unfit("a promise is wanted")
        return self._exports.number(self._exports.qjs_promise_state(value))

    def _result(self, value: int) -> int:
        if not self._exports.qjs_is_promise(value):
            raise Unfit("a promise is wanted")
        return self._exports.qjs_promise_result(value)

    def _file(self, does: int, path: int, data: int = 0) -> int:
        what, name = self._values.text(does, 20), self._values.text(path, 8192)
        match what:
            case "read":
                return self._said(self._files.read(name).decode("utf-8", "replace"))
            case "readBytes":
                return self._values.array(self._files.read(name))
            case "write":
                text = data and self._exports.qjs_is_string(data)
                given = self._values.text(data).encode("utf-8", "replace") if text else self._values.data(data)
                self._files.write(name, given)
            case "list":
                return self._said(json.dumps(self._files.names(name)))
            case "remove":
                self._files.remove(name)
            case "mkdir":
                self._files.mkdir(name)
            case "exists":
                return self._said("true" if self._files.exists(name) else "false")
            case _:
                raise Unfit("there is no such call")
        return self._values.undefined()

    def _call(self, said: int) -> int:
        self.calls += 1
        if self._bounds.calls and self.calls > self._bounds.calls:
            raise Failed(
                "CallsExhausted",
                f"This run has made its {self._bounds.calls} calls. "
                "Raise capabilities.max_calls_per_run, or call less.",
            )
        answer = calls.made(self._host, self.calls, self._values.text(said), self.offer)
        return self._said(answer)

    def _encode(self, text: int) -> int:
        return self._values.array(self._values.text(text).encode("utf-8", "replace"))

    def _decode(self, data: int) -> int:
        return self._said(self._values.data(data).decode("utf-8", "replace"))

    def _random(self, size: int) -> int:
        said = self._values.text(size, 10)
        count = int(said) if said.isascii() and said.isdigit() else 0
        if count > _RANDOM:
            raise Unfit(f"at most {_RANDOM} bytes at once")
        return self._values.array(os.urandom(count))

    # Promises and modules

    def host_promise_rejection(self, promise: int, reason: int, handled: int) -> int:
        key = self._values.address(promise)
        self.forgive(key)
        if handled or len(self.rejected) >= 100:
            self._exports.qjs_free_value(promise)
            self._exports.qjs_free_value(reason)
        else:
            self.rejected[key] = (promise, reason)
        return 0

    def forgive(self, promise: int) -> None:
        """Somebody looks after the promise at that address."""
        for box in self.rejected.pop(promise, ()):
            self._exports.qjs_free_value(box)

    def host_module_normalize(self, base: int, name: int) -> int:
        try:
            found = self.modules.name(self._zero_ended(base), self._zero_ended(name))
        except NotAllowed as error:
            return self._thrown(str(error))
        return self._kept(found.encode("utf-8", "surrogatepass"))

    def host_module_load(self, name: int, length: int) -> int:
        try:
            data = self.modules.source(self._zero_ended(name)).encode()
        except NotAllowed as error:
            return self._thrown(str(error))
        at = self._kept(data)
        if at:
            self._exports.write(length, len(data).to_bytes(4, "little"))
        return at

    def _zero_ended(self, at: int) -> str:
        data = self._exports.read(at, min(8192, self._exports.size() - at))
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def _kept(self, data: bytes) -> int:
        """A copy that the program frees."""
        at = self._exports.wasm_malloc(len(data) + 1)
        if at:
            self._exports.write(at, data + b"\0")
        return at

    def _thrown(self, message: str) -> int:
        error = self._exports.qjs_new_error()
        text = self._values.string(message)
        at, _own = self._values.put(b"message")
        self._exports.qjs_set_prop_string(error, at, text)
        self._exports.qjs_throw(error)
        self._exports.qjs_free_value(error)
        self._exports.qjs_free_value(text)
        return 0

    # The system

    def clock_time_get(self, clock: int, precision: int, to: int) -> int:
        now = time.time_ns() if clock == 0 else time.monotonic_ns()
        self._exports.write(to, now.to_bytes(8, "little"))
        return 0

    def random_get(self, to: int, length: int) -> int:
        self._exports.write(to, os.urandom(min(length, _RANDOM)))
        return 0

    def fd_write(self, number: int, parts: int, count: int, written: int) -> int:
        total = sum(self._exports.word(parts + 8 * at + 4) for at in range(min(count, 64)))
        self._exports.write(written, (total & 0xFFFFFFFF).to_bytes(4, "little"))  # nothing of use is said there
        return 0

    def host_get_timezone_offset(self, high: int, low: int) -> int:
        seconds = ((high << 32 | low) ^ (1 << 63)) - (1 << 63)
        try:
            return time.localtime(seconds).tm_gmtoff or 0
        except (OverflowError, ValueError, OSError):
            return 0
