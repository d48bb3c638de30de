"""Errors: what they are called, where they happened, what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_an_error_names_the_cell_and_the_line_and_shows_it(session: Any) -> None:
    error = session.run("\nfunction f() {\n  null.x\n}\nf()").error
    assert (error.name, error.message) == ("TypeError", "cannot read property 'x' of null")
    assert error.traceback == (
        "cell-1:3\n    null.x\n    ^\n\nTypeError: cannot read property 'x' of null\n"
        "    at f (cell-1:3:3)\n    at <eval> (cell-1:5:1)"
    ).replace("    null.x\n    ^", "      null.x\n      ^")


def test_an_error_in_a_function_of_an_earlier_cell_shows_that_cell(session: Any) -> None:
    session.run("function broken() {\n  throw new RangeError('far')\n}")
    error = session.run("\n\nbroken()").error
    assert "cell-1:2" in error.traceback and "throw new RangeError('far')" in error.traceback
    assert "at <eval> (cell-2:3:1)" in error.traceback


def test_a_syntax_error_has_its_place(session: Any) -> None:
    error = session.run("let a = 1\nlet b = = 2").error
    assert error.name == "SyntaxError" and error.traceback.startswith("cell-1:2\n    let b = = 2\n            ^")


def test_an_error_after_an_await_has_its_line(session: Any) -> None:
    error = session.run("await 0\nawait new Promise(r => setTimeout(r, 1))\nmissing").error
    assert (error.name, "cell-1:3" in error.traceback) == ("ReferenceError", True)


def test_an_import_that_fails_has_its_line_and_a_name_that_is_not_exported_is_an_error(
    session: Any, workspace: Path
) -> None:
    (workspace / "m.js").write_text("export const a = 1, nothing = undefined")
    (workspace / "thrower.js").write_text("\nthrow new RangeError('far')")
    (workspace / "chain.js").write_text("import {b} from './m.js'")
    assert session.value("import {a, nothing} from './m.js'; [a, nothing === undefined]") == [1, True]
    missing = session.run("1;\nimport {\n  a, b} from './m.js'").error
    assert (missing.name, missing.message) == ("SyntaxError", "./m.js does not export b; it exports a, nothing")
    assert missing.traceback.startswith("cell-2:2\n    import {\n")
    assert session.run("import d from './m.js'").error.message.startswith("./m.js does not export default")
    for code, message in (("nowhere", "No such file"), ("chain", "Could not find export 'b' in module 'm.js'")):
        error = session.run(f"\n\nimport './{code}.js'").error
        assert message in error.message and ":3\n    import './" in error.traceback
    for _ in range(2):  # the module is not evaluated again: it is the same error
        thrown = session.run("import './thrower.js'").error
        assert thrown.traceback.startswith("thrower.js:2\n") and thrown.traceback.endswith(":1)")


def test_imports_need_no_name_that_a_cell_may_take(session: Any, workspace: Path) -> None:
    (workspace / "m.js").write_text("export class Error {}; export const a = 1")
    assert session.value("import {Error, a} from './m.js'; a") == 1
    assert session.value("class SyntaxError {}; import {a as b} from './m.js'; b") == 1
    assert session.run("import {c} from './m.js'").error.name == "SyntaxError"


def test_what_code_says_of_an_address_stays_as_it_is(session: Any) -> None:
    error = session.run("throw new Error('GET /app.js?v=deadbeef failed')").error
    assert error.message == "GET /app.js?v=deadbeef failed" and error.message in error.traceback


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("throw 5", "Thrown", "5"),
        ("throw null", "Thrown", "null"),
        ("throw {a: 1}", "Thrown", "{ a: 1 }"),
        ("throw Symbol('s')", "Thrown", "Symbol(s)"),
        ("class MyError extends Error {}; throw new MyError('m')", "MyError", "m"),
        ("const e = new Error('m'); e.name = 'Named'; throw e", "Named", "m"),
        ("Promise.reject(new TypeError('later'))", "TypeError", "later"),
        ("await Promise.any([Promise.reject(1)])", "AggregateError", ""),
    ],
)
def test_whatever_is_thrown_is_told(session: Any, code: str, name: str, message: str) -> None:
    error = session.run(code).error
    assert (error.name, error.message) == (name, message)


def test_the_cause_is_told(session: Any) -> None:
    error = session.run("throw new Error('top', {cause: new Error('root')})").error
    assert "Caused by: Error: root" in error.traceback


def test_unhandled_rejections_are_reported_and_handled_ones_are_not(session: Any) -> None:
    ran = session.run("Promise.reject(new Error('alone')); const p = Promise.reject(1); p.catch(() => {}); 1")
    assert ran.outcome == "success"
    assert ran.printed("stderr").count("Unhandled rejection") == 1 and "alone" in ran.printed("stderr")


def test_an_error_in_a_timer_is_told_and_ends_nothing(session: Any) -> None:
    ran = session.run("setTimeout(() => { throw new Error('t') }, 0); await new Promise(r => setTimeout(r, 5)); 'on'")
    assert ran.value == "on" and "Uncaught in a callback" in ran.printed("stderr")


def test_state_before_an_error_is_kept(session: Any) -> None:
    session.run("let x = 1; x = 2; throw 0")
    assert session.value("x") == 2


def test_no_frame_of_ours_is_shown(session: Any) -> None:
    assert "quire" not in session.run("files.read(5)").error.traceback
