"""Code that turns on what shows it: nothing hangs, nothing lies unseen, the next cell runs."""

from __future__ import annotations

from typing import Any

import pytest

from quire.wire.messages import Inspect, Read

POLLUTION = [
    "JSON.stringify = JSON.parse = () => { throw 1 }; Reflect.ownKeys = Object.is = Array.isArray = null",
    "String.prototype.slice = String.prototype.indexOf = Function.prototype.call = Function.prototype.apply = null",
    "Array.prototype[Symbol.iterator] = null; Array.prototype.push = Array.prototype.join = () => { throw 1 }",
    "Object.defineProperty(Array.prototype, 0, {set(v) { throw 1 }, get() { throw 1 }})",
    "Object.defineProperty(Object.prototype, 'get', {get() { throw 1 }, set() { throw 1 }})",
    "Object.defineProperty(Object.prototype, 'text', {set(v) { throw 1 }}); Object.prototype.enumerable = false",
    "Object.prototype.count = 5; Object.prototype.nodes = 1e9; Object.prototype.every = 1; Object.prototype.cells = {}",
    "Object.prototype.toString = Object.prototype.valueOf = () => { throw 1 }",
    "WeakMap.prototype.get = () => 'Proxy'; Map.prototype.forEach = Set.prototype.forEach = null",
    "Promise.prototype.then = Promise.resolve = () => { throw 1 }",
    "Error = TypeError = Uint8Array = Map = String = Number = undefined",
    "Error.prepareStackTrace = () => { throw 1 }",
    "Error.prepareStackTrace = (e, frames) => frames; Error.stackTraceLimit = 1e9",
    "Object.defineProperty(Error.prototype, 'stack', {get() { for (;;); }})",
    "Date.now = () => { throw 1 }; Math.random = null; eval = null; Function = null",
    "globalThis.console = null; globalThis.host = null; globalThis.lexical = null",
    "Object.freeze(Object.prototype); Object.freeze(globalThis)",
    "Symbol.prototype.toString = BigInt.prototype.toString = () => { throw 1 }",
    "RegExp.prototype.exec = () => { for (;;); }",
]
HOSTILE = [
    "({toJSON() { throw 1 }})",
    "({get x() { for (;;); }, toString() { for (;;); }})",
    "({[Symbol.toStringTag]: 'Map', constructor: {name: 'x'.repeat(1e6)}})",
    "new Proxy({}, new Proxy({}, {get() { for (;;); }}))",
    "new Proxy([], {get() { for (;;); }})",
    "const r = Proxy.revocable(function () {}, {}); r.revoke(); [r.proxy]",
    "new (class extends Map { get size() { for (;;); } forEach() { for (;;); } })()",
    "new (class extends Date { toISOString() { for (;;); } getTime() { for (;;); } })(0)",
    "new (class extends Error { get name() { for (;;); } get message() { for (;;); } get stack() { for (;;); } })()",
    "Object.setPrototypeOf([], new Proxy([], {get() { for (;;); }, getPrototypeOf() { for (;;); }}))",
    "Object.setPrototypeOf({}, new Proxy({}, {getOwnPropertyDescriptor() { for (;;); }}))",
    "Object.defineProperty(function f() {}, 'name', {get() { for (;;); }})",
    "const w = {}; for (let i = 0; i < 20000; i++) w['k' + i] = i; w",
    "let deep = 1; for (let i = 0; i < 5000; i++) deep = {deep, l: [deep]}; deep",
    "const dag = [[]]; for (let i = 0; i < 40; i++) dag[0] = [dag[0], dag[0], dag[0]]; dag",
    "new Array(4e9)",
    "'x'.repeat(5e6)",
    "['x'.repeat(3e6), 'y'.repeat(3e6)]",
    "2n ** 100000n",
    "new Map(Array.from({length: 5000}, (_, i) => [i, {i}]))",
    "Symbol('x'.repeat(1e6))",
    "({['k'.repeat(1e6)]: 1})",
    "new Uint8Array(1e7)",
    "Object.assign([1, 2], {extra: 1, [Symbol('s')]: 2})",
    "globalThis",
    "const circular = new Map(); circular.set(circular, [circular]); circular",
]


@pytest.mark.parametrize("code", POLLUTION)
def test_what_cells_do_to_builtins_does_not_reach_what_shows_them(session: Any, code: str) -> None:
    session.run(code)
    ran = session.run("({a: [1, 'x']})")
    assert ran.outcome == "success" and ran.text.startswith("{ a: [ 1, 'x' ]")
    assert session.run("throw {a: 1}").error.message == "{ a: 1 }"
    assert session.on_thread(lambda: session.guest.ask(Inspect())) is not None
    session.run("let after = 1")
    assert session.on_thread(lambda: session.guest.ask(Read(name="after"))).value == [1]
    assert session.run("nothing_of_that_name").error.name == "ReferenceError"


@pytest.mark.parametrize("code", HOSTILE)
def test_hostile_values_are_shown_in_bounds_without_running_them(session: Any, code: str) -> None:
    session.run("var last")
    ran = session.run(code)
    assert ran.outcome == "success"
    assert 0 < len(ran.text) < 50_000
    assert session.run(f"console.log({code.rpartition(';')[2]}); 0").outcome in ("success", "error")
    assert session.run(f"throw ({code.rpartition(';')[2]})").outcome == "error"
    told = session.on_thread(lambda: session.guest.ask(Inspect()))
    assert all(len(each) < 1000 for each in told.variables.values())


def test_the_host_is_called_with_anything_and_refuses_it(session: Any) -> None:
    """Code that gets hold of the prelude's own function, as through a frame of the stack, gets no further."""
    session.run("Error.prepareStackTrace = (e, frames) => frames; var seen = [];")
    session.run(
        "for (const f of [files.read, display, console.log]) try { f(new Proxy({}, {})) } catch (e) { seen.push(e) }"
    )
    assert session.run("seen.map(e => [e.stack].flat().map(f => typeof f?.getFunction?.()))").outcome == "success"


def test_wrong_arguments_are_type_errors(session: Any) -> None:
    for code in ("files.read()", "files.read({})", "files.read(Symbol())", "files.write('x')", "files.write('x', {})",
                 "display.html(5)", "display.image([1])", "display.image(new Uint8Array(1), {})", "setTimeout('code')",
                 "new TextDecoder().decode('x')", "crypto.getRandomValues({})", "queueMicrotask(1)"):  # fmt: skip
        assert session.run(code).error.name == "TypeError", code
    assert session.run("crypto.getRandomValues(new Uint8Array(1e6))").outcome == "error"
    assert session.value("1") == 1


def test_detached_and_shared_bytes_are_refused_or_empty(session: Any) -> None:
    session.run("const b = new Uint8Array(10); b.buffer.transfer(); try { files.write('x', b) } catch {}")
    assert session.value("1") == 1


def test_there_is_no_way_out_by_name(session: Any) -> None:
    for name in (
        "process",
        "require",
        "std",
        "os",
        "fetch",
        "WebAssembly",
        "Deno",
        "host",
        "lexical",
        "XMLHttpRequest",
    ):
        assert session.value(f"typeof {name}") == "undefined", name


def test_bindings_of_the_prelude_are_out_of_reach(session: Any) -> None:
    for name in ("world", "evaluate", "inspected", "kinds", "timers", "answered"):
        assert session.value(f"typeof {name}") == "undefined"
    assert session.run("[shown, failed]").error.name == "ReferenceError"
