"""Notebooks as Markdown, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from quire.core.model import (
    Cell,
    CellId,
    CellKind,
    CellState,
    Notebook,
    NotebookId,
    Output,
    OutputType,
    Principal,
    Run,
    RunId,
)
from quire.notebook_format import markdown

BOOK = Notebook(id=NotebookId("n"), name="book", owner=Principal("local"), runtime="python", created_at=0.0)
PIXEL = b"\x89PNG"


def written(*outputs: Output, source: str = "1", kind: CellKind = CellKind.CODE, **more: Any) -> str:
    run = Run(
        id=RunId("r"),
        cell=CellId("c"),
        count=1,
        source=source,
        author="test",
        started_at=0.0,
        state=CellState.SUCCESS,
        outputs=outputs,
    )
    return markdown.dumps(BOOK, [Cell(id=CellId("c"), number=0, kind=kind, source=source, run=run, **more)])


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (
            Output(type=OutputType.STREAM, name="stdout", bundle={"text/plain": "10%\r100%\n\x1b[31mred\x1b[0m\n"}),
            "```text\n100%\nred\n```",
        ),
        (
            Output(type=OutputType.ERROR, name="E", bundle={"text/plain": "E: no"}, about={"message": "no"}),
            "```text\nE: no\n```",
        ),
        (Output(type=OutputType.IMAGE, bundle={"image/png": PIXEL}), "![](data:image/png;base64,iVBORw==)"),
        (Output(type=OutputType.IMAGE, bundle={"image/svg+xml": "<svg/>"}), "![](data:image/svg+xml;base64,PHN2Zy8+)"),
        (
            Output(type=OutputType.DATAFRAME, bundle={"text/plain": "a\n0", "text/html": "<table><tr><td>0</table>"}),
            "```text\na\n0\n```",
        ),
        (
            Output(
                type=OutputType.HTML,
                bundle={"text/plain": "<a.HTML object>", "text/html": "<b>bold</b><!-- x -->"},
            ),
            "```text\nbold\n```",
        ),
        (Output(type=OutputType.EXECUTE_RESULT, bundle={"text/markdown": "*text*", "text/plain": "x"}), "*text*"),
        (Output(type=OutputType.STREAM, name="stdout", bundle={"text/plain": "\n"}), ""),
    ],
)
def test_an_output_is_text_or_a_picture(output: Output, shown: str) -> None:
    code = "```python\n1\n```"
    assert written(output) == "\n\n".join(filter(None, (code, shown))) + "\n"


def test_a_fence_is_longer_than_those_in_the_code() -> None:
    assert written(source="s = '''\n```\n````\n'''") == "`````python\ns = '''\n```\n````\n'''\n`````\n"


def test_text_stays_and_has_its_attached_pictures_inside() -> None:
    text = written(
        source="# Title\n![a](attachment:a.png)",
        kind=CellKind.MARKDOWN,
        attachments={"a.png": {"image/png": PIXEL}},
    )
    assert text == "# Title\n![a](data:image/png;base64,iVBORw==)\n"
    assert written(source="as it is", kind=CellKind.RAW) == "```\nas it is\n```\n"
