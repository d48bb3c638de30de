"""Outputs at rest: what is large or binary lies in the blobs, the rest in the store."""

from __future__ import annotations

from dataclasses import replace

from quire.core.model import Data, Output
from quire.core.ports.store import Blobs

_INLINE_CHARS = 32_000  # text up to this stays in the store; longer text and all binary go to the blobs


async def keep(blobs: Blobs, output: Output) -> Output:
    return replace(output, bundle=await keep_bundle(blobs, output.bundle))


async def keep_bundle(blobs: Blobs, bundle: dict[str, Data]) -> dict[str, Data]:
    kept: dict[str, Data] = {}
    for mime, data in bundle.items():
        if isinstance(data, bytes):
            kept[mime] = await blobs.put(data)
        elif isinstance(data, str) and len(data) > _INLINE_CHARS:
            kept[mime] = replace(await blobs.put(data.encode("utf-8")), text=True)
        else:
            kept[mime] = data
    return kept
