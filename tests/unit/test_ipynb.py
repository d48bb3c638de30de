"""Documents of Jupyter's: kept whole through a round trip, put right where Jupyter would, refused in plain words."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.model import (
    LOCAL,
    Cell,
    CellId,
    CellKind,
    CellState,
    NewCell,
    Notebook,
    NotebookId,
    Output,
    OutputType,
    RunId,
)
from quire.core.model import Run as RunData
from quire.notebook_format import ipynb
from quire.notebook_format.document import Document

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (40).to_bytes(4, "big") + (30).to_bytes(4, "big") + b"\x08\x06" + bytes(90)
).decode()
SPEC = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}


def book(metadata: dict[str, Any] | None = None) -> Notebook:
    return Notebook(id=NotebookId("n"), name="n", owner=LOCAL, runtime="python", created_at=0, metadata=metadata or {})


def as_cells(cells: list[NewCell]) -> list[Cell]:
    return [
        Cell(
            id=each.id or CellId(f"new{number}"),
            number=number,
            kind=each.kind,
            source=each.source,
            run=each.run,
            metadata=each.metadata,
            attachments=each.attachments,
        )
        for number, each in enumerate(cells)
    ]


def written(document: Document) -> str:
    return ipynb.dumps(book(document.metadata), as_cells(document.cells))


def code(*outputs: Any, **more: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": "c0", "metadata": {}, "source": "x", "execution_count": 1}
    return {**cell, "outputs": list(outputs), **more}


def whole(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": SPEC, "cells": list(cells), **more}


def loads(document: Any) -> Document:
    return ipynb.loads(json.dumps(document))


def comes_back(document: dict[str, Any]) -> Document:
    """The same document, as nbformat sees it, is what is written; and in the text nbformat would write."""
    nbformat.validate(copy.deepcopy(document))
    read = loads(document)
    text = written(read)
    seen = nbformat.reads(text, as_version=4)
    nbformat.validate(seen)
    same = nbformat.reads(json.dumps(document), as_version=4)
    assert seen == same
    assert text == nbformat.writes(same) + "\n"
    assert written(ipynb.loads(text)) == text
    return read


def shown(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}, **more}


# What is kept


EVERYTHING = whole(
    {
        "cell_type": "markdown",
        "id": "a-1_B",
        "metadata": {"tags": ["x"], "slideshow": {"slide_type": "slide"}},
        "source": ["# Title\n", "![](attachment:p.png)"],
        "attachments": {"p.png": {"image/png": PNG}, "odd": {"image/png": "no base64", "text/plain": ["a\n", "b"]}},
    },
    {"cell_type": "raw", "id": "raw", "metadata": {"format": "text/html"}, "source": "<b>"},
    code(
        {"output_type": "stream", "name": "stdout", "text": ["a\n", "\x1b[31mb\x1b[0m\r\x00"]},
        {"output_type": "stream", "name": "stderr", "text": "c"},
        {"output_type": "stream", "name": "log", "text": "d"},
        shown({"image/png": PNG, "text/plain": "<Figure>"}, metadata={"image/png": {"width": 40}, "needs": "light"}),
        shown({"image/png": PNG + "\n", "image/jpeg": "/9j/4AAQ\n", "image/gif": "R0lG", "audio/wav": "not base64"}),
        shown({"image/png": base64.encodebytes(bytes(200)).decode(), "application/pdf": "", "image/webp": "=a="}),
        shown({"image/svg+xml": "<svg width='3' height='4'/>", "application/javascript": "a\nb"}),
        shown({"application/json": {"a": [1, None, "é", 1.5]}, "application/geo+json": "text"}),
        shown({"application/vnd.plotly.v1+json": [], "application/x.unknown": "?", "text/latex": ["$x$\n", "$y$"]}),
        shown({"application/json": ["a", "b"], "application/vnd.jupyter.widget-view+json": {"model_id": "m"}}),
        shown({}),
        {
            "output_type": "execute_result",
            "execution_count": None,
            "metadata": {},
            "data": {"text/html": '<table class="dataframe"></table>', "text/plain": "  a\n0 1"},
        },
        {"output_type": "error", "ename": "E", "evalue": "e", "traceback": ["----\nE", "\x1b[0;31mx\n\n", ""]},
        {"output_type": "error", "ename": "E", "evalue": "", "traceback": []},
        {"output_type": "error", "ename": "", "evalue": "", "traceback": ["a", "b"]},
        metadata={"collapsed": True, "scrolled": "auto", "jupyter": {"outputs_hidden": True}, "own": {"a": [None]}},
        execution_count=7,
    ),
    code(id="never", execution_count=None),
    code({"output_type": "stream", "name": "stdout", "text": "a"}, id="uncounted", execution_count=None),
    code({"output_type": "stream", "name": "stdout", "text": "a"}, id="zero", execution_count=0),
    code(id="zero-only", execution_count=0),
    metadata={
        **SPEC,
        "widgets": {"application/vnd.jupyter.widget-state+json": {"version_major": 2, "state": {"m": {}}}},
        "celltoolbar": "Slideshow",
        "é": None,
    },
)


def test_everything_a_document_holds_is_there_after_a_round_trip() -> None:
    read = comes_back(EVERYTHING)
    assert read.notes == ()
    assert [cell.kind.value for cell in read.cells[:3]] == ["markdown", "raw", "code"]
    assert [cell.id for cell in read.cells[:3]] == ["a-1_B", "raw", "c0"]


def test_outputs_are_what_a_run_here_would_have_shown() -> None:
    run = loads(EVERYTHING).cells[2].run
    assert run is not None and run.state is CellState.ERROR and run.count == 7
    types = [output.type.value for output in run.outputs]
    assert types[:5] == ["stream", "stream", "stream", "image", "image"]
    assert types[6:8] == ["image", "execute_result"] and types[-4:] == ["dataframe", "error", "error", "error"]
    picture = run.outputs[3]
    assert picture.bundle["image/png"] == base64.b64decode(PNG)
    assert (picture.about["width"], picture.about["height"]) == (40, 30)
    assert picture.metadata == {"image/png": {"width": 40}, "needs": "light"}
    assert run.outputs[4].bundle["image/png"] == base64.b64decode(PNG)
    assert "image/webp" not in run.outputs[5].bundle and "application/pdf" not in run.outputs[5].bundle
    assert run.outputs[-3].bundle["text/plain"] == "----\nE\n\x1b[0;31mx\n\n\n"


@pytest.mark.parametrize("width", [1, 64, 72, 76])
def test_a_picture_whose_base64_is_in_lines_is_a_picture_and_goes_out_in_the_same_lines(width: int) -> None:
    lines = "\n".join(PNG[place : place + width] for place in range(0, len(PNG), width))
    shown = {"output_type": "display_data", "data": {"image/png": lines}, "metadata": {}}
    cell = {"cell_type": "code", "id": "c", "metadata": {}, "source": "", "execution_count": 1, "outputs": [shown]}
    run = comes_back(whole(cell)).cells[0].run
    assert run is not None and run.outputs[0].bundle["image/png"] == base64.b64decode(PNG)


@pytest.mark.parametrize("metadata", [{}, {"title": "x"}])
def test_a_document_that_names_no_kernel_is_given_pythons(metadata: dict[str, Any]) -> None:
    new = json.loads(written(loads(whole(metadata=metadata))))["metadata"]
    assert new["kernelspec"]["name"] == "python3" and new["language_info"] == {"name": "python"}
    assert metadata.items() <= new.items()


def test_a_document_that_names_another_kernel_keeps_it() -> None:
    julia = {"language_info": {"name": "julia"}}
    read = comes_back(whole(metadata=julia))
    assert read.notes == ("its language is julia: its cells are not Python",)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    SCALARS | TEXT, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=3), max_leaves=6
)
FREE = st.dictionaries(TEXT.map("own.".__add__), JSON, max_size=3)
STRINGS = TEXT | st.lists(TEXT, max_size=3)
BASE64 = st.binary(max_size=120).flatmap(
    lambda data: st.sampled_from([base64.b64encode(data).decode(), base64.encodebytes(data).decode()])
)
DATA = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("text/plain", "text/html", "text/x-own", "image/svg+xml", "own", "application/x"), STRINGS),
        **dict.fromkeys(("image/png", "image/jpeg", "image/x-own", "audio/mp3", "application/pdf"), BASE64 | STRINGS),
        **dict.fromkeys(("application/json", "application/vnd.own+json", "application/geo+json"), JSON),
    },
)
COUNTS = st.none() | st.integers(0, 2**53)
STREAMS = st.fixed_dictionaries({"output_type": st.just("stream"), "name": TEXT, "text": STRINGS})
OUTPUTS = st.one_of(
    STREAMS,
    st.fixed_dictionaries({"output_type": st.just("display_data"), "data": DATA, "metadata": FREE}),
    st.fixed_dictionaries(
        {"output_type": st.just("execute_result"), "data": DATA, "metadata": FREE, "execution_count": COUNTS}
    ),
    st.fixed_dictionaries(
        {"output_type": st.just("error"), "ename": TEXT, "evalue": TEXT, "traceback": st.lists(TEXT, max_size=3)}
    ),
)


def apart(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without a stream right behind one of its name: those are joined."""
    return [
        each
        for place, each in enumerate(outputs)
        if place == 0 or "name" not in each or each["name"] != outputs[place - 1].get("name")
    ]


SOURCES = STRINGS.filter(lambda source: "\x00" not in "".join(source))
METADATA = st.builds(
    lambda free, tags: {**free, **({"tags": tags} if tags else {})}, FREE, st.sampled_from([[], ["a"], ["a", "b c"]])
)
ATTACHMENTS = st.dictionaries(TEXT, DATA, min_size=1, max_size=2)
CELLS = st.one_of(
    st.fixed_dictionaries(
        {"cell_type": st.sampled_from(["markdown", "raw"]), "metadata": METADATA, "source": SOURCES},
        optional={"attachments": ATTACHMENTS},
    ),
    st.fixed_dictionaries(
        {
            "cell_type": st.just("code"),
            "metadata": METADATA,
            "source": SOURCES,
            "execution_count": COUNTS,
            "outputs": st.lists(OUTPUTS, max_size=4).map(apart),
        }
    ),
)


@settings(max_examples=60, derandomize=True)
@given(cells=st.lists(CELLS, max_size=4), metadata=FREE)
def test_any_valid_document_is_the_same_after_a_round_trip(
    cells: list[dict[str, Any]], metadata: dict[str, Any]
) -> None:
    numbered = [{**cell, "id": f"id-{number}"} for number, cell in enumerate(cells)]
    assert comes_back(whole(*numbered, metadata={**SPEC, **metadata})).notes == ()


KEYS = ["cell_type", "id", "metadata", "source", "outputs", "execution_count", "attachments", "output_type", "data",
        "name", "text", "traceback", "nbformat", "nbformat_minor", "cells", "tags", "kernelspec", "worksheets", "input",
        "image/png", "application/json", "text/plain"]  # fmt: skip
VALUES = st.sampled_from(["code", "markdown", "stream", "error", "display_data", "execute_result", "pyout", "heading"])
WORDS = st.sampled_from([2, 3, 4, 5, -1, 0, None, True, 1e999, 10**30]) | VALUES | TEXT
CHAOS = st.recursive(
    WORDS, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.sampled_from(KEYS), each, max_size=5)
)


@settings(max_examples=150, derandomize=True)
@given(cells=st.lists(st.dictionaries(st.sampled_from(KEYS), CHAOS, max_size=6), max_size=3), metadata=CHAOS,
       version=st.sampled_from([1, 2, 3, 4, 4, 4]))  # fmt: skip
def test_whatever_comes_is_refused_in_a_sentence_or_makes_a_valid_document(
    cells: list[dict[str, Any]], metadata: Any, version: int
) -> None:
    kinds = [{"cell_type": ("code", "markdown")[number % 2], **cell} for number, cell in enumerate(cells)]
    given = {"nbformat": version, "nbformat_minor": 5, "metadata": metadata, "cells": kinds}
    if version < 4:
        given["worksheets"] = [{"cells": kinds}]
    try:
        read = ipynb.loads(json.dumps(given).replace("Infinity", "1e999"))
    except InvalidRequest as refused:
        assert "Nothing was imported." in str(refused) and "\n" not in str(refused) and len(str(refused)) < 400
    else:
        nbformat.validate(json.loads(written(read)))


# What is put right


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        ({"cell_type": "code"}, ""),
        ({"cell_type": "code", "source": "x", "metadata": None, "outputs": None}, ""),
        ({"cell_type": "markdown", "source": "x", "outputs": [], "execution_count": None}, ""),
        (code({"output_type": "stream", "text": "x"}), ""),
        (code({"output_type": "display_data", "transient": {"display_id": "x"}}), ""),
        (code({"output_type": "error"}), ""),
        (code({"output_type": "pyout", "prompt_number": 3, "data": {"text/plain": "3"}}), ""),
        (code(collapsed=True), "moved into cells' metadata, where nbformat wants it: 'collapsed'"),
        (code(scrolled="maybe"), "not allow it: 'scrolled'"),
        (code(metadata={"tags": ["a", "a", "b,c", 3]}), "not allow it: 'tags'"),
        (code(metadata={"name": ""}), "'name'"),
        (code(metadata={"execution": {"a": 1}}), "'execution'"),
        (code(id="not allowed!"), "a cell's id that nbformat does not allow"),
        (code({"output_type": "clear_output"}), "left out: outputs of type 'clear_output'"),
        (code({**shown({"text/plain": 3, "image/png": {"a": 1}}), "collapsed": True}), "does not know it: 'collapsed'"),
    ],
)
def test_what_jupyter_opens_is_taken_and_made_valid(cell: dict[str, Any], note: str) -> None:
    read = loads(whole(cell))
    nbformat.validate(json.loads(written(read)))
    assert len(read.cells) == 1
    assert [note in each for each in read.notes].count(True) == bool(note) or not note
    assert bool(read.notes) == bool(note), read.notes


def test_keys_at_the_wrong_place_are_kept_in_the_metadata() -> None:
    (cell,) = loads(whole(code(collapsed=True, extra={"a": 1}, prompt_number=3))).cells
    assert cell.metadata == {"collapsed": True, "extra": {"a": 1}}
    (tagged,) = loads(whole(code(metadata={"tags": ["a", "a", "b,c", 3], "trusted": True}))).cells
    assert tagged.metadata == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        (None, {}),
        ({"kernelspec": {"name": "python3"}}, {"kernelspec": {"name": "python3", "display_name": "python3"}}),
        ({"kernelspec": "python", "language_info": {}, "title": 3, "authors": "me", "x": 1}, {"x": 1}),
        ({"language_info": {"name": "python", "mimetype": 3}}, {"language_info": {"name": "python"}}),
        ({"orig_nbformat": 3, "signature": "x"}, {}),
    ],
)
def test_metadata_that_nbformat_refuses_is_put_right(metadata: Any, kept: dict[str, Any]) -> None:
    read = loads(whole(metadata=metadata))
    assert read.metadata == kept
    nbformat.validate(json.loads(written(read)))


def test_streams_of_one_name_side_by_side_are_one() -> None:
    pieces = [{"output_type": "stream", "name": name, "text": name[3:]} for name in ("stdout", "stdout", "stderr")]
    outputs = json.loads(written(loads(whole(code(*pieces)))))["cells"][0]["outputs"]
    assert [(each["name"], each["text"]) for each in outputs] == [("stdout", ["outout"]), ("stderr", ["err"])]


def test_a_newer_minor_version_is_read_as_it_can_be_and_an_older_one_may_repeat_ids() -> None:
    newer = loads(whole(code(), {"cell_type": "sketch", "source": "x"}, nbformat_minor=9))
    assert "nbformat 4.9" in newer.notes[0] and newer.notes[1] == "taken as raw: cell 1, of type 'sketch'"
    assert newer.cells[1].kind is CellKind.RAW and newer.cells[1].source == "x"
    assert [cell.id for cell in loads(whole(code(), code(), nbformat_minor=4)).cells] == ["c0", ""]
    assert loads({"nbformat": 4, "cells": [code()]}).cells[0].id == "c0"


THIRD = {
    "nbformat": 3,
    "nbformat_minor": 0,
    "metadata": {"name": "old"},
    "worksheets": [
        {
            "cells": [
                {"cell_type": "heading", "level": 2, "source": ["Old"]},
                {"cell_type": "code", "language": "python", "input": ["1\n", "2"], "prompt_number": "*", "outputs": [
                    {"output_type": "pyout", "prompt_number": 1, "text": ["2"], "png": PNG},
                    {"output_type": "stream", "stream": "stderr", "text": "e"},
                    {"output_type": "pyerr", "ename": "E", "evalue": "v", "traceback": ["t"]},
                ]},
                {"cell_type": "code", "input": "x", "collapsed": True},
            ]
        }
    ],
}  # fmt: skip
SECOND = {
    "nbformat": 2,
    "metadata": {},
    "worksheets": [{"cells": [{"cell_type": "code", "input": "x", "outputs": []}]}],
}
FIRST = {"cells": [{"cell_type": "code", "code": "x", "prompt_number": 1}, {"cell_type": "text", "text": "words"}]}


def test_old_documents_are_upgraded() -> None:
    third, second, first = (loads(each) for each in (THIRD, SECOND, FIRST))
    assert [each.notes[0] for each in (third, second, first)] == [f"upgraded from nbformat {n}" for n in (3, 2, 1)]
    assert [cell.source for cell in third.cells] == ["## Old", "1\n2", "x"]
    run = third.cells[1].run
    assert run is not None and [each.type.value for each in run.outputs] == ["image", "stream", "error"]
    assert [cell.source for cell in (*second.cells, *first.cells)] == ["x", "x", "words"]
    for each in (third, second, first):
        nbformat.validate(json.loads(written(each)))


# What is refused


def deep(levels: int) -> Any:
    nested: Any = 1
    for _ in range(levels):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("hello", "at line 1, column 1 the JSON is broken"),
        ('{"nbformat": 4,\n "cells": [}', "at line 2, column 12 the JSON is broken"),
        ("[]", "no object with cells"),
        ('"text"', "no object with cells"),
        ("{}", "it has no nbformat"),
        ('{"data": {}, "metadata": {"id": "default"}}', "it has no nbformat"),
        ('{"cells": []}', "it has no nbformat"),
        ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "it has no list of cells"),
        ('{"nbformat": 5, "nbformat_minor": 0, "metadata": {}, "cells": []}', "its nbformat 5 is newer than 4.5"),
        ('{"nbformat": 0, "cells": []}', "there is no nbformat 0"),
        ('{"nbformat": "4", "cells": []}', "not a whole number"),
        ('{"nbformat": true, "cells": []}', "not a whole number"),
        ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {"x": NaN}, "cells": []}', "it holds NaN"),
        ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {"x": -Infinity}, "cells": []}', "it holds -Infinity"),
        ('{"nbformat": 4, "metadata": {"x": ' + "9" * 5000 + '}, "cells": []}', "too many digits"),
        ('{"a":' * 100_000, "nested too deeply"),
        (json.dumps(whole(metadata={"x": deep(300)})), "nested too deeply"),
        (json.dumps(whole(code(shown({"application/json": deep(300)})))), "nested too deeply"),
        (json.dumps(whole(code(source="a\ud800b"))), "lone surrogate"),
        ('{"nbformat": 4, "metadata": {"\ud800": 1}, "cells": []}', "lone surrogate"),
        (json.dumps(whole(code(source="a\x00b"))), "the source of cell 0 holds a NUL byte"),
        (json.dumps(whole(code(source="x" * 1_000_001))), "the source of cell 0 has more than 1,000,000 bytes"),
        (json.dumps(whole(code(), code())), "cells 0 and 1 have the same id 'c0'"),
        (json.dumps(whole(code(), {"cell_type": "poem"})), "cell 1 has cell_type 'poem'"),
        (json.dumps(whole(code(), {"source": "x"})), "cell 1 has cell_type 'None'"),
        (json.dumps(whole(code(), [])), "cell 1 is a list, not an object"),
        (json.dumps(whole(code(source=3))), "the source of cell 0 is a number, not text"),
        (json.dumps(whole(code(source=["a", None]))), "the source of cell 0 is a list, not text"),
        (json.dumps(whole(code(metadata=[]))), "the metadata of cell 0 is a list, not an object"),
        (json.dumps(whole(code(outputs={}))), "the outputs of cell 0 are an object, not a list"),
        (json.dumps(whole(code(3))), "output 0 of cell 0 is a number, not an object"),
        (json.dumps(whole(code(shown({}), shown([])))), "the data of output 1 of cell 0 is a list"),  # type: ignore[arg-type]
        (json.dumps(whole(code(shown({}, metadata=3)))), "the metadata of output 0 of cell 0 is a number"),
        (json.dumps(whole(code(execution_count="one"))), "the execution_count of cell 0 is text"),
        (json.dumps(whole(code(execution_count=-1))), "below 0"),
        (json.dumps(whole(code(execution_count=10**30))), "too large"),
        (json.dumps(whole(code({"output_type": "stream", "text": 3}))), "the text of output 0 of cell 0 is a number"),
        (json.dumps(whole(code({"output_type": "error", "traceback": [1]}))), "the traceback of output 0 of cell 0"),
        (json.dumps(whole(cells={})), "it has no list of cells"),
        (json.dumps({"nbformat": 3, "worksheets": [3]}), "nbformat 3 could not be upgraded"),
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ipynb.loads(text)
    assert says in str(refused.value)
    assert str(refused.value).startswith("This is not a valid ipynb document: ")
    assert str(refused.value).endswith(" Nothing was imported.") and "\n" not in str(refused.value)


def test_more_than_fifty_million_bytes_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(InvalidRequest, match="has 50,000,001 bytes, over the limit of 50,000,000"):
        ipynb.loads("{" + "é" * 25_000_000)


def test_a_byte_order_mark_is_no_matter() -> None:
    assert len(ipynb.loads("\ufeff" + json.dumps(whole(code()))).cells) == 1


# What a run here has shown


def ran(*outputs: Output) -> list[Cell]:
    run = RunData(
        id=RunId("r"), cell=CellId("c"), count=3, source="x", author="agent", started_at=0, seconds=1, outputs=outputs
    )
    return [Cell(id=CellId("c"), number=0, kind=CellKind.CODE, source="x", run=run)]


def test_what_is_ours_alone_is_not_in_the_document() -> None:
    picture = Output(
        type=OutputType.IMAGE,
        bundle={"image/png": b"\x89PNG", "image/vnd.quire.preview+png": b"small", "text/vnd.quire.now": "x"},
        display_id="d",
    )
    stream = Output(
        type=OutputType.STREAM,
        name="stdout",
        bundle={"text/plain": "\ufffd", "application/octet-stream": b"\xff"},
    )
    text = ipynb.dumps(book(), ran(picture, stream))
    nbformat.validate(json.loads(text))
    assert "quire" not in text and "octet" not in text and "display_id" not in text
    assert json.loads(text)["cells"][0]["outputs"][0]["data"] == {"image/png": "iVBORw=="}


def test_a_document_cannot_bring_what_is_ours_alone() -> None:
    private = {"image/vnd.quire.preview+png": PNG, "application/vnd.quire.widget-state+json": {"m": {}}}
    read = loads(whole(code(shown({**private, "text/plain": "x"}))))
    run = read.cells[0].run
    assert run is not None and run.outputs[0].bundle == {"text/plain": "x"}


def test_the_state_of_widgets_goes_where_jupyter_looks_for_it() -> None:
    mime = "application/vnd.jupyter.widget-state+json"
    view = {"application/vnd.jupyter.widget-view+json": '{"model_id": "m"}', "text/plain": "IntSlider(value=3)"}
    state = {"m": {"model_name": "IntSliderModel", "model_module": "c", "model_module_version": "2", "state": {}}}
    kept = Output(
        type=OutputType.EXECUTE_RESULT,
        bundle={**view, "application/vnd.quire.widget-state+json": json.dumps(state)},
    )
    before = {"widgets": {mime: {"version_major": 2, "version_minor": 0, "state": {"old": {}}}, "other": 1}}
    for metadata, there in ((before, {"old": {}}), ({}, {}), ({"widgets": 3}, {})):
        document = json.loads(ipynb.dumps(book(metadata), ran(kept)))
        nbformat.validate(document)
        assert document["metadata"]["widgets"][mime] == {
            "version_major": 2,
            "version_minor": 0,
            "state": {**there, **state},
        }
    assert before["widgets"][mime]["state"] == {"old": {}}  # type: ignore[index]


def test_what_json_does_not_have_is_written_as_null() -> None:
    odd = Output(type=OutputType.EXECUTE_RESULT, bundle={"application/json": '{"a": NaN, "b": [1e999]}'}, result=True)
    text = ipynb.dumps(book({**SPEC, "x": float("inf")}), ran(odd))
    document = json.loads(text, parse_constant=pytest.fail)
    assert document["cells"][0]["outputs"][0]["data"]["application/json"] == {"a": None, "b": [None]}
    assert document["metadata"]["x"] is None


def test_a_cell_made_code_leaves_its_attachments_behind() -> None:
    cell = Cell(id=CellId("c"), number=0, kind=CellKind.CODE, source="x", attachments={"p": {"image/png": b"x"}})
    nbformat.validate(json.loads(ipynb.dumps(book(), [cell])))
