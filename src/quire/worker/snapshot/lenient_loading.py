"""A loader that continues after errors: objects that cannot be created become tombstones."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from quire.worker.snapshot import nans, tombstones
from quire.worker.snapshot.loading import QUIRE_PREFIX, Lost, SegmentReader, bind, find_in_quire, preamble, take_losses
from quire.worker.snapshot.reducers import begin_load, end_load, name_of, with_article

_Unpickler: Any = pickle._Unpickler
_PUTS = {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}


def load_leniently(
    segments: list[tuple[str, bytes]], memory: list[memoryview], namespace: dict[str, Any]
) -> list[Lost]:
    """Load repeatedly until all states that cannot be set are known before other objects refer to their owners."""
    failing: set[int] = set()
    while True:
        reader, lost = _load(segments, memory, namespace, failing)
        failed = reader.set_states()
        if not failed:
            end_load()
            return lost
        failing |= failed


def _load(
    segments: list[tuple[str, bytes]], memory: list[memoryview], namespace: dict[str, Any], failing: set[int]
) -> tuple[LenientUnpickler, list[Lost]]:
    begin_load()
    tape = SegmentReader()
    reader = LenientUnpickler(tape, iter(memory), namespace, failing)
    for part in preamble():
        tape.play(part)
        reader.load()
    lost: list[Lost] = []
    broken = ""
    for name, segment in segments:
        tombstones.collect_losses([])
        before = len(reader.memo)
        tape.play(segment)
        try:
            value = tombstones.lost_on_load("a variable", broken) if broken else reader.load()
            reader.do_later()
        except BaseException as error:
            value = tombstones.lost_on_load("a variable", f"its bytes cannot be read: {type(error).__name__}")
            broken = _fill_memo(reader.memo, before, segment, value)
        lost += take_losses(name, value)
        bind(namespace, name, value)
    return reader, lost


def _fill_memo(memo: dict[int, Any], before: int, segment: bytes, stone: Any) -> str:
    """Keep memo indexes right for later segments. Returns an error if that is impossible."""
    try:
        puts = sum(1 for opcode, _, _ in pickletools.genops(bytes(segment)) if opcode.name in _PUTS)
    except BaseException:
        return "bytes before it cannot be read, and it may refer to them"
    for at in range(len(memo), before + puts):
        memo[at] = stone
    return ""


class LenientUnpickler(_Unpickler):  # type: ignore[misc]
    stack: list[Any]
    metastack: list[list[Any]]
    dispatch: dict[int, Callable[[Any], None]] = dict(_Unpickler.dispatch)  # noqa: RUF012 - as pickle has it

    def __init__(
        self, tape: SegmentReader, buffers: Iterable[Any], namespace: dict[str, Any], failed: set[int]
    ) -> None:
        super().__init__(tape, buffers=buffers)
        self._namespace = namespace
        self._nans = nans.NanReader()
        self._failing = failed  # numbers of the states that cannot be set
        self._states = 0
        self._unset: list[tuple[int, Any, Any]] = []
        self._later: list[tuple[Callable[[], None], str]] = []

    def persistent_load(self, place: Any) -> Any:
        return self._nans.number(place)

    def find_class(self, module: str, name: str) -> Any:
        try:
            if module.startswith(QUIRE_PREFIX):
                return find_in_quire(module, name, self._namespace)
            return super().find_class(module, name)
        except BaseException as error:
            return tombstones.lost_on_load(f"{module}.{name}", _reason(error))

    def do_later(self) -> None:
        """Add items that needed other objects first, such as keys whose hash depends on them."""
        waiting, self._later = self._later, []
        for task, what in waiting:
            try:
                task()
            except BaseException as error:
                tombstones.lost_on_load(what, _reason(error))

    def _make(self, make: Callable[..., Any], *arguments: Any, **words: Any) -> Any:
        for part in (make, *arguments[:1]):
            if tombstones.is_tombstone(part) and not _takes_tombstones(make):
                return tombstones.make_tombstone(*tombstones.fields(part))
        try:
            return make(*arguments, **words)
        except BaseException as error:
            return tombstones.lost_on_load(_description(make, arguments), _reason(error))

    def load_reduce(self) -> None:
        stack = self.stack
        arguments = stack.pop()
        function = stack.pop()
        sets = len(arguments) == 2 and stack and stack[-1] is arguments[0]  # a state setter, whose result is dropped
        made = self._make(function, *arguments)
        if sets and tombstones.is_tombstone(made) and not tombstones.is_tombstone(arguments[0]):
            tombstones.set_what(made, _described_unfinished(arguments[0]))
            self._bury(made)
        stack.append(made)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        cls = self.stack.pop()
        self.stack.append(self._new(cls, arguments, {}))

    dispatch[pickle.NEWOBJ[0]] = load_newobj

    def load_newobj_ex(self) -> None:
        words = self.stack.pop()
        arguments = self.stack.pop()
        cls = self.stack.pop()
        self.stack.append(self._new(cls, arguments, words))

    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex

    def _new(self, cls: Any, arguments: tuple[Any, ...], words: dict[str, Any]) -> Any:
        if tombstones.is_tombstone(cls):
            return tombstones.make_tombstone(*tombstones.fields(cls))
        return self._make(cls.__new__, cls, *arguments, **words)

    def load_build(self) -> None:
        state = self.stack.pop()
        thing = self.stack[-1]
        if tombstones.is_tombstone(thing):
            return
        self._states += 1
        try:
            self._set_state(thing, state)
        except BaseException as error:
            if self._states in self._failing:
                self._bury(tombstones.lost_on_load(with_article(thing), _reason(error)))
            else:  # it may need later objects
                self._unset.append((self._states, thing, state))

    dispatch[pickle.BUILD[0]] = load_build

    def _set_state(self, thing: Any, state: Any) -> None:
        outer_stack, self.stack = self.stack, [thing, state]
        try:
            super().load_build()
        finally:
            self.stack = outer_stack

    def set_states(self) -> set[int]:
        """Retry failed states now that everything is loaded; the numbers of those that fail again."""
        failed = set()
        for number, thing, state in self._unset:
            try:
                self._set_state(thing, state)
            except BaseException:
                failed.add(number)
        return failed

    def _bury(self, stone: Any) -> None:
        """Replace the unfinished object on top of the stack by a tombstone."""
        half = self.stack[-1]
        for stack in (self.stack, *self.metastack):
            stack[:] = [stone if thing is half else thing for thing in stack]
        for at, thing in self.memo.items():
            if thing is half:
                self.memo[at] = stone

    # Containers

    def load_append(self) -> None:
        self._extend([self.stack.pop()])

    dispatch[pickle.APPEND[0]] = load_append

    def load_appends(self) -> None:
        self._extend(self.pop_mark())

    dispatch[pickle.APPENDS[0]] = load_appends

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if tombstones.is_tombstone(target):
            return
        try:
            for item in items:
                target.append(item)
        except BaseException as error:
            self._bury(tombstones.lost_on_load(with_article(target), _reason(error)))

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._put([key, value])

    dispatch[pickle.SETITEM[0]] = load_setitem

    def load_setitems(self) -> None:
        self._put(self.pop_mark())

    dispatch[pickle.SETITEMS[0]] = load_setitems

    def _put(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if tombstones.is_tombstone(target):
            return
        for at in range(0, len(items), 2):
            self._soon(partial(target.__setitem__, items[at], items[at + 1]), "an item of a dict")

    def load_additems(self) -> None:
        items = self.pop_mark()
        target = self.stack[-1]
        if tombstones.is_tombstone(target):
            return
        for item in items:
            self._soon(partial(target.add, item), "an item of a set")

    dispatch[pickle.ADDITEMS[0]] = load_additems

    def _soon(self, task: Callable[[], None], what: str) -> None:
        try:
            task()
        except BaseException:
            self._later.append((task, what))

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # first, since it replaces the stack
        self.stack.append(self._make(frozenset, items))

    dispatch[pickle.FROZENSET[0]] = load_frozenset

    def load_next_buffer(self) -> None:
        try:
            self.append(next(self._buffers))
        except BaseException:
            self.append(tombstones.lost_on_load("memory", "its bytes are missing"))

    dispatch[pickle.NEXT_BUFFER[0]] = load_next_buffer

    def load_readonly_buffer(self) -> None:
        if not tombstones.is_tombstone(self.stack[-1]):
            super().load_readonly_buffer()

    dispatch[pickle.READONLY_BUFFER[0]] = load_readonly_buffer


def _takes_tombstones(make: Any) -> bool:
    return str(getattr(make, "__module__", "")).startswith(QUIRE_PREFIX)


def _described_unfinished(thing: Any) -> str:
    return f"class {name_of(thing)}" if issubclass(type(thing), type) else with_article(thing)


def _description(make: Any, arguments: tuple[Any, ...]) -> str:
    name = getattr(make, "__name__", "") or type(make).__name__
    cls = arguments[0] if name == "__new__" and arguments else make
    return f"a {cls.__name__}" if isinstance(cls, type) else f"what {name} makes"


def _reason(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())[:200]
    except BaseException:
        text = ""
    return f"it cannot be made here: {type(error).__name__}" + (f": {text}" if text else "")
