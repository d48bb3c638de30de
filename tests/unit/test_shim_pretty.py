"""The shim's text forms beside IPython's own, value by value."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import os
import re
import types
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.lib.pretty import pretty as oracle

from quire.worker.shim.pretty import pretty


class Plain:
    def method(self, x: int = 1) -> None: ...


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Box:
    inside: list[Any]


class Shout(list[Any]):
    def __repr__(self) -> str:
        return "SHOUT"


class Quiet(list[Any]):
    pass


class QuietDict(dict[Any, Any]):
    pass


class Colour(enum.Enum):
    RED = 1


class Meta(type):
    def __repr__(cls) -> str:
        return "a class of Meta"


class OfMeta(metaclass=Meta):
    pass


class Wrong(Exception):
    pass


class Lines:
    def __repr__(self) -> str:
        return "one\n  two\nthree"


class Drawn:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def _repr_pretty_(self, p: Any, cycle: bool) -> None:
        if cycle:
            p.text("Drawn(...)")
            return
        with p.group(6, "Drawn(", ")"):
            for number, part in enumerate(self.parts):
                if number:
                    p.text(",")
                    p.breakable()
                p.pretty(part)
            with p.indent(2):
                p.breakable("")
                p.text("end")
                p.break_()
                p.text("really")


def function(x: int, y: int = 1, *rest: Any, key: str = "v") -> None: ...


async def coroutine(x: int) -> None: ...


def loop(value: Any) -> Any:
    value.append(value)
    return value


def self_dict() -> dict[Any, Any]:
    value: dict[Any, Any] = {}
    value["me"] = value
    return value


def self_drawn() -> Drawn:
    value = Drawn()
    value.parts = (1, value)
    return value


PLAIN = Plain()
WORDS = ["a rather long word number " + str(n) for n in range(8)]
VALUES: list[Any] = [
    None, True, ..., NotImplemented, 0, -1, 1.5, math.inf, math.nan, 1j, "", "text", "it's", "two\nlines", b"bytes",
    bytearray(b"x"), [], (), {}, set(), frozenset(), (1,), [1], {1}, frozenset({2, 1}), {3, 1, 2}, {"b", 1, None},
    list(range(50)), tuple(range(50)), set(range(50)), dict.fromkeys(range(30)), WORDS, tuple(WORDS), set(WORDS),
    dict.fromkeys(WORDS), dict.fromkeys(WORDS[:2], WORDS), [WORDS, WORDS], {(1, 2): WORDS}, {tuple(WORDS): 1},
    {tuple(WORDS): tuple(WORDS)}, list(range(1500)), set(range(1500)), dict.fromkeys(range(1500)), tuple(range(1000)),
    [list(range(1200))], loop([1]), self_dict(), self_drawn(), function, coroutine, Plain, Plain.method, PLAIN,
    [PLAIN] * 5, PLAIN.method, len, [].append, print, int, list, dict[str, int], list[int], int | str,
    collections.OrderedDict, Meta, OfMeta, OfMeta(), Exception, os, re, Point(1, 2), [Point(n, n) for n in range(9)],
    Box([1, 2]), Box(WORDS), Shout([1]), [Shout()], Quiet([1, 2]), Quiet(WORDS), QuietDict(a=1), Colour.RED, Colour,
    [Colour.RED] * 9, re.compile("a+"), re.compile(r"\d'\\", re.I | re.M | re.X), re.compile(b"x", re.S),
    re.match("a", "a"),
    ValueError("wrong"), Wrong("a", 1), KeyError(), OSError(2, "no"), [Wrong(WORDS)], collections.OrderedDict(),
    collections.OrderedDict(a=1, b=WORDS), collections.defaultdict(list, a=[1]), collections.defaultdict(None),
    collections.Counter("abracadabra"), collections.Counter(), collections.Counter(WORDS), collections.deque(),
    collections.deque([1, 2], maxlen=3), collections.deque(WORDS), collections.UserList([1]),
    collections.ChainMap({1: 2}),
    types.SimpleNamespace(), types.SimpleNamespace(a=1, b=WORDS), types.MappingProxyType({1: WORDS}),
    datetime.datetime(2020, 1, 2), datetime.date(2020, 1, 2), datetime.timedelta(3), decimal.Decimal("1.1"),
    Lines(), [Lines(), Lines()], {"key": Lines()}, {"key": [Lines(), 1, 2]}, Drawn(1, 2), Drawn(*WORDS),
    [Drawn(*WORDS)],
    range(5), slice(1, 2), {"a": 1}.keys(), {"a": 1}.values(), iter([]), zip(), (n for n in ()),
    functools.partial(function, 1),
    super(Plain, PLAIN), memoryview(b"x"), object, type, lambda x, *, y=2: x, property(), staticmethod(function),
    "x" * 200, ["x" * 200], {"k": "x" * 200}, [["x" * 70], ["y" * 70]], {"k" * 70: {"v": 1}}, [[[[[WORDS]]]]],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_looks_as_it_does_in_ipython(value: Any) -> None:
    assert pretty(value) == oracle(value)
    assert pretty([value, {"k": (value,)}]) == oracle([value, {"k": (value,)}])
    assert pretty(value, 30) == oracle(value, max_width=30)


def test_the_environment_looks_as_it_does_in_ipython() -> None:
    assert pretty(os.environ) == oracle(os.environ)


HASHABLE = st.recursive(
    st.integers() | st.text(max_size=30) | st.booleans() | st.none() | st.floats(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)
NESTED = st.recursive(
    HASHABLE | st.binary(max_size=20) | st.builds(Lines) | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(HASHABLE, inner, max_size=5)
        | st.sets(HASHABLE, max_size=5)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(collections.deque)
        | st.lists(inner, max_size=4).map(Quiet)
        | st.lists(inner, max_size=4).map(lambda given: Drawn(*given))
        | st.lists(inner, max_size=3).map(lambda given: Wrong(*given))
        | st.dictionaries(HASHABLE, inner, max_size=4).map(collections.OrderedDict)
        | inner.map(lambda given: types.SimpleNamespace(first=given, second=1))
    ),
    max_leaves=40,
)


@settings(max_examples=400)
@given(NESTED, st.sampled_from([20, 40, 79, 120]))
def test_nested_values_are_laid_out_as_in_ipython(value: Any, width: int) -> None:
    assert pretty(value, width) == oracle(value, max_width=width)
