"""The Python guest as a component: CPython, its library and the worker in one file, made by componentize-py."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.resources
import marshal
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

import wasmtime

from quire.runtimes.wasm.assets import CARRIED, window
from quire.runtimes.wasm.shelf import shelf

BUILDER = "componentize-py"
_OURS = Path(__file__).parents[3]  # the package itself
_GUEST = _OURS / "runtimes" / "wasm" / "guest"
_WIRE = "__init__ frames messages relay texts"
_WORKER = """
    __init__ environment/__init__ environment/distributions environment/pip execution/__init__ execution/debugger
    execution/errors execution/evaluation execution/event_loop execution/executor execution/hints execution/history
    execution/interrupts execution/memory_reserve execution/namespace execution/tracking output/__init__ output/display
    output/previews output/tables shell/__init__ shell/commands shell/import_hooks shell/ipython_loader
"""
_IN_PLACE = {
    "commands.py": "worker/shell",
    "pip.py": "worker/environment",
    "memory_reserve.py": "worker/execution",
    "ipython_loader.py": "worker/shell",
    "relay.py": "worker/capabilities",
}
_ZONES = "zones"  # a file that guest/zones.py reads
_SECONDS = 600.0  # a build may take, on a slow machine


class NotBuilt(RuntimeError):
    """The component could not be made; the words say why, and what to do."""


def name() -> str:
    """The file's name, which has all of ours that goes into it: one that the package carries is found by it."""
    found = hashlib.sha256(window.MODULE.read_bytes())
    for place, source in sources():
        found.update(f"{place}\0{source.read_text('utf-8')}\0".encode())
    return f"python-{found.hexdigest()[:16]}.wasm"


def built(folder: Path) -> Path | None:
    """The component, where the package or that folder has the one that belongs to this program."""
    carried = [place / name() for place in (CARRIED, folder)]
    return next((path for path in carried if path.is_file()), None)


def build(folder: Path, progress: Callable[[str], None] = lambda text: None) -> Path:
    """Make the component unless it is there. Raises NotBuilt."""
    if (there := built(folder)) is not None:
        return there
    if not _builder_version():
        raise NotBuilt(f"The Python guest is built by {BUILDER}, which is not installed: pip install {BUILDER}.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    progress("building the Python guest")
    with shelf(folder / "building") as scratch:  # what a killed build left there goes
        made = _componentize(scratch)
        module = wasmtime.wat2wasm(window.MODULE.read_text("utf-8"))
        try:
            whole = window.add_window(made.read_bytes(), bytes(module))
        except window.NoWindow as error:
            raise NotBuilt(f"This {BUILDER} makes components of another form than expected: {error}.") from error
        path, beside = folder / name(), scratch / "whole.wasm"
        beside.write_bytes(whole)
        beside.replace(path)
    progress("built the Python guest")
    return path


def _componentize(scratch: Path) -> Path:
    program = scratch / "program"
    for place, source in sources():
        target = program / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    (program / _ZONES).write_bytes(_zones())
    nothing = scratch / "nothing" / "lib" / "site-packages"  # else it takes those of whatever Python is around
    nothing.mkdir(parents=True)
    made = scratch / "made.wasm"
    command = [sys.executable, "-c", "import componentize_py; componentize_py.script()"]
    arguments = ["-q", "-d", str(_GUEST / "guest.wit"), "-w", "guest", "componentize"]
    arguments += ["-p", str(program), "app", "-o", str(made)]
    environment = {**os.environ, "VIRTUAL_ENV": str(scratch / "nothing"), "RUST_BACKTRACE": "0"}
    try:
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, timeout=_SECONDS, check=False, cwd=scratch
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuilt(f"{BUILDER} could not be run: {error}.") from error
    if done.returncode or not made.is_file():
        said = (done.stdout + done.stderr).decode(errors="replace").partition("Stack backtrace")[0]
        raise NotBuilt(f"{BUILDER} failed: {said[-2_000:].strip()}")
    return made


def _zones() -> bytes:
    """Time zones of the package tzdata, where there is one: no part of the name, since who has the component may not
    have the package."""
    try:
        found = importlib.resources.files("tzdata").joinpath("zoneinfo")
    except ModuleNotFoundError:
        return b""
    return zlib.compress(marshal.dumps(dict(sorted(_below(found, "")))), 9)


def _below(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _below(each, f"{name}{each.name}/")
        elif (data := each.read_bytes()).startswith(b"TZif"):
            yield f"{name}{each.name}", data


def sources() -> Iterator[tuple[str, Path]]:
    """Every file that goes in, by its place there."""
    yield "app.py", _GUEST / "app.py"
    yield "guest.wit", _GUEST / "guest.wit"
    for package in ("", "runtimes", "runtimes/wasm"):
        yield f"quire/{package}/__init__.py".replace("//", "/"), _GUEST / "in_place" / "__init__.py"
    parts = [_OURS / "wire" / f"{each}.py" for each in _WIRE.split()]
    parts += [_OURS / "worker" / f"{each}.py" for each in _WORKER.split()]
    for package in ("tool_descriptions", "worker/capabilities"):
        parts += sorted((_OURS / package).rglob("*.py"))
    parts += [each for each in sorted(_GUEST.glob("*.py")) if each.name != "app.py"]
    for source in parts:
        within = source.relative_to(_OURS)
        is_replaced = _IN_PLACE.get(source.name) == within.parent.as_posix()
        yield f"quire/{within.as_posix()}", _GUEST / "in_place" / source.name if is_replaced else source


def _builder_version() -> str:
    try:
        return importlib.metadata.version(BUILDER)
    except importlib.metadata.PackageNotFoundError:
        return ""
