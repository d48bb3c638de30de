"""What a cell shows and keeps."""

from __future__ import annotations

from typing import Any

import pytest

from quire.wire import messages
from quire.wire.messages import Displayed, Inspect, Page, Paged, Read

SHOWN = [
    ("1 + 1", "2", [2]),
    ("'it'", "'it'", ["it"]),
    ("true", "true", [True]),
    ("null", "null", [None]),
    ("[1, 'a', {b: 2}]", "[ 1, 'a', { b: 2 } ]", [[1, "a", {"b": 2}]]),
    ("{a: 1}", "{ a: 1 }", [{"a": 1}]),
    ("0.5", "0.5", [0.5]),
    ("NaN", "NaN", []),
    ("-Infinity", "-Infinity", []),
    ("-0", "-0", []),
    ("10n ** 20n", "100000000000000000000n", []),
    ("Symbol('s')", "Symbol(s)", []),
    ("({a: undefined})", "{ a: undefined }", []),
    ("[1, , 3]", "[ 1, <1 empty item>, 3 ]", []),
    ("new Map([[1, {a: 2}]])", "Map(1) { 1 => { a: 2 } }", []),
    ("new Set(['x'])", "Set(1) { 'x' }", []),
    ("new Date(0)", "1970-01-01T00:00:00.000Z", []),
    ("new Date(NaN)", "Invalid Date", []),
    ("/a.b/gi", "/a.b/gi", []),
    ("new Uint8Array([1, 255])", "Uint8Array(2) [ 1, 255 ]", []),
    ("new ArrayBuffer(8)", "ArrayBuffer { byteLength: 8 }", []),
    ("function f(a) {}; f", "[Function: f]", []),
    ("(async function g() {})", "[AsyncFunction: g]", []),
    ("class A {}; class B extends A {}; B", "[class B extends A]", []),
    ("class P { constructor() { this.x = 1 } }; new P()", "P { x: 1 }", []),
    ("var c = {}; c.me = c; c", "{ me: [Circular] }", []),
    ("({get x() { return 1 }})", "{ x: [Getter] }", []),
    ("new Proxy({a: 1}, {})", "Proxy({ a: 1 })", []),
    ("Object.create(null)", "[Object: null prototype] {}", [{}]),
    ("new Promise(() => {}).constructor", "[Function: Promise]", []),
    ("[new Error('in')]", "[ [Error: in] ]", []),
    ("new WeakMap()", "WeakMap { <items unknown> }", []),
    ("'it\\'s'", '"it\'s"', ["it's"]),
    ("'say \"x\"'", "'say \"x\"'", ['say "x"']),
    ("'\\ud800'", "'\\ud800'", []),
    ("structuredClone({a: new Set([1])})", "{ a: Set(1) { 1 } }", []),
]


@pytest.mark.parametrize(("code", "text", "value"), SHOWN)
def test_the_last_expression_is_shown_and_given_where_json_says_it(
    session: Any, code: str, text: str, value: list[Any]
) -> None:
    ran = session.run(code)
    assert (ran.text, ran.values) == (text, value)


@pytest.mark.parametrize("code", ["undefined", "let x = 1", "function f() {}", "", "// only a comment"])
def test_nothing_is_shown_where_there_is_no_value(session: Any, code: str) -> None:
    ran = session.run(code)
    assert (ran.outcome, ran.values, ran.of(Displayed)) == ("success", [], [])


@pytest.mark.parametrize("first", ["let x = 1", "const x = 1", "class x {}", "function x() {}", "var x = 1"])
@pytest.mark.parametrize("second", ["let x = 2", "const x = 2", "var x = 2", "function x() { return 2 }", "class x {}"])
def test_later_cell_may_declare_a_name_again(session: Any, first: str, second: str) -> None:
    session.run(first)
    assert session.run(second).outcome == "success"
    expected = {"f": "function", "c": "function"}.get(second[0], "number")
    assert session.value("typeof x") == ("number" if second.startswith("const") else expected)


def test_a_name_declared_twice_in_one_cell_is_an_error_that_costs_nothing(session: Any) -> None:
    session.run("let kept = 1")
    assert session.run("let kept = 2;\nlet kept = 3").error.name == "SyntaxError"
    assert session.value("kept") == 1


def test_cell_that_declares_again_runs_once(session: Any) -> None:
    session.run("let n = 0, a = 1, b = 2")
    session.run("n++; let a = 3; let b = 4")
    assert session.value("[n, a, b]") == [1, 3, 4]


def test_an_error_that_only_looks_like_a_redeclaration_runs_once(session: Any) -> None:
    session.run("var n = 0; let x = 1")
    session.run("n++; throw new SyntaxError(\"redeclaration of 'x'\")")
    assert session.value("[n, x]") == [1, 1]


def test_a_let_that_failed_can_be_declared_again_and_is_not_listed(session: Any) -> None:
    session.run("let x = (() => { throw 1 })()")
    assert "x" not in session.on_thread(lambda: session.guest.ask(Inspect())).variables
    assert session.value("let x = 5; x") == 5


def test_what_is_awaited_at_the_top_level_is_the_value(session: Any) -> None:
    assert session.value("await Promise.resolve(7)") == 7
    assert session.value("Promise.resolve({a: 1})") == {"a": 1}
    assert session.value("const got = await new Promise(r => setTimeout(() => r('late'), 5)); got") == "late"


def test_a_promise_that_nothing_can_settle_is_an_error(session: Any) -> None:
    assert session.run("await new Promise(() => {})").error.name == "NeverSettles"
    assert session.value("1") == 1


def test_console_writes_to_its_streams_in_order(session: Any) -> None:
    ran = session.run(
        "console.log('a %d %s', 1, 'b', {c: 2}); console.error('e'); console.info('i'); console.warn('w')"
    )
    assert ran.printed() == "a 1 b { c: 2 }\ni\n"
    assert ran.printed("stderr") == "e\nw\n"


def test_console_formats_and_draws(session: Any) -> None:
    assert session.run(
        "console.log('%s %i %f %j %o %% %c.', 's', 1.9, '2.5', {a: 1}, [1], 'css', 'more')"
    ).printed() == ('s 1 2.5 {"a":1} [ 1 ] % . more\n')
    table = session.run("console.table([{a: 1, b: 'x'}, {a: 2}])").printed()
    assert table.splitlines()[1] == "│ (index) │ a │ b   │"
    assert session.run("console.group('g'); console.log('in'); console.groupEnd(); console.log('out')").printed() == (
        "g\n  in\nout\n"
    )
    assert session.run("console.dir({a: {b: {c: {d: {e: {f: 1}}}}}})").printed().count("{") == 6


def test_a_print_arrives_before_the_cell_ends(session: Any) -> None:
    asked = session.request("console.log('now'); await new Promise(r => setTimeout(r, 60000))")
    session.start(lambda: session.guest.run(asked))
    assert session.host.heard.wait(30)
    assert session.host.events[0] == messages.Printed(stream="stdout", data=b"now\n")
    session.guest.interrupt()
    session.wait()


def test_display_shows_text_html_and_images(session: Any) -> None:
    ran = session.run("display({a: 1}); display.html('<b>x</b>'); display.image(new Uint8Array([1, 2]), 'image/png')")
    assert [(each.kind, each.bundle) for each in ran.of(Displayed)] == [
        ("execute_result", {"text/plain": "{ a: 1 }"}),
        ("html", {"text/html": "<b>x</b>"}),
        ("image", {"image/png": b"\x01\x02"}),
    ]
    assert session.run("display.image(new Uint8Array(1), 'text/evil')").error.name == "TypeError"
    assert session.run("display.html('x'.repeat(5e6))").error.name == "TooLarge"


def test_timers_fire_in_order_while_a_cell_waits(session: Any) -> None:
    code = "let seen = []; setTimeout(() => seen.push('b'), 10); setTimeout(() => seen.push('a'), 1);"
    assert session.value(
        code + "queueMicrotask(() => seen.push('m')); await new Promise(r => setTimeout(r, 20)); seen"
    ) == (["m", "a", "b"])
    assert (
        session.value(
            "let n = 0; await new Promise(r => { let i = setInterval(() => ++n == 3 && r(clearInterval(i)), 1) }); n"
        )
        == 3
    )


def test_a_timer_left_is_told_and_fires_in_a_later_cell(session: Any) -> None:
    assert "timer" in session.run("setTimeout(() => console.log('later'), 1); 0").printed("stderr")
    assert session.run("await new Promise(r => setTimeout(r, 10)); 0").printed() == "later\n"


def test_what_the_platform_gives_works(session: Any) -> None:
    assert session.value("new TextDecoder().decode(new TextEncoder().encode('hé'))") == "hé"
    assert session.value("atob(btoa('x'))") == "x"
    assert session.value("crypto.randomUUID().length") == 36
    assert session.value("new Date().getFullYear() > 2024 && performance.now() >= 0")
    assert session.value("Math.random() !== Math.random()")


def test_the_namespace_is_told(session: Any) -> None:
    session.run(
        "let n = 5, s = 'abc', m = new Map([[1, 2]]); var a = [1, 2]; function add(a, b = 1) {}; class K extends Map {}"
    )
    told = session.on_thread(lambda: session.guest.ask(Inspect()))
    assert told.variables == {
        "n": "number, 5",
        "s": "string, 3 characters",
        "m": "Map, 1 entry",
        "a": "Array, 2 items",
    }
    assert {each["name"]: each["signature"] for each in told.functions} == {
        "add": "function add(a, b = 1)",
        "K": "class K extends Map",
    }
    messages.parse(messages.EVENTS, *messages.dump(told))


def test_one_variable_is_read(session: Any) -> None:
    session.run("let o = {a: [1]}, big = 1n")

    def read(name: str) -> Any:
        return session.on_thread(lambda: session.guest.ask(Read(name=name)))

    assert read("o").value == [{"a": [1]}]
    assert (read("big").value, read("big").what) == ([], "1n")
    assert read("nope").what == "There is no variable 'nope'."
    assert read("o; globalThis.hacked = 1").value == []
    assert session.value("typeof hacked") == "undefined"


def test_there_are_no_pages(session: Any) -> None:
    answer = session.on_thread(lambda: session.guest.ask(Page(table="t", start=0, rows=5)))
    assert isinstance(answer, Paged) and answer.why_not
