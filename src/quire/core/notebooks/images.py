"""Images: with their bytes, or as a reference."""

from __future__ import annotations

import base64
import io
import re
import struct
from abc import ABC
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/svg+xml": "svg"}
"""Format by MIME type. Of a bundle with several images the first is used."""

PREVIEW = "image/vnd.quire.preview+png"
"""A small copy of a large image, or an image of an output that a model cannot read, made by the worker."""

MIMES = {name: mime for mime, name in FORMATS.items()}


@dataclass(frozen=True, kw_only=True)
class ImageBase(ABC):
    """An image's properties without its bytes."""

    format: str  # png, jpeg, gif or svg
    width: int | None = None  # pixels
    height: int | None = None
    source: str | None = None  # what made it: matplotlib, display
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def mime(self) -> str:
        return MIMES[self.format]


@dataclass(frozen=True, kw_only=True)
class Image(ImageBase):
    """An image with its bytes."""

    data: bytes = field(repr=False)

    @classmethod
    def from_bytes(cls, data: bytes, mime: str, source: str | None = None) -> Image:
        width, height = dimensions(data, mime)
        return cls(format=FORMATS[mime], width=width, height=height, source=source, data=data)

    @classmethod
    def from_matplotlib_figure(cls, figure: Any, format: str = "png") -> Image:
        picture = io.BytesIO()
        figure.savefig(picture, format=format, bbox_inches="tight")
        return cls.from_bytes(picture.getvalue(), MIMES[format], "matplotlib")

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode("ascii")

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.data)


@dataclass(frozen=True, kw_only=True)
class ImageReference(ImageBase):
    """Where an image can be read. The text of an answer has this instead of the bytes."""

    uri: str
    size: int  # bytes

    @classmethod
    def from_image(cls, image: Image, uri: str) -> ImageReference:
        return cls(
            format=image.format,
            width=image.width,
            height=image.height,
            source=image.source,
            metadata=image.metadata,
            uri=uri,
            size=len(image.data),
        )


def dimensions(data: bytes, mime: str) -> tuple[int | None, int | None]:
    """Width and height in pixels from the file's header, or None. Invalid bytes never raise."""
    try:
        match mime:
            case "image/png" if data[:8] == b"\x89PNG\r\n\x1a\n":
                width, height = struct.unpack("!II", data[16:24])
                return width, height
            case "image/jpeg":
                return _jpeg_size(data)
            case "image/gif" if data[:3] == b"GIF":
                width, height = struct.unpack("<HH", data[6:10])
                return width, height
            case "image/svg+xml":
                return _svg_size(data[:4096].decode("utf-8", "replace"))
    except (struct.error, IndexError, ValueError, OverflowError):
        pass
    return None, None


def _jpeg_size(data: bytes) -> tuple[int | None, int | None]:
    place = 2
    while data[place] == 0xFF:
        marker, length = data[place + 1], struct.unpack("!H", data[place + 2 : place + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack("!HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + length
    return None, None


def _svg_size(head: str) -> tuple[int | None, int | None]:
    tag = re.search(r"<svg\b[^>]*>", head)
    if not tag:
        return None, None
    width = re.search(r'\bwidth="([\d.]+)', tag[0])
    height = re.search(r'\bheight="([\d.]+)', tag[0])
    if width and height:
        return round(float(width[1])), round(float(height[1]))
    box = re.search(r'\bviewBox="[\d.eE+-]+[ ,]+[\d.eE+-]+[ ,]+([\d.]+)[ ,]+([\d.]+)', tag[0])
    return (round(float(box[1])), round(float(box[2]))) if box else (None, None)
