"""Changes of notebooks, published to listeners. A listener must return at once and never raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quire.core.model import CellId, Notebook


@dataclass(frozen=True, kw_only=True)
class Change:
    """A cell's state, outputs or source changed; without a cell, the notebook's list of cells."""

    notebook: Notebook
    cell: CellId | None = None
    number: int | None = None


class Feed:
    def __init__(self) -> None:
        self._listeners: list[Callable[[Change], None]] = []

    def tell(self, change: Change) -> None:
        for listener in list(self._listeners):
            listener(change)

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with each change. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
