"""What is in the namespace, and what was typed."""

from __future__ import annotations

import re
from typing import Any

from quire.worker.history import is_ours
from quire.worker.shim import options
from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import line

_NEWLINE = "\n"
_HIDDEN = ("exit", "quit", "get_ipython", "display")


@line("who_ls")
def who_ls(shell: Any, line: str) -> list[str]:
    """The names of the notebook's variables; of these types only, where some are named."""
    kinds = line.split()
    names = [name for name in shell.user_ns if not name.startswith("_") and not is_ours(name) and name not in _HIDDEN]
    return sorted(name for name in names if not kinds or type(shell.user_ns[name]).__name__ in kinds)


@line("who")
def who(shell: Any, line: str) -> None:
    """The names of the notebook's variables."""
    names = who_ls(shell, line)
    if not names:
        print(_none(line))
        return
    for number, name in enumerate(names, 1):
        print(name, end="\t " if number % 9 else "\t \n")
    print()


def _none(line: str) -> str:
    return "No variables match your requested type." if line.strip() else "Interactive namespace is empty."


@line("whos")
def whos(shell: Any, line: str) -> None:
    """The notebook's variables with type and content."""
    names = who_ls(shell, line)
    if not names:
        print(_none(line))
        return
    kinds = [_kind(shell.user_ns[name]) for name in names]
    first = max(len("Variable"), *map(len, names)) + 3
    second = max(len("Type"), *map(len, kinds)) + 3
    print(f"{'Variable':<{first}}{'Type':<{second}} Data/Info\n{'-' * (first + second + len('Data/Info') + 1)}")
    for name, kind in zip(names, kinds, strict=True):
        print(f"{name:<{first}}{kind:<{second}} {_content(shell.user_ns[name])}")


def _kind(value: Any) -> str:
    return type(value).__name__


def _content(value: Any) -> str:
    if isinstance(value, (dict, list, tuple)):
        return f"n={len(value)}"
    if type(value).__name__ == "ndarray" and hasattr(value, "nbytes"):
        return _array(value)
    if type(value).__name__ == "DataFrame" and hasattr(value, "shape"):
        return f"Shape: {value.shape}"
    try:
        text = str(value)
    except Exception:
        text = f"<object with id {id(value)} (str() failed)>"
    text = text.replace("\n", "\\n")
    return text if len(text) < 50 else f"{text[:25]}<...>{text[-25:]}"


def _array(value: Any) -> str:
    size = int(value.nbytes)
    said = f"{'x'.join(map(str, value.shape))}: {value.size} elems, type `{value.dtype}`, {size} bytes"
    if size < 100_000:
        return said
    return f"{said} ({size / 1024} kb)" if size < 2**20 else f"{said} ({size / 2**20} Mb)"


@line("reset")
def reset(shell: Any, line: str) -> None:
    """Forget all variables, without asking: nobody can answer here."""
    _, rest = options.leading(line, flags="fs", long=("aggressive",))
    parts = rest.split()
    if not parts or "in" not in parts:
        for name in [name for name in shell.user_ns if not _keeps(name)]:
            del shell.user_ns[name]
    if not parts or "out" in parts:
        shell.user_ns.get("Out", {}).clear()


def _keeps(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or is_ours(name) or name in _HIDDEN


@line("reset_selective")
def reset_selective(shell: Any, line: str) -> None:
    """Forget the variables whose names match a pattern."""
    _, pattern = options.leading(line, flags="f")
    try:
        found = re.compile(pattern.strip())
    except re.error as error:
        raise UsageError(f"%reset_selective: {pattern} is no pattern ({error}).") from None
    for name in who_ls(shell, ""):
        if pattern.strip() and found.search(name):
            del shell.user_ns[name]


@line("xdel")
def xdel(shell: Any, line: str) -> None:
    """Forget one variable."""
    shell.del_var(line.strip().removeprefix("-n").strip())


@line("history", "hist")
def history(shell: Any, line: str) -> None:
    """What was run in this notebook's kernel; -n with numbers, and a range like 3-5 for some."""
    flags, rest = options.leading(re.sub(r"(?<!\S)-l$", "-l 10", line.strip()), flags="ntopru", valued="lgf")
    inputs = shell.user_ns.get("In", [""])
    found = re.fullmatch(r"(\d+)(?:-(\d+)|:(\d+))?", rest.strip())
    first = int(found[1]) if found else 1
    last = len(inputs)
    if found:
        last = int(found[2]) + 1 if found[2] else int(found[3]) if found[3] else first + 1
    if flags.get("l", "").isdigit():
        last = len(inputs) - 1  # without this very cell
        first = max(1, last - int(flags["l"]))
    for number in range(first, min(last, len(inputs))):
        source = shell.user_ns.get(f"_i{number}", inputs[number])
        print(f"{number:>4}:{_NEWLINE if _NEWLINE in source else ' '}{source}" if "n" in flags else source)


@line("precision")
def precision(shell: Any, line: str) -> str:
    """How floats are shown: a number of digits, or a format like %.3e; nothing for as they are."""
    plain = shell.display_formatter.formatters["text/plain"]
    try:
        plain.format_floats(line.strip())
    except (TypeError, ValueError) as error:
        raise UsageError(f"%precision: {line.strip()} is no format ({error}).") from None
    return plain.float_format or "%r"


@line("pprint")
def pprint(shell: Any, line: str) -> None:
    """Switch the layout of values on or off."""
    plain = shell.display_formatter.formatters["text/plain"]
    plain.pprint = not plain.pprint
    print(f"Pretty printing has been turned {'ON' if plain.pprint else 'OFF'}")


class _List:
    """What `%lsmagic` shows."""

    def __init__(self, magics: dict[str, dict[str, Any]]) -> None:
        self.magics = magics

    def __repr__(self) -> str:
        line, cell = (sorted(self.magics[kind]) for kind in ("line", "cell"))
        return (
            f"Available line magics:\n%{'  %'.join(line)}\n\nAvailable cell magics:\n%%{'  %%'.join(cell)}\n\n"
            "Automagic is ON, % prefix IS NOT needed for line magics."
        )

    def _repr_json_(self) -> dict[str, dict[str, str]]:
        return {kind: dict.fromkeys(table, "Other") for kind, table in self.magics.items()}


@line("lsmagic")
def lsmagic(shell: Any, line: str) -> _List:
    """The magics there are."""
    return _List(shell.magics_manager.magics)


@line("magic", "quickref")
def magic(shell: Any, line: str) -> None:
    """What each magic does."""
    for kind, mark in (("line", "%"), ("cell", "%%")):
        for name, function in sorted(shell.magics_manager.magics[kind].items()):
            said = (function.__doc__ or "").strip().partition("\n")[0]
            print(f"{mark}{name:<20} {said}")
