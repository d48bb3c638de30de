"""The magics there are: ours by table, a library's by decorator."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable
from typing import Any, TypeVar

from quire.worker.shim.errors import UsageError

Kind = TypeVar("Kind", bound=Callable[..., Any])

OURS: dict[str, dict[str, Callable[..., Any]]] = {"line": {}, "cell": {}}
"""Functions of the shell and the line, and of the cell's text where it is a cell magic."""


def line(*names: str, raw: bool = False) -> Callable[[Kind], Kind]:
    return _entered(names, ("line",), raw)


def cell(*names: str, raw: bool = False) -> Callable[[Kind], Kind]:
    return _entered(names, ("cell",), raw)


def line_and_cell(*names: str, raw: bool = False) -> Callable[[Kind], Kind]:
    return _entered(names, ("line", "cell"), raw)


def _entered(names: tuple[str, ...], kinds: tuple[str, ...], raw: bool) -> Callable[[Kind], Kind]:
    """`raw`: `{x}` and `$x` in the line are the magic's own."""

    def enter(function: Kind) -> Kind:
        if raw:
            function._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]
        for kind in kinds:
            OURS[kind].update(dict.fromkeys(names, function))
        return function

    return enter


class Registry:
    """What `shell.magics_manager` is."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.registry: dict[str, Any] = {}
        self.auto_magic = False
        self.lazy_magics: dict[str, str] = {}
        self.magics: dict[str, dict[str, Callable[..., Any]]] = {
            kind: {name: types.MethodType(function, shell) for name, function in table.items()}
            for kind, table in OURS.items()
        }

    def lsmagic(self) -> dict[str, dict[str, Callable[..., Any]]]:
        return self.magics

    def register(self, *given: Any) -> None:
        """Classes of magics, or their instances."""
        for each in given:
            magics = each(shell=self.shell) if isinstance(each, type) else each
            self.registry[type(magics).__name__] = magics
            for kind in ("line", "cell"):
                self.magics[kind].update(magics.magics[kind])

    def register_function(
        self, func: Callable[..., Any], magic_kind: str = "line", magic_name: str | None = None
    ) -> None:
        kinds = ("line", "cell") if magic_kind == "line_cell" else (magic_kind,)
        for kind in kinds:
            if kind not in self.magics:
                raise ValueError(f"A magic is of kind line, cell or line_cell, not {magic_kind!r}.")
            self.magics[kind][magic_name or func.__name__] = func

    def register_alias(
        self, alias_name: str, magic_name: str, magic_kind: str = "line", magic_params: str | None = None
    ) -> None:
        def alias(line: str, *cell: str) -> Any:
            words = f"{magic_params} {line}" if magic_params else line
            return self.found(magic_name, magic_kind)(words, *cell)

        self.register_function(alias, magic_kind, alias_name)

    def found(self, name: str, kind: str) -> Callable[..., Any]:
        magic = self.magics[kind].get(name)
        if magic is None:
            raise UsageError(self._missing(name, kind))
        return magic

    def _missing(self, name: str, kind: str) -> str:
        mark, other, others = ("%", "cell", "%%") if kind == "line" else ("%%", "line", "%")
        if name in self.magics[other]:
            return f"There is no {kind} magic {mark}{name}, but a {other} magic {others}{name}."
        near = difflib.get_close_matches(name, list(self.magics[kind]), 1)
        nearest = f" The nearest is {mark}{near[0]}." if near else ""
        return (
            f"There is no magic {mark}{name} here.{nearest} %lsmagic lists those there are; IPython itself has more: "
            "%pip install ipython, then reset the notebook."
        )
