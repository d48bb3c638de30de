"""`obj?`, `obj??` and `%pinfo`: what a thing is, from the thing itself."""

from __future__ import annotations

import builtins
import fnmatch
import inspect
import os
from typing import Any

from quire.worker.shim.registry import line


@line("pinfo")
def pinfo(shell: Any, line: str) -> None:
    """Signature, type, file and docstring."""
    _describe(shell, line.strip(), source=False)


@line("pinfo2")
def pinfo2(shell: Any, line: str) -> None:
    """The same with the source."""
    _describe(shell, line.strip(), source=True)


def _describe(shell: Any, name: str, source: bool) -> None:
    found = _found(shell, name)
    if not found:
        print(f"Object `{name}` not found.")
        return
    facts = _facts(found[0], source)
    width = max(len(label) for label, _ in facts) + 2
    print("\n".join(f"{label + ':':<{width}}{text}" for label, text in facts))


def _found(shell: Any, name: str) -> list[Any]:
    if name.startswith("%"):
        plain = name.lstrip("%")
        kinds = ("cell",) if name.startswith("%%") else ("line", "cell")
        magics = [shell.find_magic(plain, kind) for kind in kinds]
        return [each for each in magics if each is not None][:1]
    try:
        return [eval(name, shell.user_ns)]  # noqa: S307 - names and their attributes, as typed
    except Exception:
        magic = shell.find_magic(name, "line") or shell.find_magic(name, "cell")
        return [magic] if magic is not None else []


def _facts(value: Any, source: bool) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    kind = type(value)
    signature = _signature(value)
    if signature:
        facts.append(("Init signature" if inspect.isclass(value) else "Signature", signature))
    if not callable(value) and not inspect.ismodule(value):
        facts += [("Type", kind.__name__), ("String form", _short(value))]
        if hasattr(kind, "__len__"):
            facts.append(("Length", _length(value)))
    text = _source(value) if source else ""
    if text:
        facts.append(("Source", f"\n{text}"))
    else:
        facts.append(("Docstring", inspect.getdoc(value) or "<no docstring>"))
    path = _file(value)
    if path:
        facts.append(("File", path))
    if callable(value) or inspect.ismodule(value):
        facts.append(("Type", kind.__name__))
    return facts


def _signature(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        return f"{getattr(value, '__name__', type(value).__name__)}{inspect.signature(value)}"
    except (ValueError, TypeError):
        return ""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]} <...>"


def _length(value: Any) -> str:
    try:
        return str(len(value))
    except Exception:
        return "?"


def _source(value: Any) -> str:
    try:
        return inspect.getsource(inspect.unwrap(value)).rstrip()
    except (OSError, TypeError, ValueError):
        return ""


def _file(value: Any) -> str:
    try:
        path = inspect.getfile(inspect.unwrap(value))
    except (OSError, TypeError, ValueError):
        return ""
    return path if path.startswith("<") else os.path.abspath(path)


@line("psearch")
def psearch(shell: Any, line: str) -> None:
    """Names that match a pattern: `np.arr*?`."""
    pattern = line.strip().split()[0] if line.strip() else "*"
    owner, dot, last = pattern.rpartition(".")
    if dot:
        found = _found(shell, owner)
        names = dir(found[0]) if found else []
    else:
        names = [*shell.user_ns, *dir(builtins)]
    shown = sorted({name for name in names if fnmatch.fnmatch(name, last) and (last[:1] == "_" or name[:1] != "_")})
    print("\n".join(f"{owner}{dot}{name}" for name in shown))


@line("pdoc")
def pdoc(shell: Any, line: str) -> None:
    """The docstring."""
    found = _found(shell, line.strip())
    print((found and inspect.getdoc(found[0])) or f"No documentation found for {line.strip()}")


@line("pdef")
def pdef(shell: Any, line: str) -> None:
    """The signature."""
    found = _found(shell, line.strip())
    print((found and _signature(found[0])) or f"No definition found for {line.strip()}")


@line("psource", "pfile")
def psource(shell: Any, line: str) -> None:
    """The source."""
    found = _found(shell, line.strip())
    print((found and _source(found[0])) or f"No source found for {line.strip()}")
