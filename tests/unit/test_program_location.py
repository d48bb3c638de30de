"""What the worker concludes from paths holds wherever Python and Quire are installed."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from quire.worker import loop
from quire.worker.execution import errors

STANDARD = "/opt/all-packages/python/lib/python3.11"


def test_workspace_follows_standard_library_below_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    standard = [f"{STANDARD[:-4]}311.zip", STANDARD, f"{STANDARD}/lib-dynload"]
    others = [f"{STANDARD}/site-packages", f"{STANDARD}-more", "/srv/site-packages/an-egg.zip"]
    monkeypatch.setattr(os, "__file__", f"{STANDARD}/os.py")
    monkeypatch.setattr(sys, "path", standard + others)
    assert loop._after_standard_library() == len(standard)


def test_traceback_keeps_frames_of_package_beside_quire(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = Path(errors.__file__).parents[3]
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(__file__=str(packages / "IPython/__init__.py")))
    hidden = [packages / "quire/worker/loop.py", packages / "IPython/core/shell.py"]
    shown = [packages / "quire_tools/loop.py", packages / "IPython_more/shell.py", packages / "other.py"]
    assert [errors._is_own_frame(str(path)) for path in hidden + shown] == [True, True, False, False, False]
