"""Installing, extensions, and magics that have nothing to do here and say so."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

from quire.worker import pip as installer
from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import line, line_and_cell

_NO_DEBUGGER = "A debugger cannot be used here: nobody could type into it. Print what you want to see instead."
_INSTALL = "%pip install ipython, then reset the notebook"
_NOT_HERE = {
    "debug": _NO_DEBUGGER,
    "pdb": _NO_DEBUGGER,
    "edit": "There is no editor here; change the cell instead.",
    "macro": f"Macros are a part of IPython, which is not installed here: {_INSTALL}.",
    "alias": f"Aliases are a part of IPython, which is not installed here: {_INSTALL}.",
    "store": "%store is a part of IPython, which is not installed here; this notebook's variables are kept anyway.",
    "lprun": f"%lprun needs line_profiler and IPython: %pip install line_profiler; {_INSTALL}.",
    "conda": "conda is not used here; %pip install puts packages into this kernel's environment.",
    "mamba": "conda is not used here; %pip install puts packages into this kernel's environment.",
}
_NOTHING_TO_DO = (
    *("autosave", "colors", "gui", "autocall", "automagic", "autoawait", "rehashx", "killbgscripts"),
    *("doctest_mode", "logstart", "logstop", "logon", "logoff", "logstate"),
)


@line("pip")
def pip(shell: Any, line: str) -> None:
    """Install into the environment this kernel runs in."""
    installer.run(line)


@line("uv")
def uv(shell: Any, line: str) -> None:
    """`%uv pip install …`, as %pip."""
    if not line.strip().startswith("pip "):
        raise UsageError("%uv pip … is what can be used here.")
    installer.run(line.strip().removeprefix("pip "))


@line("load_ext")
def load_ext(shell: Any, line: str) -> None:
    """Load a module that adds to the shell."""
    name = line.strip()
    if not name:
        raise UsageError("%load_ext needs a module's name.")
    if name.removeprefix("IPython.extensions.") == "autoreload":
        _no_autoreload()
        return
    said = shell.extension_manager.load_extension(name)
    if said == "no load function":
        print(f"The {name} module is not an IPython extension.")
    elif said:
        print(f"The {name} extension is already loaded. To reload it, use:\n  %reload_ext {name}")


@line("unload_ext")
def unload_ext(shell: Any, line: str) -> None:
    """Undo %load_ext."""
    said = shell.extension_manager.unload_extension(line.strip())
    if said:
        print(f"The {line.strip()} extension was not unloaded: {said}.")


@line("reload_ext")
def reload_ext(shell: Any, line: str) -> None:
    """Load a changed extension again."""
    shell.extension_manager.reload_extension(line.strip())


@line("autoreload", "aimport")
def autoreload(shell: Any, line: str) -> None:
    """Modules are not reloaded by themselves here."""
    _no_autoreload()


def _no_autoreload() -> None:
    sys.stderr.write(
        "Modules that change are not loaded again here: autoreload needs IPython (%pip install ipython, then reset the "
        "notebook), or use importlib.reload(module).\n"
    )


@line("alias_magic")
def alias_magic(shell: Any, line: str) -> None:
    """Another name for a magic."""
    words = line.split()
    names = [each.lstrip("%") for each in words if not each.startswith("-")]
    if len(names) < 2:
        raise UsageError("%alias_magic name magic gives a magic another name.")
    wanted = [kind for kind in ("line", "cell") if f"--{kind}" in words or f"-{kind[0]}" in words] or ["line", "cell"]
    for kind, mark in (("line", "%"), ("cell", "%%")):
        if kind in wanted and shell.find_magic(names[1], kind) is not None:
            shell.magics_manager.register_alias(names[0], names[1], kind)
            print(f"Created `{mark}{names[0]}` as an alias for `{mark}{names[1]}`.")


@line("xmode")
def xmode(shell: Any, line: str) -> None:
    """Accepted; errors are shown in one way here."""
    print(f"Exception reporting mode: {line.strip().capitalize() or 'Context'}")


@line("tb")
def tb(shell: Any, line: str) -> None:
    """The last error once more."""
    last = getattr(sys, "last_value", None)
    print("".join(traceback.format_exception(last)) if last is not None else "No traceback is kept.")


def _refusal(why: str) -> Callable[..., None]:
    def refuse(shell: Any, line: str, cell: str | None = None) -> None:
        raise UsageError(why)

    refuse.__doc__ = why
    return refuse


def _accepted(shell: Any, line: str) -> None:
    """Accepted; there is nothing it could change here."""


for _name, _why in _NOT_HERE.items():
    line_and_cell(_name, raw=True)(_refusal(_why)) if _name == "debug" else line(_name, raw=True)(_refusal(_why))
line(*_NOTHING_TO_DO)(_accepted)
