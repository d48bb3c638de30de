"""The memory that every science guest begins with: an interpreter that has loaded our program and the libraries."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
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


def bake(
    engine: wasmtime.Engine, ready: Any, folders: list[tuple[Path, str]], scratch: Path
) -> tuple[bytes, dict[str, Any]]:
    """The memory, and what must be known of it. Raises NoScience."""
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
        told = json.loads(said[-1]) if said else {"failed": errors.read_text()}
        if "step" not in told:
            raise science.NoScience(f"The science guest could not be set up: {told['failed'][-2_000:].strip()}")
        instance.forget_folders()
        functions = instance.functions
        return functions.read(0, functions.size()), told
    except wasmtime.WasmtimeError as error:
        raise science.NoScience(f"The science guest could not be set up: {error}") from error
    finally:
        store.close()


def baked(folder: Path, name: str, make: Callable[[Path], tuple[bytes, dict[str, Any]]]) -> tuple[Path, dict[str, Any]]:
    """The file of that memory in that folder, and what is known of it; made where it is not there."""
    memory, about = folder / f"{name}.memory", folder / f"{name}.json"
    if not about.is_file() or not memory.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            found, known = make(Path(scratch))
            for path, data in ((memory, found), (about, json.dumps(known).encode())):
                beside = Path(scratch) / path.name
                beside.write_bytes(data)
                beside.replace(path)
        _tidy(folder, memory)
    return memory, json.loads(about.read_text())


def _tidy(folder: Path, newest: Path) -> None:
    """Of older ones one stays, for whoever goes back to the version before; a host that has one mapped keeps it."""
    older = sorted((each for each in folder.glob("*.memory") if each != newest), key=lambda each: each.stat().st_mtime)
    for memory in older[:-1]:
        memory.unlink(missing_ok=True)
        memory.with_suffix(".json").unlink(missing_ok=True)
