"""The whole standard library in memory: read when the component is built, imported from there when code asks.

A component sees no files but those of its notebook, so that an image of its memory is all there is of it.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import os
import sys
import zlib
from collections.abc import Sequence
from types import CodeType, ModuleType

_LEFT_OUT = """
    __pycache__ __phello__ antigravity.py config-3.14-wasm32-wasi ctypes curses dbm ensurepip idlelib
    site-packages test tkinter turtle.py turtledemo venv
"""
_OFTEN = """
    abc argparse array ast asyncio base64 bisect calendar cmath collections colorsys concurrent.futures contextlib
    contextvars copy csv dataclasses datetime decimal difflib enum fnmatch fractions functools glob gzip hashlib
    heapq hmac html html.parser inspect io itertools json keyword linecache locale logging math numbers operator os
    pathlib pickle platform pprint queue random re reprlib secrets shutil signal sqlite3 statistics string struct
    tempfile textwrap threading time timeit token tokenize traceback types typing unicodedata unittest
    urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo _strptime bdb pdb
"""
_files: dict[str, tuple[bytes, bytes, bool]] = {}  # code and source, compressed, and whether it is a package
_places: dict[str, str] = {}
_fillers: list[object] = []
_FILLERS = 400_000  # at the most
_BYTES = 17  # that bytes have besides what is in them


def collect() -> None:
    """When the component is built: read the library, and be asked before the file system is."""
    _walk(os.path.dirname(dataclasses.__file__), "")  # not os.__file__: it is frozen, and is where it never was
    finder = _Library()
    sys.meta_path.insert(2, finder)  # after what is built in
    for name, module in list(sys.modules.items()):
        if name in _files and module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = finder


def _walk(folder: str, package: str) -> None:
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        if entry in _LEFT_OUT.split():
            continue
        if entry.endswith(".py"):
            name = package + entry.removesuffix(".py")
            is_package = entry == "__init__.py"
            _read(path, package.rstrip(".") if is_package else name, is_package)
        elif os.path.isfile(os.path.join(path, "__init__.py")):
            _walk(path, f"{package}{entry}.")


def _read(path: str, name: str, is_package: bool) -> None:
    with open(path, "rb") as file:
        source = file.read()
    code = compile(source, path, "exec", dont_inherit=True)
    _files[name] = (zlib.compress(marshal.dumps(code), 9), zlib.compress(source, 9), is_package)
    _places[name] = path


def load_what_is_often_used() -> None:
    """When the component is built: what is loaded then costs a notebook nothing."""
    for name in _OFTEN.split():
        importlib.import_module(name)


def finish() -> None:
    """When the component is built, last: nothing of the folders it was built from is looked for any more."""
    sys.path[:] = [""]
    sys.argv = [""]
    sys.dont_write_bytecode = True  # a workspace is not for our files
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    gc.collect()
    fill_gaps()
    gc.freeze()  # what is there for all is never looked through: looking writes, and what is written is a guest's own


def fill_gaps() -> None:
    """Allocate a notebook's objects together, in new pages, not in gaps of old pages all over the memory."""
    top = max(map(id, gc.get_objects()))
    for size in (*range(16, 513, 16), *range(640, 4097, 128)):
        beyond = 0
        while beyond < 64 and len(_fillers) < _FILLERS:
            filler = bytes(max(size - _BYTES, 2)) if size > 16 else len(_fillers) + 1_000_000
            _fillers.append(filler)
            beyond = beyond + 1 if id(filler) > top else 0


class _Library(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _files:
            return None
        origin = _places[name]
        spec = importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=_files[name][2])
        spec.has_location = True  # tracebacks and warnings name it
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(origin))
        return spec

    def get_code(self, name: str) -> CodeType | None:
        code: CodeType = marshal.loads(zlib.decompress(self._file(name)[0]))  # noqa: S302 - written when it was built
        return code

    def get_source(self, name: str) -> str:
        return importlib.util.decode_source(zlib.decompress(self._file(name)[1]))

    def is_package(self, name: str) -> bool:
        return self._file(name)[2]

    def _file(self, name: str) -> tuple[bytes, bytes, bool]:
        if name not in _files:
            raise ImportError(f"{name} is not of the standard library", name=name)
        return _files[name]
