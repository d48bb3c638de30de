"""CPython compiled once, of which guests are made."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime.component import Component, Linker

from quire.runtimes.wasm.host.guest import MORE_MEMORY, Bounds, Ended, Host, NotReady, Place
from quire.runtimes.wasm.host.python import calls
from quire.runtimes.wasm.host.python.guest import PythonGuest
from quire.runtimes.wasm.host.python.opened import raise_limit
from quire.runtimes.wasm.host.python.program import Program

STACK = 16 << 20
"""Bytes of stack with which deep recursion is an error of Python's, not the guest's end."""

_STACK = 1 << 20  # bytes that the threads of every platform have, with room to spare
_NOW_AND_THEN = 20.0  # seconds
_VERSION = "Python 3.14 (WebAssembly)"


class PythonLanguage:
    """`metered` has every instruction counted: without, loops are about an eighth faster, and there is no fuel."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self._name = name

    @classmethod
    def load(
        cls,
        component: Path,
        cache: Path,
        progress: Callable[[str], None] = lambda text: None,
        *,
        metered: bool = True,
        stack: int = _STACK,
        make: bool = True,
    ) -> PythonLanguage:
        """Of the component at that path; what it is compiled to is kept in `cache`, which no guest may see. Without
        `make` it has to be there: raises NotReady.

        Threads in which guests run must have twice the `stack`, or the process may crash: see threading.stack_size.
        """
        raise_limit()
        engine = wasmtime.Engine(config(metered, stack))
        name = _artefact(component, metered)
        compiled = Cache(cache).get(engine, component, name, progress if make else None)
        linker = Linker(engine)
        linker.add_wasip2()
        calls.define_host(linker)
        return cls(Program(name, engine, linker, compiled, metered), name)

    @property
    def version(self) -> str:
        return _VERSION

    @property
    def packages(self) -> tuple[str, ...]:
        return ()

    @property
    def artefact(self) -> str:
        return self._name

    def make(self, place: Place, bounds: Bounds, host: Host) -> PythonGuest:
        try:
            return PythonGuest(self._program, place, bounds, host)
        except wasmtime.WasmtimeError as error:
            raise no_guest(error) from error

    def prepare(self) -> None:
        with contextlib.suppress(wasmtime.WasmtimeError):  # no room for one: the next is made when it is wanted
            self._program.prepare()

    def tick(self) -> None:
        self._program.engine.increment_epoch()


def no_guest(error: wasmtime.WasmtimeError) -> Ended:
    why = str(error).splitlines()[0]
    hint = MORE_MEMORY if "memory" in why else "Look whether its folders are there."
    return Ended(f"No guest could be made: {why}.", hint)


def config(metered: bool, stack: int) -> wasmtime.Config:
    made = wasmtime.Config()
    made.epoch_interruption = True
    made.consume_fuel = metered
    ffi.wasmtime_config_async_stack_size_set(made.ptr(), stack + (1 << 20))  # never less, or the process aborts
    made.max_wasm_stack = stack
    return made


def _artefact(component: Path, metered: bool) -> str:
    digest = hashlib.sha256(component.read_bytes()).hexdigest()[:16]
    return f"python-{digest}-wasmtime-{importlib.metadata.version('wasmtime')}{'-metered' if metered else ''}"


class Cache:
    """Compiled components. One is machine code: it is loaded only if no other user could have written it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(
        self, engine: wasmtime.Engine, source: Path, name: str, progress: Callable[[str], None] | None
    ) -> Component:
        """Compile it if needed and if there is a `progress` to report to."""
        path = self._folder / f"{name}.cwasm"
        if _is_ours(self._folder) and _is_ours(path):
            try:
                return Component.deserialize_file(engine, str(path))
            except wasmtime.WasmtimeError:
                if progress is not None:
                    progress("the compiled Python guest is of another version")
        if progress is None:
            raise NotReady
        progress("compiling the Python guest, once")
        component = Component(engine, source.read_bytes())
        self._keep(path, bytes(component.serialize()))
        progress("compiled the Python guest")
        return component

    def module(
        self, engine: wasmtime.Engine, name: str, source: Callable[[], bytes], progress: Callable[[str], None] | None
    ) -> wasmtime.Module:
        """The same of a core module, whose bytes are asked for only where they are needed."""
        path = self._folder / f"{name}.cwasm"
        if _is_ours(self._folder) and _is_ours(path):
            try:
                return wasmtime.Module.deserialize_file(engine, str(path))
            except wasmtime.WasmtimeError:
                if progress is not None:
                    progress("compiled Python with its libraries is of another version")
        if progress is None:
            raise NotReady
        with told(progress, "compiling Python with its libraries, once: it takes a minute or two"):
            module = wasmtime.Module(engine, source())
        self._keep(path, bytes(module.serialize()))
        progress("compiled Python with its libraries")
        return module

    def _keep(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_ours(self._folder):
            return
        descriptor, beside = tempfile.mkstemp(dir=self._folder)  # which no other user can read
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        try:
            Path(beside).replace(path)
        except OSError:  # where another process uses the one that is there
            Path(beside).unlink()


@contextlib.contextmanager
def told(progress: Callable[[str], None], doing: str) -> Iterator[None]:
    """Report progress now and then: the server takes silence for an end."""
    over = threading.Event()

    def tell() -> None:
        while True:
            progress(doing)
            if over.wait(_NOW_AND_THEN):
                return

    telling = threading.Thread(target=tell)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()


def _is_ours(path: Path) -> bool:
    """Whether it exists, and on POSIX no other user can write to it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    if os.name != "posix":
        return True
    return found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & 0o022
