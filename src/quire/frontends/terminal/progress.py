"""Shows a run in the terminal: its outputs, or the progress if the outputs go to a file."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

import anyio

from quire.core.model import Cell, CellState, Output, OutputType
from quire.core.notebooks.images import FORMATS
from quire.core.notebooks.outputs import find_image
from quire.core.runs import transcript
from quire.core.runs.active_run import ActiveRun
from quire.core.runs.model_text import strip_escape_codes
from quire.frontends.terminal import saved
from quire.wire.messages import Displayed, Event, Printed, Raised

_REFRESH_INTERVAL_S = 0.25


class Watching(Protocol):
    """Receives the events of a run. Its methods never raise."""

    async def keep(self) -> None:
        """Refresh until cancelled."""

    def begun(self, place: int, active: ActiveRun) -> None:
        """The cell at this position, counted from 1, began to run."""

    def heard(self, event: Event) -> None:
        """An event of this run."""

    def ended(self, place: int, cell: Cell, *, fatal: bool) -> None:
        """The run ended; after a `fatal` one no other cell runs."""

    def say(self, text: str) -> None:
        """Show a message."""

    def close(self) -> None:
        """Show nothing more."""


class Shown:
    """Shows outputs when they come, each on its stream."""

    def __init__(self, gone: Callable[[OSError], None]) -> None:
        """`gone` is called once if standard output cannot be written."""
        self._gone = gone
        self._is_gone = False
        self._mid_line: set[IO[str]] = set()

    async def keep(self) -> None:
        pass

    def begun(self, place: int, active: ActiveRun) -> None:
        pass

    def heard(self, event: Event) -> None:
        match event:
            case Printed(stream=stream, data=data):
                self._write(sys.stderr if stream == "stderr" else sys.stdout, data)
            case Displayed():
                self._line(sys.stdout, _in_words(transcript.display_output(event)))
            case Raised(traceback=text):
                self._line(sys.stderr, _for(sys.stderr, transcript.to_utf8_text(text)))
            case _:
                pass

    def ended(self, place: int, cell: Cell, *, fatal: bool) -> None:
        if cell.run is not None and cell.state is not CellState.ERROR and cell.run.cause:
            self.say(cell.run.cause)

    def say(self, text: str) -> None:
        self._line(sys.stderr, text)

    def close(self) -> None:
        pass

    def _line(self, to: IO[str], text: str) -> None:
        self._write(to, f"{chr(10) if to in self._mid_line else ''}{text}\n".encode())

    def _write(self, to: IO[str], data: bytes) -> None:
        if data.endswith(b"\n"):
            self._mid_line.discard(to)
        elif data:
            self._mid_line.add(to)
        if self._is_gone:
            return
        try:
            saved.send(to, data)
        except OSError as error:
            self._is_gone = True
            self._gone(error)


class Lines:
    """Shows one line for each cell that ended."""

    def __init__(self, total: int) -> None:
        self._total = total

    async def keep(self) -> None:
        pass

    def begun(self, place: int, active: ActiveRun) -> None:
        pass

    def heard(self, event: Event) -> None:
        pass

    def ended(self, place: int, cell: Cell, *, fatal: bool) -> None:
        seconds = (cell.run.seconds or 0.0) if cell.run is not None else 0.0
        self.say(f"cell {place}/{self._total}: {cell.state}, {seconds:.3g} s")
        if fatal:
            for text in _errors(cell):
                self.say(text)

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # stderr is closed
            print(_for(sys.stderr, text), file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Bar(Lines):
    """Shows a progress bar: cell, time, memory, running line and last line of output."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        def rest(field: str, style: str) -> TextColumn:
            column = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            return TextColumn(f"{{task.fields[{field}]}}", style=style, markup=False, table_column=column)

        self._active: ActiveRun | None = None
        self._bar = Progress(
            TextColumn("cell {task.fields[place]}/{task.total:.0f}"),
            BarColumn(bar_width=16),
            TimeElapsedColumn(),
            TextColumn("{task.fields[memory]}"),
            rest("code", "bold"),
            rest("last", "dim"),
            console=Console(stderr=True),
            auto_refresh=False,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=total, place=0, memory="", code="", last="")
        self._bar.start()

    async def keep(self) -> None:
        while True:
            self._look()
            await anyio.sleep(_REFRESH_INTERVAL_S)

    def begun(self, place: int, active: ActiveRun) -> None:
        self._active = active
        first = next((line for line in active.target.source.splitlines() if line.strip()), "")
        self._show(place=place, code=_plain(first), last="")

    def ended(self, place: int, cell: Cell, *, fatal: bool) -> None:
        self._look()
        self._show(completed=place)
        if fatal:
            self.close()
            for text in _errors(cell):
                self.say(text)

    def say(self, text: str) -> None:
        """Print above the bar."""
        from rich.text import Text

        with contextlib.suppress(OSError):
            self._bar.console.print(Text.from_ansi(text), soft_wrap=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._bar.stop()

    def _look(self) -> None:
        last = self._active.progress() if self._active is not None else ""
        self._show(memory=f"{memory_of(os.getpid()) / 2**20:,.0f} MiB", last=_plain(last))

    def _show(self, **what: Any) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            self._bar.update(self._task, **what)
            self._bar.refresh()


def memory_of(root: int) -> int:
    """Bytes of memory of all descendants of a process; shared pages count for each."""
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):  # it ended meanwhile
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += map(int, (task / "children").read_text("utf-8").split())
            if pid != root:
                total += int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * mmap.PAGESIZE
    return total


def _errors(cell: Cell) -> list[str]:
    return [str(output.bundle.get("text/plain", "")) for output in cell.outputs if output.type is OutputType.ERROR]


def _in_words(output: Output) -> str:
    """The output as text for a terminal."""
    found = find_image(output)
    if found is not None:
        size = f" {output.about['width']}x{output.about['height']}" if output.about.get("width") else ""
        return f"[image {FORMATS[found[0]]}{size}]"
    text = output.bundle.get("text/plain")
    return text if isinstance(text, str) else f"[{', '.join(output.bundle)}]"


def _for(stream: IO[str], text: str) -> str:
    """The text, without colour codes if the stream is no terminal."""
    return text if stream.isatty() else strip_escape_codes(text)


def _plain(text: str) -> str:
    """The text without control characters."""
    return "".join(each if each.isprintable() else " " for each in strip_escape_codes(text))
