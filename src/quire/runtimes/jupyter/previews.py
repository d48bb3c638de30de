"""Smaller copies of large pictures that a Jupyter kernel showed: made in a process of its own, never in the server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace

from quire.core.notebooks.images import PREVIEW, dimensions
from quire.wire.messages import Displayed

_LARGE, _SIDE = 300_000, 1_568  # bytes, pixels: as the worker has it
_LARGEST = 64 << 20  # bytes; what is larger comes by reference only
_PATIENCE = 15.0  # seconds


async def with_preview(shown: Displayed) -> Displayed:
    """The same where the picture is small, where there is no Pillow, and where it cannot be read."""
    for mime in ("image/png", "image/jpeg", "image/gif"):
        data = shown.bundle.get(mime)
        if isinstance(data, bytes):
            small = await _shrunk(data, mime) if _is_large(data, mime) else b""
            return replace(shown, bundle={**shown.bundle, PREVIEW: small}) if small else shown
    return shown


def _is_large(data: bytes, mime: str) -> bool:
    sides = [each for each in dimensions(data, mime) if each is not None]
    return len(data) <= _LARGEST and (len(data) > _LARGE or max(sides, default=0) > _SIDE)


async def _shrunk(data: bytes, mime: str) -> bytes:
    pipe, command = asyncio.subprocess.PIPE, (sys.executable, "-m", "quire.worker.output.preview_program", mime)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={"PYTHONSAFEPATH": "1"}
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(_PATIENCE):
            small, _ = await process.communicate(data)
        return small if process.returncode == 0 else b""
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
