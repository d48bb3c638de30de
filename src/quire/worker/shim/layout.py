"""Text laid out in groups: a group stays on its line while it fits, else it breaks wherever it may.

What overflows breaks the outermost group first; a group that is broken stays so to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")


class _Group:
    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.waiting = 0  # breaks of it that are not written yet
        self.broken = False


@dataclass
class _Piece:
    text: str
    group: _Group | None = None  # of a possible break; None is plain text
    column: int = 0  # where the line after the break begins


class Layout:
    """The printer given to `_repr_pretty_`: text, places where a line may end, and groups of them."""

    def __init__(self, output: Any, max_width: int = 79, newline: str = "\n", max_seq_length: int = 1000) -> None:
        self.output = output
        self.max_width = max_width
        self.newline = newline
        self.max_seq_length = max_seq_length
        self.indentation = 0
        self._written = 0  # columns of the current line that are out
        self._held = 0  # columns of what waits
        self._pieces: deque[_Piece] = deque()
        root = _Group(0)
        self._open = [root]
        self._levels = [[root]]  # groups that may still be broken, by depth

    def text(self, obj: str) -> None:
        if not self._pieces:
            self.output.write(obj)
            self._written += len(obj)
            return
        self._hold(_Piece(obj))

    def breakable(self, sep: str = " ") -> None:
        """Here a line may end; where it does not, `sep` is written."""
        group = self._open[-1]
        if group.broken:
            self.flush()
            self._end_line(self.indentation)
        else:
            group.waiting += 1
            self._hold(_Piece(sep, group, self.indentation))

    def break_(self) -> None:
        """Here a line ends."""
        outermost = self._break_next()
        if outermost:
            self._write_through(outermost)
        self.flush()
        self._end_line(self.indentation)

    def begin_group(self, indent: int = 0, open: str = "") -> None:
        if open:
            self.text(open)
        group = _Group(self._open[-1].depth + 1)
        self._open.append(group)
        while len(self._levels) <= group.depth:
            self._levels.append([])
        self._levels[group.depth].append(group)
        self.indentation += indent

    def end_group(self, dedent: int = 0, close: str = "") -> None:
        self.indentation -= dedent
        group = self._open.pop()
        if not group.waiting:
            self._forget(group)
        if close:
            self.text(close)

    @contextmanager
    def group(self, indent: int = 0, open: str = "", close: str = "") -> Iterator[None]:
        self.begin_group(indent, open)
        try:
            yield
        finally:
            self.end_group(indent, close)

    @contextmanager
    def indent(self, indent: int) -> Iterator[None]:
        self.indentation += indent
        try:
            yield
        finally:
            self.indentation -= indent

    def flush(self) -> None:
        while self._pieces:
            self._write_first()

    def numbered(self, items: Iterable[_T]) -> Iterator[tuple[int, _T]]:
        """The items by number; past the most that are shown, an ellipsis."""
        for number, item in enumerate(items):
            if self.max_seq_length and number >= self.max_seq_length:
                self.text(",")
                self.breakable()
                self.text("...")
                return
            yield number, item

    _enumerate = numbered  # the name under which printers of others call it

    def _hold(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._held += len(piece.text)
        while self._written + self._held > self.max_width:
            group = self._break_next()
            if group is None:
                return
            self._write_through(group)

    def _break_next(self) -> _Group | None:
        """The outermost group that has a break waiting, the latest of its depth; those passed over will break too."""
        for level in self._levels:
            for number, group in enumerate(reversed(level)):
                if group.waiting:
                    # counted from the wrong end, as IPython does it: what is broken next depends on it
                    del level[number]
                    group.broken = True
                    return group
            for group in level:
                group.broken = True
            level.clear()
        return None

    def _write_through(self, group: _Group) -> None:
        while group.waiting:
            self._write_first()
        while self._pieces and self._pieces[0].group is None:
            self._write_first()

    def _write_first(self) -> None:
        piece = self._pieces.popleft()
        self._held -= len(piece.text)
        group = piece.group
        if group is not None:
            group.waiting -= 1
            if group.broken:
                self._end_line(piece.column)
                return
            if not group.waiting:
                self._forget(group)
        self.output.write(piece.text)
        self._written += len(piece.text)

    def _end_line(self, column: int) -> None:
        self.output.write(self.newline + " " * column)
        self._written = column

    def _forget(self, group: _Group) -> None:
        if group in self._levels[group.depth]:
            self._levels[group.depth].remove(group)
