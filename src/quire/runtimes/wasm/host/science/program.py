"""What all science guests have in common: the interpreter, the memory they begin with, the folders of their library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wasmtime

from quire.runtimes.wasm.host.python.program import FOR_EVER
from quire.runtimes.wasm.host.science.memory import Base


@dataclass(frozen=True, kw_only=True)
class Program:
    artefact: str
    engine: wasmtime.Engine
    ready: Any  # to be instantiated
    folders: list[tuple[Path, str]]
    base: Base
    step: int  # where the function is that takes a request
    metered: bool = True

    def store(self, wasi: wasmtime.WasiConfig, memory: int) -> wasmtime.Store:
        return new_store(self.engine, wasi, memory)


def new_store(engine: wasmtime.Engine, wasi: wasmtime.WasiConfig, memory: int = 0) -> wasmtime.Store:
    """With fuel for a start; 0 bytes of memory are as many as it likes."""
    store = wasmtime.Store(engine)
    store.set_limits(memory_size=memory or -1)
    store.set_fuel(FOR_EVER)
    store.set_wasi(wasi)
    return store
