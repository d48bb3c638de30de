"""The key of a data directory, and signatures made with it. Loading a snapshot runs code, so only signed ones are."""

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

_KEY_BYTES = 32


def load_key(folder: Path) -> bytes:
    """Return the key of the folder. The first server creates it."""
    path = folder / "key"
    if not path.exists():
        _create_key(path)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OperationFailed(f"The key of the snapshots is damaged: {path} has {len(key)} bytes, not {_KEY_BYTES}.")
    return key


def _create_key(path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".key-")  # only its owner can read it
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another server created it meanwhile
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    platform_compat.sync_folder(path.parent)


def signature(key: bytes, id_: str, notebook: str, run: str | None, manifest: bytes) -> bytes:
    head = json.dumps([id_, notebook, run]).encode()
    return hmac.new(key, len(head).to_bytes(8, "big") + head + manifest, hashlib.sha256).digest()


def is_signed(key: bytes, id_: str, notebook: str, run: str | None, manifest: bytes, signed: bytes) -> bool:
    return hmac.compare_digest(signature(key, id_, notebook, run, manifest), signed)
