"""The line of a cell that says most about it."""

from __future__ import annotations

import pytest

from quire.core.model import Cell, CellId, CellKind
from quire.frontends.mcp.headlines import headline


def shown(source: str, kind: CellKind = CellKind.CODE) -> str:
    return headline(Cell(id=CellId("a"), number=0, source=source, kind=kind))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("", ""),
        ("\n\n  x = 1\ny = 2", "x = 1"),
        ("# Load\n\nx = 1", "x = 1"),
        ("import os\nfrom a import b\nx = 1", "x = 1"),
        ("from a import (\n    b,\n    c,\n)\nx = 1", "x = 1"),
        ("from a import b, \\\n    c\nx = 1", "x = 1"),
        ("%matplotlib inline\n%load_ext thing\nx = 1", "x = 1"),
        ("!pip install thing\nx = 1", "x = 1"),
        ("!ls\nx = 1", "!ls"),
        ("@cached\ndef f():\n    pass", "def f():"),
        ("# Only words\n# and more", "# Only words"),
        ("# Setup\n%matplotlib inline\nimport os", "import os"),
        ("# Setup\n%matplotlib inline", "%matplotlib inline"),
        ("importer = 1", "importer = 1"),
        ("from_x = 1", "from_x = 1"),
        ("%%time\n# slow\ndf.sum()", "%%time df.sum()"),
        ("%%bash\nls -la", "%%bash ls -la"),
        ("%%html", "%%html"),
        ("// fetch\nconst a = 1", "const a = 1"),
    ],
)
def test_the_first_statement_is_shown_and_else_what_comes_nearest(source: str, line: str) -> None:
    assert shown(source) == line


def test_of_text_the_first_line_is_shown() -> None:
    assert shown("\n# A title\ntext", CellKind.MARKDOWN) == "# A title"


def test_a_long_cell_is_looked_at_in_part() -> None:
    assert shown("# note\n" * 100_000 + "x = 1") == "# note"
