"""Files in a notebook's workspace, read and written for a caller: inside it or not at all."""

from __future__ import annotations

from pathlib import Path

import anyio

from quire.core.errors import Failed, NotFound, Refused

READ_LIMIT = 50_000_000  # bytes of a file taken in at once


def inside(workspace: str, path: str) -> Path:
    """The real path of `path` below the workspace; links that lead out are refused."""
    root = Path(workspace).resolve()
    if "\x00" in path:
        raise Refused("A path cannot hold a NUL byte.")
    try:
        real = (root / path).resolve()
    except (OSError, RuntimeError):
        raise Refused(f"{path!r} is not a path that can be followed.") from None
    if real != root and root not in real.parents:
        raise Refused(f"{path!r} is outside the notebook's workspace {workspace}. Give a path inside it.")
    return real


async def write(workspace: str, path: str, text: str) -> Path:
    target = inside(workspace, path)
    try:
        await anyio.Path(target.parent).mkdir(parents=True, exist_ok=True)
        await anyio.Path(target).write_text(text, "utf-8")
    except OSError as error:
        raise Failed(f"{path!r} could not be written: {error.strerror}.") from error
    return target


async def read(workspace: str, path: str) -> str:
    source = anyio.Path(inside(workspace, path))
    if not await source.is_file():
        raise NotFound(f"There is no file {path!r} in the notebook's workspace {workspace}.")
    if (await source.stat()).st_size > READ_LIMIT:
        raise Refused(f"{path!r} has more than {READ_LIMIT:,} bytes.")
    try:
        return await source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path!r} cannot be read as text: {error}.") from error
