"""The reference corpus: each `.txt` is a notebook that must give what ipykernel gives.

A line `# %%` begins a code cell, `# %% [markdown]` a markdown cell, `# %% differs: REASON` a cell whose outputs are
meant to differ and are not compared. The lines after it are the cell, verbatim; those before the first are a title.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


@dataclass(frozen=True, kw_only=True)
class CorpusCell:
    source: str
    markdown: bool = False
    differs: str = ""  # why its outputs are not to be ipykernel's


def read(name: str) -> list[CorpusCell]:
    """The cells of a notebook of the corpus; those without a character are left out, as nbclient does."""
    parts = re.split(r"^# %%(.*)\n", (FOLDER / f"{name}.txt").read_text("utf-8"), flags=re.MULTILINE)
    cells = [_cell(mark.strip(), source.strip("\n")) for mark, source in zip(parts[1::2], parts[2::2], strict=True)]
    return [cell for cell in cells if cell.source.strip()]


def _cell(mark: str, source: str) -> CorpusCell:
    if mark == "[markdown]":
        text = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        return CorpusCell(source=text, markdown=True)
    if mark and not mark.startswith("differs: "):
        raise ValueError(f"a cell of the corpus begins with {mark!r}")
    return CorpusCell(source=source, differs=mark.removeprefix("differs: "))
