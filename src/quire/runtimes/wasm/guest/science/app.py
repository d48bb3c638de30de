"""The program in the interpreter that has the libraries inside: set up once, then asked one request at a time."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import sys
import traceback
from typing import Any

import _host  # type: ignore[import-not-found]  # the interpreter's own way out: bytes there, bytes back

from quire.runtimes.wasm.guest import absent, asynchronous, kernel, library
from quire.runtimes.wasm.guest.files import open_numbers

_SAID, _ASK, _ANSWER = b"s", b"?", b"a"
_FOLDERS = 4  # that are open when it is set up
_OFTEN = """
    numpy numpy.fft numpy.linalg numpy.random pandas matplotlib.pyplot
    scipy.integrate scipy.interpolate scipy.optimize scipy.signal scipy.stats
    sklearn.cluster sklearn.datasets sklearn.decomposition sklearn.ensemble sklearn.linear_model sklearn.metrics
    sklearn.model_selection sklearn.pipeline sklearn.preprocessing
"""
_TRIED = (
    "import numpy as np\nnp.arange(6.0).reshape(2, 3) @ np.ones((3, 2))",
    "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\ndf.groupby('b').sum(); df.describe()",
    "from sklearn.linear_model import LinearRegression\nLinearRegression().fit([[1], [2]], [1, 2]).predict([[3]])",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.title('a')",
)


def _say(said: str) -> str:
    answer: bytes = _host.call(_SAID + said.encode())
    return answer.decode()


def prepare() -> None:
    """Tell the host the address of the function that takes a request from then on, or what went wrong."""
    try:
        _load()
        told: dict[str, object] = {"step": id(step)}
    except BaseException:
        told = {"failed": traceback.format_exc()}
    _say(json.dumps(told))


def _load() -> None:
    absent.install(_has)
    sys.stdlib_module_names -= {name for name in absent.WHY if not _has(name)}  # or tracebacks say other words of them
    asynchronous.install()
    _without_advice()
    os.environ["MPLBACKEND"] = "module://quire.runtimes.wasm.guest.figures"
    for name in _OFTEN.split():
        importlib.import_module(name)
    del os.environ["MPLBACKEND"]  # read when it loaded
    kernel.warm_up(*_TRIED)
    _take.append(kernel.Kernel(_say))
    library.load_what_is_often_used()
    _finish()


def _without_advice() -> None:
    """It was started without site-packages, which tracebacks would blame for every module that is not there."""
    make = traceback.TracebackException.__init__

    def made(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        if isinstance(self._str, str):
            self._str = self._str.partition(". Site initialization is disabled")[0]

    traceback.TracebackException.__init__ = made  # type: ignore[method-assign]


def _has(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


_take: list[kernel.Kernel] = []


def step() -> None:
    """One request, taken from the host and answered to it."""
    request: str = _host.call(_ASK).decode()
    answer = _take[0].handle(request)
    if request.startswith('{"say":"Enter"'):
        sys.modules["numpy.random"].seed()  # other dice, too
    _host.call(_ANSWER + answer.encode())


def _finish() -> None:
    """Nothing of the folders it was set up from is looked for any more, and what is there for all lies together."""
    sys.path[:] = ["", *(each for each in sys.path if each.endswith(".zip"))]
    sys.argv = [""]
    sys.dont_write_bytecode = True  # a workspace is not for our files
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    font_manager = importlib.import_module("matplotlib.font_manager")
    font_manager._get_font.cache_clear()  # each has its file open
    gc.collect()
    if left := list(open_numbers(3 + _FOLDERS)):
        raise RuntimeError(f"{len(left)} files were left open")
    library.fill_gaps()
    gc.freeze()
