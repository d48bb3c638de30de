"""A process that has the libraries loaded and checks, in forked children, how each kind of object is restored."""

from __future__ import annotations

import gc
import importlib
import json
import sys
import types
from typing import Any

from quire.worker.snapshot import stream
from tests.support.object_kinds import KINDS, Kind
from tests.support.snapshot_stream import in_a_child, notebook, run

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


def serve() -> None:
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
        from quire.worker.snapshot import lenient_loading

        stream.load([], [], {}, sources=lambda name: None)
        lost = lenient_loading.load_leniently(made.segments, [memoryview(each) for each in buffers], namespace)
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
