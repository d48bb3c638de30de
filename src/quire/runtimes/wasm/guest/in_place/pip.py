"""`%pip` and `!pip`, where no package can be installed."""

from __future__ import annotations

from typing import NoReturn


def run(arguments: str) -> NoReturn:
    raise OSError(
        f"pip {arguments[:80]!r} cannot be run: Python runs in WebAssembly here, with what it was built with and "
        "without a network. Put modules that are plain Python into the workspace, as files; for packages use the "
        "runtime `python`."
    )


def advice(package: str) -> str:
    """What to do where a module is missing; `package` is the one that is known to have it."""
    known = f"It is in the package {package}. " if package else ""
    return f"{known}No package can be installed in WebAssembly: %pip is for the runtime `python`."
