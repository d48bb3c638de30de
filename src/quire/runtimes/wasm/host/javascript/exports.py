"""The program's functions, looked up when first called, and its memory; calls are made without wrapping values.

Every parameter and result we use is an i32, but for the number of `number`. A callback of ours never raises through
WebAssembly: wasmtime's Python keeps such an exception in one place for all threads, so another guest could get it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import wasmtime
from wasmtime import _bindings
from wasmtime import _ffi as ffi

Call = Callable[..., int]

_MOST = 8  # parameters of a function


class Trapped(Exception):
    """WebAssembly was left in the middle: its memory is not to be trusted any more."""


class Exports:
    def __init__(self, store: wasmtime.Store, instance: Any) -> None:
        self._store = store
        self._context = store._context()
        self._instance = instance
        self._known: dict[str, Call] = {}
        self._memory = self._find("memory").of.memory
        self._trap = ctypes.POINTER(ffi.wasm_trap_t)()

    def _find(self, name: str) -> Any:
        item = ffi.wasmtime_extern_t()
        said = name.encode()
        buffer = ctypes.create_string_buffer(said)
        found = ffi.wasmtime_instance_export_get(
            self._context, ctypes.byref(self._instance), buffer, len(said), ctypes.byref(item)
        )
        if not found:
            raise Trapped(f"the program has no {name}")
        return item

    def __getattr__(self, name: str) -> Call:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._known:
            self._known[name] = self._caller(name)
        made = self._known[name]
        self.__dict__[name] = made
        return made

    def _caller(self, name: str) -> Call:
        item = self._find(name)
        context, function, trap = self._context, ctypes.byref(item.of.func), self._trap
        words = (ctypes.c_uint64 * (2 * _MOST))()  # a raw value takes 16 bytes
        raw = ctypes.cast(words, ctypes.POINTER(ffi.wasmtime_val_raw_t))
        trapped = ctypes.byref(trap)
        mask = 0xFFFFFFFFFFFFFFFF if name == "qjs_new_number" else 0xFFFFFFFF
        call = _bindings._wasmtime_func_call_unchecked

        def called(*given: int) -> int:
            at = 0
            for each in given:
                words[at] = each & mask
                at += 2
            error = call(context, function, raw, _MOST, trapped)
            if error or trap:
                self._raise(error)
            return int(words[0]) & 0xFFFFFFFF

        called.item = item  # type: ignore[attr-defined]  # what it points to lives as long as it does
        return called

    def number(self, value: float) -> int:
        """A new number of the guest's."""
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return self.qjs_new_number(bits)

    def _raise(self, error: Any) -> None:
        said: Exception
        if error:
            said = wasmtime.WasmtimeError._from_ptr(error)
        else:
            kept = ctypes.POINTER(ffi.wasm_trap_t).from_buffer_copy(self._trap)
            ctypes.memset(ctypes.addressof(self._trap), 0, ctypes.sizeof(self._trap))
            said = wasmtime.Trap._from_ptr(kept)
        raise Trapped(str(said)) from None

    # Memory

    def size(self) -> int:
        return int(ffi.wasmtime_memory_data_size(self._context, ctypes.byref(self._memory)))

    def view(self) -> memoryview:
        """All of it, until the next call."""
        base = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
        address = ctypes.cast(base, ctypes.c_void_p).value or 0
        return memoryview((ctypes.c_uint8 * self.size()).from_address(address)).cast("B")

    def read(self, at: int, length: int) -> bytes:
        size = self.size()
        if at < 0 or length < 0 or at + length > size:
            raise Trapped("the program names memory that it has not")
        base = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
        return ctypes.string_at((ctypes.cast(base, ctypes.c_void_p).value or 0) + at, length)

    def write(self, at: int, data: bytes) -> None:
        if at < 0 or at + len(data) > self.size():
            raise Trapped("the program names memory that it has not")
        base = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
        ctypes.memmove((ctypes.cast(base, ctypes.c_void_p).value or 0) + at, data, len(data))

    def word(self, at: int) -> int:
        return int.from_bytes(self.read(at, 4), "little")

    def grow(self, size: int) -> None:
        """Have that many bytes of memory at least."""
        more = (size - self.size() + 0xFFFF) // 0x10000
        if more > 0:
            before = ctypes.c_uint64(0)
            error = ffi.wasmtime_memory_grow(self._context, ctypes.byref(self._memory), more, ctypes.byref(before))
            if error:
                raise Trapped(str(wasmtime.WasmtimeError._from_ptr(error)))

    @property
    def stack_pointer(self) -> int:
        value = ffi.wasmtime_val_t()
        ffi.wasmtime_global_get(self._context, ctypes.byref(self._global()), ctypes.byref(value))
        return int(value.of.i32)

    @stack_pointer.setter
    def stack_pointer(self, value: int) -> None:
        given = ffi.wasmtime_val_t(kind=ffi.WASMTIME_I32.value)
        given.of.i32 = value
        error = ffi.wasmtime_global_set(self._context, ctypes.byref(self._global()), ctypes.byref(given))
        if error:
            raise Trapped(str(wasmtime.WasmtimeError._from_ptr(error)))

    def _global(self) -> Any:
        return self._find("__stack_pointer").of.global_
