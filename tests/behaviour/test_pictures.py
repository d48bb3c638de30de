"""Pictures of a cell: in order, as the model sees them and whole, and none left open."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp import Client

from quire.core.notebooks.images import dimensions
from tests.support.external_programs import missing
from tests.support.notebooks import Book, new_book
from tests.support.servers import call, stdio_client, text


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client[Any]]:
    async with stdio_client(tmp_path_factory.mktemp("pictures") / "data") as connected:
        yield connected


@pytest.fixture
async def book(server: Client[Any], science: None) -> AsyncIterator[Book]:
    async with new_book(server) as made:
        await made.run("import matplotlib.pyplot as plt, numpy as np\nfrom IPython.display import Image, SVG, display")
        yield made


class Shown:
    """A cell's answer: what it refers to, and what it lets the model see."""

    def __init__(self, result: Any) -> None:
        assert not result.is_error, text(result)
        self.text = text(result)
        self.outputs: list[dict[str, Any]] = result.structured_content["outputs"]
        self.images = [output["image"] for output in self.outputs if "image" in output]
        self.seen = [base64.b64decode(block.data) for block in result.content if block.type == "image"]

    @property
    def sides(self) -> list[tuple[int | None, int | None]]:
        return [dimensions(data, "image/png") for data in self.seen]


async def show(book: Book, code: str) -> Shown:
    return Shown(await book.ask("add_cell", code=code, timeout=60))


async def whole(book: Book, image: dict[str, Any]) -> bytes:
    return base64.b64decode((await book.client.read_resource(image["uri"]))[0].blob)


def width(data: bytes) -> int:
    return dimensions(data, "image/png")[0] or 0


async def test_many_figures_keep_their_order_and_none_stays_open(book: Book) -> None:
    code = "for n in range(1, 7):\n    plt.figure(figsize=(n, 1), dpi=50)\n    plt.plot([n])\n"
    code += "    print('figure', n)\n    plt.show()"
    shown = await show(book, code)
    assert [output["type"] for output in shown.outputs] == ["stream", "image"] * 6
    widths = [image["width"] for image in shown.images]
    assert widths == sorted(widths) and len(set(widths)) == 6
    assert len(shown.seen) == 4  # the others by reference
    assert [width(data) for data in shown.seen] == widths[:4]
    assert [width(await whole(book, image)) for image in shown.images] == widths
    assert await book.value("plt.get_fignums()") == []


async def test_figures_left_open_are_shown_in_their_order_and_closed(book: Book) -> None:
    shown = await show(book, "for n in (3, 1, 2): plt.figure(figsize=(n, 1), dpi=50).gca().plot([n])\nNone")
    assert len(shown.images) == 3 and [image["source"] for image in shown.images] == ["matplotlib"] * 3
    first, second, third = [image["width"] for image in shown.images]
    assert second < third < first
    assert await book.value("plt.get_fignums()") == []


async def test_fifty_figures_leave_none_behind(book: Book) -> None:
    await book.run("plt.rcParams.update({'figure.figsize': (1, 1), 'figure.dpi': 20, 'figure.max_open_warning': 0})")
    for _ in range(2):
        assert (
            len((await show(book, "for n in range(25): plt.figure().add_axes((0, 0, 1, 1)).set_axis_off()")).images)
            == 25
        )
    code = "import gc, matplotlib.figure\ngc.collect()\n"
    code += "plt.get_fignums(), sum(isinstance(each, matplotlib.figure.Figure) for each in gc.get_objects())"
    open_, alive = await book.value(code)
    assert open_ == [] and alive < 5


async def test_a_cell_that_fails_shows_its_figures_and_closes_them(book: Book) -> None:
    failed = await book.ask("add_cell", code="plt.plot([1])\n1/0")
    assert failed.is_error
    assert sorted(each["type"] for each in failed.structured_content["outputs"]) == ["error", "image"]
    assert await book.value("plt.get_fignums()") == []


async def test_a_figure_that_cannot_be_drawn_says_why_and_the_next_ones_are_fine(book: Book) -> None:
    await book.run("%xmode Minimal")
    failed = await book.ask("add_cell", code="plt.title(r'$\\frac{1$')\nNone")
    assert "ParseSyntaxException" in text(failed)
    assert await book.value("plt.get_fignums()") == []
    assert len((await show(book, "plt.plot([1])\nNone")).images) == 1


async def test_a_closed_figure_is_not_shown_and_one_named_last_is_shown_once(book: Book) -> None:
    assert (await show(book, "plt.plot([1])\nplt.close()")).images == []
    once = await show(book, "figure, axes = plt.subplots()\naxes.plot([1])\nfigure")
    assert len(once.images) in (1, 2)  # as under ipykernel: the value, and the figure that is open
    assert await book.value("plt.get_fignums()") == []
    again = await show(book, "figure")
    assert len(again.images) == 1 and len(again.seen) == 1


@pytest.mark.parametrize(
    "choose",
    [
        "%config InlineBackend.figure_format = 'retina'",
        "from matplotlib_inline.backend_inline import set_matplotlib_formats\nset_matplotlib_formats('retina')",
    ],
)
async def test_a_fine_figure_has_twice_the_pixels_and_says_its_size(book: Book, choose: str) -> None:
    plain = (await show(book, "plt.plot([1])\nNone")).images[0]
    await book.run(choose)
    fine = (await show(book, "plt.plot([1])\nNone")).images[0]
    assert abs(fine["width"] - 2 * plain["width"]) <= 4
    document = json.loads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text)
    said = document["cells"][-1]["outputs"][-1]["metadata"]["image/png"]
    assert abs(said["width"] - plain["width"]) <= 2


async def test_a_figure_as_svg_is_a_picture_for_the_model_too(book: Book) -> None:
    await book.run("%config InlineBackend.figure_formats = ['svg']")
    shown = await show(book, "plt.plot([1])\nNone")
    assert [image["format"] for image in shown.images] == ["svg"]
    assert len(shown.seen) == 1 and shown.sides[0][0], "drawn for the model"
    assert b"<svg" in await whole(book, shown.images[0])
    document = json.loads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text)
    data = document["cells"][-1]["outputs"][-1]["data"]
    assert "image/svg+xml" in data and not any("quire" in mime for mime in data)
    assert "<svg" in text(await book.ask("get_cell_image", cell_id_or_number=2))


async def test_several_formats_of_a_figure_are_one_output(book: Book) -> None:
    await book.run("%config InlineBackend.figure_formats = ['svg', 'png']")
    shown = await show(book, "plt.plot([1])\nNone")
    assert len(shown.outputs) == 1 and len(shown.seen) == 1
    assert {each.mime_type for each in await book.client.read_resource(shown.outputs[0]["uri"])} >= {
        "image/png",
        "image/svg+xml",
    }


async def test_a_large_picture_is_seen_smaller_and_had_whole(book: Book) -> None:
    shown = await show(book, "plt.figure(figsize=(20, 4), dpi=100)\nplt.plot([1])\nNone")
    image = shown.images[0]
    assert image["width"] > 1_568
    assert len(shown.seen) == 1 and 0 < width(shown.seen[0]) <= 1_568 and len(shown.seen[0]) <= 700_000
    original = await whole(book, image)
    assert width(original) == image["width"] and len(original) == image["size"]
    got = await book.ask("get_cell_image", cell_id_or_number=1)
    assert base64.b64decode(got.content[0].data) == original


async def test_noise_that_no_png_makes_small_is_seen_too(book: Book) -> None:
    code = (
        "from PIL import Image as P\nnoise = np.random.default_rng(1).integers(0, 255, (900, 900, 3), dtype='uint8')\n"
    )
    shown = await show(book, code + "P.fromarray(noise)")
    assert shown.images[0]["size"] > 2_000_000 and shown.images[0]["uri"] in shown.text
    assert sum(map(len, shown.seen)) <= 700_000
    assert len(shown.seen) == 1, "a smaller copy is seen"


@pytest.mark.parametrize(
    ("kind", "format_"), [("PNG", "png"), ("JPEG", "jpeg"), ("GIF", "gif"), ("WEBP", None), ("BMP", None)]
)
async def test_pictures_of_every_kind_are_shown_as_what_they_are(book: Book, kind: str, format_: str | None) -> None:
    code = "import io\nfrom PIL import Image as P\nfile = io.BytesIO()\n"
    code += f"P.new('RGB', (40, 30), 'red').save(file, {kind!r})\n"
    if format_ is None:
        shown = await show(book, f"{code}display({{'image/{kind.lower()}': file.getvalue()}}, raw=True)")
        assert shown.outputs and len(await book.whole(1)) == 1
        return
    shown = await show(book, f"{code}Image(data=file.getvalue(), format={format_!r})")
    assert [(image["format"], image["width"], image["height"]) for image in shown.images] == [(format_, 40, 30)]
    assert len(shown.seen) == 1
    assert await whole(book, shown.images[0]) == shown.seen[0]


async def test_a_large_animation_is_seen_as_a_still_and_had_whole(book: Book) -> None:
    code = """
import io
from PIL import Image as P
noise = np.random.default_rng(1).integers(0, 255, (8, 300, 300), dtype='uint8')
frames = [P.fromarray(each) for each in noise]
file = io.BytesIO()
frames[0].save(file, 'GIF', save_all=True, append_images=frames[1:])
Image(data=file.getvalue(), format='gif')
"""
    shown = await show(book, code)
    assert shown.images[0]["format"] == "gif" and shown.images[0]["size"] > 300_000
    assert len(shown.seen) == 1 and shown.sides == [(300, 300)]
    assert (await whole(book, shown.images[0])).startswith(b"GIF8")


async def test_a_matplotlib_animation_leaves_nothing_open(book: Book) -> None:
    code = """
from matplotlib.animation import FuncAnimation
from IPython.display import HTML
figure, axes = plt.subplots(figsize=(1, 1))
line, = axes.plot([0, 1])
animation = FuncAnimation(figure, lambda n: line.set_data([0, 1], [0, n]), frames=3)
page = HTML(animation.to_jshtml())
plt.close(figure)
page
"""
    shown = await show(book, code)
    assert [output["type"] for output in shown.outputs] == ["html"]
    assert len(shown.text) < 9_000
    assert await book.value("plt.get_fignums()") == []


async def test_a_picture_from_pil_is_seen(book: Book) -> None:
    shown = await show(book, "from PIL import Image as P\nP.new('RGB', (40, 30), 'red')")
    assert [(image["format"], image["width"], image["height"]) for image in shown.images] == [("png", 40, 30)]
    assert len(shown.seen) == 1


async def test_an_altair_chart_is_seen_as_a_picture(book: Book) -> None:
    code = "import altair as alt, pandas as pd\n"
    code += "alt.Chart(pd.DataFrame({'x': [1, 2], 'y': [3, 4]})).mark_bar().encode(x='x', y='y')"
    shown = await show(book, code)
    assert len(shown.seen) == 1 and shown.sides[0][0], shown.text
    data = {each.mime_type for each in await book.client.read_resource(shown.outputs[0]["uri"])}
    assert any("vegalite" in str(mime) or mime == "text/html" for mime in data)
    document = json.loads((await book.client.read_resource(f"notebook://{book.name}/ipynb"))[0].text)
    assert not any("quire" in mime for mime in document["cells"][-1]["outputs"][0]["data"])


async def test_a_chart_that_cannot_be_drawn_is_shown_all_the_same(book: Book) -> None:
    shown = await show(book, "import plotly.graph_objects as go\ngo.Figure(go.Bar(x=[1], y=[2]))")
    assert len(shown.outputs) == 1 and len(shown.text) < 9_000


async def test_bytes_that_are_no_picture_do_no_harm(book: Book) -> None:
    for data in (
        "b'not a picture'",
        "b''",
        "b'\\x89PNG\\r\\n\\x1a\\n' + b'\\xff' * 400_000",
        "'=not base64='",
        "5",
        "None",
    ):
        for mime in ("image/png", "image/jpeg", "image/svg+xml"):
            done = await book.ask("add_cell", code=f"display({{{mime!r}: {data}, 'text/plain': 'words'}}, raw=True)")
            assert not done.is_error, text(done)
            listed = await call(book.client, "get_cell", notebook=book.name, cell_id_or_number=1)
            assert not listed.is_error


async def test_a_picture_whose_header_says_it_is_huge_does_not_end_the_kernel(book: Book) -> None:
    from PIL import Image as P

    file = io.BytesIO()
    P.new("L", (10, 10)).save(file, "PNG")
    bomb = bytearray(file.getvalue())
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2
    await book.run("kept = 1")
    shown = await show(book, f"display({{'image/png': {bytes(bomb)!r}}}, raw=True)")
    assert shown.images[0]["width"] == 60_000
    assert await book.value("kept") == 1


async def test_an_image_beyond_the_last_is_named(book: Book) -> None:
    await show(book, "plt.plot([1])\nNone")
    for bad in (1, -1, 10**6):
        refused = await book.ask("get_cell_image", cell_id_or_number=1, index=bad)
        assert refused.is_error and f"has 1 image, number 0; there is no image {bad}." in text(refused)
    await show(book, "plt.plot([1])\nplt.show()\nplt.plot([2])\nNone")
    refused = await book.ask("get_cell_image", cell_id_or_number=2, index=2)
    assert refused.is_error and "has 2 images, numbers 0 to 1; there is no image 2." in text(refused)


def test_the_libraries_these_tests_are_about_are_there() -> None:
    for name in ("PIL", "altair", "vl_convert", "plotly"):
        try:
            __import__(name)
        except ImportError:
            missing(name, "it is not installed")
