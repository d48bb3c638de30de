"""What stands in the place of something that was not kept."""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from quire.worker.snapshot import tombstones
from tests.support.snapshot_stream import dump, load

USES: list[Callable[[Any], Any]] = [
    lambda t: t.x, lambda t: t(), iter, len, bool, lambda t: t + 1, lambda t: 1 + t, lambda t: t[0], lambda t: t == 1,
    lambda t: t < 1, lambda t: 1 in t, lambda t: setattr(t, "a", 1), float, lambda t: f"{t:>5}",
    lambda t: types.new_class("C", (t,)), next, lambda t: t.__enter__(),
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_any_use_of_a_tombstone_says_what_it_was(use: Callable[[Any], Any]) -> None:
    stone = tombstones.make_tombstone("a suspended generator", "generators cannot be saved")
    tombstones.set_location(stone, "gen", "cell 3")
    with pytest.raises(RuntimeError) as raised:
        use(stone)
    assert str(raised.value) == "gen was a suspended generator; generators cannot be saved. Run cell 3 again."
    assert type(raised.value).__module__ == "builtins"


def test_a_tombstone_can_be_looked_at_and_kept() -> None:
    stone = tombstones.make_tombstone("a socket", "a connection cannot be saved", "s", "cell 1")
    assert "s was a socket" in repr(stone) and hash(stone) == hash(stone) and not isinstance(stone, int)
    assert stone == stone and repr(pickle.loads(pickle.dumps(stone))) == repr(stone)
    namespace = {"s": stone, "both": [stone, stone]}
    loaded, _ = load(dump(namespace))
    assert repr(loaded["s"]) == repr(stone) and loaded["both"][0] is loaded["s"]


def test_a_class_under_a_tombstone_is_one_too() -> None:
    made = sys.modules["quire.worker.snapshot.classes"].make_class
    stone = tombstones.make_tombstone("class A", "it is gone")
    assert tombstones.is_tombstone(made(type, "B", "B", "__main__", (stone,), {}))


OLD_MODULE = "quire.worker.shim.slist"  # version 0.1 had it, for interpreters without IPython


def test_objects_of_classes_that_quire_had_before_are_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(OLD_MODULE)
    exec(
        "class SList(list): pass\ndef current(): pass\nclass Shell:\n  def __reduce__(self): return current, ()",
        vars(module),
    )
    for name in ("quire.worker.shim", OLD_MODULE):
        monkeypatch.setitem(sys.modules, name, module)
    lines = module.SList(["a"])
    dumped = dump({"lines": lines, "both": [lines, 1], "shell": module.Shell(), "kept": {"a": 1}})
    for name in ("quire.worker.shim", OLD_MODULE):
        monkeypatch.delitem(sys.modules, name)
    loaded, lost = load(dumped)
    assert tombstones.is_tombstone(loaded["lines"]) and tombstones.is_tombstone(loaded["shell"])
    assert loaded["both"][0] is loaded["lines"] and loaded["both"][1] == 1 and loaded["kept"] == {"a": 1}
    assert {each.name for each in lost} >= {"lines", "shell"}
    with pytest.raises(RuntimeError, match=r"SList; .*this version of Quire has no"):
        loaded["lines"].grep("a")
