"""`%pip install …` and `!pip install …` in cells: install into the kernel's environment."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil

from quire.worker.environment import packages
from quire.worker.shell import commands

# `package>=1`, which a shell would treat as a redirection
_VERSION_BOUND = re.compile(r"(?<!\S)[A-Za-z][\w.-]*(?:\[[\w,.-]*\])?(?:[<>=!~]=?=?\d[\w.*]*,?)+(?!\S)")


def run(arguments: str) -> None:
    """Run pip as in a shell, except that `package>=1` needs no quotes."""
    quoted = _VERSION_BOUND.sub(lambda match: shlex.quote(match[0]), arguments)
    if code := commands.system(f"pip {quoted}", terminal=False):
        raise RuntimeError(f"pip ended with code {code}; its output is above.")


def advice(package: str, missing: str = "it") -> str:
    """How to install a missing module, or what that requires. `package` is known to contain it, or ""."""
    prefix = f"It is in the package {package}. " if package else ""
    if packages.unreachable_hosts and not packages.has_other_index():
        hosts = " and ".join(packages.unreachable_hosts)
        return f"{prefix}%pip install needs {hosts}, which this notebook is not granted (setting sandbox.network)."
    if not _has_installer():
        return f"{prefix}This Python has neither uv nor pip to install packages with."
    if package:
        return f"To install it: %pip install {package}"
    return f"If a package has {missing}: %pip install PACKAGE, whose name may be another than the module's."


def _has_installer() -> bool:
    return bool(os.environ.get("UV") or shutil.which("uv") or importlib.util.find_spec("pip"))
