"""Write a snapshot: done once by a fork of a sleeping checkpoint.

Code of cells runs here (`__reduce__`, `__getstate__`) and may raise, hang, fork or crash. The server watches the spot
file, which names the variable being written, so that the next try can leave it out. Before it is sent, the dump is
loaded on trial in another fork.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import linecache
import os
import pickle
import platform
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from quire.snapshot_format import chunks
from quire.snapshot_format.chunk_writer import ChunkWriter, read_and_close
from quire.snapshot_format.chunks import Manifest, Whole
from quire.wire import packets
from quire.worker.execution import history
from quire.worker.execution import namespace as namespaces
from quire.worker.execution.tracking import BindingTracker
from quire.worker.processes import process_tree
from quire.worker.snapshot import process_state, reducers, stream, tombstones
from quire.worker.snapshot.pages import PageWatch
from quire.worker.snapshot.stream import Dumped, Lost

POSITION_BYTES = 1024  # size of the spot file
_NICENESS = 5  # so that the next cell has priority
_STALL_SECONDS = 20.0  # for one variable in the trial
_MAX_TRIES = 10
MODULE_NAMES = frozenset(("__builtins__", "__name__", "__doc__", "__package__", "__loader__", "__spec__"))
_MAX_NAMED_LOSSES = 100  # losses in the manifest
_MAX_FUNCTIONS = 500
_MAX_SOURCE_CHARS = 20_000  # characters
_MAX_VALUE_BYTES = 1 << 20  # of values as JSON

_dumps, _pwrite, _exit, _fork = pickle.dumps, os.pwrite, os._exit, os.fork  # bound before cells can replace them
_starting_trial: list[bool] = []  # not empty: the next fork is the trial


@dataclass(frozen=True)
class Subject:
    """The content of the snapshot."""

    namespace: dict[str, Any]
    makers: BindingTracker
    cells: dict[str, str]  # names of cells by run
    watch: PageWatch


def write(subject: Subject, order: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """`order` has the copy that was forked, the base, the limit in bytes, and variables to leave out.
    Descriptors: socket for the answer, draft, spot, and optionally the base."""
    code = 1
    try:
        answer = packets.socket_from_descriptor(descriptors[0])
        try:
            state = process_state.capture()  # before `_quiet_process` changes it
            _quiet_process()
            draft = _DraftWriter(subject, state, order, *descriptors[1:])
            packets.send(answer, {"written": draft.write()})
            code = 0
        except OSError as error:
            packets.send(answer, {"failed": error.strerror or str(error)})
        except BaseException as error:
            packets.send(answer, {"failed": f"{type(error).__name__}: {error}"[:300]})
    finally:
        _exit(code)


def _quiet_process() -> None:
    """Reset signals and make forks end at once: a `__reduce__` that forks must not create a second writer."""
    os.register_at_fork(after_in_child=_end_unexpected_fork)
    gc.disable()
    for number in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.SIG_IGN)
    process_tree.set_oom_score("self", 1000)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)


def _end_unexpected_fork() -> None:
    if not _starting_trial:
        _exit(0)


class _TrialFailed(Exception):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why


class _ReportedSegments(list[tuple[str, bytes]]):
    """Segments that report which one is being loaded."""

    show: Callable[[str], None]

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for name, data in super().__iter__():
            self.show(name)
            yield name, data


class _DraftWriter:
    def __init__(
        self, subject: Subject, state: dict[str, Any], order: dict[str, Any], file: int, spot: int, base: int = -1
    ) -> None:
        self._subject = subject
        self._process_state = state
        self._order = order
        self._file = file
        self._spot = spot
        self._earlier: dict[str, list[bytes]] = {}  # names of chunks of buffers in the base, by key
        self._known: set[bytes] = set()
        if base >= 0:
            manifest, names = chunks.parse_recipe_names(read_and_close(base))
            self._known = {name for chunk_names in names for name in chunk_names} | {
                node for whole in manifest.wholes for node in whole.nodes
            }
            wholes = zip(manifest.buffers, names[1:], strict=True)
            self._earlier = {whole.key: chunk_names for whole, chunk_names in wholes if whole.key}

    def write(self) -> tuple[int, int, int]:
        dumped, lost, seconds = self._dumped()
        private = _dumps(
            {
                "surroundings": self._process_state,
                "sources": {name: "".join(lines) for name, lines in _sources()},
                "makers": self._subject.makers.makers,
                "cells": {run: self._subject.cells.get(run, "") for run in self._subject.makers.makers.values()},
                "order": [name for name in self._subject.namespace if type(name) is str],
            },
            5,
        )
        segments = [("", private), *dumped.segments]
        cutter = ChunkWriter(self._file, self._known)
        manifest = Manifest(
            python=platform.python_version(),
            segments=tuple((name, len(data)) for name, data in segments),
            stream=cutter.stream(segments),
            buffers=tuple(self._buffer(cutter, *buffer) for buffer in zip(dumped.buffers, dumped.owners, strict=True)),
            about={**self._about(), "lost": list(map(self._describe, lost[:_MAX_NAMED_LOSSES])), "seconds": seconds},
        )
        return cutter.finish(manifest)

    def _dumped(self) -> tuple[Dumped, list[Lost], float]:
        """Dump all variables that can be loaded again; leaves out those that fail the trial."""
        values = self._values()
        refused = {
            name: why
            for name, (kind, why) in self._order["refused"].items()
            if name in values and namespaces.type_of(values[name]) == kind
        }
        for _ in range(_MAX_TRIES):
            dumped = stream.dump(
                values,
                self._subject.namespace,
                refused=refused,
                limit=self._order["limit"],
                progress=lambda name: self._at(name, values),
            )
            try:
                lost, seconds = self._tried(dumped, values)
            except _TrialFailed as stuck:
                refused[stuck.name] = stuck.why
                continue
            losses = {loss.name: loss for loss in (*_earlier_losses(values), *lost, *dumped.lost)}
            return dumped, [loss for name, loss in losses.items() if name not in history.SAVED_NAMES], seconds
        raise RuntimeError("too many variables cannot be loaded again")

    def _values(self) -> dict[str, Any]:
        """Values in order of their last binding, so that the beginning of the stream stays the same."""
        space = self._subject.namespace
        names = [*(name for name in space if name not in self._subject.makers.makers), *self._subject.makers.makers]
        return {name: space[name] for name in names if type(name) is str and name in space and _is_kept(name)}

    def _at(self, name: str, values: dict[str, Any]) -> None:
        text = f"{name}\0{namespaces.type_of(values.get(name))}".encode("utf-8", "replace")[: POSITION_BYTES - 1]
        _pwrite(self._spot, text.ljust(POSITION_BYTES, b"\0"), 0)

    def _buffer(self, cutter: ChunkWriter, data: memoryview, owner: Any) -> Whole:
        watch = self._subject.watch
        key = watch.key(owner, data) if owner is not None else ""
        changed = watch.changed(owner, self._order["base"]) if key in self._earlier else None
        earlier = self._earlier.get(key) if changed is not None else None
        return cutter.buffer(data, key=key, earlier=earlier, changed=changed or (lambda number: True))

    # The trial

    def _tried(self, dumped: Dumped, values: dict[str, Any]) -> tuple[list[Lost], float]:
        """Losses and duration of a trial load. Raises _TrialFailed if it crashes or hangs."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        _starting_trial.append(True)
        try:
            pid = _fork()
        finally:
            _starting_trial.clear()
        if pid == 0:
            try:
                begun = time.perf_counter()
                reducers.trial_loads.append(True)
                space: dict[str, Any] = {}  # kept, since freeing objects may flush, close or delete
                segments = _ReportedSegments(dumped.segments)
                segments.show = lambda name: self._at(name, values)
                lost = stream.load(segments, dumped.buffers, space, sources=lambda name: None)
                first = {loss.name: [loss.name, loss.what, loss.why] for loss in reversed(lost)}
                words = {"lost": list(first.values())[:_MAX_NAMED_LOSSES]}
                os.write(writer, json.dumps({**words, "seconds": time.perf_counter() - begun}).encode())
            finally:
                _exit(0)
        os.close(writer)
        try:
            result = self._hear(reader)
        finally:
            os.close(reader)
            process_tree.kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        return [Lost(*loss) for loss in result["lost"]], result["seconds"]

    def _hear(self, pipe: int) -> Any:
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        data, end, spot = b"", time.monotonic() + _STALL_SECONDS, b""
        while True:
            if ready.poll(500):
                part = os.read(pipe, 1 << 16)
                data += part
                if not part:
                    break
            now = os.pread(self._spot, POSITION_BYTES, 0)
            if now != spot:
                spot, end = now, time.monotonic() + _STALL_SECONDS
            elif time.monotonic() > end:
                raise _TrialFailed(_name_at(spot), "loading it again did not end")
        if not data:
            raise _TrialFailed(_name_at(os.pread(self._spot, POSITION_BYTES, 0)), "loading it again crashed")
        return json.loads(data)

    # Shown to people

    def _about(self) -> dict[str, Any]:
        space = self._subject.namespace
        variables, functions = namespaces.describe(space)
        for function in functions[:_MAX_FUNCTIONS]:
            with contextlib.suppress(BaseException):
                function["source"] = inspect.getsource(space[function["name"]])[:_MAX_SOURCE_CHARS]
        return {"variables": variables, "functions": functions[:_MAX_FUNCTIONS], "values": self._said(variables)}

    def _said(self, variables: dict[str, str]) -> dict[str, Any]:
        """Values that are JSON, up to a limit."""
        if not self._order["values"]:
            return {}
        values: dict[str, Any] = {}
        size = 0
        for name in variables:
            value = namespaces.as_json(self._subject.namespace.get(name))
            size += len(json.dumps(value))
            if value and size < _MAX_VALUE_BYTES:
                values[name] = value[0]
        return values

    def _describe(self, lost: Lost) -> dict[str, str]:
        run = self._subject.makers.makers.get(lost.name, "")
        return {"name": lost.name[:200], "what": lost.what[:200], "why": lost.why[:200], "run": run}


def _earlier_losses(values: dict[str, Any]) -> Iterator[Lost]:
    """Tombstones from an earlier snapshot that still exist."""
    for name, value in values.items():
        if tombstones.is_tombstone(value):
            what, why, _, _ = tombstones.fields(value)
            yield Lost(name, what, why)


def _sources() -> Iterator[tuple[str, list[str]]]:
    for name, entry in list(linecache.cache.items()):
        if name.startswith("<cell ") and len(entry) == 4:
            yield name, entry[2]


def _name_at(spot: bytes) -> str:
    return spot.partition(b"\0")[0].decode("utf-8", "replace")


def _is_kept(name: str) -> bool:
    return name not in MODULE_NAMES and (name in history.SAVED_NAMES or not history.is_kernel_name(name))
