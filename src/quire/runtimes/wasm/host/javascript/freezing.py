"""The program with a guest's first state as its own data: instances of it need no set-up, and share their pages.

What is frozen is the same wherever it is done: the clock stands still and random numbers are 0 meanwhile.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import wasmtime

from quire.runtimes.wasm.host.javascript import imports
from quire.runtimes.wasm.host.javascript.exports import Exports

SCRATCH = 65536  # bytes for what is passed in
STACK = 512 * 1024  # bytes of the program's own stack that JavaScript may fill; more would exhaust wasmtime's first

_FILES = ("inspect.js", "console.js", "prelude.js")
_MARK = 0x51D7A3C5  # a limit that no setting has
_MEMORY, _DATA, _DATA_COUNT = 5, 11, 12  # sections
_FUNCTIONS = ("shown", "failed", "inspect", "read", "offer", "due", "fire", "clear", "forget", "settled")


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Where in memory things are."""

    scratch: int
    random: int  # the state of Math.random, 8 bytes
    looks: int  # how many steps there are before it is looked whether to stop
    used: int  # bytes the code has allocated
    jobs: int  # the list of jobs that wait: two pointers
    context: int
    world: int  # the global object
    undefined: int  # a value
    functions: dict[str, int]  # of the prelude, as values

    def said(self) -> dict[str, Any]:
        return asdict(self)


def prelude() -> str:
    """What is evaluated first: the function that gets what nothing else may have."""
    folder = resources.files(__package__)
    body = "\n".join((folder / name).read_text("utf-8") for name in _FILES)
    return f'(function (host, lexical) {{ "use strict"; {body}\nreturn [{", ".join(_FUNCTIONS)}]; }})'


def frozen(program: bytes) -> tuple[bytes, Marks]:
    """A program whose instances are ready to run cells, and its marks."""
    engine = wasmtime.Engine()
    module = wasmtime.Module(engine, program)
    store = wasmtime.Store(engine)
    imports.running[threading.get_ident()] = still = _Still()
    try:
        instance = imports.linker(engine, module).instantiate(store, module)
        exports = still.exports = Exports(store, instance._instance)
        marks = _ready(exports)
        return _rewritten(program, bytes(exports.view())), marks
    finally:
        del imports.running[threading.get_ident()]


class _Still:
    """The world while a guest is set up: no time passes, nothing happens by chance."""

    failed: BaseException | None = None
    killed = False
    exports: Exports

    def clock_time_get(self, clock: int, precision: int, to: int) -> int:
        self.exports.write(to, bytes(8))
        return 0

    def random_get(self, to: int, length: int) -> int:
        self.exports.write(to, bytes(length))
        return 0

    def host_call(self, name: int, length: int, this: int, count: int, given: int) -> int:
        """The only thing asked so early: of which class a value is."""
        value = self.exports.word(given + 4)
        return self.exports.number(self.exports.qjs_get_class_id(value))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


def _ready(exports: Exports) -> Marks:
    exports._initialize()
    if exports.qjs_init() != 0:
        raise ValueError("QuickJS does not start")
    exports.qjs_set_max_stack_size(STACK)
    scratch = exports.wasm_malloc(SCRATCH)
    context, runtime = exports.qjs_get_context_ptr(), exports.qjs_get_runtime_ptr()
    world = exports.qjs_get_global()
    found = exports.read(context, 1024).find(exports.read(world, 8))
    if found < 0:
        raise ValueError("the global object is not where it should be")
    lexical = exports.wasm_malloc(8)
    exports.write(lexical, exports.read(context + found + 8, 8))  # beside it: let, const and class of all cells
    random, jobs = _random(exports, context), _jobs(exports, runtime)
    exports.write(scratch, b"h")
    host = exports.qjs_new_host_function(scratch, 1, 0)
    undefined = exports.qjs_get_undefined()
    begin = _evaluated(exports, prelude(), "quire:prelude")
    exports.write(scratch, struct.pack("<II", host, exports.qjs_dup_value(lexical)))
    every = exports.qjs_call(begin, undefined, 2, scratch)
    _check(exports, every)
    functions = {name: exports.qjs_get_prop_uint32(every, at) for at, name in enumerate(_FUNCTIONS)}
    for each in functions.values():
        if not exports.qjs_is_function(each):
            raise ValueError("the prelude does not give its functions")
    exports.qjs_set_interrupt_handler(1)
    exports.qjs_set_promise_rejection_handler(1)
    exports.qjs_set_module_loader(1)
    exports.qjs_run_gc()
    exports.write(scratch, bytes(SCRATCH))
    return Marks(
        scratch=scratch,
        random=random,
        looks=_looks(exports, random),
        used=_used(exports),
        jobs=jobs,
        context=context,
        world=exports.word(world),
        undefined=undefined,
        functions=functions,
    )


def _evaluated(exports: Exports, code: str, name: str) -> int:
    said = code.encode() + b"\0"
    at = exports.wasm_malloc(len(said))
    exports.write(at, said)
    called = exports.wasm_malloc(len(name) + 1)
    exports.write(called, name.encode() + b"\0")
    found = exports.qjs_eval(at, len(said) - 1, called, 0)
    exports.wasm_free(at)
    exports.wasm_free(called)
    _check(exports, found)
    return found


def _check(exports: Exports, value: int) -> None:
    if exports.qjs_is_exception(value):
        error = exports.qjs_get_exception()
        length = exports.wasm_malloc(4)
        said = exports.qjs_get_string_len(error, length)
        raise ValueError(exports.read(said, exports.word(length)).decode("utf-8", "replace"))


def _random(exports: Exports, context: int) -> int:
    """Where the generator's state is: the eight bytes that go on as it does."""
    before = exports.read(context, 1024)
    exports.qjs_free_value(_evaluated(exports, "Math.random()", "quire:seed"))
    after = exports.read(context, 1024)
    for at in range(0, 1024, 8):
        state = int.from_bytes(before[at : at + 8], "little")
        if state and _next(state) == int.from_bytes(after[at : at + 8], "little"):
            return context + at
    raise ValueError("the state of Math.random is not where it should be")


def _looks(exports: Exports, random: int) -> int:
    """Where the steps to the next look are counted down: behind the generator's state and one word more."""
    at, before = random + 12, exports.word(random + 12)
    exports.qjs_free_value(_evaluated(exports, "for (let i = 0; i < 100; i++);", "quire:looks"))
    if not 100 <= before - exports.word(at) <= 1000:
        raise ValueError("the count of steps is not where it should be")
    return at


def _used(exports: Exports) -> int:
    """Where the sum of what is allocated is: two words behind its limit."""
    exports.qjs_set_memory_limit(_MARK)
    at = bytes(exports.view()).find(_MARK.to_bytes(4, "little")) + 8
    exports.qjs_set_memory_limit(0)
    before = exports.word(at)
    array = _evaluated(exports, "new Uint8Array(100000)", "quire:used")
    grown = exports.word(at) - before
    exports.qjs_free_value(array)
    if not 100_000 <= grown <= 110_000:
        raise ValueError("the sum of what is allocated is not where it should be")
    return at


def _next(state: int) -> int:
    state ^= state >> 12
    state = (state ^ (state << 25)) & 0xFFFFFFFFFFFFFFFF
    return state ^ (state >> 27)


def _jobs(exports: Exports, runtime: int) -> int:
    """Where the list of jobs begins: it points to itself until there is one."""
    empty = [at for at in range(runtime, runtime + 2048, 4) if exports.word(at) == at == exports.word(at + 4)]
    exports.qjs_free_value(_evaluated(exports, "void Promise.resolve().then(() => 1)", "quire:jobs"))
    found = [at for at in empty if exports.word(at) != at and _empties(exports, at)]
    while exports.qjs_is_job_pending():
        exports.qjs_execute_pending_job()
    if len(found) != 1:
        raise ValueError("the list of jobs is not where it should be")
    return found[0]


def _empties(exports: Exports, at: int) -> bool:
    """Whether nothing waits any more where the list that begins there is emptied, for a moment."""
    before = exports.read(at, 8)
    exports.write(at, struct.pack("<II", at, at))
    empty = not exports.qjs_is_job_pending()
    exports.write(at, before)
    return empty


# The binary format


def _rewritten(program: bytes, memory: bytes) -> bytes:
    parts = [program[:8]]
    for kind, body in _sections(program):
        if kind == _MEMORY:
            body = b"\x01\x00" + _number(len(memory) // 65536)
        elif kind == _DATA_COUNT:
            body = _number(len(list(_segments(memory))))
        elif kind == _DATA:
            listed = list(_segments(memory))
            each = (b"\x00\x41" + _signed(at) + b"\x0b" + _number(len(data)) + data for at, data in listed)
            body = _number(len(listed)) + b"".join(each)
        elif kind == 0:
            continue  # names, for debuggers
        parts += [bytes([kind]), _number(len(body)), body]
    return b"".join(parts)


def _sections(program: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(program):
        kind = program[at]
        size, at = _numbered(program, at + 1)
        yield kind, program[at : at + size]
        at += size


def _segments(memory: bytes) -> Iterator[tuple[int, bytes]]:
    """What is not zero, page by page, so that there are few."""
    start = None
    for at in range(0, len(memory) + 4096, 4096):
        used = memory[at : at + 4096].strip(b"\0")
        if used and start is None:
            start = at
        elif not used and start is not None:
            data = memory[start:at]
            yield start, data.rstrip(b"\0")
            start = None


def _number(value: int) -> bytes:
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _signed(value: int) -> bytes:
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        done = (value == 0 and not low & 0x40) or (value == -1 and low & 0x40)
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


def _numbered(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
