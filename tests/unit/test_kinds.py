"""Each kind of object, made in one process and loaded in another: right, or a tombstone that says why."""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import os
import pickle
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kinds import KINDS, Kind

CELL = "<cell 1, run 1>"
ROOT = Path(__file__).parents[2]
SECONDS = 30
WARM = (
    "numpy",
    "pandas",
    "matplotlib.pyplot",
    "sklearn.pipeline",
    "scipy.sparse",
    "pydantic",
    "attrs",
    "httpx2",
    "PIL",
)


@pytest.fixture(scope="module")
def warm() -> Iterator[Callable[[Kind], dict[str, Any]]]:
    """A process that has the libraries and never sees a cell: it forks one to make, and others to load."""
    code = "from tests.unit.test_kinds import serve; serve()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin and process.stdout
    asked, answers = process.stdin, process.stdout

    def ask(kind: Kind) -> dict[str, Any]:
        asked.write(f"{KINDS.index(kind)}\n")
        asked.flush()
        return dict(json.loads(answers.readline()))

    yield ask
    asked.close()
    process.wait(SECONDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_comes_back_right_or_says_why_not(kind: Kind, warm: Callable[[Kind], dict[str, Any]]) -> None:
    if kind.needs:
        pytest.importorskip(kind.needs)
    answer = warm(kind)
    assert answer["trouble"] == ""
    if kind.expected == "kept":
        assert answer["lost"] == [] or kind.name == "a list with one bad element"
        assert answer["plain"] == "right"
        assert answer["tolerant"] == "right"
    else:
        assert [lost for lost in answer["lost"] if kind.why in lost], answer
        assert answer["plain"].startswith("GoneError: it was a") or answer["plain"].startswith(
            "GoneError: it was thread"
        )
        assert answer["tolerant"] == answer["plain"]


def test_at_least_114_kinds_are_kept_and_each_name_is_there_once() -> None:
    assert sum(kind.expected == "kept" for kind in KINDS) >= 114
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 130


# The warm process


def serve() -> None:
    from quire.worker.snapshot import stream

    for name in WARM:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    gc.collect()
    gc.freeze()  # or each fork would copy every page
    for line in sys.stdin:
        kind = KINDS[int(line)]
        words = json.dumps(answer_for(kind, stream))
        sys.stdout.write(f"{words}\n")
        sys.stdout.flush()


def answer_for(kind: Kind, stream: Any) -> dict[str, Any]:
    results: dict[str, Any] = {"trouble": ""}
    made: Any = None
    for way in ("plain", "tolerant"):
        if made is None or "tempfile" in kind.make:  # what is in files the first check may change
            made = in_a_child(lambda: make(kind, stream))
        if type(made) is str:
            return {"trouble": made}
        results["lost"] = [f"{each.what}; {each.why}" for each in made.lost]
        results[way] = in_a_child(lambda made=made, way=way: check(kind, stream, made, way))
    return results


def make(kind: Kind, stream: Any) -> Any:
    """In the process of the notebook; the dump runs in a fork of it, as it does for real."""
    namespace = notebook()
    run(kind.make, namespace)
    from quire.worker.snapshot import concurrency

    concurrency.note_threads()  # as before every checkpoint
    return in_a_child(lambda: dumped(namespace, stream))


def dumped(namespace: dict[str, Any], stream: Any) -> Any:
    values = {name: value for name, value in namespace.items() if not name.startswith("__")}
    whole = stream.dump(values, namespace, refused={}, limit=1 << 40, progress=lambda name: None)
    return types.SimpleNamespace(
        segments=whole.segments,
        buffers=[(bytes(each), each.readonly) for each in whole.buffers],
        lost=[types.SimpleNamespace(what=each.what, why=each.why) for each in whole.lost],
    )


def check(kind: Kind, stream: Any, made: Any, way: str) -> str:
    namespace = notebook()
    buffers = [content if fixed else bytearray(content) for content, fixed in made.buffers]
    if way == "tolerant":
        from quire.worker.snapshot import tolerant

        stream.load([], [], {}, sources=lambda name: None)
        lost = tolerant.load_tolerantly(made.segments, [memoryview(each) for each in buffers], namespace)
    else:
        lost = stream.load(made.segments, buffers, namespace, sources=lambda name: None)
    if lost:
        return f"lost: {lost}"
    if kind.expected == "tombstone":
        try:
            namespace["it"].anything  # noqa: B018 - to use it is the point
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "it can be used"
    run(kind.check, namespace)
    return "right"


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
