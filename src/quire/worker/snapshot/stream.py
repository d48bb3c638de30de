"""Dump and load a namespace as one pickle stream with a segment for each variable and separate buffers."""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import pickle
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quire.worker.snapshot import (
    classes,  # noqa: F401 - imported for their rules
    concurrency,  # noqa: F401
    files,  # noqa: F401
    functions,
    iterators,  # noqa: F401
    libraries,  # noqa: F401
    modules,
    nans,
    resources,  # noqa: F401
    shared_modules,
    standard,  # noqa: F401
    tombstones,
)
from quire.worker.snapshot.lenient_loading import load_leniently
from quire.worker.snapshot.loading import (
    RESTORED_MEMORY,
    Lost,
    gone,
    known_objects,
    load_strictly,
    no_gc_or_warnings,
)
from quire.worker.snapshot.reducers import Context, NotSerializable, is_python, qualified_type_name, with_article
from quire.worker.snapshot.references import find_rule, held

__all__ = ["Dumped", "Lost", "dump", "load"]

_MIN_BUFFER_BYTES = 16 * 1024  # smaller buffers are copied into the stream
_SAFE_RECURSION_DEPTH = 2_000  # safe in any thread
_MAX_RECURSION_DEPTH = 2_000_000
_RECENT_LOSSES = 5  # among which duplicates are dropped
_STACK_SIZES = (1 << 30, 256 << 20, 64 << 20)
_start_thread = _thread.start_new_thread


@dataclass(frozen=True)
class Dumped:
    """The data for `load`, and the losses."""

    segments: list[tuple[str, bytes]]
    buffers: list[memoryview]
    owners: list[object | None]
    lost: list[Lost]


def dump(
    values: dict[str, Any],
    namespace: dict[str, Any],
    *,
    refused: dict[str, str],
    limit: int,
    progress: Callable[[str], None],
) -> Dumped:
    """Dump all variables. Objects that cannot be saved, or whole variables that fail, become tombstones."""
    graves = {name: _Unserializable(with_article(values[name]), why) for name, why in refused.items() if name in values}
    deep = keeps_nans = False
    with _importable_quire(), no_gc_or_warnings():
        while True:
            attempt = _DumpAttempt(values, namespace, graves, limit, progress)
            attempt.nans = nans.NanWriter() if keeps_nans else None
            attempt.shares = shared_modules.SEGMENT not in refused
            attempt.run(deep=deep)
            if attempt.too_deep and not deep:
                deep = True
            elif attempt.failed:
                graves = {**graves, **attempt.failed}
            elif not keeps_nans and nans.has_nans(attempt.segments):
                keeps_nans = True
            else:
                return attempt.dumped()


def load(
    segments: Iterable[tuple[str, bytes]],
    buffers: Iterable[Any],
    namespace: dict[str, Any],
    *,
    sources: Callable[[str], str | None],
) -> list[Lost]:
    """Fill the namespace. Returns the losses, which are tombstones in the namespace."""
    parts = segments if isinstance(segments, list) else list(segments)  # a list may report which segment is loaded
    memory = [memoryview(buffer) for buffer in buffers]
    RESTORED_MEMORY.update((id(view.obj), view.nbytes) for view in memory)
    functions.read_sources(sources)
    with no_gc_or_warnings():
        try:
            return load_strictly(parts, memory, namespace)
        except BaseException:
            return load_leniently(parts, memory, namespace)
        finally:
            tombstones.collect_losses(None)


def _memo_of(things: dict[str, Any]) -> dict[int, tuple[int, Any]]:
    """A memo with the objects in order. Duplicates leave a number without object."""
    memo: dict[int, tuple[int, Any]] = {}
    for at, thing in enumerate(things.values()):
        object_ = object() if thing is None or id(thing) in memo else thing
        memo[id(object_)] = (at, object_)
    return memo


@contextlib.contextmanager
def _importable_quire() -> Iterator[None]:
    """Provide the module `quire`, which pickle imports, but which is hidden from cells."""
    if "quire" in sys.modules:
        yield
        return
    sys.modules["quire"] = types.ModuleType("quire")
    try:
        yield
    finally:
        sys.modules.pop("quire", None)


@dataclass(frozen=True)
class _Unserializable:
    what: str
    why: str


@dataclass
class _DumpAttempt:
    """One dump of the namespace. A variable that fails corrupts the memo, so the next attempt leaves it out."""

    values: dict[str, Any]
    namespace: dict[str, Any]
    graves: dict[str, _Unserializable]
    limit: int
    progress: Callable[[str], None]
    segments: list[tuple[str, bytes]] = field(default_factory=list)
    buffers: list[memoryview] = field(default_factory=list)
    owners: list[object | None] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    failed: dict[str, _Unserializable] = field(default_factory=dict)
    too_deep: bool = False
    written: int = 0
    nans: nans.NanWriter | None = None
    shares: bool = True  # save objects shared with modules of the user
    owned: dict[int, Any] = field(default_factory=dict)  # id of the `__dict__` of a variable -> its value

    def run(self, *, deep: bool) -> None:
        errands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        before = sys.getrecursionlimit()
        if not deep:
            sys.setrecursionlimit(_stack_depth() + _SAFE_RECURSION_DEPTH)
            try:
                self._write_all(Context(self.namespace, lambda errand: errand()), deep=False)
            finally:
                sys.setrecursionlimit(before)
            return
        here = contextvars.copy_context()
        context = Context(self.namespace, _errand_sender(errands))
        sys.setrecursionlimit(_MAX_RECURSION_DEPTH)
        try:
            _run_with_large_stack(lambda: here.run(self._write_all, context, deep=True), errands)
            _run_errands(errands)
        finally:
            sys.setrecursionlimit(before)

    def _write_all(self, context: Context, *, deep: bool) -> None:
        tape = _SegmentBuffer()
        pickler = (_NamespacePickler if self.nans is None else _NanPreservingPickler)(tape, self, context, deep=deep)
        for module in self.values.values():
            if issubclass(type(module), types.ModuleType):
                context.dynamic[id(module.__dict__)] = module
        self.owned = _owners_of_dicts(self.values)
        shared = shared_modules.SharedObjects()
        for name, value in self.values.items():
            self.progress(name)
            grave = self.graves.get(name)
            if grave is not None:
                self.lost.append(Lost(name, grave.what, grave.why))
                value = tombstones.make_tombstone(grave.what, grave.why, name)
            self._write(pickler, tape, name, value)
            if self.too_deep:
                return
        found = shared.written() if self.shares and not self.failed else []
        if found:
            self._write(pickler, tape, shared_modules.SEGMENT, found)

    def _write(self, pickler: _NamespacePickler, tape: _SegmentBuffer, name: str, value: Any) -> None:
        tape.begin(keep=self.limit - self.written)
        outside, lost = len(self.buffers), len(self.lost)
        try:
            pickler.write(name, value)
        except RecursionError:
            if not pickler.deep:
                self.too_deep = True
                return
            self.failed[name] = _Unserializable(with_article(value), "it is nested too deep")
        except BaseException as error:
            self.failed[name] = _Unserializable(with_article(value), f"writing it raised {_error_text(error)}")
        size = tape.size + sum(buffer.nbytes for buffer in self.buffers[outside:])
        if name not in self.failed and self.written + size > self.limit and name not in self.graves:
            why = f"its {size:,} bytes do not fit in the {self.limit:,} a snapshot may have"
            self.failed[name] = _Unserializable(with_article(value), why)
        if name in self.failed:
            del self.buffers[outside:], self.owners[outside:], self.lost[lost:]
            return
        self.written += size
        self.segments.append((name, tape.whole()))

    def dumped(self) -> Dumped:
        return Dumped(self.segments, self.buffers, self.owners, self.lost)


class _SegmentBuffer:
    """The file object of the pickler; beyond a limit it only counts bytes."""

    def __init__(self) -> None:
        self.begin(keep=0)

    def begin(self, *, keep: int) -> None:
        self._parts: list[bytes] = []
        self._keep = keep
        self.size = 0

    def write(self, data: Any) -> int:
        size = len(data)
        self.size += size
        if self.size <= self._keep or not self._parts:
            self._parts.append(bytes(data))
        return size

    def whole(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _NamespacePickler(pickle.Pickler):
    """A pickler with rules for more objects, and tombstones for others."""

    def __init__(self, tape: _SegmentBuffer, attempt: _DumpAttempt, context: Context, *, deep: bool) -> None:
        super().__init__(tape, 5, buffer_callback=self._take)
        self.deep = deep
        self._attempt = attempt
        self._context = context
        self._rules: dict[int, Any] = {}
        self._held: list[Any] = []  # types, so that their ids are not reused
        self._name = ""
        self._value: Any = None
        context.report = self._report
        self.memo = _memo_of(known_objects(context.namespace))

    def write(self, name: str, value: Any) -> None:
        self._name, self._value = name, value
        if type(value) is dict:
            owner = self._attempt.owned.get(id(value))
            value = _by_module(value) if owner is None else functions.Attributes(owner)
        self.dump(value)

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing)
        try:
            rule = self._rules[id(kind)]
        except KeyError:
            rule = self._learn(kind)
        if rule is None:
            return NotImplemented
        try:
            return rule(self._context, thing)
        except NotSerializable as refused:
            return self._bury(thing, refused.what, refused.why)
        except RecursionError as error:
            if not self.deep:
                raise
            return self._bury(thing, with_article(thing), f"it cannot be saved: {_error_text(error)}")
        except BaseException as error:
            return self._bury(thing, with_article(thing), f"it cannot be saved: {_error_text(error)}")

    def _learn(self, kind: type) -> Any:
        rule = self._rules[id(kind)] = find_rule(self._context, kind)
        self._held.append(kind)
        return rule

    def _bury(self, thing: Any, what: str, why: str) -> Any:
        """A tombstone, or a reference if a module has the object under the name of the variable."""
        module = modules.module_with(self._name, thing) if thing is self._value else ""
        if module:
            return (held, (module, self._name, qualified_type_name(type(thing))))
        self._report(thing, what, why)
        return (gone, (what, why, self._name if thing is self._value else f"A part of {self._name}"))

    def _report(self, thing: Any, what: str, why: str) -> None:
        lost = Lost(self._name, what, why)
        if lost not in self._attempt.lost[-_RECENT_LOSSES:]:
            self._attempt.lost.append(lost)

    def _take(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether to copy the buffer into the stream; large ones are stored separately."""
        flat = buffer.raw()
        if flat.nbytes < _MIN_BUFFER_BYTES:
            return True
        self._attempt.buffers.append(flat)
        self._attempt.owners.append(self._context.owners.get(id(flat.obj)))
        return False


class _NanPreservingPickler(_NamespacePickler):
    def persistent_id(self, thing: Any) -> Any:
        return self._attempt.nans.place(thing)  # type: ignore[union-attr]


def _owners_of_dicts(values: dict[str, Any]) -> dict[int, Any]:
    """Variables whose `__dict__` is a variable too: `d = vars(thing)`."""
    dicts = {id(value) for value in values.values() if type(value) is dict}
    owned: dict[int, Any] = {}
    for value in values.values() if dicts else ():
        kind = type(value)
        if kind.__dictoffset__ and is_python(kind) and not issubclass(kind, (type, types.ModuleType)):
            with contextlib.suppress(AttributeError):
                at = id(object.__getattribute__(value, "__dict__"))
                if at in dicts:
                    owned[at] = value
    return owned


def _by_module(value: dict[str, Any]) -> Any:
    """A reference to the module, if the dict is that of a module."""
    module = sys.modules.get(value.get("__name__", "")) if type(value.get("__name__")) is str else None
    return functions.Scope(module) if module is not None and vars(module) is value else value


def _error_text(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())[:200]
    except BaseException:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# Deep structures are dumped by a thread with a large stack; this thread runs its errands


def _stack_depth() -> int:
    frame: Any = sys._getframe()
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _run_with_large_stack(work: Callable[[], None], errands: queue.SimpleQueue[Any]) -> None:
    def body() -> None:
        try:
            work()
        finally:
            errands.put(None)

    before = threading.stack_size()
    for size in _STACK_SIZES:
        threading.stack_size(size)
        try:
            _start_thread(body, ())
            return
        except RuntimeError:  # not enough memory for the stack
            continue
        finally:
            threading.stack_size(before)
    body()


def _errand_sender(errands: queue.SimpleQueue[Any]) -> Callable[[Callable[[], Any]], Any]:
    def send(errand: Callable[[], Any]) -> Any:
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        errands.put((errand, answer))
        done, value = answer.get()
        if not done:
            raise value
        return value

    return send


def _run_errands(errands: queue.SimpleQueue[Any]) -> None:
    while (task := errands.get()) is not None:
        errand, answer = task
        try:
            answer.put((True, errand()))
        except BaseException as error:
            answer.put((False, error))
