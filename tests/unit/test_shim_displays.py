"""The shim's display classes and formatter beside IPython's."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import IPython.display as theirs
import pytest
from IPython.core.formatters import DisplayFormatter

from quire.worker.shim import displays as ours
from quire.worker.shim.formatters import DisplayFormatter as OurFormatter
from quire.worker.shim.shell import Shell

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 30, 40) + b"\x08\x02\0\0\0" + b"0000"
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x10\x00\x20\x03" + b"\0" * 20
SVG = "<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'><g a='1'/></svg>"

MADE: list[Any] = [
    lambda d: d.Image(PNG),
    lambda d: d.Image(PNG, width=5, height=6),
    lambda d: d.Image(PNG, width=5, unconfined=True, alt="x", metadata={"a": 1}),
    lambda d: d.Image(PNG, retina=True),
    lambda d: d.Image(JPEG),
    lambda d: d.Image(JPEG, retina=True),
    lambda d: d.Image(b"GIF89a123"),
    lambda d: d.Image(b"RIFF1234WEBPVP8"),
    lambda d: d.Image(b"abc"),
    lambda d: d.Image(b"abc", format="jpeg"),
    lambda d: d.Image(url="http://x/y.png"),
    lambda d: d.Image(url="http://x/y.png", alt="<q>", height=3, unconfined=True),
    lambda d: d.Image(filename="picture.png", width=3),
    lambda d: d.Image("picture.png"),
    lambda d: d.Image(Path("picture.png")),
    lambda d: d.Image(),
    lambda d: d.Image(b"x", format="bmp", embed=True),
    lambda d: d.Audio(b"abc"),
    lambda d: d.Audio(b"abc", autoplay=True, element_id="q"),
    lambda d: d.Audio([0, 1, -1, 0.5], rate=100),
    lambda d: d.Audio([0.1, 0.25, -0.5], rate=8000),
    lambda d: d.Audio([[0, 1], [1, 0]], rate=100),
    lambda d: d.Audio([0.1, 0.2], rate=100, normalize=False),
    lambda d: d.Audio([0.1, 1.2], rate=100, normalize=False),
    lambda d: d.Audio([0.1, 0.2]),
    lambda d: d.Audio(url="http://x/y.mp3"),
    lambda d: d.Audio(b"x", embed=False),
    lambda d: d.Video("http://x/y.mp4"),
    lambda d: d.Video(url="http://x/y.mp4", width=3, height=4, html_attributes="controls loop"),
    lambda d: d.Video(b"abc", embed=True, mimetype="video/mp4"),
    lambda d: d.Video("absent.mp4"),
    lambda d: d.Video("film.mp4", embed=True),
    lambda d: d.Video("film.mp4"),
    lambda d: d.IFrame("http://x", 100, 200)._repr_html_(),
    lambda d: d.IFrame("http://x", "100%", 200, extras=['loading="lazy"'], a=1, b="q r")._repr_html_(),
    lambda d: d.YouTubeVideo("abc", start=30)._repr_html_(),
    lambda d: d.YouTubeVideo("abc", allow_autoplay=True)._repr_html_(),
    lambda d: d.VimeoVideo("123")._repr_html_(),
    lambda d: d.ScribdDocument("7", width=8, height=4, start_page=3, view_mode="book")._repr_html_(),
    lambda d: d.FileLink("picture.png"),
    lambda d: d.FileLink("absent"),
    lambda d: d.FileLink("."),
    lambda d: d.FileLink("picture.png", url_prefix="q/", result_html_prefix="<b>", result_html_suffix="</b>"),
    lambda d: d.FileLinks("."),
    lambda d: d.FileLinks("./", included_suffixes=[".png"], recursive=False),
    lambda d: d.FileLinks("picture.png"),
    lambda d: d.Pretty("abc"),
    lambda d: d.ProgressBar(10),
    lambda d: d.JSON({"a": 1}),
    lambda d: d.JSON([1], expanded=True, root="r", metadata={"x": 2}, more=3),
    lambda d: d.JSON(5),
    lambda d: d.Javascript("x"),
    lambda d: d.Javascript("x", lib=["a.js", "b.js"], css="c.css"),
    lambda d: d.SVG("<svg><g/></svg>"),
    lambda d: d.SVG(SVG),
    lambda d: d.HTML("<b>", metadata={"isolated": True}),
    lambda d: d.HTML("<b>").__html__(),
    lambda d: d.HTML("page.html"),
    lambda d: d.HTML(),
    lambda d: d.Math("$x$"),
    lambda d: d.Math("x^2", metadata={"a": 1}),
    lambda d: d.Latex("$x$"),
    lambda d: d.Markdown("# x"),
    lambda d: d.Markdown(b"# x"),
    lambda d: d.DisplayObject("x"),
    lambda d: d.TextDisplayObject("x"),
    lambda d: d.DisplayHandle("q"),
    lambda d: repr(d.Code("x = 1", language="python")),
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "picture.png").write_bytes(PNG)
    (tmp_path / "film.mp4").write_bytes(b"film")
    (tmp_path / "page.html").write_text("<p>ü</p>", encoding="utf-8")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a&b.txt").write_text("x")


def outcome(make: Any, classes: Any, formatter: Any) -> Any:
    try:
        made = make(classes)
    except Exception as error:
        return type(error)
    return formatter.format(made)


@pytest.mark.parametrize("make", MADE, ids=range(len(MADE)))
def test_what_is_shown_has_the_forms_that_ipython_gives_it(make: Any) -> None:
    assert outcome(make, ours, OurFormatter()) == outcome(make, theirs, DisplayFormatter())


class Rich:
    def _repr_html_(self) -> str:
        return "<b>"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return PNG, {"width": 3}

    def _repr_markdown_(self) -> str:
        raise NotImplementedError

    def _repr_latex_(self) -> None:
        return None

    def _repr_json_(self) -> dict[str, int]:
        return {"a": 1}


class Whole:
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return {"text/html": "<i>", "x/y": 1, "text/plain": "whole"}, {"x/y": {"m": 1}}

    def _repr_html_(self) -> str:
        return "never"


class Part:
    def _repr_mimebundle_(self, **named: Any) -> Any:
        return {"text/html": "<i>"}


class Broken:
    def _repr_html_(self) -> str:
        raise ValueError("broken form")

    def __repr__(self) -> str:
        return "still here"


class WrongType:
    def _repr_html_(self) -> int:
        return 5


class Everything:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: "anything"


class ShowsItself:
    def _ipython_display_(self) -> None:
        print("myself")


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.filterwarnings("ignore::IPython.core.formatters.FormatterWarning")
@pytest.mark.parametrize(
    "value", [Rich(), Whole(), Part(), Broken(), WrongType(), ShowsItself(), Silent(), Rich, Whole, 5, "text", [1, 2]]
)
@pytest.mark.parametrize("chosen", [{}, {"include": ["text/html"]}, {"exclude": ["text/html", "image/png"]}])
def test_a_value_is_asked_as_ipython_asks_it(value: Any, chosen: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert OurFormatter().format(value, **chosen) == DisplayFormatter().format(value, **chosen)


def test_a_value_that_answers_to_everything_is_not_asked() -> None:
    assert set(OurFormatter().format(Everything())[0]) == {"text/plain"}


def test_a_form_that_fails_is_told_and_costs_only_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert OurFormatter().format(Broken()) == ({"text/plain": "still here"}, {})
    said = capsys.readouterr().err
    assert "ValueError: broken form" in said and "KeyError" not in said and "shim" not in said.replace(__file__, "")


def test_forms_can_be_registered_looked_up_and_taken_back() -> None:
    html = OurFormatter().formatters["text/html"]
    with pytest.raises(KeyError):
        html.lookup_by_type(Rich)
    assert html.for_type(Rich, lambda value: "<u>") is None
    assert html(Rich()) == "<u>"
    assert html.for_type_by_name(__name__, "Whole", lambda value: "<s>") is None
    assert html(Whole()) == "<s>"
    assert html.pop(Rich) is not None
    assert html(Rich()) == "<b>"
    assert html.pop(Rich, None) is None


Shown = list[tuple[Any, ...]]


@pytest.fixture
def shown() -> Iterator[Shown]:
    events: Shown = []
    Shell({}, lambda *given: events.append(given), lambda wait: events.append(("clear", wait)))
    yield events


def test_display_publishes_and_a_handle_updates(shown: Shown) -> None:
    handle = ours.display("a", display_id=True)
    assert handle is not None
    handle.update("b")
    ours.update_display("c", display_id="other")
    ours.display({"text/plain": "raw"}, raw=True, metadata={"m": 1})
    ours.display(ours.HTML("<b>"), metadata={"text/html": {"isolated": True}}, include=["text/html"])
    ours.display(display_id="empty")
    ours.clear_output(wait=True)
    ours.display("x", clear=True)
    one = {"display_id": handle.display_id}
    assert shown == [
        ({"text/plain": "'a'"}, {}, one, False),
        ({"text/plain": "'b'"}, {}, one, True),
        ({"text/plain": "'c'"}, {}, {"display_id": "other"}, True),
        ({"text/plain": "raw"}, {"m": 1}, {}, False),
        ({"text/html": "<b>"}, {"text/html": {"isolated": True}}, {}, False),
        ({}, {}, {"display_id": "empty"}, False),
        ("clear", True),
        ("clear", True),
        ({"text/plain": "'x'"}, {}, {}, False),
    ]


def test_progress_counts_and_shows_itself_again(shown: Shown) -> None:
    assert list(ours.ProgressBar(2)) == [0, 1]
    assert [event[3] for event in shown] == [False, True, True, True]


def test_geojson_goes_out_as_it_does_in_ipython(shown: Shown) -> None:
    ours.display(ours.GeoJSON({"type": "Feature"}, url_template="http://t"))
    data, metadata, _, _ = shown[0]
    assert data == {"application/geo+json": {"type": "Feature"}, "text/plain": "<IPython.display.GeoJSON object>"}
    assert metadata["application/geo+json"]["url_template"] == "http://t"


def test_one_form_only(shown: Shown) -> None:
    ours.display_html("<b>", raw=True)
    ours.display_png(Rich())
    assert shown[0][0] == {"text/html": "<b>"}
    assert base64.b64encode(shown[1][0]["image/png"]) and set(shown[1][0]) == {"image/png", "text/plain"}
