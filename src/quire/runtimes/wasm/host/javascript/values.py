"""JavaScript's values as the host holds them: each is the address of a box in the guest's memory."""

from __future__ import annotations

import json
import struct
from typing import Any

from quire.runtimes.wasm.host.javascript.exports import Exports
from quire.runtimes.wasm.host.javascript.freezing import SCRATCH, Marks

EXCEPTION = 6
_OBJECT = 0xFFFFFFFF
_TAIL = 512  # bytes at the end of the scratch, for what is small
_CONFIGURABLE = 1 << 26  # of a property, in the word that has its flags


class NoRoom(Exception):
    """The guest's memory has no place for what is to be passed in."""


class Unfit(Exception):
    """A value is not of the kind that is wanted."""


class Values:
    def __init__(self, exports: Exports, marks: Marks) -> None:
        self.exports = exports
        self.marks = marks
        self._room = SCRATCH - _TAIL
        self._tail = marks.scratch + self._room

    # What a value is

    def raw(self, box: int) -> int:
        return int.from_bytes(self.exports.read(box, 8), "little")

    def integer(self, box: int) -> int | None:
        """A small whole number."""
        raw = self.raw(box)
        return (raw ^ 0x80000000) - 0x80000000 if raw >> 32 == 0 else None

    def is_exception(self, box: int) -> bool:
        return self.raw(box) >> 32 == EXCEPTION

    def is_undefined(self, box: int) -> bool:
        return self.raw(box) >> 32 == 3

    def address(self, box: int) -> int:
        """An object's address; 0 for other values."""
        raw = self.raw(box)
        return raw & 0xFFFFFFFF if raw >> 32 == _OBJECT else 0

    # Out

    def text(self, box: int, longest: int = 64 << 20) -> str:
        """A string's text. Raises Unfit on anything else, so that no code of the guest's runs."""
        if not self.exports.qjs_is_string(box):
            raise Unfit("a string is wanted")
        found = self.exports.qjs_get_string_len(box, self._tail)
        if not found:
            self.exports.qjs_free_value(self.exports.qjs_get_exception())
            raise NoRoom("there is no memory left to read a string")
        length = self.exports.word(self._tail)
        data = self.exports.read(found, min(length, longest))
        self.exports.qjs_free_cstring(found)
        return data.decode("utf-8", "replace")

    def data(self, box: int, longest: int = 64 << 20) -> bytes:
        """What a typed array holds. Raises Unfit."""
        tail = self._tail
        buffer = self.exports.qjs_get_typed_array_buffer(box, tail, tail + 4, tail + 8)
        if self.is_exception(buffer):
            self.exports.qjs_free_value(self.exports.qjs_get_exception())
            raise Unfit("bytes are wanted")
        start, length = self.exports.word(tail), self.exports.word(tail + 4)
        data = self.exports.qjs_get_array_buffer(buffer, tail)
        size = self.exports.word(tail)
        self.exports.qjs_free_value(buffer)
        if length > longest:
            raise Unfit(f"more than {longest:,} bytes")
        if not length:
            return b""
        if not data or start + length > size:
            raise Unfit("bytes are wanted")
        return self.exports.read(data + start, length)

    # In

    def put(self, data: bytes) -> tuple[int, bool]:
        """Where those bytes are now, a zero behind them; and whether they are to be freed. Raises NoRoom."""
        if len(data) < self._room:
            at, own = self.marks.scratch, False
        else:
            at, own = self.exports.wasm_malloc(len(data) + 1), True
            if not at:
                raise NoRoom(f"there is no memory left for {len(data):,} bytes")
        self.exports.write(at, data + b"\0")
        return at, own

    def string(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        return self._made(data, self.exports.qjs_new_string)

    def array(self, data: bytes) -> int:
        return self._made(data, self.exports.qjs_new_uint8_array)

    def _made(self, data: bytes, maker: Any) -> int:
        at, own = self.put(data)
        box: int = maker(at, len(data))
        if own:
            self.exports.wasm_free(at)
        return box

    def undefined(self) -> int:
        return self.exports.qjs_get_undefined()

    # Calls

    def call(self, name: str, *boxes: int) -> int:
        """What a function of the prelude returns, which is to be freed; an exception is one of the things it can be."""
        argv = self._tail + 64
        self.exports.write(argv, struct.pack(f"<{len(boxes)}I", *boxes))
        return self.exports.qjs_call(self.marks.functions[name], self.marks.undefined, len(boxes), argv)

    def told(self, name: str, *boxes: int) -> Any:
        """The JSON that a function of the prelude returns; None where it could not."""
        found = self.call(name, *boxes)
        try:
            if self.is_exception(found):
                self.exports.qjs_free_value(self.exports.qjs_get_exception())
                return None
            return json.loads(self.text(found))
        except (Unfit, NoRoom, ValueError, RecursionError):
            return None
        finally:
            self.exports.qjs_free_value(found)

    def do(self, name: str, *texts: str) -> bool:
        """Have a function of the prelude do something; whether it did."""
        boxes = [self.string(each) for each in texts]
        found = self.call(name, *boxes)
        done = not self.is_exception(found)
        if not done:
            self.exports.qjs_free_value(self.exports.qjs_get_exception())
        for box in (*boxes, found):
            self.exports.qjs_free_value(box)
        return done

    def unlock(self, name: str) -> None:
        """Let a global variable or function, which no code may delete, be deleted.

        A cell may declare a name again in another way; JavaScript keeps `var` and `function` for good.
        """
        exports = self.exports
        at, own = self.put(name.encode("utf-8", "surrogatepass"))
        atom = exports.JS_NewAtomLen(self.marks.context, at, len(name.encode("utf-8", "surrogatepass")))
        if own:
            exports.wasm_free(at)
        shape = exports.word(self.marks.world + 12)
        mask, count = exports.word(shape + 16), exports.word(shape + 24)
        first = shape + 40 + 4 * (mask + 1)
        flags = exports.read(first, 8 * min(count, 100_000))
        for each in range(0, len(flags), 8):
            if int.from_bytes(flags[each + 4 : each + 8], "little") == atom:
                word = int.from_bytes(flags[each : each + 4], "little") | _CONFIGURABLE
                exports.write(first + each, word.to_bytes(4, "little"))
        exports.JS_FreeAtom(self.marks.context, atom)
