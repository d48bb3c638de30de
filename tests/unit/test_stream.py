"""A namespace through the stream: what is shared stays shared, what fails costs itself only, the format is frozen."""

from __future__ import annotations

import math
import pickle
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from quire.worker.snapshot import functions, loading, reducers, stream, tombstones
from tests.support.snapshot_stream import ROOT, again, dump, in_a_child, load, notebook, run

# Sharing


def test_what_variables_share_they_share_after_a_load() -> None:
    loaded, _ = again("a = [1]; b = {'a': a}; c = (a, b)\ndef f(x=a): return x\nclass K: held = b\nk = K(); k.c = c")
    assert loaded["b"]["a"] is loaded["a"] is loaded["c"][0] is loaded["f"]()
    assert loaded["K"].held is loaded["b"] and loaded["k"].c is loaded["c"]
    assert loaded["f"].__globals__ is loaded


def test_numbers_that_are_none_stay_the_same_objects() -> None:
    loaded, _ = again(
        "import math\na = float('nan'); b = float('nan'); c = -a; m = math.nan\n"
        "held = [a, math.nan, {'k': a}]; key = {a: 1}"
    )
    a, held = loaded["a"], loaded["held"]
    assert held[0] is a is held[2]["k"] and loaded["key"][a] == 1 and a in [a] and a in held
    assert held[1] is loaded["m"] is math.nan
    assert loaded["b"] is not a and loaded["c"] is not a and math.copysign(1, loaded["c"]) == -1
    assert all(each != each for each in (a, loaded["b"], loaded["c"]))


def test_what_a_module_of_the_user_has_it_shares_after_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "options_of_mine.py").write_text("S = {'a': 1}\nOWN = [0]\ndef get(): return S\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "options_of_mine", raising=False)
    namespace = notebook()
    run("import options_of_mine as m1\nfrom options_of_mine import S\nS['b'] = 2; x = [m1.S]", namespace)
    dumped = dump(namespace)
    del sys.modules["options_of_mine"]
    loaded, lost = load(dumped)
    again = sys.modules["options_of_mine"]
    assert lost == [] and set(loaded) >= {"m1", "S", "x"} and not any(name.startswith("<") for name in loaded)
    assert loaded["m1"] is again and again.S is loaded["S"] is loaded["x"][0] is again.get() == {"a": 1, "b": 2}
    assert again.OWN == [0]


def test_views_over_variables_and_inside_objects_share_memory_again(science: None) -> None:
    loaded, dumped = again("import numpy as np\na = np.arange(50_000.); box = {'v': a[::2]}; c = a.reshape(100, 500).T")
    loaded["a"][0] = 7
    assert loaded["box"]["v"][0] == 7 and loaded["c"][0, 0] == 7
    assert [each.nbytes for each in dumped.buffers] == [400_000]
    assert dumped.owners[0] is not None and dumped.buffers[0].format == "B"
    second = load(dump(loaded))[0]
    second["a"][2] = 9
    assert second["box"]["v"][1] == 9


def test_segments_come_in_the_order_of_the_namespace_and_progress_is_told_first() -> None:
    told: list[str] = []
    _, dumped = again("z = 1; a = 2; m = 3", progress=told.append)
    assert [name for name, _ in dumped.segments] == ["z", "a", "m"] == told


def grown(seed: int) -> dict[str, Any]:
    """Variables over one random graph of containers, instances and closures, with cycles."""
    chance = random.Random(seed)
    namespace = notebook()
    run(
        "class A: pass\nclass S:\n    __slots__ = ('x', 'y')\ndef shut(v):\n    def get(): return v\n    return get",
        namespace,
    )
    things: list[Any] = [chance.choice([chance.randrange(99), f"s{chance.random()}", 1.5, None]) for _ in range(8)]
    for _ in range(60):
        some = chance.choices(things, k=chance.randrange(4))
        match chance.randrange(7):
            case 0:
                things.append(list(some))
            case 1:
                things.append({f"k{at}": each for at, each in enumerate(some)})
            case 2:
                things.append(tuple(some))
            case 3:
                things.append(namespace["A"]())
                things[-1].__dict__.update({f"a{at}": each for at, each in enumerate(some)})
            case 4:
                things.append(namespace["S"]())
                things[-1].x = some
            case 5:
                things.append(namespace["shut"](some))
            case 6:
                things.append({each for each in some if isinstance(each, (int, str, float))})
    for thing in things:  # cycles
        if type(thing) is list and chance.random() < 0.5:
            thing.append(chance.choice(things))
    namespace.update({f"v{at}": thing for at, thing in enumerate(chance.sample(things, 12))})
    return namespace


def shape(namespace: dict[str, Any]) -> list[Any]:
    """The graph in words: each thing by its kind, its plain value and the numbers of its parts."""
    numbers: dict[int, int] = {}
    said: list[Any] = []
    waiting: list[Any] = [namespace[name] for name in sorted(namespace) if name.startswith("v")]
    held: list[Any] = []

    def number(thing: Any) -> Any:
        if type(thing) in (int, str, float, type(None)):
            return repr(thing)
        if id(thing) not in numbers:
            numbers[id(thing)] = len(numbers)
            waiting.append(thing)
            held.append(thing)
        return numbers[id(thing)]

    said.append([number(each) for each in list(waiting)])
    del waiting[: len(said[0])]
    while waiting:
        thing = waiting.pop(0)
        said.append((type(thing).__name__, [number(part) for part in parts(thing)]))
    return said


def parts(thing: Any) -> list[Any]:
    if type(thing) is set:
        return sorted(thing, key=repr)
    if type(thing) in (list, tuple):
        return list(thing)
    if type(thing) is dict:
        return [each for item in thing.items() for each in item]
    if isinstance(thing, types.FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    if hasattr(thing, "__dict__"):
        return [each for item in vars(thing).items() for each in item]
    return [thing.x] if hasattr(thing, "x") else []


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_has_the_same_shape_after_a_load(seed: int) -> None:
    before = grown(seed)
    dumped = dump(before)
    assert dumped.lost == []
    plain, lost = load(dumped)
    assert lost == [] and shape(plain) == shape(before)
    from quire.worker.snapshot import lenient_loading

    patient = notebook()
    assert lenient_loading.load_leniently(dumped.segments, [], patient) == []
    assert shape(patient) == shape(before)


# What fails


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError(1)",
        "raise SystemExit",
        "raise KeyboardInterrupt",
        "return 3",
        "return (1,)",
        "return (1, 2)",
        "return ('x', ())",
        "return (list, 5)",
        "return (list, (), None, 3)",
        "return (dict, (), None, None, iter([1]))",
        "return 'os.nothing'",
        "def g():\n            yield 1\n            raise OSError\n        return (list, (), None, g())",
        "import copyreg; return (copyreg.__newobj__, (int,))",
        "return 1 / 0",
    ],
)
def test_an_object_that_cannot_be_reduced_costs_itself_only(body: str) -> None:
    code = f"class Bad:\n    def __reduce__(self):\n        {body}\na = [1, Bad(), 3]; b = a[0]; bad = a[1]"
    loaded, dumped = again(code)
    assert loaded["a"][0] == 1 and loaded["a"][2] == 3 and tombstones.is_tombstone(loaded["a"][1])
    assert loaded["bad"] is loaded["a"][1]
    assert [each.name for each in dumped.lost] == ["a"]


def test_a_variable_that_fails_as_a_whole_costs_itself_only() -> None:
    code = (
        "class L(list):\n    def __reduce_ex__(self, p): return (L, (), None, iter(self))\na = [1]; bad = L([a]); c = a"
    )
    namespace = notebook()
    run(code, namespace)
    namespace["bad"].append(pickle.PickleBuffer(memoryview(b"abcdef")[::2]))
    dumped = dump(namespace)
    loaded, _ = load(dumped)
    assert tombstones.is_tombstone(loaded["bad"]) and loaded["c"] is loaded["a"] == [1]


def test_refused_variables_are_tombstones_that_say_why() -> None:
    loaded, dumped = again("a = [1]; b = [a]", refused={"a": "it took too long"})
    assert loaded["b"] == [[1]]
    assert [(each.name, each.why) for each in dumped.lost] == [("a", "it took too long")]
    with pytest.raises(RuntimeError, match="a was a list; it took too long"):
        len(loaded["a"])


def test_what_does_not_fit_is_a_tombstone_that_says_its_size() -> None:
    loaded, dumped = again("a = b'x' * 1000; b = b'y' * 50_000; c = b'z' * 1000; d = [b, 1]", limit=10_000)
    assert len(loaded["a"]) == len(loaded["c"]) == 1000
    assert [each.name for each in dumped.lost] == ["b", "d"]
    assert "50,0" in dumped.lost[0].why and "10,000" in dumped.lost[0].why


def test_a_list_a_hundred_thousand_deep_is_kept() -> None:
    code = "deep = []\nfor _ in range(100_000): deep = [deep]\nclass N: pass\nnode = None\n"
    code += "for i in range(100_000):\n    n = N(); n.next = node; n.i = i; node = n\ndel n"

    def body() -> str:
        loaded, dumped = again(code)
        if sys.version_info[:2] in ((3, 12), (3, 13)):  # their C code has a limit of its own
            return "" if {each.name for each in dumped.lost} == {"deep", "node"} else "kept in part"
        depth, deep, count, node = 0, loaded["deep"], 0, loaded["node"]
        while deep:
            depth, deep = depth + 1, deep[0]
        while node is not None:
            count, node = count + 1, node.next
        return f"{depth} {count}"

    assert in_a_child(body) in ("100000 100000", "")


# Loading what is not what it was


def test_a_segment_that_cannot_be_read_costs_itself_only() -> None:
    namespace = notebook()
    run("a = [1]; b = [a, [2]]; c = [a, 3]; d = c", namespace)
    dumped = dump(namespace)
    torn = [(name, data[:-2] + b"R." if name == "a" else data) for name, data in dumped.segments]
    loaded, lost = load(dumped, torn)
    assert {each.name for each in lost} == {"a"} and tombstones.is_tombstone(loaded["a"])
    assert loaded["b"][1] == [2] and loaded["c"][1] == 3 and loaded["d"] is loaded["c"]


def test_where_bytes_are_torn_what_may_refer_to_them_is_gone_too() -> None:
    namespace = notebook()
    run("z = [0]; a = [1]; b = [a, [2]]", namespace)
    dumped = dump(namespace)
    loaded, lost = load(dumped, [(name, b"~~~~" if name == "a" else data) for name, data in dumped.segments])
    assert loaded["z"] == [0] and [each.name for each in lost] == ["a", "b"]


def test_what_belongs_to_a_thread_is_asked_for_there_when_another_must_write() -> None:
    code = "import sqlite3, threading; con = sqlite3.connect(':memory:'); con.execute('create table t (a)')\n"
    code += "loc = threading.local(); loc.x = 4; lock = threading.RLock(); lock.acquire()\n"
    code += "deep = []\nfor _ in range(3000): deep = [deep]"
    loaded, dumped = again(code)
    assert {each.name for each in dumped.lost} <= {"deep"} and loaded["loc"].x == 4  # 3.12 has a limit of its own
    assert loaded["con"].execute("select count(*) from t").fetchone() == (0,)
    loaded["lock"].release()


def test_a_library_that_is_gone_costs_its_objects_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "goner.py").write_text("class G:\n    pass\ndef f(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    namespace = notebook()
    run("import goner; l = [1]; g = goner.G(); g.l = l; mix = [l, g, goner.f, goner.G]; after = {'l': l}", namespace)
    dumped = dump(namespace)
    (tmp_path / "goner.py").unlink()
    monkeypatch.delitem(sys.modules, "goner")
    loaded, lost = load(dumped)
    assert loaded["after"]["l"] is loaded["l"] is loaded["mix"][0]
    assert [tombstones.is_tombstone(each) for each in loaded["mix"]] == [False, True, True, True]
    assert {each.name for each in lost} == {"goner", "g", "mix"}
    with pytest.raises(RuntimeError, match="goner"):
        loaded["goner"].G()


def test_a_state_that_needs_what_comes_later_is_set_in_the_end() -> None:
    code = "class A:\n    def __setstate__(self, d): self.k = later(d['k'])\na = A(); a.k = 1; box = [a]\n"
    loaded, _ = again(code + "def later(x): return x + 1")
    assert loaded["a"].k == 2 and loaded["box"][0] is loaded["a"]
    namespace = notebook()
    run(code + "b = [3]", namespace)
    loaded, lost = load(dump(namespace))
    assert tombstones.is_tombstone(loaded["a"]) and loaded["box"][0] is loaded["a"] and loaded["b"] == [3]
    assert [each.name for each in lost] == ["a"] and "later" in lost[0].why


def test_code_of_another_python_is_compiled_from_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "k = 2\ndef f(x):\n    return [y * k for y in x]\nclass C:\n    def m(self): return lambda: 5\ng = C().m()"
    namespace = notebook()
    run(code, namespace)
    monkeypatch.setattr(functions, "_MAGIC", b"other")
    dumped = dump(namespace)
    monkeypatch.undo()
    loaded = notebook()
    assert stream.load(dumped.segments, [], loaded, sources={"<cell 1, run 1>": code}.get) == []
    assert loaded["f"]([1, 2]) == [2, 4] and loaded["g"]() == 5 and loaded["C"]().m()() == 5
    loaded = notebook()
    lost = stream.load(dumped.segments, [], loaded, sources=lambda name: None)
    assert {each.name for each in lost} >= {"f"} and tombstones.is_tombstone(loaded["f"])


# The format


def test_it_works_where_quire_cannot_be_imported(tmp_path: Path) -> None:
    """As in a worker: the package is gone from sys.modules once ours is loaded, and no such package is on the path."""
    cell = "import socket, pickle\nclass A: pass\na = A(); f = lambda: a; s = socket.socket(); l = [s, 1]"
    script = f"""
import sys, types
house = types.ModuleType("quire"); house.__path__ = [{str(ROOT / "src" / "quire")!r}]; sys.modules["quire"] = house
from quire.worker.snapshot import stream, tombstones
del sys.modules["quire"]
main = sys.modules["__main__"].__dict__
exec(compile({cell!r}, "<cell 1, run 1>", "exec"), main)
values = {{name: main[name] for name in ("A", "a", "f", "s", "l")}}
done = stream.dump(values, main, refused={{}}, limit=1 << 30, progress=lambda name: None)
assert "quire" not in sys.modules and [each.name for each in done.lost] == ["s"], done.lost
into = {{"__builtins__": __builtins__, "__name__": "__main__"}}
assert stream.load(done.segments, [], into, sources=lambda name: None) == []
assert into["f"]() is into["a"] and into["l"][0] is into["s"]
assert repr(pickle.loads(pickle.dumps(into["s"]))) == repr(into["s"])
torn = [(name, data[:-1] + b"R." if name == "a" else data) for name, data in done.segments]
lost = stream.load(torn, [], into, sources=lambda name: None)
assert [each.name for each in lost] == ["a"] and tombstones.is_tombstone(into["a"]) and into["l"][1] == 1
"""
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert found.returncode == 0, found.stderr


FORMAT_1 = """
classes.fill_class classes.fill_methods classes.make_class classes.type_of_singleton concurrency.fill_context
concurrency.fill_context_variable concurrency.fill_future concurrency.fill_local concurrency.fill_simple_queue
concurrency.fill_thread concurrency.make_context concurrency.make_context_variable concurrency.make_future
concurrency.make_local concurrency.make_lock concurrency.make_loop concurrency.make_pool
concurrency.make_rlock concurrency.make_simple_queue concurrency.make_thread concurrency.make_workers
files.closed_file files.fill_coded files.make_coded files.make_directory files.make_temporary
files.make_unnamed files.open_again files.open_gzip files.open_zip functions.attribute_of
functions.attributes_of functions.descriptor_of functions.fill_cell functions.fill_function
functions.fill_module functions.import_module functions.main_module functions.make_cell functions.make_code
functions.make_function functions.make_method functions.make_module functions.scope_of iterators.begin
iterators.fill_weak iterators.finished_generator iterators.make_finalizer iterators.make_key
iterators.make_pairs iterators.make_reference iterators.make_weak libraries.fill_array libraries.fill_index
libraries.fill_objects libraries.make_array libraries.make_array_over libraries.make_array_view
libraries.make_block libraries.make_client libraries.make_masked libraries.make_objects libraries.make_refs
libraries.make_single libraries.make_ufunc libraries.open_archive libraries.open_map loading.gone
reducers.bare reducers.named reducers.set_state references.held resources.closed_connection resources.connect
resources.fill_connection resources.fill_logger resources.get_logger resources.last_resort resources.make_map
resources.make_process resources.make_row resources.map_again standard.builtin standard.dict_of_class
standard.fill_cached standard.fill_exception standard.make_alias standard.make_cached standard.make_exception
standard.make_variable standard.make_view standard.match_again standard.module_object standard.view_of
"""


def test_the_names_of_format_1_all_lead_somewhere() -> None:
    """A stream names these functions: one may be added or moved (see loading.MOVED), none may go."""
    house = "quire.worker.snapshot."
    known = {name.removeprefix(house) for name in (*reducers.REBUILDS, *loading.MOVED)}
    assert set(FORMAT_1.split()) <= known, "a name of format 1 is gone: old snapshots could not be read"
    assert known <= set(FORMAT_1.split()), "a new name: freeze it here"
    assert list(loading.known_objects({})) == [
        *("namespace", "builtins", "modules", "path", "argv", "stdin", "stdout", "stderr", "environ", "random"),
    ]
