"""Capabilities: the same stubs and the same `caps`, through one function of the host's."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.guest import Ended
from quire.wire import relay
from quire.wire.messages import Native, Offer
from tests.support.wasm.python_guest import WEATHER, Notebook


@pytest.fixture
def offered(notebook: Notebook) -> Notebook:
    notebook.guest.offer(Offer(catalog=[WEATHER]))
    notebook.answers = lambda called: relay.Returned(
        call=called.call, value={"content": [{"type": "text", "text": "mild"}], "structured": {"degrees": 7}}
    )
    return notebook


def test_a_tool_is_a_function(offered: Notebook) -> None:
    assert offered.run("weather.now(place='Rome')['degrees']").value == 7
    called = offered.called[0]
    assert (called.do, called.capability, called.method, called.given) == ("tool", "weather", "now", {"place": "Rome"})
    assert "weather" in offered.run("print(caps)").text


def test_a_tool_can_be_awaited(offered: Notebook) -> None:
    assert offered.run("(await weather.now.aio(place='Rome'))['degrees']").value == 7


def test_a_refusal_is_an_exception_of_its_kind(offered: Notebook) -> None:
    offered.answers = lambda called: relay.Refused(call=called.call, kind="timeout", message="Too slow.", hint="Wait.")
    ran = offered.run("weather.now(place='Rome')")
    assert ran.finished.outcome == "error" and "Too slow." in ran.raised


def test_wrong_arguments_are_told_without_a_call(offered: Notebook) -> None:
    assert offered.run("weather.now(city='Rome')").finished.outcome == "error"
    assert offered.called == []


def test_guest_without_an_answer_ends(offered: Notebook) -> None:
    def refuse(called: relay.Called) -> relay.Answer:
        raise Ended("The server is gone.")

    offered.answers = refuse
    with pytest.raises(Ended, match="The server is gone"):
        offered.run("weather.now(place='Rome')")


def test_what_a_notebook_offers_itself_is_told(notebook: Notebook) -> None:
    ran = notebook.run("@capability\ndef double(n: int) -> int:\n    'Twice.'\n    return 2 * n")
    assert ran.finished.outcome == "success", ran.raised
    assert [each["name"] for told in ran.of(Native) for each in told.capabilities] == ["double"]


def test_a_stub_comes_through_an_image(offered: Notebook) -> None:
    offered.run("w = weather")
    offered.guest.restore(offered.guest.image())
    assert offered.run("w.now(place='Rome')['degrees']").value == 7
