"""What the program imports, as functions that find the guest that runs on their thread.

One set of them serves every guest. None raises: what goes wrong is kept with the guest, which is then left by a trap.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Protocol

import wasmtime
from wasmtime import _bindings
from wasmtime import _ffi as ffi


class Answers(Protocol):
    """What a running guest says to its program; each returns the result that is asked for."""

    failed: BaseException | None  # why it was left by a trap
    killed: bool  # it did not stop when it was asked to

    def look(self) -> None:
        """A new epoch has begun: where it is to stop, have it find out at once."""

    def host_call(self, name: int, length: int, this: int, count: int, given: int) -> int: ...

    def host_interrupt(self) -> int: ...

    def host_promise_rejection(self, promise: int, reason: int, handled: int) -> int: ...

    def host_module_normalize(self, base: int, name: int) -> int: ...

    def host_module_load(self, name: int, length: int) -> int: ...

    def host_get_timezone_offset(self, high: int, low: int) -> int: ...

    def clock_time_get(self, clock: int, precision: int, to: int) -> int: ...

    def random_get(self, to: int, length: int) -> int: ...

    def fd_write(self, number: int, parts: int, count: int, written: int) -> int: ...


running: dict[int, Answers] = {}
"""The guest that each thread is in."""

_NAMES = {
    "host_call": 5,
    "host_interrupt": 0,
    "host_promise_rejection": 3,
    "host_module_normalize": 2,
    "host_module_load": 2,
    "host_get_timezone_offset": 2,
    "clock_time_get": 3,
    "random_get": 2,
    "fd_write": 4,
}
_REFUSED = {"fd_close": 1, "fd_seek": 4, "fd_fdstat_get": 2}
_BAD_DESCRIPTOR = 8


def linker(engine: wasmtime.Engine, module: wasmtime.Module) -> wasmtime.Linker:
    """All that the program imports, for as many guests as there will be."""
    made = wasmtime.Linker(engine)
    for each in module.imports:
        name = each.name or ""
        if not isinstance(each.type, wasmtime.FuncType) or name not in {**_NAMES, **_REFUSED}:
            raise ValueError(f"the program imports {each.module}.{name}, which is not provided")
        said, of = name.encode(), each.module.encode()
        error = ffi.wasmtime_linker_define_func_unchecked(
            made.ptr(),
            ctypes.create_string_buffer(of),
            len(of),
            ctypes.create_string_buffer(said),
            len(said),
            each.type.ptr(),
            _callbacks[name],
            None,
            _KEPT,
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
    return made


def trap(said: str) -> int:
    """A new trap, to be returned from a callback."""
    data = said.encode()
    made = ffi.wasmtime_trap_new(ctypes.create_string_buffer(data), len(data))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


def _callback(name: str, count: int) -> Any:
    def called(_env: Any, _caller: Any, raw: Any, _count: int) -> int:
        guest = running.get(threading.get_ident())
        if guest is None:
            return trap("no guest runs on this thread")
        try:
            answer: Callable[..., int] = getattr(guest, name)
            result = answer(*(raw[at].i32 & 0xFFFFFFFF for at in range(count)))
            raw[0].i64 = result & 0xFFFFFFFF
        except BaseException as error:
            guest.failed = error
            return trap("the host could not answer")
        return 0

    return ffi.wasmtime_func_unchecked_callback_t(called)


def _refused(_env: Any, _caller: Any, raw: Any, _count: int) -> int:
    raw[0].i64 = _BAD_DESCRIPTOR
    return 0


def _keep(_data: Any) -> None:
    """The callbacks live as long as the program: nothing is to be let go of."""


_KEPT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_keep)


_callbacks = {name: _callback(name, count) for name, count in _NAMES.items()}
_callbacks |= {name: ffi.wasmtime_func_unchecked_callback_t(_refused) for name in _REFUSED}


# The epoch


def _late(_context: Any, _data: Any, delta: Any, kind: Any) -> int:
    guest = running.get(threading.get_ident())
    if guest is None or guest.killed:
        made = ffi.wasmtime_error_new(ctypes.create_string_buffer(b"it did not stop in time"))
        return ctypes.cast(made, ctypes.c_void_p).value or 0
    guest.look()
    delta[0] = 1
    kind[0] = 0  # go on at once
    return 0


_on_epoch = _bindings._wasmtime_store_epoch_deadline_callback.argtypes[1](_late)


def watch(store: wasmtime.Store) -> None:
    """Have a new epoch look whether the guest in this store is to be stopped."""
    ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _on_epoch, None, _KEPT)
    store.set_epoch_deadline(1)
