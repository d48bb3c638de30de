"""Capabilities: each tool is an async function."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quire.runtimes.wasm.host.guest import Ended
from quire.wire import relay
from quire.wire.messages import Offer

TOOL = {
    "name": "get-sum",
    "description": "Adds.",
    "input": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a"]},
    "output": None,
}
CATALOG = [{"name": "math", "about": "Numbers.", "tools": [TOOL], "resources": True, "prompts": True}]


@pytest.fixture
def math(session: Any) -> Any:
    session.on_thread(lambda: session.guest.offer(Offer(catalog=CATALOG)))
    return session


def _returns(session: Any, **value: Any) -> None:
    session.host.answer = lambda called: relay.Returned(call=called.call, value=value)


def test_a_tool_is_called_by_any_of_its_names(math: Any) -> None:
    _returns(math, structured={"sum": 3})
    for name in ("math.get_sum", "math.getSum", "math['get-sum']", "caps.math.getSum"):
        assert math.value(f"await {name}({{a: 1, b: 2}})") == {"sum": 3}
    assert math.value("await math.getSum(1, 2)") == {"sum": 3}
    assert {(each.do, each.capability, each.method) for each in math.host.calls} == {("tool", "math", "get-sum")}
    assert all(each.given == {"a": 1, "b": 2} for each in math.host.calls)


def test_answers_are_unpacked(math: Any) -> None:
    _returns(math, content=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])
    assert math.value("await math.get_sum({a: 1})") == "one\ntwo"
    _returns(math, content=[])
    assert math.value("await math.get_sum({a: 1})") is None
    _returns(math, contents=[{"text": "read"}])
    assert math.value("await math.read('x://y')") == "read"


def test_what_is_refused_is_an_error_with_its_name(math: Any) -> None:
    for kind, name in (
        ("timeout", "ToolTimeout"),
        ("denied", "ApprovalDenied"),
        ("gone", "CapabilityGone"),
        ("tool", "ToolError"),
        ("wrong_type", "TypeError"),
        ("wrong_value", "RangeError"),
    ):
        math.host.answer = lambda called, kind=kind: relay.Refused(
            call=called.call, kind=kind, message="No.", hint="Do."
        )
        assert math.value("try { await math.get_sum({}) } catch (e) { [e.name, e.message, e instanceof Error] }") == (
            [name, "math.get-sum: No. Do.", True]
        )


def test_arguments_that_json_cannot_say_are_refused_before_anything_is_asked(math: Any) -> None:
    deep = "let d = {}; for (let i = 0; i < 100; i++) d = {d}; "
    for code in ("const c = {}; c.c = c; await math.get_sum(c)", "await math.get_sum({a: 1n})",
                 deep + "await math.get_sum(d)",
                 "await math.get_sum({toJSON() { throw 1 }})", "await math.get_sum({a: 'x'.repeat(9e6)})"):  # fmt: skip
        assert math.run(code).outcome == "error"
    assert math.host.calls == []


def test_an_offer_takes_the_place_of_the_last_one(math: Any) -> None:
    math.on_thread(lambda: math.guest.offer(Offer(catalog=[])))
    assert math.value("[typeof math, Object.keys(caps)]") == ["undefined", []]


def test_a_variable_of_the_codes_own_is_not_taken(session: Any) -> None:
    session.run("let math = 5")
    session.on_thread(lambda: session.guest.offer(Offer(catalog=CATALOG)))
    assert session.value("[math, typeof caps.math.getSum]") == [5, "function"]
    session.on_thread(lambda: session.guest.offer(Offer(catalog=[])))
    assert session.value("math") == 5


def test_capabilities_are_no_variables(math: Any) -> None:
    from quire.wire.messages import Inspect

    assert math.on_thread(lambda: math.guest.ask(Inspect())).variables == {}


def test_a_catalog_with_odd_names_harms_nothing(session: Any) -> None:
    odd = [
        {"name": "__proto__", "tools": [{"name": "constructor"}, {"name": "__proto__"}], "about": "`${x}`\u2028"},
        {"name": "a'b\"; throw 1", "tools": [{"name": "x", "input": 5}, "no tool"], "about": 3},
        {"name": "console", "tools": []},
    ]
    session.on_thread(lambda: session.guest.offer(Offer(catalog=odd)))
    assert session.run("console.log('still')").printed() == "still\n"
    assert session.value("({}).constructor === Object")


def test_a_host_that_ends_while_it_is_asked_ends_the_guest(math: Any) -> None:
    def gone(called: relay.Called) -> relay.Answer:
        raise Ended("It was ended.")

    math.host.answer = gone
    with pytest.raises(Ended, match="It was ended"):
        math.run("try { await math.get_sum({}) } catch {}")


def test_an_answer_that_was_cut_comes_whole_or_not_at_all(math: Any) -> None:
    whole = json.dumps({"result": list(range(1_000))})

    def cut(called: relay.Called) -> relay.Answer:
        if called.do == "rest":
            start = called.given["start"]
            part = whole[start : start + 1_500]
            return relay.Returned(call=called.call, value={"text": part, "more": start + len(part) < len(whole)})
        block = {"type": "text", "text": whole[:100], "rest": "key", "size": len(whole)}
        return relay.Returned(call=called.call, value={"content": [block], "structured": None})

    def gone(called: relay.Called) -> relay.Answer:
        if called.do == "rest":
            return relay.Refused(call=called.call, kind="gone", message="It is kept no more.", hint="")
        return cut(called)

    def endless(called: relay.Called) -> relay.Answer:
        if called.do == "rest":
            return relay.Returned(call=called.call, value={"text": "x" * 1_000_000, "more": True})
        return cut(called)

    math.host.answer = cut
    assert math.value("await math.getSum({a: 1})") == whole
    declared = {**TOOL, "output": {"type": "object", "properties": {"result": {}}, "x-fastmcp-wrap-result": True}}
    math.on_thread(lambda: math.guest.offer(Offer(catalog=[{**CATALOG[0], "tools": [declared]}])))
    assert math.value("await math.getSum({a: 1})") == list(range(1_000))
    for answer, says in ((gone, "its rest did not come: It is kept no more."), (endless, "more than 8,388,608")):
        math.host.answer = answer
        assert says in math.run("await math.getSum({a: 1})").error.traceback
