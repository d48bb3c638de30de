"""A component with a window: functions appended to it through which its memory is read and written from outside.

A component does not give its linear memory to anyone. Its index spaces only grow, so sections may be appended: a
core module of ours is instantiated with the memory that its last lifted function uses, and its functions are exported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MODULE = Path(__file__).with_name("window.wat")
_COMPONENT = b"\0asm\x0d\0\x01\0"
_U32, _STRING = 0x79, 0x73
_FUNC, _CORE_FUNC, _CORE_MEMORY, _TYPE = (1,), (0, 0), (0, 2), (3,)
_FUNCTIONS: dict[str, tuple[dict[str, int], int | None]] = {  # their parameters and results
    "size": ({}, _U32),
    "grow": ({"pages": _U32}, _U32),
    "sums": ({"first": _U32, "pages": _U32}, _STRING),
    "gather": ({"pages": _STRING}, _STRING),
    "scatter": ({"pages": _STRING}, None),
}


class NoWindow(ValueError):
    """The component is not of the kind this can be done to."""


def add_window(component: bytes, module: bytes) -> bytes:
    """The component with `memory-…` exports for each function of the window, `module` being window.wat's binary."""
    known = _Known()
    known.read(component)
    if known.memory is None:
        raise NoWindow("no lifted function says which memory is the component's")
    return component + b"".join(_appended(known, known.memory, module))


@dataclass
class _Known:
    """How many of each sort a component has so far, and which memory its last lifted function uses."""

    counts: dict[tuple[int, ...], int] = field(default_factory=dict)
    memory: int | None = None

    def add(self, sort: tuple[int, ...], many: int = 1) -> None:
        self.counts[sort] = self.counts.get(sort, 0) + many

    def count(self, sort: tuple[int, ...]) -> int:
        return self.counts.get(sort, 0)

    def read(self, component: bytes) -> None:
        if not component.startswith(_COMPONENT):
            raise NoWindow("not a component")
        for kind, body in _sections(component):
            reader = _Reader(body)
            match kind:
                case 1:
                    self.add((0, 0x11))
                case 2:
                    self.add((0, 0x12), reader.number())
                case 3:
                    self.add((0, 0x10), reader.number())
                case 4:
                    self.add((4,))
                case 5:
                    self.add((5,), reader.number())
                case 7:
                    self.add(_TYPE, reader.number())
                case 6 | 8 | 10 | 11:
                    item = {6: self._alias, 8: self._canon, 10: self._import, 11: self._export}[kind]
                    for _ in range(reader.number()):
                        item(reader)
                    reader.must_be_done()
                case 0:
                    pass
                case _:
                    raise NoWindow(f"a section of kind {kind}")

    def _alias(self, reader: _Reader) -> None:
        self.add(reader.sort())
        target = reader.byte()
        reader.number()
        if target == 2:
            reader.number()
        else:
            reader.name()

    def _canon(self, reader: _Reader) -> None:
        match reader.byte():
            case 0:  # lift
                reader.byte()
                reader.number()
                memory = self._options(reader)
                reader.number()
                self.add(_FUNC)
                self.memory = self.memory if memory is None else memory
            case 1:  # lower
                reader.byte()
                reader.number()
                self._options(reader)
                self.add(_CORE_FUNC)
            case 2 | 3 | 4:  # of resources
                reader.number()
                self.add(_CORE_FUNC)
            case other:
                raise NoWindow(f"a canonical function of kind {other}")

    @staticmethod
    def _options(reader: _Reader) -> int | None:
        memory = None
        for _ in range(reader.number()):
            option = reader.byte()
            if option == 3:
                memory = reader.number()
            elif option in (4, 5, 7):
                reader.number()
        return memory

    def _import(self, reader: _Reader) -> None:
        reader.external_name()
        self.add(reader.description())

    def _export(self, reader: _Reader) -> None:
        reader.external_name()
        self.add(reader.sort())
        reader.number()
        if reader.byte():
            reader.description()


def _appended(known: _Known, memory: int, module: bytes) -> Iterator[bytes]:
    modules, instances = known.count((0, 0x11)), known.count((0, 0x12))
    functions, memories = known.count(_CORE_FUNC), known.count(_CORE_MEMORY)
    types, lifted = known.count(_TYPE), known.count(_FUNC)
    names = [*_FUNCTIONS, "realloc"]
    yield bytes((1,)) + _leb(len(module)) + module
    given = b"\x01\x01" + _text("memory") + b"\x02" + _leb(memory)
    made = b"\x00" + _leb(modules) + b"\x01" + _text("guest") + b"\x12" + _leb(instances)
    yield _section(2, [given, made])
    aliases = [b"\x00\x00\x01" + _leb(instances + 1) + _text(name) for name in names]
    yield _section(6, [*aliases, b"\x00\x02\x01" + _leb(instances + 1) + _text("own")])
    yield _section(7, [_function_type(*each) for each in _FUNCTIONS.values()])
    options = b"\x03\x02\x03" + _leb(memories) + b"\x04" + _leb(functions + len(_FUNCTIONS))  # latin1 where it can be
    lifts = [b"\0\0" + _leb(functions + at) + options + _leb(types + at) for at in range(len(_FUNCTIONS))]
    yield _section(8, lifts)
    named = enumerate(f"memory-{name}" for name in _FUNCTIONS)
    yield _section(11, [b"\0" + _text(name) + b"\x01" + _leb(lifted + at) + b"\0" for at, name in named])


def _function_type(parameters: dict[str, int], result: int | None) -> bytes:
    given = b"".join(_text(name) + bytes((kind,)) for name, kind in parameters.items())
    return b"\x40" + _leb(len(parameters)) + given + (b"\x01\x00" if result is None else bytes((0, result)))


def _section(kind: int, items: list[bytes]) -> bytes:
    body = _leb(len(items)) + b"".join(items)
    return bytes((kind,)) + _leb(len(body)) + body


def _sections(component: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(component, len(_COMPONENT))
    while not reader.done:
        kind = reader.byte()
        yield kind, reader.take(reader.number())


class _Reader:
    """Bytes of the binary format, one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def done(self) -> bool:
        return self._at >= len(self._data)

    def must_be_done(self) -> None:
        if self._at != len(self._data):
            raise NoWindow("a section was not understood")

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise NoWindow("it ends too early")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def name(self) -> bytes:
        return self.take(self.number())

    def external_name(self) -> None:
        if self.byte() > 1:
            raise NoWindow("a name of a kind not known")
        self.name()

    def sort(self) -> tuple[int, ...]:
        first = self.byte()
        return (first, self.byte()) if first == 0 else (first,)

    def description(self) -> tuple[int, ...]:
        """What an import or an export is said to be."""
        sort = self.sort()
        if sort == _TYPE:
            if self.byte() == 0:
                self.number()
        elif sort == (2,):
            raise NoWindow("a value is imported")
        else:
            self.number()
        return sort


def _text(text: str) -> bytes:
    return _leb(len(text.encode())) + text.encode()


def _leb(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
