"""A guest's state as an image, and a guest made of it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.runtimes.wasm.host.guest import PAGE, Ended
from quire.runtimes.wasm.host.javascript import language
from tests.support.wasm.assets import assets_dir

STATE = """
let n = 1; const o = {list: [1, 2], m: new Map([['k', new Set([1])]])}
class Point { #x = 3; get x() { return this.#x } }
const p = new Point(); function counter() { let c = 0; return () => ++c } const next = counter(); next();
function* steps() { yield 1; yield 2; yield 3 } const it = steps(); it.next();
let release; const waiting = new Promise(r => { release = r }); const then = waiting.then(v => v * 2);
async function half() { const v = await waiting; return v + 1 } const halfway = half();
let big = 'x'.repeat(300000); const bytes = new Uint8Array(100000).fill(7); 0
"""
ASKED = """release(20);
[n, o.list, o.m.get('k').has(1), p.x, next(), it.next().value, await then, await halfway, big.length, bytes[99999]]"""
ANSWER = [1, [1, 2], True, 3, 2, 2, 40, 21, 300000, 7]


def _image(session: Any) -> Any:
    return session.on_thread(session.guest.image)


def test_a_restored_guest_goes_on_where_the_first_was(sessions: Callable[..., Any]) -> None:
    first = sessions()
    first.run(STATE)
    image = _image(first)
    for _each in range(2):
        other = sessions()
        other.on_thread(lambda other=other: other.guest.restore(image))
        assert other.value(ASKED) == ANSWER
    assert first.value(ASKED) == ANSWER  # it was not touched


def test_an_image_of_a_restored_guest_is_as_good(sessions: Callable[..., Any]) -> None:
    first, second, third = sessions(), sessions(), sessions()
    first.run(STATE)
    second.on_thread(lambda: second.guest.restore(_image(first)))
    third.on_thread(lambda: third.guest.restore(_image(second)))
    assert third.value(ASKED) == ANSWER


def test_what_a_guest_did_before_it_was_restored_is_gone(sessions: Callable[..., Any]) -> None:
    first, other = sessions(), sessions()
    first.run("let a = 1")
    image = _image(first)
    other.run("let b = 2; var junk = new Array(100000).fill(5)")
    other.on_thread(lambda: other.guest.restore(image))
    assert other.value("[a, typeof b, typeof junk]") == [1, "undefined", "undefined"]


def test_the_host_is_the_new_guests_own(sessions: Callable[..., Any]) -> None:
    first, other = sessions(), sessions()
    first.run("const say = () => console.log('here')")
    other.on_thread(lambda: other.guest.restore(_image(first)))
    assert other.run("say()").printed() == "here\n"
    other.value("files.write('x', '1'); files.read('x')")
    error = other.run("\nmissing").error
    assert "missing" in error.traceback


def test_chance_is_new_in_every_guest(sessions: Callable[..., Any]) -> None:
    first = sessions()
    first.run("Math.random()")
    image = _image(first)
    drawn = {first.value("Math.random()"), sessions().value("Math.random()")}
    for _each in range(3):
        other = sessions()
        other.on_thread(lambda other=other: other.guest.restore(image))
        drawn.add(other.value("Math.random()"))
    assert len(drawn) == 5


def test_an_image_is_small_and_of_whole_pages(sessions: Callable[..., Any]) -> None:
    session = sessions()
    session.run("let x = 1")
    image = _image(session)
    assert image.size % 65536 == 0 and all(len(page) == PAGE for page in image.pages.values())
    assert len(image.pages) * PAGE < 1 << 20
    session.run("(function r() { r() })()")  # the stack it went down is no part of the state
    assert len(_image(session).pages) * PAGE < 1 << 20


def test_memory_that_was_let_go_of_is_in_no_image(sessions: Callable[..., Any]) -> None:
    first, other = sessions(), sessions()
    first.run(STATE)
    first.run("var b = new Uint8Array(2e7).fill(1), c = []; for (let i = 0; i < 1e5; i++) c.push({i}); b = c = null; 0")
    image = _image(first)
    assert len(image.pages) * PAGE < 6 << 20
    other.on_thread(lambda: other.guest.restore(image))
    assert other.value(ASKED) == first.value(ASKED) == ANSWER
    assert other.value("new Uint8Array(2e7).fill(2)[5]") == first.value("new Uint8Array(2e7).fill(2)[5]") == 2


def test_earlier_cells_are_shown_in_tracebacks_after_a_restore(sessions: Callable[..., Any]) -> None:
    first, other = sessions(), sessions()
    first.run("function broken() {\n  throw new Error('x') // this one\n}")
    other.on_thread(lambda: other.guest.restore(_image(first)))
    other._count = 10
    assert "// this one" in other.run("broken()").error.traceback


@pytest.mark.parametrize(
    "change",
    [
        {"artefact": "another"},
        {"size": 65536},
        {"size": 12345},
        {"rest": "not json"},
        {"rest": "{}"},
        {"pages": {0: b"short"}},
        {"pages": {1 << 40: bytes(PAGE)}},
        {"pages": {-1: bytes(PAGE)}},
        {"size": 1 << 31},
    ],
)
def test_an_image_that_does_not_fit_is_refused(sessions: Callable[..., Any], change: dict[str, Any]) -> None:
    session = sessions()
    image = dataclasses.replace(_image(session), **change)
    with pytest.raises(Ended) as refused:
        session.on_thread(lambda: session.guest.restore(image))
    assert refused.value.hint
    assert session.value("1") == 1


def test_what_was_compiled_is_used_again_unless_others_could_have_written_it(javascript: Any, tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "assets"
    shutil.copytree(assets_dir(), folder, ignore=shutil.ignore_patterns("python*"))
    again = language.load(folder, said.append)
    assert said == [] and again.artefact == javascript.artefact
    (kept, *_more) = [each for each in (folder / "javascript").glob("*.cwasm") if not each.name.startswith(".")]
    for each in (folder / "javascript").glob("*.cwasm"):
        each.chmod(0o666)
    language.load(folder, said.append)
    assert said == ["Compiling JavaScript"] * 2, "with fuel and without"
    assert kept.exists()
