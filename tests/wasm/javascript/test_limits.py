"""Limits and stops: each is told, and state is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from quire.runtimes.wasm.host.guest import Bounds, Ended, Place

LOOPS = [
    "while (true) {}",
    "for (;;) { try { while (true) {} } catch { } finally { continue } }",
    "try { while (true) {} } catch {} finally { while (true) {} }",
    "for (;;) await 0",
    "const f = async () => { for (;;) { try { await new Promise(r => setTimeout(r, 0)) } catch {} } }; await f()",
    "await new Promise(r => setTimeout(r, 1e8))",
    "setInterval(() => {}, 0); await new Promise(() => {})",
    "new Proxy({}, {get() { for (;;); }}).x",
    "[3, 2, 1].sort(() => { for (;;); })",
    "/(a|b|(c))*d/.test('a'.repeat(1e6))",
    "let s = 'x'; for (;;) s = ('a' + s).slice(0, 100000)",
]

DEEP = [
    "(function r() { r() })()",
    "JSON.parse('['.repeat(200000))",
    "var go = {get x() { return this.x }}; go.x",
    "var p = new Proxy({}, {get(t, k) { return p[k] }}); p.x",
    "var q = {}; for (let i = 0; i < 100000; i++) q = new Proxy(q, {}); q.x",
    "function cmp() { return [2, 1].sort(cmp)[0] }; [1, 2].sort(cmp)",
    "var ts = {toString() { return '' + ts }}; '' + ts",
    "eval('('.repeat(100000))",
    "eval('['.repeat(100000))",
    "eval('!'.repeat(100000) + 1)",
    "eval('`${'.repeat(20000))",
    "new RegExp('('.repeat(100000))",
    "class K { constructor() { new K() } }; new K()",
    "function m() { return [1].map(m) }; m()",
    "function rp() { return 'a'.replace(/a/, rp) }; rp()",
    "function er() { eval('er()') }; er()",
    "var pr = {[Symbol.toPrimitive]() { return +pr }}; +pr",
    "function* gg() { yield* gg() }; [...gg()]",
]


@pytest.mark.parametrize("code", LOOPS)
def test_an_interrupt_stops_any_loop_and_keeps_state(session: Any, code: str) -> None:
    session.run("let kept = 'yes'")
    asked = session.request("console.log('in'); " + code)
    session.start(lambda: session.guest.run(asked))
    assert session.host.heard.wait(30)
    session.guest.interrupt()
    session.wait()
    assert session.host.events[-1].outcome == "interrupted"
    assert session.value("kept") == "yes"
    assert session.value("await new Promise(r => setTimeout(() => r('goes on'), 2))") == "goes on"


def test_an_interrupt_when_nothing_runs_is_nothing(session: Any) -> None:
    session.guest.interrupt()
    assert session.value("1") == 1


def test_what_does_not_stop_softly_is_ended(sessions: Callable[..., Any]) -> None:
    session = sessions(memory=512 << 20)
    asked = session.request("console.log('in'); let o = []; for (let i = 0; i < 300000; i++) o = [o]; "
                            "const big = new Array(3e7).fill(0); for (;;) big.indexOf(1)")  # fmt: skip
    session.start(lambda: session.guest.run(asked))
    assert session.host.heard.wait(30)
    session.guest.interrupt()
    try:
        session.wait()
        assert session.host.events[-1].outcome == "interrupted"  # it looked in time
    except Ended as ended:
        assert "stop" in ended.reason and ended.hint


@pytest.mark.parametrize("code", DEEP)
def test_deep_recursion_is_an_error_and_state_is_kept(session: Any, code: str) -> None:
    session.run("let kept = 1")
    assert session.run(code).error.name in ("RangeError", "InternalError", "SyntaxError", "OutOfMemory")
    assert session.value("kept + 1") == 2


def test_recursion_a_thousand_deep_is_fine(session: Any) -> None:
    assert session.value("const sum = n => n ? n + sum(n - 1) : 0; sum(1500)") == 1125750


@pytest.mark.parametrize(
    "code",
    [
        "let a = []; for (;;) a.push({})",
        "let s = 'x'; for (;;) s += s",
        "new Uint8Array(1e9)",
        "var m = new Map(); for (let i = 0; ; i++) m.set(i, 'x'.repeat(100))",
        "let b = function () {}; for (;;) b = b.bind(null)",
        "let e = null; for (;;) e = new Error('x', {cause: e})",
    ],
)
def test_full_memory_is_an_error_of_its_own_and_state_is_kept(session: Any, code: str) -> None:
    session.run("let kept = 1")
    error = session.run(code).error
    assert error.name in ("OutOfMemory", "RangeError") or error.message == "string too long"
    if error.name == "OutOfMemory":
        assert "64 MiB" in error.message and "wasm.memory_bytes" in error.message
    session.run("a = s = m = b = e = null")
    assert session.value("kept + 1") == 2


def test_a_guest_that_cannot_be_is_refused(javascript: Any, tmp_path: Any) -> None:
    with pytest.raises(Ended, match="MiB") as refused:
        javascript.make(Place(workspace=tmp_path), Bounds(memory=1 << 20), None)
    assert "wasm.memory_bytes" in refused.value.hint


def test_fuel_that_is_used_up_is_told_and_state_is_kept(sessions: Callable[..., Any]) -> None:
    session = sessions(fuel=50_000_000)
    session.run("let n = 0")
    error = session.run("for (;;) { try { n++ } catch {} }").error
    assert error.name == "FuelExhausted" and "50,000,000" in error.message and "wasm.fuel" in error.message
    assert session.value("n > 0")
    assert session.run("for (;;);").error.name == "FuelExhausted"  # each run has its own


def test_calls_beyond_the_budget_are_refused(sessions: Callable[..., Any]) -> None:
    from quire.wire.messages import Offer

    session = sessions(calls=2)
    offer = Offer(catalog=[{"name": "c", "about": "", "tools": [{"name": "t"}], "resources": False, "prompts": False}])
    session.on_thread(lambda: session.guest.offer(offer))
    ran = session.run(
        "let errors = []; for (let i = 0; i < 4; i++) try { await c.t({}) } catch (e) { errors.push(`${e}`) }; errors"
    )
    assert len(ran.value) == 2 and "CallsExhausted" in ran.value[0] and "max_calls" in ran.value[0]
    assert session.value("(await c.t({})) === null")


def test_two_guests_run_at_once_and_one_is_stopped(sessions: Callable[..., Any]) -> None:
    busy, other = sessions(), sessions()
    asked = busy.request("console.log(1); for (;;);")
    busy.start(lambda: busy.guest.run(asked))
    assert busy.host.heard.wait(30)
    assert [other.value(f"{n} + 1") for n in range(20)] == list(range(1, 21))
    busy.guest.interrupt()
    busy.wait()
    assert busy.host.events[-1].outcome == "interrupted"
    assert threading.active_count() < 100
