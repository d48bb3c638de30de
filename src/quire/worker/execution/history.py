"""Input and output history of a notebook: In, Out and the underscore variables."""

from __future__ import annotations

import builtins
import re
from typing import Any

_MAX_TEXT_CHARS = 2_000  # of a result
_MAX_RESULTS = 1_000  # in Out; beyond that the oldest fifth is dropped
_NUMBERED = re.compile(r"_i?\d+")
_NAMES = frozenset(("In", "Out", "_ih", "_oh", "_dh", "_i", "_ii", "_iii", "__", "___", "get_ipython"))


SAVED_NAMES = ("In", "Out")
"""Names that a snapshot saves; the others are derived from them."""


def is_kernel_name(name: str) -> bool:
    """Whether the kernel itself keeps this name in the namespace."""
    return name in _NAMES or _NUMBERED.fullmatch(name) is not None


class History:
    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self.inputs: list[str] = [""]  # as Python
        self.sources: list[str] = [""]  # as written
        self.results: dict[int, Any] = {}
        self.texts: dict[int, str] = {}
        self.numbered: set[str] = set()  # numbered names of inputs and results
        self.folders: list[Any] = []
        self.count = 0
        self.source = ""  # of the running cell
        self._results: dict[str, Any] = {}  # values for the underscore variables
        self._bound: dict[str, Any] = {}  # what they were last set to
        self._earlier_sources = ("", "")  # of the two cells before
        self.bind_names()

    def bind_names(self) -> None:
        names = {"In": self.inputs, "_ih": self.inputs, "Out": self.results, "_oh": self.results, "_dh": self.folders}
        for name, value in names.items():
            self._namespace.setdefault(name, value)

    def load_from_namespace(self) -> None:
        """Continue with the history in a namespace that was loaded."""
        inputs, results = self._namespace.get("In"), self._namespace.get("Out")
        if type(inputs) is list:
            self.inputs[:] = inputs
        if type(results) is dict:
            self.results.clear()
            self.results.update(results)
            restored = {f"_{count}": value for count, value in results.items() if type(count) is int}
            self._namespace.update(restored)
            self.numbered.update(restored)
        self._bound = {name: self._namespace[name] for name in ("_",) if name in self._namespace}
        for name in ("In", "Out", "_ih", "_oh", "_dh"):
            self._namespace.pop(name, None)
        self.bind_names()

    def begin_cell(self, count: int, source: str) -> None:
        """Record the cell's source. Its Python follows with `set_python`."""
        previous, self.count, self.source = self.source, count, source
        self._namespace.update(
            {"_i": previous, "_ii": self._earlier_sources[0], "_iii": self._earlier_sources[1], f"_i{count}": source}
        )
        self.numbered.add(f"_i{count}")
        self._earlier_sources = (previous, self._earlier_sources[0])
        for inputs in (self.inputs, self.sources):
            inputs += [""] * (count + 1 - len(inputs))
            inputs[count] = source.rstrip("\n")

    def set_python(self, python: str) -> None:
        self.inputs[self.count] = python.rstrip("\n")

    def add_result(self, value: Any, text: str) -> None:
        """Store the cell's value under its number and in the underscore variables, unless the user has set these."""
        if value is self.results:
            return
        if len(self.results) >= _MAX_RESULTS:
            self._drop_oldest_results()
        names = ("_", "__", "___")
        unchanged = all(self._is_bound_by_us(name) for name in names) and not hasattr(builtins, "_")
        self._results = {"_": value, "__": self._results.get("_", ""), "___": self._results.get("__", "")}
        if unchanged:
            self._bound = self._results
            self._namespace.update(self._bound)
        self._namespace[f"_{self.count}"] = self.results[self.count] = value
        self.numbered.add(f"_{self.count}")
        self.texts[self.count] = text[:_MAX_TEXT_CHARS]

    def _is_bound_by_us(self, name: str) -> bool:
        if name not in self._namespace:
            return True
        return any(name in item and item[name] is self._namespace[name] for item in (self._bound, self._results))

    def _drop_oldest_results(self) -> None:
        for count in sorted(item for item in self.results if type(item) is int)[: _MAX_RESULTS // 5]:
            self._namespace.pop(f"_{count}", None)
            del self.results[count]
            self.texts.pop(count, None)
