"""Calls into a component and out of it, by the C interface: strings and numbers, nothing else.

The classes of the library keep what a function of the host raised in one variable for all threads, and look every
type up at every call; guests have a thread each, and say every line they print by a call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import byref
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime.component import Component, Linker

_STRING, _U32 = ffi.WASMTIME_COMPONENT_STRING.value, ffi.WASMTIME_COMPONENT_U32.value
_CONTINUE = 0
_here = threading.local()  # `instance`: the one that runs in this thread


class Instance:
    """A component instantiated in a store of its own. What `host` raises ends the call, and is raised from it."""

    def __init__(self, linker: Linker, component: Component, store: wasmtime.Store) -> None:
        self._store = store
        self.host: Callable[[str], str] = lambda said: ""  # hears what it says
        self._raised: BaseException | None = None
        self._functions: dict[str, Any] = {}
        self.stopped: Callable[[], bool] = lambda: False  # asked at every tick while it runs
        ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _on_tick, None, _NOTHING)
        store.set_epoch_deadline(1)
        _here.instance = self
        try:
            self._instance = linker.instantiate(store, component)
        finally:
            _here.instance = None

    def call(self, name: str, *given: str | int) -> Any:
        """Its answer, a str or an int, or None. Raises WasmtimeError, or what the host raised."""
        function = self._function(name)
        arguments = (ffi.wasmtime_component_val_t * len(given))()
        for at, each in enumerate(given):
            _put(arguments[at], each)
        answers = name != "memory-scatter"
        answer = ffi.wasmtime_component_val_t()
        context = self._store._context()
        outer, _here.instance = getattr(_here, "instance", None), self
        try:
            error = ffi.wasmtime_component_func_call(
                byref(function), context, arguments, len(given), byref(answer), int(answers)
            )
        finally:
            _here.instance = outer
            for at in range(len(given)):
                ffi.wasmtime_component_val_delete(byref(arguments[at]))
        self._check(error)
        said = _taken(answer) if answers else None
        self._check(ffi.wasmtime_component_func_post_return(byref(function), context))
        return said

    def _check(self, error: Any) -> None:
        if not error:
            return
        failed = wasmtime.WasmtimeError._from_ptr(error)
        raised, self._raised = self._raised, None
        raise raised if raised is not None else failed

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            found = self._instance.get_func(self._store, name)
            if found is None:
                raise wasmtime.WasmtimeError(f"the component has no function {name}")
            self._functions[name] = found._func
        return self._functions[name]

    def heard(self, said: str) -> str:
        try:
            return self.host(said)
        except BaseException as error:
            self._raised = error
            raise


def define_host(linker: Linker) -> None:
    """The component's import `host`, which is the function of whichever instance runs in the calling thread."""
    name = b"host"
    with linker.root() as root:
        error = ffi.wasmtime_component_linker_instance_add_func(root.ptr(), name, len(name), _on_call, None, _NOTHING)
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)


def _put(value: Any, given: str | int) -> None:
    if isinstance(given, str):
        data = given.encode()
        value.kind = _STRING
        ffi.wasm_byte_vec_new_uninitialized(byref(value.of.string), len(data))
        ctypes.memmove(value.of.string.data, data, len(data))
    else:
        value.kind = _U32
        value.of.u32 = given


def _taken(value: Any) -> str | int:
    if value.kind == _STRING:
        try:
            held = value.of.string
            if not held.size:
                return ""
            return str(ctypes.cast(held.data, ctypes.POINTER(ctypes.c_char * held.size)).contents, "utf-8")
        finally:
            ffi.wasm_byte_vec_delete(byref(value.of.string))
    return int(value.of.u32)


_NOTHING = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


def _failed(why: bytes) -> int:
    return ctypes.cast(ffi.wasmtime_error_new(why), ctypes.c_void_p).value or 0


@ffi.wasmtime_component_func_callback_t  # type: ignore[untyped-decorator]
def _on_call(env: Any, context: Any, kind: Any, arguments: Any, many: int, results: Any, wanted: int) -> int:
    try:
        _put(results[0], _here.instance.heard(str(_taken(arguments[0]))))
    except BaseException:
        return _failed(b"the host refused")
    return 0


@ctypes.CFUNCTYPE(  # type: ignore[untyped-decorator]
    ctypes.c_size_t,
    ctypes.POINTER(ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ffi.wasmtime_update_deadline_kind_t),
)
def _on_tick(context: Any, data: Any, delta: Any, kind: Any) -> int:
    try:
        if _here.instance.stopped():
            return _failed(b"stopped")
        delta[0] = 1
        kind[0] = _CONTINUE
    except BaseException:
        return _failed(b"stopped")
    return 0
