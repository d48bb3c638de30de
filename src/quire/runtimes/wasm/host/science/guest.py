"""One Python namespace with libraries: its memory begins as everybody's, and is imaged as it lies."""

from __future__ import annotations

import wasmtime

from quire.runtimes.wasm.host.guest import MORE_MEMORY, Ended, Image
from quire.runtimes.wasm.host.javascript.exports import Trapped
from quire.runtimes.wasm.host.python.guest import PythonGuest
from quire.runtimes.wasm.host.python.program import FOR_EVER
from quire.runtimes.wasm.host.science import memory
from quire.runtimes.wasm.host.science.calls import Instance
from quire.runtimes.wasm.host.science.program import Program
from quire.wire import messages


class ScienceGuest(PythonGuest):
    _program: Program  # type: ignore[assignment]
    _instance: Instance  # type: ignore[assignment]
    folders = 3  # its workspace, and two that its library is in

    def _begin(self) -> None:
        self._store = self._program.store(self._wasi(), self._bounds.memory)
        self._instance = Instance(self._program.ready, self._store, self._heard)
        self._instance.step = self._program.step
        self._instance.stopped = self._is_to_stop
        self._lay()
        self._entered, self._over = False, ""

    def _lay(self) -> None:
        try:
            self._program.base.lay(self._instance.functions)
        except Trapped as error:
            raise Ended(
                f"Python with its libraries needs {(self._program.base.size >> 20) + 16} MiB of memory at least.",
                "Raise wasm.memory_bytes, or memory_bytes of the session.",
            ) from error

    def _wasi(self) -> wasmtime.WasiConfig:
        wasi = wasmtime.WasiConfig()
        for path, seen in self._program.folders:  # first: by their numbers all others are counted
            wasi.preopen_dir(str(path), seen, False)
        return self._granted(wasi)

    def image(self) -> Image:
        self._enter()
        asleep = self._answer(messages.Checkpoint(name=""))
        lost = asleep.lost if isinstance(asleep, messages.Checkpointed) else []
        functions = self._instance.functions
        size, pages = functions.size(), memory.differing(functions, self._program.base)
        self._answer(messages.Load())
        return Image(artefact=self._program.artefact, size=size, pages=pages, rest="; ".join(lost)[:1_000])

    def restore(self, image: Image) -> None:
        self._check(image)
        if self._entered or self._over:
            self._store.close()
            self._begin()
        functions = self._instance.functions
        try:
            functions.grow(image.size)
        except Trapped as error:
            raise Ended(
                f"The checkpoint needs {image.size:,} bytes of memory, and {self._bounds.memory:,} are the limit.",
                MORE_MEMORY,
            ) from error
        memory.write(functions, image.pages)
        self._fuel(FOR_EVER)
        self._instance.forget_folders()  # there may be others now
        self._enter()

    def memory(self) -> int:
        return memory.own(self._instance.functions)
