"""The surroundings of a namespace, taken in one process and put back in another."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TAKE = """
import pickle, sys
from quire.worker.snapshot import process_state
process_state.remember_initial_state()
exec(compile({code!r}, "cell", "exec"), globals())
with open({file!r}, "wb") as file:
    pickle.dump(process_state.capture(), file)
"""
PUT = """
import json, pickle, sys
from quire.worker.snapshot import process_state
process_state.remember_initial_state()
notes = process_state.restore(pickle.load(open({file!r}, "rb")))
print(json.dumps([notes, eval({check!r})]))
"""


class Two:
    """A process that ends, and one that comes after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.file = folder / "taken"
        self.env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "GIVEN": "from outside"}

    def take(self, code: str) -> None:
        self._run(TAKE.format(code=code, file=str(self.file)))

    def put(self, check: str = "None") -> tuple[list[str], Any]:
        """What could not be put back, and what an expression is then."""
        notes, value = json.loads(self._run(PUT.format(check=check, file=str(self.file))).splitlines()[-1])
        return notes, value

    def _run(self, program: str) -> str:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_of_a_process_nothing_was_done_to_nothing_is_kept(two: Two) -> None:
    two.take("import pickle\nassert process_state.capture()['parts'] == {}, process_state.capture()['parts']")
    assert two.put() == ([], None)


def test_environment_variables_are_set_and_removed_again(two: Two) -> None:
    two.take("import os\nos.environ['NEW'] = 'é'\ndel os.environ['GIVEN']\nos.environ['TZ'] = 'Asia/Tokyo'")
    two.env["OTHER"] = "of the second process"
    names = "[__import__('os').environ.get(n) for n in ('NEW', 'GIVEN', 'OTHER')] + [__import__('time').tzname[0]]"
    assert two.put(names) == ([], ["é", None, "of the second process", "JST"])


def test_the_search_path_has_what_was_added_and_keeps_what_is_its_own(two: Two) -> None:
    two.take("import sys\nsys.path.insert(0, '/front')\nsys.path.append('/back')")
    two.env["PYTHONPATH"] = "/own"
    notes, path = two.put("sys.path")
    assert notes == [] and (path[0], path[-1]) == ("/front", "/back") and "/own" in path
    assert len(path) == len(set(path))


def test_the_current_folder_is_entered_again_and_one_that_is_gone_is_named(two: Two) -> None:
    (two.folder / "deep").mkdir()
    two.take("import os\nos.chdir('deep')")
    assert two.put("__import__('os').getcwd()") == ([], str(two.folder / "deep"))
    (two.folder / "deep").rmdir()
    notes, where = two.put("__import__('os').getcwd()")
    assert len(notes) == 1 and f"{two.folder / 'deep'} cannot be entered" in notes[0] and where == str(two.folder)


def test_random_goes_on_where_it_was(two: Two) -> None:
    two.take(
        "import random, json\nrandom.seed(5)\nrandom.gauss(0, 1)\n"
        "state = random.getstate()\njson.dump([random.gauss(0, 1), random.random()], open('next', 'w'))\n"
        "random.setstate(state)"
    )
    expected = json.loads((two.folder / "next").read_text())
    both = "(lambda r: [r.gauss(0, 1), r.random()])(__import__('random'))"
    assert two.put(both) == ([], expected)


def test_what_the_standard_library_was_told_is_told_again(two: Two) -> None:
    two.take(
        "import decimal, locale, logging, sys, warnings\n"
        "sys.setrecursionlimit(4321)\nlocale.setlocale(locale.LC_ALL, 'C')\n"
        "decimal.getcontext().prec = 7\ndecimal.getcontext().traps[decimal.Inexact] = True\n"
        "logging.getLogger().setLevel('INFO')\nlogging.getLogger('a.b').setLevel('ERROR')\nlogging.disable(10)\n"
        "warnings.filterwarnings('error', message='bad.*', category=UserWarning)"
    )
    check = (
        "(lambda d, l, g, w: [sys.getrecursionlimit(), l.setlocale(l.LC_ALL), d.getcontext().prec,"
        " d.getcontext().traps[d.Inexact], g.getLogger().level, g.getLogger('a.b').level, g.root.manager.disable,"
        " w.filters[0][0], w.filters[0][1].pattern, w.filters[0][2].__name__, len(w.filters) > 1])"
        "(*map(__import__, ('decimal', 'locale', 'logging', 'warnings')))"
    )
    notes, found = two.put(check)
    assert notes == []
    assert found == [4321, "C", 7, True, 20, 40, 10, "error", "bad.*", "UserWarning", True]


def test_settings_of_the_process_are_put_back(two: Two) -> None:
    two.take(
        "import csv, gc, os, signal, socket\n"
        "gc.disable(); gc.set_threshold(500, 5, 5); os.umask(0o027); socket.setdefaulttimeout(7)\n"
        "csv.register_dialect('bars', delimiter='|', strict=True); csv.unregister_dialect('unix')\n"
        "csv.field_size_limit(5000); signal.signal(signal.SIGUSR2, signal.SIG_IGN)"
    )
    check = (
        "(lambda c, g, o, s, t: [g.isenabled(), g.get_threshold(), o.umask(0), c.get_dialect('bars').delimiter,"
        " c.get_dialect('bars').strict, c.list_dialects(), c.field_size_limit(),"
        " s.getsignal(s.SIGUSR2).name, t.getdefaulttimeout()])"
        "(*map(__import__, ('csv', 'gc', 'os', 'signal', 'socket')))"
    )
    notes, found = two.put(check)
    assert notes == []
    assert found == [False, [500, 5, 5], 0o027, "|", True, ["excel", "excel-tab", "bars"], 5000, "SIG_IGN", 7.0]


def test_settings_of_standard_modules_are_put_back(two: Two) -> None:
    two.take(
        "import decimal, faulthandler, logging, mimetypes, resource, sys, threading, tracemalloc, builtins\n"
        "sys.setswitchinterval(0.1); threading.stack_size(1 << 20); logging.addLevelName(15, 'TRACE')\n"
        "logging.addLevelName(logging.INFO, 'info'); logging.addLevelName(logging.INFO, 'note')\n"
        "mimetypes.add_type('text/x-mine', '.mine'); mimetypes.add_type('text/x-odd', '.quire', strict=False)\n"
        "tracemalloc.start(3); faulthandler.enable(); logging.captureWarnings(True); builtins.answer = 42\n"
        "decimal.getcontext(); decimal.DefaultContext.prec = 9; decimal.DefaultContext.traps[decimal.Inexact] = True\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"
    )
    check = (
        "(lambda d, f, l, m, r, s, t, a, w: [round(s.getswitchinterval(), 6), t.stack_size(),"
        " [l.getLevelName(n) for n in (15, 20, 30)], [l.getLevelNamesMapping()[n] for n in ('TRACE', 'info', 'note')],"
        " m.guess_type('a.mine'), m.guess_type('a.quire'), m.guess_type('a.quire', strict=False)[0],"
        " a.get_traceback_limit() if a.is_tracing() else 0, f.is_enabled(), w.showwarning.__module__, answer,"
        " d.DefaultContext.prec, d.DefaultContext.traps[d.Inexact], d.getcontext().prec,"
        " r.getrlimit(r.RLIMIT_NOFILE)[0]])(*map(__import__, ('decimal', 'faulthandler', 'logging', 'mimetypes',"
        " 'resource', 'sys', 'threading', 'tracemalloc', 'warnings')))"
    )
    notes, found = two.put(check)
    assert notes == []
    assert found[:4] == [0.1, 1 << 20, ["TRACE", "note", "WARNING"], [15, 20, 20]]
    assert found[4:7] == [["text/x-mine", None], [None, None], "text/x-odd"]
    assert found[7:] == [3, True, "logging", 42, 9, True, 28, 200]


def test_code_that_is_hung_into_the_process_is_named(two: Two) -> None:
    two.take(
        "import builtins, logging, sys, threading, warnings\n"
        "sys.excepthook = threading.excepthook = lambda *given: None\n"
        "warnings.showwarning = lambda *given: None\n"
        "builtins.helper = lambda: 1\nbuiltins.print = lambda *given: None\n"
        "logging.getLogger('mine.log').addHandler(logging.StreamHandler())\n"
        "logging.getLogger('quiet').addHandler(logging.NullHandler())"
    )
    assert two.put()[0] == [
        "Handlers of the logger mine.log are not kept; add them again.",
        "sys.excepthook is code and was not kept; set it again.",
        "threading.excepthook is code and was not kept; set it again.",
        "warnings.showwarning is code and was not kept; set it again.",
        "builtins.print was not kept; set it again.",
        "builtins.helper was not kept; set it again.",
    ]


def test_what_a_library_adds_by_itself_is_not_named(two: Two) -> None:
    (two.folder / "library.py").write_text(
        "import builtins, logging\nlogging.getLogger('library').addHandler(logging.StreamHandler())\n"
        "builtins.of_library = lambda: 1\nimport sys, warnings\ndef hook(*given): pass\n"
        "sys.excepthook = warnings.formatwarning = hook"
    )
    two.take("import library")
    assert two.put() == ([], None)


def test_a_limit_that_is_not_allowed_is_named(two: Two) -> None:
    two.take("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (200, 1000))")
    taken = pickle.loads(two.file.read_bytes())
    taken["parts"]["limits of the process"] = {"NOFILE": 1 << 40}
    two.file.write_bytes(pickle.dumps(taken))
    (note,), _ = two.put()
    assert note.startswith("The limit RLIMIT_NOFILE was 1099511627776, which is not allowed now; it stays ")


def test_handlers_of_signals_and_adapters_of_sqlite_are_named(two: Two) -> None:
    two.take(
        "import signal, sqlite3\nclass Point: pass\nsqlite3.register_adapter(Point, str)\n"
        "sqlite3.register_converter('point', bytes)\nsignal.signal(signal.SIGUSR1, lambda number, frame: None)"
    )
    assert two.put()[0] == [
        "The handler of SIGUSR1 is code and was not kept; call signal.signal again.",
        "sqlite3's adapter for Point is code and was not kept; register it again.",
        "sqlite3's converter POINT is code and was not kept; register it again.",
    ]


def test_standard_modules_that_are_only_imported_leave_nothing(two: Two) -> None:
    two.take(
        "import csv, decimal, faulthandler, logging.handlers, mimetypes, signal, socket, sqlite3, tracemalloc\n"
        "mimetypes.guess_type('a.txt'); decimal.getcontext()\n"
        "assert process_state.capture()['parts'] == {}, process_state.capture()"
    )
    assert two.put() == ([], None)


def test_a_filter_that_is_put_back_works_at_once(two: Two) -> None:
    two.take("import warnings\nwarnings.simplefilter('error', FutureWarning)")
    program = "(lambda w: [w.warn('x', FutureWarning)])(__import__('warnings'))"
    with pytest.raises(AssertionError, match="FutureWarning: x"):
        two.put(program)


def test_what_only_code_could_say_is_named(two: Two) -> None:
    two.take(
        "import logging, warnings\nlogging.basicConfig()\n"
        "class Mine(UserWarning): pass\nwarnings.simplefilter('ignore', Mine)"
    )
    notes, _ = two.put()
    assert len(notes) == 2 and "logging.basicConfig again" in notes[0] and "__main__.Mine was not put back" in notes[1]


def test_modules_are_imported_again_with_what_was_loaded_of_their_packages(two: Two) -> None:
    (two.folder / "pack").mkdir()
    for name in ("__init__", "named", "other"):
        (two.folder / "pack" / f"{name}.py").write_text("")
    (two.folder / "helper.py").write_text("def f(): pass")
    (two.folder / "unused.py").write_text("")
    two.take("import pack.named\nfrom helper import f\nimport json as j\nimport unused\ndel unused")
    names = ("pack", "pack.named", "pack.other", "helper", "json", "unused")
    assert two.put(f"[n in sys.modules for n in {names}]") == ([], [True, True, False, True, True, False])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "The module helper could not be imported (ModuleNotFoundError: No module named 'helper')."),
        ("1 / 0", "The module helper could not be imported (ZeroDivisionError: division by zero)."),
        ("import sys; sys.exit(3)", "The module helper could not be imported (SystemExit: 3)."),
        ("__version__ = '2.0'", "helper is 2.0 now, was 1.0."),
        ("__version__ = '1.0'", None),
    ],
)
def test_a_module_that_is_gone_fails_or_is_another_is_named_and_costs_nothing_else(
    two: Two, source: str | None, said: str | None
) -> None:
    helper = two.folder / "helper.py"
    helper.write_text("__version__ = '1.0'")
    (two.folder / "later.py").write_text("")
    two.take("import helper, later\nimport os\nos.environ['NEW'] = '1'")
    if source is None:
        helper.unlink()
    else:
        helper.write_text(source)
    notes, rest = two.put("['later' in sys.modules, __import__('os').environ['NEW']]")
    assert notes == ([said] if said else []) and rest == [True, "1"]


def test_an_interrupt_while_a_module_loads_ends_the_restore(two: Two) -> None:
    helper = two.folder / "helper.py"
    helper.write_text("")
    two.take("import helper")
    helper.write_text("raise KeyboardInterrupt")
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        two.put()


def test_another_python_is_named() -> None:
    from quire.worker.snapshot import process_state

    captured = {"python": [3, 1, 4], "parts": {}, "imports": [], "versions": {}, "notes": []}
    major, minor = sys.version_info[:2]
    assert process_state.restore(captured) == [f"Python is {major}.{minor} now, was 3.1."]


def test_a_part_that_fails_costs_itself_only(two: Two) -> None:
    two.take("import os, sys\nsys.setrecursionlimit(4321)\nos.environ['NEW'] = '1'\nsys.path.append('/back')")
    taken = pickle.loads(two.file.read_bytes())
    taken["parts"]["environment"] = 7
    two.file.write_bytes(pickle.dumps(taken))
    notes, rest = two.put("['/back' in sys.path, sys.getrecursionlimit()]")
    assert len(notes) == 1 and notes[0].startswith("The environment could not be put back (TypeError")
    assert rest == [True, 4321]


def test_numpy_goes_on_with_its_options_and_its_numbers(two: Two, science: None) -> None:
    two.take(
        "import numpy, json\nnumpy.set_printoptions(precision=3)\nnumpy.seterr(divide='raise')\nnumpy.random.seed(7)\n"
        "numpy.random.normal()\nstate = numpy.random.get_state()\n"
        "json.dump([numpy.random.normal(), numpy.random.rand()], open('next', 'w'))\nnumpy.random.set_state(state)"
    )
    check = (
        "(lambda n: [n.get_printoptions()['precision'], n.geterr()['divide'], n.random.normal(), n.random.rand()])"
        "(__import__('numpy'))"
    )
    assert two.put(check) == ([], [3, "raise", *json.loads((two.folder / "next").read_text())])


def test_options_of_pandas_and_settings_of_matplotlib_are_put_back_and_code_among_them_is_named(
    two: Two, science: None
) -> None:
    two.take(
        "import pandas, matplotlib\nimport matplotlib.pyplot as plt\n"
        "pandas.set_option('display.max_rows', 7)\npandas.set_option('display.float_format', lambda x: 'x')\n"
        "plt.rcParams['lines.linewidth'] = 4\nplt.rcParams['axes.prop_cycle'] = plt.cycler(color=['r', 'g'])\n"
        "plt.rcParams['lines.solid_joinstyle'] = 'bevel'\n"
        "taken = process_state.capture()['parts']\n"
        "assert set(taken['settings of matplotlib']) == "
        "{'lines.linewidth', 'axes.prop_cycle', 'lines.solid_joinstyle'}, taken\n"
        "assert set(taken['options of pandas']) == {'display.max_rows', ''}, taken"
    )
    check = (
        "(lambda p, m: [p.get_option('display.max_rows'), m.rcParams['lines.linewidth'],"
        " m.rcParams['axes.prop_cycle'].by_key(), str(m.rcParams['lines.solid_joinstyle'].value)])"
        "(*map(__import__, ('pandas', 'matplotlib')))"
    )
    notes, found = two.put(check)
    assert notes == ["pandas's option display.float_format is code and was not kept."]
    assert found == [7, 4, {"color": ["r", "g"]}, "bevel"]


def test_what_matplotlib_changes_in_itself_for_polar_bars_is_put_back(two: Two, science: None) -> None:
    two.take("from matplotlib.path import Path\nPath.unit_rectangle()._interpolation_steps = 100")
    check = "__import__('matplotlib.path').path.Path.unit_rectangle()._interpolation_steps"
    assert two.put(check) == ([], 100)


def test_the_precision_of_mpmath_is_put_back(two: Two) -> None:
    pytest.importorskip("mpmath")
    two.take("import mpmath\nmpmath.mp.dps = 50")
    assert two.put("__import__('mpmath').mp.dps") == ([], 50)


def test_what_is_kept_is_plain_data_and_no_library_is_loaded_by_looking(two: Two) -> None:
    two.take(
        "import os, pickletools\nos.environ['A'] = '1'\nimport random, warnings\nrandom.seed(1)\n"
        "warnings.simplefilter('error')\nbefore = set(sys.modules)\n"
        "data = pickle.dumps(process_state.capture())\n"
        "assert not {'numpy', 'pandas', 'matplotlib', 'decimal'} & set(sys.modules)\n"
        "codes = {op.name for op, _, _ in pickletools.genops(data)}\n"
        "assert not codes & {'GLOBAL', 'STACK_GLOBAL', 'REDUCE'}, codes"
    )
    assert two.put()[0] == []
