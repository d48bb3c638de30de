"""Small previews of large images from a Jupyter kernel. A separate process makes them, never the server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import replace

from quire.core.notebooks.images import PREVIEW, dimensions
from quire.wire.messages import Displayed

_LARGE_BYTES, _LARGE_SIDE = 300_000, 1_568  # bytes, pixels; same as in the worker
_MAX_BYTES = 64 << 20  # larger images get no preview
_TIMEOUT_S = 15.0


async def with_preview(shown: Displayed) -> Displayed:
    """Unchanged if the image is small or cannot be read, or if Pillow is not installed."""
    for mime in ("image/png", "image/jpeg", "image/gif"):
        data = shown.bundle.get(mime)
        if isinstance(data, bytes):
            preview = await _shrink(data, mime) if _is_large(data, mime) else b""
            return replace(shown, bundle={**shown.bundle, PREVIEW: preview}) if preview else shown
    return shown


def _is_large(data: bytes, mime: str) -> bool:
    sides = [side for side in dimensions(data, mime) if side is not None]
    return len(data) <= _MAX_BYTES and (len(data) > _LARGE_BYTES or max(sides, default=0) > _LARGE_SIDE)


async def _shrink(data: bytes, mime: str) -> bytes:
    pipe, command = asyncio.subprocess.PIPE, (sys.executable, "-m", "quire.worker.output.preview_program", mime)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={"PYTHONSAFEPATH": "1"}
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            preview, _ = await process.communicate(data)
        return preview if process.returncode == 0 else b""
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
