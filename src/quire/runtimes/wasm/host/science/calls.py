"""Requests of a core module: one function that is called by its address, one that it calls, and its memory."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import wasmtime
from wasmtime import _bindings
from wasmtime import _ffi as ffi

from quire.runtimes.wasm.host.guest import Ended
from quire.runtimes.wasm.host.javascript.exports import Exports, Trapped
from quire.runtimes.wasm.host.javascript.imports import trap

_here = threading.local()  # `instance`: the one that runs in this thread
_SAID, _ASK, _ANSWER = b"s", b"?", b"a"
_REFUSED = 0xFFFF_FFFE  # as the interpreter wants to be told of a fault


class Functions(Exports):
    """Those of the interpreter; what ends a call is raised as it is."""

    def _raise(self, error: Any) -> None:
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        kept = ctypes.POINTER(ffi.wasm_trap_t).from_buffer_copy(self._trap)
        ctypes.memset(ctypes.addressof(self._trap), 0, ctypes.sizeof(self._trap))
        raise wasmtime.Trap._from_ptr(kept)

    def address(self) -> int:
        """Where its memory lies in this process, until it grows."""
        base = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
        return ctypes.cast(base, ctypes.c_void_p).value or 0


class Instance:
    """The interpreter in a store of its own. What `host` raises ends the call, and is raised from it."""

    def __init__(self, ready: Any, store: wasmtime.Store, host: Callable[[str], str]) -> None:
        self._store = store
        self._host = host
        self._raised: BaseException | None = None
        self._request, self._answer = b"", b""
        self.step = 0  # where the function is that takes a request
        self.stopped: Callable[[], bool] = lambda: False  # asked at every tick while it runs
        ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _on_tick, None, _NOTHING)
        store.set_epoch_deadline(1)
        with self._running():
            self.functions = Functions(store, ready.instantiate(store)._instance)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        outer, _here.instance = getattr(_here, "instance", None), self
        try:
            yield
        except (wasmtime.WasmtimeError, wasmtime.Trap, Trapped) as error:
            raised, self._raised = self._raised, None
            if raised is not None and not isinstance(raised, Trapped):
                raise raised from None
            if isinstance(error, wasmtime.WasmtimeError):
                raise
            raise wasmtime.WasmtimeError(str(error)) from error
        finally:
            _here.instance = outer

    def call(self, name: str, *given: str | int) -> Any:
        """Its answer to a request. Raises WasmtimeError, or what the host raised."""
        (request,) = given
        self._request, self._answer = str(request).encode(), b""
        with self._running():
            done = self.functions.quire_call(self.step)
        if not done:
            raise wasmtime.WasmtimeError("an error of its own was not caught")
        answer, self._answer = self._answer, b""
        return answer.decode("utf-8", "replace")

    def turn(self, source: str) -> int:
        """Have it run that, as at a prompt; 0 where nothing was raised."""
        data = source.encode()
        with self._running():
            at = self.functions.host_alloc(len(data))
            self.functions.write(at, data)
            return self.functions.turn(at, len(data))

    def forget_folders(self) -> None:
        """The catalog is read again when it is next needed."""
        with self._running():
            self.functions.quire_forget_folders()

    def heard(self, said: bytes) -> bytes:
        kind, rest = said[:1], said[1:]
        if kind == _ASK:
            return self._request
        if kind == _ANSWER:
            self._answer = rest
            return b""
        try:
            text = rest.decode() if kind == _SAID else None
        except UnicodeDecodeError:
            text = None
        if text is None:
            raise Ended("The guest said what is no word of ours.")
        return self._host(text).encode()

    def answered(self, at: int, length: int, to: int, to_length: int) -> int:
        """What is said lies in its memory; so does the answer, where it finds room for it."""
        answer = self.heard(self.functions.read(at, length))
        place = self.functions.host_alloc(max(len(answer), 1))
        if not place:
            return _REFUSED
        self.functions.write(place, answer)
        self.functions.write(to, struct.pack("<I", place))
        self.functions.write(to_length, struct.pack("<I", len(answer)))
        return 0

    def failed(self, error: BaseException) -> None:
        self._raised = error


def linker(engine: wasmtime.Engine) -> wasmtime.Linker:
    """The system's interface, of which a guest has what its folders are, and the way to the host."""
    made = wasmtime.Linker(engine)
    made.define_wasi()
    word = wasmtime.ValType.i32()
    kind = wasmtime.FuncType([word] * 4, [word])
    error = ffi.wasmtime_linker_define_func_unchecked(
        made.ptr(), b"host", 4, b"call", 4, kind.ptr(), _on_call, None, _NOTHING
    )
    if error:
        raise wasmtime.WasmtimeError._from_ptr(error)
    return made


_NOTHING = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


@ffi.wasmtime_func_unchecked_callback_t  # type: ignore[untyped-decorator]
def _on_call(_env: Any, _caller: Any, raw: Any, _count: int) -> int:
    try:
        instance = _here.instance
        given = [raw[at].i32 & 0xFFFFFFFF for at in range(4)]
    except BaseException:
        return trap("no guest runs on this thread")
    try:
        raw[0].i64 = instance.answered(*given)
    except BaseException as error:
        instance.failed(error)
        return trap("the host refused")
    return 0


def _late(_context: Any, _data: Any, delta: Any, kind: Any) -> int:
    with contextlib.suppress(BaseException):  # by which it is stopped
        if not _here.instance.stopped():
            delta[0] = 1
            kind[0] = 0  # go on at once
            return 0
    made = ffi.wasmtime_error_new(b"stopped")
    return ctypes.cast(made, ctypes.c_void_p).value or 0


_on_tick = _bindings._wasmtime_store_epoch_deadline_callback.argtypes[1](_late)
