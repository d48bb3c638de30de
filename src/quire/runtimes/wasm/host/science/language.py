"""CPython with the libraries of data science, compiled once and set up once, of which guests are made."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import wasmtime

from quire.runtimes.wasm.assets import science
from quire.runtimes.wasm.host.guest import Bounds, Host, NotReady, Place
from quire.runtimes.wasm.host.python.language import STACK, Cache, config, no_guest, told
from quire.runtimes.wasm.host.python.opened import raise_limit
from quire.runtimes.wasm.host.science import calls
from quire.runtimes.wasm.host.science.baking import Baked, bake
from quire.runtimes.wasm.host.science.guest import ScienceGuest
from quire.runtimes.wasm.host.science.memory import Base
from quire.runtimes.wasm.host.science.program import Program


class ScienceLanguage:
    def __init__(self, program: Program) -> None:
        self._program = program

    @classmethod
    def load(
        cls, assets: Path, progress: Callable[[str], None], *, stack: int = STACK, make: bool = True
    ) -> ScienceLanguage:
        """What it is compiled to and set up to is kept in that folder, of which guests see the library and no more.
        Without `make` all has to be there: raises NotReady.

        Threads in which guests run must have twice the `stack`.
        """
        raise_limit()
        folder = assets / "science"
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        engine = wasmtime.Engine(config(True, stack))
        compiled = f"{science.name()}-wasmtime-{importlib.metadata.version('wasmtime')}"
        module = Cache(folder).module(engine, compiled, science.program, progress if make else None)
        ready = calls.linker(engine).instantiate_pre(module)
        library = science.lay_out(folder) if make else science.laid_out(folder)
        if not library.is_dir():
            raise NotReady
        folders = science.folders(library)
        name = f"{science.name()}-{science.digest()}"
        baked = Baked.find(folder, name)
        if baked is None:
            if not make:
                raise NotReady
            with (
                told(progress, "setting up Python with its libraries, once"),
                TemporaryDirectory(dir=folder) as scratch,
            ):
                baked = Baked.write(folder, name, *bake(engine, ready, folders, Path(scratch)))
        artefact = f"science-{science.name()}-{baked.digest}"
        base = Base.open(baked.path)
        return cls(Program(artefact=artefact, engine=engine, ready=ready, folders=folders, base=base, step=baked.step))

    @property
    def version(self) -> str:
        return f"Python {'.'.join(science.versions()['python'].split('.')[:2])} (WebAssembly)"

    @property
    def packages(self) -> tuple[str, ...]:
        found = science.versions()
        return tuple(f"{name} {found[name]}" for name in science.NAMED if name in found)

    @property
    def artefact(self) -> str:
        return self._program.artefact

    def make(self, place: Place, bounds: Bounds, host: Host) -> ScienceGuest:
        try:
            return ScienceGuest(self._program, place, bounds, host)  # type: ignore[arg-type]
        except wasmtime.WasmtimeError as error:
            raise no_guest(error) from error

    def prepare(self) -> None:
        """A guest begins as a file that is mapped: there is nothing to do ahead."""

    def tick(self) -> None:
        self._program.engine.increment_epoch()
