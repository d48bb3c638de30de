"""Serves `IPython` and what people import below it from our own code, where no other finder has it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

VERSION = "9.0.0+quire.shim"


def install() -> None:
    """Be the last one asked for a module, so that a real IPython always wins."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())


def real() -> bool:
    """Whether a real IPython can be imported."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and not isinstance(finder, _Finder) and find("IPython", None) is not None:
            return True
    return False


def get_ipython() -> Any:
    from quire.worker.shim.shell import current

    return current()


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top not in ("IPython", "matplotlib_inline") or (top != name and not _is_ours(top)):
            return None
        contents = _MODULES.get(name)
        if contents is None:
            raise ModuleNotFoundError(
                f"No module named {name!r}: IPython is not installed here, and what stands in for it has no such part. "
                "Use `%pip install ipython`, then reset the notebook.",
                name=name,
            )
        return importlib.machinery.ModuleSpec(name, _Loader(contents), origin="quire", is_package=_is_package(name))


def _is_ours(top: str) -> bool:
    module = sys.modules.get(top)
    return module is None or getattr(module, "__version__", VERSION) == VERSION


def _is_package(name: str) -> bool:
    return any(each.startswith(f"{name}.") for each in _MODULES)


class _Loader(importlib.abc.Loader):
    def __init__(self, contents: Callable[[], dict[str, Any]]) -> None:
        self._contents = contents

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Python's own will do."""

    def exec_module(self, module: types.ModuleType) -> None:
        module.__doc__ = f"What stands in for {module.__name__} where IPython is not installed."
        module.__dict__.update(self._contents())


def _public(module: types.ModuleType) -> dict[str, Any]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


def _displays() -> dict[str, Any]:
    from quire.worker.shim import displays

    return _public(displays)


def _shell() -> dict[str, Any]:
    from quire.worker.shim import running, shell, surface

    return {
        "InteractiveShell": surface.InteractiveShell,
        "InteractiveShellABC": surface.InteractiveShell,
        "ExecutionResult": running.ExecutionResult,
        "ExecutionInfo": running.ExecutionInfo,
        "ZMQInteractiveShell": shell.Shell,
        "get_ipython": get_ipython,
    }


def _ipython() -> dict[str, Any]:
    from quire.worker.shim.surface import InteractiveShell

    return {
        "__version__": VERSION,
        "version_info": (9, 0, 0, ""),
        "__all__": ["InteractiveShell", "display", "get_ipython", "version_info"],
        "get_ipython": get_ipython,
        "InteractiveShell": InteractiveShell,
        "display": importlib.import_module("IPython.display"),
        "embed": _no_terminal,
        "start_ipython": _no_terminal,
        "start_kernel": _no_terminal,
        "embed_kernel": _no_terminal,
    }


def _no_terminal(*args: Any, **named: Any) -> Any:
    raise RuntimeError("There is no terminal here to put a shell on.")


def _terminal() -> dict[str, Any]:
    """For sympy and others, which ask whether the shell is one of these; none is."""
    from quire.worker.shim.surface import InteractiveShell

    return {"TerminalInteractiveShell": type("TerminalInteractiveShell", (InteractiveShell,), {})}


def _magic() -> dict[str, Any]:
    from quire.worker.shim import magic_api
    from quire.worker.shim.errors import UsageError

    return {**_public(magic_api), "UsageError": UsageError}


def _arguments() -> dict[str, Any]:
    from quire.worker.shim import magic_arguments

    return _public(magic_arguments)


def _struct() -> dict[str, Any]:
    from quire.worker.shim.magic_api import Struct

    return {"Struct": Struct}


def _error() -> dict[str, Any]:
    from quire.worker.shim.errors import StdinNotImplementedError, UsageError

    return {
        "IPythonCoreError": Exception,
        "TryNext": type("TryNext", (Exception,), {}),
        "UsageError": UsageError,
        "StdinNotImplementedError": StdinNotImplementedError,
        "InputRejected": type("InputRejected", (Exception,), {}),
    }


def _formatters() -> dict[str, Any]:
    from quire.worker.shim import formatters

    return {
        "BaseFormatter": formatters.Formatter,
        "DisplayFormatter": formatters.DisplayFormatter,
        "PlainTextFormatter": formatters.PlainText,
        "format_display_data": lambda obj, include=None, exclude=None: get_ipython().display_formatter.format(
            obj, include, exclude
        ),
    }


def _pretty() -> dict[str, Any]:
    from quire.worker.shim import pretty

    return {**_public(pretty), "pretty": pretty.laid_out, "MAX_SEQ_LENGTH": pretty.MAX_SEQ_LENGTH}


def _capture() -> dict[str, Any]:
    from quire.worker.shim import capture

    return {
        "capture_output": capture.capture_output,
        "CapturedIO": capture.CapturedIO,
        "RichOutput": capture.RichOutput,
    }


def _text() -> dict[str, Any]:
    from quire.worker.shim.slist import SList

    return {"SList": SList, "LSString": str}


def _pylab() -> dict[str, Any]:
    from quire.worker.shim.displays import set_matplotlib_formats

    def figsize(sizex: float, sizey: float) -> None:
        importlib.import_module("matplotlib").rcParams["figure.figsize"] = [sizex, sizey]

    return {"backend2gui": {}, "figsize": figsize, "set_matplotlib_formats": set_matplotlib_formats}


def _latex() -> dict[str, Any]:
    from quire.worker.shim.pictures import latex_to_png

    return {"latex_to_png": latex_to_png}


def _inline() -> dict[str, Any]:
    from quire.worker.shim.displays import set_matplotlib_close, set_matplotlib_formats
    from quire.worker.shim.settings import inline

    return {
        "set_matplotlib_formats": set_matplotlib_formats,
        "set_matplotlib_close": set_matplotlib_close,
        "show": _show_figures,
        "flush_figures": _show_figures,
        "FigureCanvas": _canvas(),
        "InlineBackend": types.SimpleNamespace(instance=lambda **named: inline),
    }


def _show_figures(*args: Any, **named: Any) -> None:
    from quire.worker import figures

    figures.flush()


def _canvas() -> Any:
    try:
        return importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg
    except ImportError:
        return None


_MODULES: dict[str, Callable[[], dict[str, Any]]] = {
    "IPython": _ipython,
    "IPython.display": _displays,
    "IPython.core": dict,
    "IPython.core.display": _displays,
    "IPython.core.display_functions": _displays,
    "IPython.core.displaypub": _displays,
    "IPython.core.magic": _magic,
    "IPython.core.magic_arguments": _arguments,
    "IPython.core.page": lambda: {"page": lambda strng, *args, **named: print(strng)},
    "IPython.core.getipython": lambda: {"get_ipython": get_ipython},
    "IPython.core.interactiveshell": _shell,
    "IPython.core.error": _error,
    "IPython.core.formatters": _formatters,
    "IPython.core.pylabtools": _pylab,
    "IPython.lib": dict,
    "IPython.lib.display": _displays,
    "IPython.lib.latextools": _latex,
    "IPython.lib.pretty": _pretty,
    "IPython.terminal": dict,
    "IPython.testing": dict,
    "IPython.testing.skipdoctest": lambda: {"skip_doctest": lambda function: function},
    "IPython.terminal.interactiveshell": _terminal,
    "IPython.utils": dict,
    "IPython.utils.capture": _capture,
    "IPython.utils.io": lambda: {**_capture(), "stdout": sys.stdout, "stderr": sys.stderr},
    "IPython.utils.ipstruct": _struct,
    "IPython.utils.text": _text,
    "matplotlib_inline": lambda: {"__version__": VERSION},
    "matplotlib_inline.backend_inline": _inline,
}
