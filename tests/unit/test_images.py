"""Pictures and references to them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.core.notebooks.images import dimensions

SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="12.4pt" height="7"/>'


def picture(format: str, size: tuple[int, int] = (30, 20)) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", size).save(data, format)
    return data.getvalue()


def test_width_and_height_are_read_from_the_file_itself(science: None) -> None:
    assert dimensions(picture("PNG"), "image/png") == (30, 20)
    assert dimensions(picture("JPEG"), "image/jpeg") == (30, 20)
    assert dimensions(SVG, "image/svg+xml") == (12, 7)
    assert dimensions(b'<svg viewBox="0 0 40 30">', "image/svg+xml") == (40, 30)


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg", "image/svg+xml", "text/plain"])
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"<svg", b"\xff\xd8" + b"\xff\xc0" * 9]
)
def test_hostile_bytes_have_no_size_and_raise_nothing(data: bytes, mime: str) -> None:
    width, height = dimensions(data, mime)
    assert (width is None) == (height is None)


def test_an_image_is_saved_encoded_and_referred_to(science: None, tmp_path: Path) -> None:
    image = quire.Image.from_bytes(picture("PNG"), "image/png", "test")
    image.save(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes() == image.data and len(image.base64) > len(image.data)
    reference = quire.ImageReference.from_image(image, "notebook://main/cell/c/image/0")
    assert (reference.width, reference.size, reference.mime) == (30, len(image.data), "image/png")
    assert isinstance(reference, quire.ImageBase) and not hasattr(reference, "data")


@pytest.mark.parametrize("format", ["png", "svg"])
def test_a_matplotlib_figure_becomes_an_image(science: None, format: str) -> None:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(3, 2))
    figure.add_subplot().plot([1, 2])
    image = quire.Image.from_matplotlib_figure(figure, format)
    assert image.format == format and image.source == "matplotlib" and image.width and image.width > 100
