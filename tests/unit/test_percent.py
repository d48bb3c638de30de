"""Scripts in percent format: what others write is read, and what is written is read back the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.model import LOCAL, Cell, CellId, CellKind, NewCell, Notebook, NotebookId
from quire.notebook_format import percent

CODE, MARKDOWN, RAW = CellKind.CODE, CellKind.MARKDOWN, CellKind.RAW


def script(cells: list[NewCell], metadata: dict[str, Any] | None = None) -> str:
    book = Notebook(id=NotebookId("n"), name="n", owner=LOCAL, runtime="python", created_at=0, metadata=metadata or {})
    return percent.dumps(
        book,
        [
            Cell(id=CellId(f"c{number}"), number=number, kind=each.kind, source=each.source, metadata=each.metadata)
            for number, each in enumerate(cells)
        ],
    )


def read(text: str) -> list[tuple[CellKind, str]]:
    return [(cell.kind, cell.source) for cell in percent.loads(text).cells]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("# %%\na = 1\n\n# %%\nb = 2\n", [(CODE, "a = 1"), (CODE, "b = 2")]),
        ("#%%\na\n#%%\nb", [(CODE, "a"), (CODE, "b")]),
        ("\ufeff# %%\r\na\r\n\r\nb\r\n", [(CODE, "a\n\nb")]),
        ("# In[1]:\n\n\na\n\n\n# In[ ]:\n\n\nb\n", [(CODE, "a"), (CODE, "b")]),
        ("# <codecell>\na", [(CODE, "a")]),
        ("import os\n\n# %%\na", [(CODE, "import os"), (CODE, "a")]),
        ("#!/bin/python\n# %matplotlib inline\n# %%\na", [(CODE, "#!/bin/python\n%matplotlib inline"), (CODE, "a")]),
        ("# %% [markdown]\n# # Title\n#\n# text\n", [(MARKDOWN, "# Title\n\ntext")]),
        ("# %% [md]\n#text", [(MARKDOWN, "text")]),
        ('# %% [markdown]\n"""\n# Title\n\ntext\n"""\n', [(MARKDOWN, "# Title\n\ntext")]),
        ("# %% [markdown]\nr'''$\\x$'''", [(MARKDOWN, "$\\x$")]),
        ("# %% [raw]\n# <b>", [(RAW, "<b>")]),
        ("# %%\n# %matplotlib inline\n# !ls\nx = 1", [(CODE, "%matplotlib inline\n!ls\nx = 1")]),
        ("# %%\n# %%time\nf()", [(CODE, "%%time\nf()")]),
        ("# %%\n# %%bash\n# ls\n#\n# # pwd", [(CODE, "%%bash\nls\n\n# pwd")]),
        ('# %% language="bash"\n# ls', [(CODE, "%%bash\nls")]),
        ('# %% language="R" magic_args="-i df"\n# df', [(CODE, "%%R -i df\ndf")]),
        ("# %%\n# # %matplotlib inline", [(CODE, "# %matplotlib inline")]),
        ("# %%\n# files = !ls\n    # %time f()", [(CODE, "files = !ls\n    %time f()")]),
        ("# %%\n# %d of 3, really?\n# ! note", [(CODE, "# %d of 3, really?\n# ! note")]),
        ("# %%\n\n\n# %%\n", [(CODE, ""), (CODE, "")]),
        ("import os\n# !not a magic\nprint(1)\n\n", [(CODE, "import os\n# !not a magic\nprint(1)")]),
        ("", []),
        ("\n\n", []),
    ],
)  # fmt: skip
def test_a_script_is_read_as_its_writer_meant_it(text: str, cells: list[tuple[CellKind, str]]) -> None:
    assert read(text) == cells


@pytest.mark.parametrize(
    ("line", "kind", "metadata"),
    [
        ("# %%", CODE, {}),
        ("# %% a title", CODE, {"title": "a title"}),
        ('# %% a title tags=["a", "b"] x=true', CODE, {"title": "a title", "tags": ["a", "b"], "x": True}),
        ('# %% [markdown] name="intro"', MARKDOWN, {"name": "intro"}),
        ("# %% Intro [markdown]", MARKDOWN, {"title": "Intro"}),
        ('# %% {"key with space": 1}', CODE, {"key with space": 1}),
        ("# %%% sub", CODE, {"cell_depth": 1, "title": "sub"}),
        ("# %% a = b", CODE, {"title": "a = b"}),
        ("# %% y=x+1", CODE, {"title": "y=x+1"}),
        ("# %% {broken", CODE, {"title": "{broken"}),
    ],
)
def test_a_marker_says_title_kind_and_metadata(line: str, kind: CellKind, metadata: dict[str, Any]) -> None:
    (cell,) = percent.loads(f"{line}\n# x = 1").cells
    assert (cell.kind, cell.metadata) == (kind, metadata)


def test_the_header_of_jupytext_is_kept_and_says_the_language() -> None:
    header = "# ---\n# jupyter:\n#   kernelspec:\n#     display_name: R\n#     language: R\n#     name: ir\n# ---\n"
    document = percent.loads(header + "\n# %%\nx <- 1\n")
    assert [cell.source for cell in document.cells] == ["x <- 1"]
    assert document.metadata["kernelspec"] == {"display_name": "R", "language": "R", "name": "ir"}
    assert document.notes == ("its language is R: its cells are not Python",)
    assert script(document.cells, document.metadata) == header + "\n# %%\nx <- 1\n"


def test_magics_of_another_language_are_comments_in_the_script() -> None:
    text = script([NewCell(source="%%bash\nls\n\n# pwd"), NewCell(source="%pip install x\ny = 1")])
    assert text == "# %%\n# %%bash\n# ls\n#\n# # pwd\n\n# %%\n# %pip install x\ny = 1\n"
    compile(text, "script", "exec")


@pytest.mark.parametrize("text", ["# %%\nx = '\x00'", "# %%\n\ud800", "# %%\n" + "x" * 1_000_001])
def test_what_no_cell_can_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Nothing was imported"):
        percent.loads(text)


def test_a_script_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="over the limit of 50,000,000"):
        percent.loads("#" * 50_000_001)


PIECES = [
    "", " ", "\t", "#", "# ", "# %%", "#%%", "# %% [markdown]", "%%", "%% x", "# # %% x", "\\%%", "# In[1]:", "In[2]",
    "<codecell>", "%%bash", "%%time", "# %%bash", "%matplotlib inline", "  %time x", "#%pip", "!ls", "# !ls", "#!sh",
    "y = !ls", "x?", "?x", "# ---", '"""', "'''", "x = 1", "    pass", "\x0c", "é\u2028", "R\x85", "%R", "%x", "#!/x",
]  # fmt: skip
LINES = st.lists(
    st.sampled_from(PIECES) | st.text(max_size=8).map(lambda text: text.replace("\n", "").replace("\r", ""))
)
SOURCES = LINES.map("\n".join).filter(lambda source: "\x00" not in source)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | TEXT, lambda each: st.lists(each, max_size=2))
METADATA = st.dictionaries(
    st.sampled_from(["tags", "title", "name", "a b", "cell_depth", "x.y", "é", ""]),
    JSON | st.just("a title"),
    max_size=3,
)
CELLS = st.lists(
    st.builds(NewCell, source=SOURCES, kind=st.sampled_from(list(CellKind)), metadata=METADATA), max_size=5
)


@settings(max_examples=300, derandomize=True)
@given(cells=CELLS)
def test_what_is_written_is_read_back_the_same(cells: list[NewCell]) -> None:
    text = script(cells)
    assert percent.loads(text).cells == cells
    assert script(percent.loads(text).cells) == text


@settings(max_examples=200, derandomize=True)
@given(text=SOURCES)
def test_any_text_is_a_script_that_settles_once_it_was_written(text: str) -> None:
    once = percent.loads(text)
    again = percent.loads(script(once.cells, once.metadata))
    assert [(cell.kind, cell.source, cell.metadata) for cell in again.cells] == [
        (cell.kind, cell.source, cell.metadata) for cell in once.cells
    ]
    json.dumps(once.metadata)
