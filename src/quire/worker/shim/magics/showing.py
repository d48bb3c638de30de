"""Cells that are shown, captured, or given to a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quire.worker import figures, scripts
from quire.worker.shim import displays, options
from quire.worker.shim.capture import capture_output
from quire.worker.shim.errors import UsageError
from quire.worker.shim.registry import OURS, cell, line_and_cell


@cell("html", "HTML")
def html(shell: Any, line: str, cell: str) -> None:
    """Show the cell as HTML."""
    made = displays.HTML(cell)
    if line.strip() == "--isolated":
        displays.display(made, metadata={"text/html": {"isolated": True}})
    else:
        displays.display(made)


def _shown(kind: Callable[[str], Any]) -> Callable[..., None]:
    def show(shell: Any, line: str, cell: str) -> None:
        """Show the cell as what its magic says it is."""
        displays.display(kind(cell))

    return show


cell("markdown")(_shown(displays.Markdown))
cell("latex")(_shown(displays.Latex))
cell("svg", "SVG")(_shown(displays.SVG))
cell("javascript", "js")(_shown(displays.Javascript))


_NOT_CAPTURED = ("--no-stdout", "--no-stderr", "--no-display")


@cell("capture")
def capture(shell: Any, line: str, cell: str) -> None:
    """Run the cell and keep what it prints and shows, under a name where one is given."""
    words = options.words(line)
    unknown = [each for each in words if each.startswith("-") and each not in _NOT_CAPTURED]
    names = [each for each in words if not each.startswith("-")]
    if unknown or len(names) > 1:
        raise UsageError(f"%%capture takes a name and {', '.join(_NOT_CAPTURED)}, not {(unknown or names[1:])[0]}.")
    kept = capture_output(*(each not in words for each in _NOT_CAPTURED))
    told, shell.report = shell.report, lambda error, text: None
    try:
        with kept as captured:
            result = shell.run_cell(cell)
            figures.flush()
    finally:
        shell.report = told
    if names:
        shell.user_ns[names[0]] = captured
    result.raise_error()


@cell("script")
def script(shell: Any, line: str, cell: str) -> None:
    """Give the cell's text to a program; see --out, --err, --bg and --no-raise-error."""
    try:
        scripts.run(line, cell, shell.user_ns)
    except scripts.BadOption as error:
        raise UsageError(str(error)) from None


def _given_to(program: str) -> Callable[..., None]:
    def give(shell: Any, line: str, cell: str) -> None:
        script(shell, f"{program} {line}", cell)

    give.__doc__ = f"Give the cell's text to {program}."
    return give


OURS["cell"].update({program: _given_to(program) for program in scripts.PROGRAMS})


@line_and_cell("sx", "system", "!")
def system(shell: Any, line: str, cell: str | None = None) -> Any:
    """The lines a command writes."""
    return shell.getoutput(line if cell is None else f"{line}\n{cell}")
