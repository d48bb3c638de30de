"""The memory that every science guest begins with: an interpreter that has loaded our program and the libraries."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wasmtime

from quire.runtimes.wasm.assets import science
from quire.runtimes.wasm.host.science.calls import Instance
from quire.runtimes.wasm.host.science.program import new_store

_BEGIN = """
import sys
sys.path.append("/quire")
from quire.runtimes.wasm.guest.science import app
app.prepare()
"""
_ENVIRON = {"HOME": "/workspace", "TMPDIR": "/workspace", "PYTHONTZPATH": "", "MPLCONFIGDIR": "/workspace"}


def bake(engine: wasmtime.Engine, ready: Any, folders: list[tuple[Path, str]], scratch: Path) -> tuple[bytes, int]:
    """The memory, and where in it the function is that takes a request. Raises NoScience."""
    said: list[str] = []
    program, workspace = scratch / "program", scratch / "workspace"
    workspace.mkdir()
    for place, source in science.sources():
        (program / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, program / place)
    errors = scratch / "errors"
    wasi = wasmtime.WasiConfig()
    wasi.argv, wasi.env, wasi.stderr_file = ["python"], sorted(_ENVIRON.items()), str(errors)
    for path, seen in [*folders, (program, "/quire")]:
        wasi.preopen_dir(str(path), seen, False)
    wasi.preopen_dir(str(workspace), "/workspace", True)

    def hear(text: str) -> str:
        said.append(text)
        return ""

    store = new_store(engine, wasi)
    try:
        instance = Instance(ready, store, hear)
        instance.turn(_BEGIN)
        told = json.loads(said[-1]) if said else {"failed": errors.read_text("utf-8")}
        if "step" not in told:
            raise science.NoScience(f"The science guest could not be set up: {told['failed'][-2_000:].strip()}")
        instance.forget_folders()
        functions = instance.functions
        return functions.read(0, functions.size()), int(told["step"])
    except wasmtime.WasmtimeError as error:
        raise science.NoScience(f"The science guest could not be set up: {error}") from error
    finally:
        store.close()


@dataclass(frozen=True, kw_only=True)
class Baked:
    """A file of that memory. Its name says all that must be known of it, so that it is whole or not there."""

    path: Path
    digest: str
    step: int  # where the function is that takes a request

    @classmethod
    def find(cls, folder: Path, name: str) -> Baked | None:
        for path in sorted(folder.glob(f"{name}-*.memory")):
            digest, step = path.stem.removeprefix(f"{name}-").split("-")
            return cls(path=path, digest=digest, step=int(step))
        return None

    @classmethod
    def write(cls, folder: Path, name: str, memory: bytes, step: int) -> Baked:
        digest = hashlib.sha256(memory).hexdigest()[:16]
        made = cls(path=folder / f"{name}-{digest}-{step}.memory", digest=digest, step=step)
        descriptor, beside = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(memory)
        Path(beside).replace(made.path)
        _tidy(folder, made.path)
        return made


def _tidy(folder: Path, newest: Path) -> None:
    """Delete all older ones but one, for a return to the version before. A host keeps what it has mapped."""
    older = sorted((each for each in folder.glob("*.memory") if each != newest), key=lambda each: each.stat().st_mtime)
    for memory in older[:-1]:
        memory.unlink(missing_ok=True)
