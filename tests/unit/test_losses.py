"""What is lost is said, once and each time; what a module has by name comes from there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from quire.worker.snapshot import reducers, stream, tombstones
from tests.support.snapshot_stream import again, dump, load, notebook, run


def test_segments_that_are_views_of_memory_load_as_bytes_do() -> None:
    """As they may come from a file: the loader that goes on takes no views."""
    namespace = notebook()
    run("class A:\n    def __setstate__(self, d): raise OSError\na = [1]; bad = A(); bad.k = 1; c = [a]", namespace)
    dumped = dump(namespace)
    loaded, lost = load(dumped, [(name, memoryview(data)) for name, data in dumped.segments])  # type: ignore[misc]
    assert [each.name for each in lost] == ["bad"] and loaded["c"] == [[1]]


def test_what_is_lost_many_times_is_said_once_of_a_variable() -> None:
    namespace = notebook()
    run("class A:\n    def __setstate__(self, d): raise OSError\ndef a(): x = A(); x.k = 1; return x\n", namespace)
    run(
        "many = [a() for _ in range(300)]; other = a()\nimport socket; s = [socket.socket() for _ in range(9)]",
        namespace,
    )
    dumped = dump(namespace)
    assert [each.name for each in dumped.lost] == ["s"]
    assert [each.name for each in load(dumped)[1]] == ["many", "other"]


def test_a_class_that_is_only_half_made_is_a_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = notebook()
    run("class C:\n    def f(self): ...\nc = C(); box = [C, c]; d = [1]", namespace)
    dumped = dump(namespace)
    name = "quire.worker.snapshot.classes.fill_methods"
    monkeypatch.setitem(reducers.REBUILDS, name, lambda cls, attributes: 1 / 0)
    loaded, lost = load(dumped)
    assert all(tombstones.is_tombstone(it) for it in (loaded["C"], loaded["c"], *loaded["box"])) and loaded["d"] == [1]
    assert lost[0].name == "C" and lost[0].what == "class C" and "ZeroDivisionError" in lost[0].why


def test_a_tombstone_inside_a_variable_is_missed_at_every_dump() -> None:
    loaded, first = again("import socket; l = [socket.socket(), 1]; s = socket.socket()")
    second = dump(loaded)
    said = [("l", "a socket"), ("s", "a socket")]
    assert [(each.name, each.what) for each in first.lost] == said == [(each.name, each.what) for each in second.lost]


def test_an_open_transaction_of_a_database_in_memory_is_said_to_be_lost() -> None:
    code = "import sqlite3; con = sqlite3.connect(':memory:'); con.execute('create table t (a)'); con.commit()\n"
    loaded, dumped = again(code + "con.execute('insert into t values (5)')")
    assert loaded["con"].execute("select * from t").fetchall() == [(5,)] and not loaded["con"].in_transaction
    assert [(each.name, each.what) for each in dumped.lost] == [("con", "an open transaction")]
    assert again(code)[1].lost == []


# Modules


def test_what_a_module_has_under_the_same_name_is_had_from_there(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "house.py").write_text(
        "class R:\n    def __reduce__(self): raise TypeError\nroom = R()\nclass S: pass\nstate = S()\nmark = object()"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded, dumped = again("from house import room, state, mark; state.x = 1; other = type(room)(); box = [mark]")
    house = sys.modules.pop("house")
    assert loaded["room"] is house.room and loaded["box"][0] is house.mark
    assert loaded["state"].x == 1, "what a cell put into an object of the user's own module is kept"
    assert [each.name for each in dumped.lost] == ["other"]


def test_a_module_that_no_import_would_find_goes_by_value(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text("n = 1\nclass A:\n    def f(self): return n\n")
    code = "import importlib.util as u, sys\n"
    code += f"spec = u.spec_from_file_location('apart', {str(tmp_path / 'apart.py')!r}); m = u.module_from_spec(spec)\n"
    code += "sys.modules['apart'] = m; spec.loader.exec_module(m); a = m.A(); del spec, u"
    namespace = notebook()
    run(code, namespace)
    dumped = dump(namespace)
    del sys.modules["apart"]
    loaded, lost = load(dumped)
    assert lost == [] and loaded["a"].f() == 1 and type(loaded["a"]) is loaded["m"].A
    loaded["m"].n = 2
    assert loaded["a"].f() == 2


def test_the_notebooks_own_module_is_no_loss_on_trial() -> None:
    namespace = notebook()
    run("import __main__ as me", namespace)
    dumped = dump(namespace)
    reducers.trial_loads.append(True)
    try:
        assert stream.load(dumped.segments, [], {}, sources=lambda name: None) == []
    finally:
        reducers.trial_loads.clear()
