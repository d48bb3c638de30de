"""The key of a data directory, and what is signed with it: a snapshot is code, only our own is loaded."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import tempfile
from pathlib import Path

from quire import platform_compat
from quire.core.errors import OperationFailed

_KEY = 32  # bytes


def key_in(folder: Path) -> bytes:
    """The folder's key; made, once, by whoever comes first."""
    path = folder / "key"
    if not path.exists():
        _make(path)
    key = path.read_bytes()
    if len(key) != _KEY:
        raise OperationFailed(f"The key of the snapshots is damaged: {path} has {len(key)} bytes, not {_KEY}.")
    return key


def _make(path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".key-")  # only its owner may read it
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_KEY))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another server was first: its key stands
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    platform_compat.sync_folder(path.parent)


def signature(key: bytes, id_: str, notebook: str, run: str | None, manifest: bytes) -> bytes:
    head = json.dumps([id_, notebook, run]).encode()
    return hmac.new(key, len(head).to_bytes(8, "big") + head + manifest, hashlib.sha256).digest()


def is_ours(key: bytes, id_: str, notebook: str, run: str | None, manifest: bytes, signed: bytes) -> bool:
    return hmac.compare_digest(signature(key, id_, notebook, run, manifest), signed)
