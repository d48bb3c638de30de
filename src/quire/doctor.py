"""What `quire doctor` reports: starts a server and a kernel, and tests crash recovery."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from quire import __version__
from quire.compose import RUNTIMES, app, runtimes
from quire.core.app import App
from quire.core.errors import InvalidRequest, OperationFailed
from quire.core.limits.sandbox_layers import describe_layers
from quire.core.model import LOCAL, Layer
from quire.settings import Settings

Finding = tuple[str, bool | None, str]
"""A part, whether it works (None: for information), and a sentence."""


async def examine(settings: Settings) -> list[Finding]:
    found: list[Finding] = [("quire", None, f"{__version__} on Python {sys.version.split()[0]}")]
    try:
        async with app(settings) as running:
            found.append(("data directory", True, str(settings.store.data_dir)))
            usual = runtimes(settings)[0]
            said = await running.kernels.runtimes.describe(usual)
            if said.why_not:
                raise OperationFailed(said.why_not)
            loaded = ", ".join(said.packages) or "nothing"
            found.append(("kernels", True, f"Python {said.version} ({settings.kernel.python})"))
            found.append(("preloaded", None, f"{loaded} (of {', '.join(settings.kernel.preload)})"))
            found += [_layer(layer, settings.sandbox.mode) for layer in said.layers]
            found += [
                await _wasm_runtime(running, name, settings.sandbox.mode) for name in RUNTIMES[1:] if name != usual
            ]
        found.append(("recovery", *await _crash_recovery(settings)))
    except (OperationFailed, InvalidRequest) as error:
        found.append(("start", False, str(error)))
    return found


def _layer(layer: Layer, wanted: str) -> Finding:
    """A layer that the settings turn off is no problem."""
    works = None if layer.why_not and wanted == "off" else not layer.why_not
    return f"sandbox: {layer.name}", works, layer.why_not or "on"


async def _wasm_runtime(running: App, name: str, wanted: str) -> Finding:
    """A WebAssembly runtime. One that is not installed is no problem, nor is a layer that the settings turn off."""
    said = await running.kernels.runtimes.describe(name)
    if said.why_not:
        return name, None, said.why_not
    is_incomplete = any(layer.why_not for layer in said.layers) and wanted != "off"
    return name, not is_incomplete, f"{said.version}; sandbox: {describe_layers(said.layers)}"


async def _crash_recovery(settings: Settings) -> tuple[bool, str]:
    """Crashes a cell in a temporary notebook and checks that its variables are restored."""
    with tempfile.TemporaryDirectory(prefix="quire-doctor-") as folder:
        changes: dict[str, dict[str, Any]] = {
            "store": {"kind": "memory"},
            "kernel": {"spare_kernels": 0, "workspace": Path(folder)},
            "auth": {"method": "none"},
        }
        sections = {name: getattr(settings, name).model_copy(update=keys) for name, keys in changes.items()}
        async with app(settings.model_copy(update=sections)) as running:
            notebook = await running.notebooks.create(LOCAL)
            for code in ("kept = (n for n in [41])", "import os; os._exit(1)", "next(kept)"):
                active = await running.runs.start(notebook, code)
                cell = await running.runs.wait(active)
    if cell.run is not None and cell.run.value == [41]:
        return True, "variables were restored after a crash"
    return False, f"variables were lost after a crash: {cell.run.cause if cell.run else ''}"
