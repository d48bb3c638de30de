"""JavaScript as a language of the host: its program frozen and compiled once, kept in a folder, and made guests of."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from weakref import WeakSet

import wasmtime
from wasmtime import _ffi as ffi

from quire.runtimes.wasm.assets import quickjs
from quire.runtimes.wasm.host.guest import MORE_MEMORY, Bounds, Ended, Host, NotReady, Place
from quire.runtimes.wasm.host.javascript import freezing, imports
from quire.runtimes.wasm.host.javascript.exports import Exports
from quire.runtimes.wasm.host.javascript.freezing import Marks
from quire.runtimes.wasm.host.javascript.guest import JavaScriptGuest

WASM_STACK = 12 << 20  # bytes; on a thread with less of its own, deep recursion would kill the process
THREAD_STACK = 16 << 20
GRACE = 1.0  # seconds between a soft interrupt and the hard stop
_Progress = Callable[[str], None] | None  # without one, nothing is made
_OPTIONS = f"stack {WASM_STACK}, epoch"


def load(assets: Path, progress: Callable[[str], None], *, make: bool = True) -> JavaScript:
    """The language, from what is kept in that folder, else made again, or without `make` as it is there, with fuel and
    without. Raises quickjs.Missing, NotReady."""
    if 0 <= threading.stack_size() < THREAD_STACK:
        threading.stack_size(THREAD_STACK)  # of threads that are started from now on: guests run on them
    program = quickjs.program(assets, progress) if make else quickjs.kept(assets)
    if program is None:
        raise NotReady
    said = hashlib.sha256(program + freezing.prelude().encode() + str(freezing.STACK).encode()).hexdigest()[:16]
    kept = _Kept(assets / "javascript")
    ready, marks = kept.read(f"{said}.wasm"), kept.read(f"{said}.json")
    if ready is None or marks is None:
        if not make:
            raise NotReady
        progress("Setting up JavaScript")
        ready, found = freezing.frozen(program)
        marks = json.dumps(found.said()).encode()
        kept.write(f"{said}.json", marks)
        kept.write(f"{said}.wasm", ready)
    loaded = JavaScript(ready, Marks(**json.loads(marks)), kept, progress if make else None)
    loaded.compiled(metered=True)  # now: in a host there is no other time for it
    return loaded


class JavaScript:
    def __init__(self, program: bytes, marks: Marks, kept: _Kept, progress: _Progress) -> None:
        self._program = program
        self._marks = marks
        self._kept = kept
        self._progress = progress
        self._artefact = f"javascript-{hashlib.sha256(program).hexdigest()[:24]}"
        self._compiling = threading.Lock()
        self._compiled: dict[bool, Compiled] = {}
        self._counting = threading.Lock()
        self._guests: WeakSet[JavaScriptGuest] = WeakSet()
        self.base = self._first_memory()

    @property
    def version(self) -> str:
        return f"JavaScript (QuickJS-ng {quickjs.ENGINE})"

    @property
    def packages(self) -> tuple[str, ...]:
        return ()

    @property
    def artefact(self) -> str:
        return self._artefact

    def make(self, place: Place, bounds: Bounds, host: Host) -> JavaScriptGuest:
        compiled = self.compiled(metered=bounds.fuel > 0)
        if bounds.memory and bounds.memory < len(self.base) + 0x100000:
            raise Ended(
                f"A JavaScript guest needs {(len(self.base) + 0x100000) >> 20} MiB at least.",
                MORE_MEMORY,
            )
        store, exports = compiled.instance(bounds.memory)
        guest = JavaScriptGuest(
            compiled.engine, store, exports, self._marks, place, bounds, host, self.base, self._artefact
        )
        with self._counting:
            self._guests.add(guest)
        return guest

    def prepare(self) -> None:
        """Nothing: a guest is made as soon as one is wanted."""

    def tick(self) -> None:
        now = time.monotonic()
        with self._counting:
            late = [each for each in self._guests if each.overdue(now, GRACE)]
        if late:
            for each in self._compiled.values():
                each.engine.increment_epoch()

    def compiled(self, metered: bool) -> Compiled:
        """The program as machine code; fuel is counted only where there is a limit: it costs 8 to 29 %."""
        with self._compiling:
            if metered not in self._compiled:
                self._compiled[metered] = Compiled(self._program, metered, self._kept, self._progress)
            return self._compiled[metered]

    def _first_memory(self) -> bytes:
        _store, exports = self.compiled(metered=False).instance(0)
        return bytes(exports.view())


class Compiled:
    def __init__(self, program: bytes, metered: bool, kept: _Kept, progress: _Progress) -> None:
        config = wasmtime.Config()
        config.consume_fuel = metered
        config.epoch_interruption = True
        ffi.wasmtime_config_async_stack_size_set(config.ptr(), WASM_STACK + (1 << 20))  # must be more, or it aborts
        config.max_wasm_stack = WASM_STACK
        self.metered = metered
        self.engine = wasmtime.Engine(config)
        module = self._module(program, kept, progress)
        self._ready = imports.linker(self.engine, module).instantiate_pre(module)

    def _module(self, program: bytes, kept: _Kept, progress: _Progress) -> wasmtime.Module:
        key = f"{version('wasmtime')}|{_OPTIONS}|{self.metered}|".encode() + program
        name = f"{hashlib.sha256(key).hexdigest()[:24]}.cwasm"
        path = kept.trusted(name)
        if path is not None:
            try:
                return wasmtime.Module.deserialize_file(self.engine, str(path))
            except wasmtime.WasmtimeError:
                pass  # of another machine, or torn: made again
        if progress is None:
            raise NotReady
        progress("Compiling JavaScript")
        module = wasmtime.Module(self.engine, program)
        kept.write(name, bytes(module.serialize()))
        return module

    def instance(self, memory: int) -> tuple[wasmtime.Store, Exports]:
        store = wasmtime.Store(self.engine)
        if memory:
            store.set_limits(memory_size=memory)
        if self.metered:
            store.set_fuel(1 << 62)
        imports.watch(store)
        instance = self._ready.instantiate(store)
        return store, Exports(store, instance._instance)


class _Kept:
    """Files of ours in a folder that no guest sees; one that others could have written is not read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def trusted(self, name: str) -> Path | None:
        path = self._folder / name
        try:
            about = path.lstat()
        except OSError:
            return None
        if os.name == "posix" and (about.st_uid != os.geteuid() or about.st_mode & 0o022):
            return None
        return path if path.is_file() and not path.is_symlink() else None

    def read(self, name: str) -> bytes | None:
        path = self.trusted(name)
        return path.read_bytes() if path else None

    def write(self, name: str, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._folder / f"{name}.{secrets.token_hex(4)}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        beside.replace(self._folder / name)
