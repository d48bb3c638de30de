"""A namespace written to a snapshot stream and loaded again, in this process or in a forked child."""

from __future__ import annotations

import linecache
import os
import pickle
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from quire.worker.snapshot import stream

CELL = "<cell 1, run 1>"
ROOT = Path(__file__).parents[2]
SECONDS = 30


def notebook() -> dict[str, Any]:
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    return module.__dict__


def run(code: str, namespace: dict[str, Any]) -> None:
    linecache.cache[CELL] = (len(code), None, code.splitlines(keepends=True), CELL)
    exec(compile(code, CELL, "exec", dont_inherit=True), namespace)


def in_a_child(work: Callable[[], Any]) -> Any:
    """What it returns, or the text of what it raised."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        signal.alarm(SECONDS)
        try:
            result = work()
        except BaseException:
            result = traceback.format_exc()
        with os.fdopen(write, "wb") as out:
            pickle.dump(result, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as into:
        content = into.read()
    os.waitpid(pid, 0)
    return pickle.loads(content) if content else "the process died"


WIDE = 1 << 40


def dump(namespace: dict[str, Any], **words: Any) -> stream.Dumped:
    values = {name: value for name, value in namespace.items() if not name.startswith("__")}
    given: dict[str, Any] = {"refused": {}, "limit": WIDE, "progress": lambda name: None}
    return stream.dump(values, namespace, **{**given, **words})


def load(
    dumped: stream.Dumped, segments: Iterable[tuple[str, bytes]] | None = None
) -> tuple[dict[str, Any], list[Any]]:
    namespace = notebook()
    buffers = [bytes(each) if each.readonly else bytearray(each) for each in dumped.buffers]
    chosen = dumped.segments if segments is None else segments
    return namespace, stream.load(chosen, buffers, namespace, sources=lambda name: None)


def again(code: str, **words: Any) -> tuple[dict[str, Any], stream.Dumped]:
    namespace = notebook()
    run(code, namespace)
    dumped = dump(namespace, **words)
    loaded, lost = load(dumped)
    assert lost == []
    return loaded, dumped
