"""Keep debuggers in user code: stepping out of a cell does not lead into the worker."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from quire.worker.execution import errors
from quire.worker.shell import import_hooks


@functools.cache
def keep_out_of_kernel() -> None:
    """For every debugger based on `bdb`, such as pdb and IPython's, once it is imported."""
    import_hooks.after_import("bdb", _pass_over_kernel)


def _pass_over_kernel(bdb: Any) -> None:
    stop_here = bdb.Bdb.stop_here

    def stop_here_unless_kernel(self: Any, frame: types.FrameType) -> bool:
        return not frame.f_code.co_filename.startswith(errors.OWN_FOLDER) and bool(stop_here(self, frame))

    bdb.Bdb.stop_here = stop_here_unless_kernel


def end_steps() -> None:
    """At the end of a cell, stop a debugger that still steps, or it would stop in the next cell."""
    trace = sys.gettrace()
    if trace is not None and any(cls.__module__ == "bdb" for cls in type(getattr(trace, "__self__", None)).__mro__):
        sys.settrace(None)
