"""What values look like in a WebAssembly guest: as in IPython, where they are of the standard kinds."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from IPython.lib.pretty import pretty

from quire.runtimes.wasm.guest.formatting import format_value, text_of


def function(a: int, b: str = "x") -> None:
    pass


class Kind:
    pass


SAME: dict[str, Any] = {
    "number": 1.5,
    "text": "a 'quoted' word",
    "short list": [1, "a", None],
    "tuple of one": (1,),
    "empty": [[], (), {}, set(), frozenset()],
    "set": {3, 1, 2},
    "mixed set": {1},
    "frozen": frozenset({2, 1}),
    "long list": [f"a rather long word number {n}" for n in range(5)],
    "nested": {"words": [f"a rather long word number {n}" for n in range(5)], "more": {"a": (1, 2)}},
    "many": list(range(1200)),
    "class": Kind,
    "builtin class": int,
    "function": function,
}


@pytest.mark.parametrize("name", SAME)
def test_text_is_that_of_ipython(name: str) -> None:
    assert text_of(SAME[name]) == pretty(SAME[name])


def test_value_inside_itself_ends() -> None:
    inside: list[Any] = [1]
    inside.append(inside)
    assert text_of(inside) == "[1, [...]]"


def test_deep_value_has_a_text() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    assert text_of(deep).startswith("[[[")


def test_own_repr_of_a_container_is_used() -> None:
    counted = collections.Counter("aab")
    assert text_of(counted) == repr(counted)


class Bundled:
    def _repr_mimebundle_(self, include: Any, exclude: Any) -> Any:
        return {"text/html": "<b>", "text/plain": "b"}, {"text/html": {"isolated": True}}


class Failing:
    def _repr_html_(self) -> str:
        raise ValueError("broken")

    def __repr__(self) -> str:
        return "failing"


class AnyName:
    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: "nonsense"


class Silent:
    def _ipython_display_(self) -> None:
        print("shown by itself")


def test_forms_are_those_that_the_value_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert format_value(Bundled()) == ({"text/html": "<b>", "text/plain": "b"}, {"text/html": {"isolated": True}})
    assert format_value(Failing())[0] == {"text/plain": "failing"} and "ValueError: broken" in capsys.readouterr().err
    assert list(format_value(AnyName())[0]) == ["text/plain"]
    assert format_value(Silent()) == ({}, {}) and capsys.readouterr().out == "shown by itself\n"
    assert format_value(Bundled)[0].keys() == {"text/plain"}
