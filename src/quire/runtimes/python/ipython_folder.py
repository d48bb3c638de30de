"""A folder with copies of IPython and what it needs, for kernels whose interpreter has no IPython.

The copies come from the server's own environment. What is needed is read from the metadata of the installed
distributions. Compiled modules are copied as well; an interpreter loads only those whose names say that they fit it.
IPython works without them: psutil tells it which terminal it runs in, and wcwidth has the same functions in Python.
Type stubs, which only completion reads, are left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import tempfile
from importlib.metadata import Distribution, PackagePath
from pathlib import Path
from typing import IO

_ROOT = "ipython"
_SITE = "site-packages"  # modules in it count as installed
_SCRATCH = "copying-"
_BACKENDS = "matplotlib.backend"
_FORMAT = "1"  # increase it when other files are copied
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OPTIONAL = re.compile(r";.*\bextra\b")


class IPythonCopyError(Exception):
    """IPython could not be copied; the message says why."""


def ensure(parent: Path) -> Path:
    """The folder, created below `parent` if needed. Raises IPythonCopyError."""
    found = _needed()
    versions = sorted(f"{name} {distribution.version}" for name, distribution in found.items())
    digest = hashlib.sha256("\n".join([_FORMAT, *versions]).encode()).hexdigest()[:16]
    folder = parent / f"ipython-{found[_ROOT].version}-{digest}"
    if folder.is_dir():
        return folder / _SITE
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (parent / "lock").open("w") as lock:
            if _acquire(lock):
                for left in parent.glob(f"{_SCRATCH}*"):  # left by a server that was killed
                    shutil.rmtree(left, ignore_errors=True)
            if not folder.is_dir():
                _make(folder, list(found.values()))
    except OSError as error:
        raise IPythonCopyError(f"IPython could not be copied to {parent}: {error}") from error
    if not folder.is_dir():
        raise IPythonCopyError(f"IPython could not be copied to {folder}: there is a file of that name")
    return folder / _SITE


def _acquire(lock: IO[str]) -> bool:
    """Wait until no other server copies. False where the file system has no locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
        return True
    return False


def _make(folder: Path, distributions: list[Distribution]) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_SCRATCH) as scratch:
        copy = Path(scratch) / "copy"
        for distribution in distributions:
            _copy(distribution, copy / _SITE)
        for inner, _, _ in os.walk(copy):
            Path(inner).chmod(0o755)  # kernels may run as other users
        with contextlib.suppress(OSError):  # another server created it, where there are no locks
            copy.rename(folder)


def _needed() -> dict[str, Distribution]:
    """IPython and its requirements, by name; optional requirements are not followed."""
    found: dict[str, Distribution] = {}
    names = [_ROOT]
    while names:
        name = _normal(names.pop())
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # a requirement for another system
            if name == _ROOT:
                raise IPythonCopyError("IPython is not installed beside Quire") from None
            continue
        required = [text for text in found[name].requires or [] if not _OPTIONAL.search(text)]
        names += [match[0] for text in required if (match := _NAME.match(text))]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy(distribution: Distribution, target: Path) -> None:
    files = distribution.files
    if files is None:
        raise OSError(f"the files of {distribution.name} are not listed where it is installed")
    is_listed = any(entry.group == _BACKENDS for entry in distribution.entry_points)  # matplotlib looks for its name
    for file in files:
        if _is_wanted(file, is_listed):
            source = Path(str(distribution.locate_file(file)))
            _copy_file(source, target / file)
            if file.suffix == ".py":
                compiled = Path(importlib.util.cache_from_source(str(source)))
                if compiled.is_file():
                    _copy_file(compiled, Path(importlib.util.cache_from_source(str(target / file))))


def _is_wanted(file: PackagePath, is_listed: bool) -> bool:
    """Skip files outside site-packages, and metadata of distributions that the kernel need not list as installed."""
    if file.is_absolute() or ".." in file.parts or "__pycache__" in file.parts or file.suffix == ".pyi":
        return False
    return is_listed or not file.parts[0].endswith(".dist-info")


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)  # with its time, which the compiled file refers to
    target.chmod(0o644)
