"""What a model reads of an output."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quire.core.model import Blob, Output, OutputType
from quire.core.notebooks.images import PREVIEW
from quire.core.runs import model_text
from quire.core.runs.model_text import TABLE_TEXT, WIDGET_TEXT, best_mime_type, final_text, html_to_text


def shown(**bundle: Any) -> Output:
    """`text_html=...` is text/html."""
    return of({mime.replace("_", "/", 1): data for mime, data in bundle.items()})


def of(bundle: dict[str, Any]) -> Output:
    return Output(type=OutputType.EXECUTE_RESULT, bundle=bundle)


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("", ""),
        ("plain\n", "plain\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("10%\r20%\r100%", "100%"),
        ("100%\r9%\n", "9%0%\n"),  # as a terminal does: what is not written over stays
        ("working\r\x1b[Kdone\n", "done\n"),
        ("working\r\x1b[2Kdone\n", "done\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("done\r", "done"),
        ("a\rb\nc\rd\n", "b\nd\n"),
        ("\x1b[31mred\x1b[0m \x1b[1;38;5;200mbold\x1b[m", "red bold"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://a.b\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2K\x1b[1Aline", "line"),
        ("\x9b31mred\x9b0m \x1b[1mbold\x9bm", "red bold"),
        ("working\r\x9bKdone\n", "done\n"),
        ("\x9d0;title\x07text\x9d0;title\x9ctext", "texttext"),
        ("\x9d8;;https://a.b\x1b\\link\x9d8;;\x1b\\", "link"),
        ("\x1bPq#0;2\x1b\\text\x90q#0;2\x9ctext\x1b_x\x1b\\\x1b^x\x1b\\", "texttext"),
        ("a\x9b", "a"),
        ("a\x9dtitle", "atitle"),  # it never ends: only what begins it goes
        ("a\x8db\x84c\x9bé", "abcé"),
        ("abc\b\bXY", "aXY"),
        ("|\b/\b-\b\\\bok", "ok"),
        ("\b\b\bstart", "start"),
        ("snowman ☃\rfish 🐟!\n", "fish 🐟! ☃\n"),
    ],
)
def test_a_stream_is_read_as_a_terminal_leaves_it(printed: str, read: str) -> None:
    assert final_text(printed) == read


@pytest.mark.parametrize(
    "flood",
    ["\b", "x\b", "x\r", "xxxx\b\b\b", "\x1b[", "\x1b]", "\r\n", "\x1b[1m", "\x9b", "\x9d", "\x90", "\x9b1", "\x1bP"],
)
def test_a_flood_of_control_characters_costs_little(flood: str) -> None:
    begun = time.process_time()
    final_text(flood * 200_000)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("flood", ["<", "<p>", "<script>", "<!--", "<style></style", "&", "&#", "</"])
def test_a_flood_of_tags_costs_little(flood: str) -> None:
    begun = time.process_time()
    html_to_text(flood * 20_000)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("html", "read"),
    [
        ("<b>bold</b> and <i>not</i>", "bold and not"),
        ("<p>one</p><p>two<br>three</p>", "one\ntwo\nthree"),
        ("<style>p {color: red}</style><p>seen</p><script>alert(1)</script>", "seen"),
        ("<!-- no -->a &amp; b &lt;c&gt; &eacute;", "a & b <c> é"),
        ("<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>", "1 2\n3"),
        ("<SCRIPT>x</SCRIPT >yes", "yes"),
        ("", ""),
    ],
)
def test_html_is_read_by_its_words(html: str, read: str) -> None:
    assert html_to_text(html) == read


def test_a_widget_as_it_is_now_and_a_table_in_few_characters_come_first() -> None:
    assert best_mime_type(of({"text/plain": "p", "text/html": "<b>", WIDGET_TEXT: "now"})) == WIDGET_TEXT
    assert best_mime_type(of({"text/plain": "p", "text/html": "<b>", TABLE_TEXT: "t"})) == TABLE_TEXT


def test_an_objects_own_text_is_read_unless_it_says_nothing() -> None:
    assert best_mime_type(shown(text_plain="Thing(3)", text_html="<b>3</b>")) == "text/plain"
    for nothing in ("<IPython.core.display.HTML object>", "<__main__.X object at 0x7f0a>", " <X object>\n"):
        assert best_mime_type(shown(text_plain=nothing, text_html="<b>3</b>")) == "text/html"
        assert best_mime_type(shown(text_plain=nothing, text_markdown="*m*", text_html="<b>")) == "text/markdown"
        assert best_mime_type(shown(text_plain=nothing, text_latex="$x$")) == "text/latex"
        assert best_mime_type(of({"text/plain": nothing, "application/json": "{}"})) == "application/json"
        assert best_mime_type(shown(text_plain=nothing)) == "text/plain"  # there is nothing better
    assert best_mime_type(shown(text_plain="<X object> and more", text_html="<b>")) == "text/plain"


def test_what_is_seen_needs_no_other_words() -> None:
    nothing = "<Figure object>"
    for picture in ("image/png", PREVIEW):
        assert best_mime_type(of({"text/plain": nothing, picture: b"", "text/html": "<img>"})) == "text/plain"
        assert best_mime_type(of({picture: b"", "text/html": "<img>"})) == ""


def test_a_bundle_without_text_has_none_and_one_of_unknown_text_is_read() -> None:
    assert best_mime_type(of({})) == "" and best_mime_type(of({"application/x-thing": "1"})) == ""
    assert best_mime_type(of({"application/x": "1", "text/x-thing": "2"})) == "text/x-thing"


def test_a_text_that_is_kept_elsewhere_is_read_all_the_same() -> None:
    blob = Blob(digest="d", size=100_000, text=True)
    assert best_mime_type(of({"text/plain": blob, "text/html": blob})) == "text/plain"


def test_only_html_is_changed_before_it_is_read() -> None:
    assert model_text.as_text("text/markdown", "<b>*m*</b>") == "<b>*m*</b>"
    assert model_text.as_text("text/html", "<b>m</b>") == "m"
