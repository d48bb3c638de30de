"""Long results of capability calls are cut and read in parts."""

from __future__ import annotations

from typing import Any

import pytest

from quire.core.capabilities.model import Result
from quire.core.capabilities.truncated_results import TruncatedResults
from quire.core.errors import NotFound
from quire.core.model import NotebookId

HERE, ELSEWHERE = NotebookId("here"), NotebookId("elsewhere")


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def whole(leftovers: TruncatedResults, block: dict[str, Any], notebook: NotebookId = HERE) -> str:
    """As the kernel reads it."""
    said, more = block["text"], "rest" in block
    while more:
        part = leftovers.part(notebook, block["rest"], len(said))
        said, more = said + part["text"], part["more"]
    return str(said)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 21, 95])
def test_long_text_can_be_read_in_parts(size: int) -> None:
    leftovers, said = TruncatedResults(10), "".join(chr(0x1D100 + n) for n in range(size))
    [block] = leftovers.fit(HERE, Result(content=[text(said)]))["content"]
    assert len(block["text"]) <= 10 and ("rest" in block) == (size > 10)
    assert block.get("size", len(block["text"])) == size
    assert whole(leftovers, block) == said


def test_short_result_is_unchanged() -> None:
    result = Result(
        content=[text("short"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}], structured={"a": 1}
    )
    assert TruncatedResults(100).fit(HERE, result) == {"content": result.content, "structured": {"a": 1}}


def test_long_structured_data_becomes_text() -> None:
    leftovers = TruncatedResults(100)
    fitted = leftovers.fit(HERE, Result(content=[text("short")], structured={"all": ["x" * 50] * 10}))
    assert "structured" not in fitted
    [block] = fitted["content"]
    assert whole(leftovers, block).startswith('{"all": ["xxx') and block["size"] > 500


@pytest.mark.parametrize("structured", [[], {}, 0, "", False, None, "short"])
def test_small_structured_data_is_unchanged(structured: Any) -> None:
    fitted = TruncatedResults(1_000).fit(HERE, Result(content=[], structured=structured))
    assert fitted == ({"content": []} if structured is None else {"content": [], "structured": structured})


def test_embedded_resource_is_cut() -> None:
    leftovers = TruncatedResults(10)
    [block] = leftovers.fit(HERE, Result(content=[{"type": "resource", "resource": {"uri": "a", "text": "x" * 50}}]))[
        "content"
    ]
    assert whole(leftovers, block["resource"]) == "x" * 50


def test_large_image_is_replaced_by_a_note() -> None:
    block = {"type": "image", "data": "A" * (9 << 20), "mimeType": "image/png"}
    [fitted] = TruncatedResults(1_000).fit(HERE, Result(content=[block]))["content"]
    assert fitted["type"] == "text" and "image/png" in fitted["text"] and "data" not in fitted


@pytest.mark.parametrize("start", [-5, 0, 30, 10_000])
def test_any_start_offset_is_answered(start: int) -> None:
    leftovers = TruncatedResults(10)
    [block] = leftovers.fit(HERE, Result(content=[text("x" * 35)]))["content"]
    part = leftovers.part(HERE, block["rest"], start)
    assert len(part["text"]) <= 10 and part["more"] == (max(start, 0) + 10 < 35)


def test_other_notebook_cannot_read_the_rest() -> None:
    leftovers = TruncatedResults(10)
    [block] = leftovers.fit(HERE, Result(content=[text("x" * 50)]))["content"]
    for notebook, key in ((ELSEWHERE, block["rest"]), (HERE, "guess"), (HERE, "")):
        with pytest.raises(NotFound, match="Call the tool again"):
            leftovers.part(notebook, key, 10)


def test_least_recently_used_texts_are_dropped() -> None:
    leftovers, size = TruncatedResults(1_000), 20 << 20
    kept = [leftovers.fit(HERE, Result(content=[text(f"{n}" * size)]))["content"][0] for n in range(3)]
    leftovers.part(HERE, kept[0]["rest"], 0)  # used, and so not the longest unused
    leftovers.fit(HERE, Result(content=[text("4" * size)]))
    assert whole_or_gone(leftovers, kept) == [True, False, True]


def whole_or_gone(leftovers: TruncatedResults, blocks: list[dict[str, Any]]) -> list[bool]:
    found = []
    for block in blocks:
        try:
            leftovers.part(HERE, block["rest"], 0)
            found.append(True)
        except NotFound:
            found.append(False)
    return found
