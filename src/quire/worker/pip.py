"""`%pip install …` and `!pip install …` in a cell: into the environment the kernel runs in, usable at once."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys

from quire.worker import packages

_LINE = re.compile(r"^([ \t]*)[%!]pip3?[ \t]+(.*)$", re.MULTILINE)
_OTHER_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL")  # name another than PyPI
CALL = "__quire_pip__"
"""What such a line becomes: a call of `run` under this name."""


def rewritten(code: str) -> str | None:
    """The code with its pip lines as Python; None where it has none. Lines keep their numbers."""
    changed, count = _LINE.subn(lambda found: f"{found[1]}{CALL}({found[2].strip()!r})", code)
    return changed if count else None


def run(arguments: str) -> None:
    words = shlex.split(arguments)
    if packages.folder and words[:1] == ["install"]:  # the interpreter's own cannot be written
        words += ["--target", packages.folder]
    uv = os.environ.get("UV") or shutil.which("uv")
    command = [uv, "pip", *words, "--python", sys.executable] if uv else [sys.executable, "-m", "pip", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    importlib.invalidate_caches()
    if done.returncode:
        raise RuntimeError(f"pip ended with code {done.returncode}; its words are above.")


def advice(package: str) -> str:
    """How to install what is missing, or what that would take; `package` is the one that is known to have it."""
    known = f"It is in the package {package}. " if package else ""
    if packages.not_granted and not any(map(os.environ.get, _OTHER_INDEX)):
        hosts = " and ".join(packages.not_granted)
        return f"{known}%pip install needs {hosts}, which this notebook is not granted (setting network)."
    if not _has_installer():
        return f"{known}This Python has neither uv nor pip to install packages with."
    if package:
        return f"To install it: %pip install {package}"
    return "If a package has it: %pip install PACKAGE, whose name may be another than the module's."


def _has_installer() -> bool:
    return bool(os.environ.get("UV") or shutil.which("uv") or importlib.util.find_spec("pip"))
