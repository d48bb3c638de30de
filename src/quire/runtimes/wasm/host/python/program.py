"""What all Python guests have in common: the compiled component, how one looks that was just made, and a spare one."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import wasmtime
from wasmtime.component import Component, Linker

from quire.runtimes.wasm.host.python.calls import Instance
from quire.runtimes.wasm.host.python.memory import Fresh, Memory
from quire.wire import messages, texts

FOR_EVER = (1 << 63) - 1
"""More fuel than any run uses."""


@dataclass(frozen=True, kw_only=True)
class Blank:
    """A guest in which nothing has run, and that sees nothing of the machine yet."""

    store: wasmtime.Store
    instance: Instance
    memory: Memory


class Program:
    def __init__(
        self, artefact: str, engine: wasmtime.Engine, linker: Linker, component: Component, metered: bool
    ) -> None:
        self.artefact = artefact
        self.engine = engine
        self.metered = metered
        self._linker = linker
        self._component = component
        self.fresh = Fresh(self._made(-1).memory)
        self._spare: Blank | None = None
        self._sparing = threading.Lock()

    def blank(self, limit: int) -> Blank:
        """One that may have so many bytes of memory; 0 is no limit. Raises WasmtimeError where it needs more."""
        spare = None
        if not 0 < limit < self.fresh.size:
            with self._sparing:
                spare, self._spare = self._spare, None
        if spare is None:
            return self._made(limit or -1)
        spare.store.set_limits(memory_size=limit or -1)
        return spare

    def prepare(self) -> None:
        """Prepare one for the next guest: its first run finds in place what every run needs."""
        if self._spare is not None:
            return
        spare = self._made(-1)
        spare.instance.call("handle", texts.dump(messages.Inspect()))
        self.fresh.warm(spare.memory)
        with self._sparing:
            self._spare = spare

    def _made(self, limit: int) -> Blank:
        store = wasmtime.Store(self.engine)
        store.set_limits(memory_size=limit)
        store.set_wasi(wasmtime.WasiConfig())
        if self.metered:
            store.set_fuel(FOR_EVER)
        instance = Instance(self._linker, self._component, store)
        return Blank(store=store, instance=instance, memory=Memory(instance))
