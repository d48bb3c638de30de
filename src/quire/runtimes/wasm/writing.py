"""An image as a durable snapshot, and back: cut into regions, so that what was not written again is kept once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from quire.core.errors import OperationFailed
from quire.core.ports.snapshots import Draft, Recipe, Written
from quire.runtimes.wasm.host import images
from quire.snapshot_format import chunks
from quire.snapshot_format.chunk_reader import read_snapshot, split_segments
from quire.snapshot_format.chunk_writer import ChunkWriter, read_and_close


def write(file: Path, draft: Draft, *, version: str, limit: int, about: dict[str, Any]) -> Written:
    """The image in this file, into the draft; runs in a thread. Raises OperationFailed."""
    try:
        image = images.parse(file.read_bytes())
        parts = list(images.segments(image))
        size = sum(len(data) for _, data in parts)
        if size > limit:
            raise OperationFailed(
                f"The namespace takes {size:,} bytes, over the {limit:,} that may be kept "
                "(checkpoints.max_snapshot_bytes)."
            )
        cutter = ChunkWriter(draft.file, _known(draft.base))
        manifest = chunks.Manifest(
            python=version,
            segments=tuple((name, len(data)) for name, data in parts),
            stream=cutter.stream(parts),
            buffers=(),
            about={**about, "lost": [], "seconds": 0.0},
        )
        written, entries, words = cutter.finish(manifest)
    except (OSError, ValueError) as error:
        raise OperationFailed(f"The snapshot could not be written: {error}. The last snapshot stands.") from error
    return Written(chunks=written, entries=entries, manifest=words)


def read(recipe: Recipe, file: Path) -> None:
    """What a recipe names, into a new image file; runs in a thread. Raises OperationFailed."""
    try:
        manifest, (stream, *_) = read_snapshot(os.dup(recipe.file), [os.dup(each) for each in recipe.packs])
        images.write(images.joined(split_segments(manifest, stream)), file)
    except (OSError, ValueError, KeyError) as error:
        raise OperationFailed(f"The snapshot cannot be read: {error}") from error


def _known(base: int) -> set[bytes]:
    """Names of the chunks that the base has."""
    if base < 0:
        return set()
    manifest, names = chunks.parse_recipe_names(read_and_close(os.dup(base)))
    return {name for each in names for name in each} | {node for whole in manifest.wholes for node in whole.nodes}
