"""What `quire doctor` finds: each part tried for real, with a sentence."""

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
"""A part, whether it is well (None: only said), and a sentence."""


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
            found += [_wall(layer, settings.sandbox.mode) for layer in said.layers]
            found += [await _guests(running, name, settings.sandbox.mode) for name in RUNTIMES[1:] if name != usual]
        found.append(("recovery", *await _recovers(settings)))
    except (OperationFailed, InvalidRequest) as error:
        found.append(("start", False, str(error)))
    return found


def _wall(layer: Layer, wanted: str) -> Finding:
    """A layer that is off by choice is no fault."""
    stands = None if layer.why_not and wanted == "off" else not layer.why_not
    return f"sandbox: {layer.name}", stands, layer.why_not or "on"


async def _guests(running: App, name: str, wanted: str) -> Finding:
    """A runtime in WebAssembly: one that is not set up is no fault, nor is a wall that is off by choice."""
    said = await running.kernels.runtimes.describe(name)
    if said.why_not:
        return name, None, said.why_not
    lacks = any(layer.why_not for layer in said.layers) and wanted != "off"
    return name, not lacks, f"{said.version}; walls: {describe_layers(said.layers)}"


async def _recovers(settings: Settings) -> tuple[bool, str]:
    """Crash a cell, in a notebook nobody keeps, and look for what it must not cost."""
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
        return True, "a cell that crashed cost nothing but itself"
    return False, f"after a crash variables were gone: {cell.run.cause if cell.run else ''}"
