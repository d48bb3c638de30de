"""Display classes of pictures, sound and film."""

from __future__ import annotations

import array
import base64
import html
import io
import mimetypes
import os
import struct
import sys
import wave
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from quire.worker.shim.texts import DisplayObject

_PNG = b"\x89PNG\r\n\x1a\n"
_STARTS = ((_PNG, "png"), (b"\xff\xd8", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))
_MIMES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


class Image(DisplayObject):
    """A PNG, JPEG, GIF or WebP picture: embedded where its data is known, else by address."""

    _read_flags = "rb"
    _FMT_JPEG, _FMT_PNG, _FMT_GIF, _FMT_WEBP = "jpeg", "png", "gif", "webp"
    _ACCEPTABLE_EMBEDDINGS = tuple(_MIMES)

    def __init__(
        self,
        data: Any = None,
        url: Any = None,
        filename: Any = None,
        format: str | None = None,
        embed: bool | None = None,
        width: int | None = None,
        height: int | None = None,
        retina: bool = False,
        unconfined: bool = False,
        metadata: Any = None,
        alt: str | None = None,
    ) -> None:
        data = str(data) if isinstance(data, PurePath) else data
        where = filename if filename is not None else url if url is not None else data
        if where is None:
            raise ValueError("An Image needs data, a filename or a url.")
        self.format = (format or _format(where, data if isinstance(data, bytes) else None)).lower()
        self.embed = embed if embed is not None else url is None
        if self.embed and self.format not in _MIMES:
            raise ValueError(f"A picture in {self.format!r} cannot be embedded; {', '.join(_MIMES)} can.")
        self._mimetype = _MIMES.get(self.format, f"image/{self.format}")
        self.width = width
        self.height = height
        self.retina = retina
        self.unconfined = unconfined
        self.alt = alt
        super().__init__(data, url, filename, metadata or {})
        given = self.metadata.get("width"), self.metadata.get("height"), self.metadata.get("alt")
        self.width, self.height = self.width or given[0], self.height or given[1]
        self.alt = self.alt or given[2]
        if retina:
            self._retina_shape()

    def _retina_shape(self) -> None:
        """Half of its pixels each way."""
        if self.embed and self.data and (size := _size(self.data)):
            self.width, self.height = size[0] // 2, size[1] // 2

    def reload(self) -> None:
        if self.embed:
            super().reload()
            if self.retina:
                self._retina_shape()

    def _repr_html_(self) -> str | None:
        if self.embed:
            return None
        parts = [
            f' width="{self.width}"' if self.width else "",
            f' height="{self.height}"' if self.height else "",
            ' class="unconfined"' if self.unconfined else "",
            f' alt="{html.escape(self.alt)}"' if self.alt else "",
        ]
        return f'<img src="{html.escape(self.url)}"{"".join(parts)}/>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if not self.embed:
            return {"text/html": self._repr_html_()}
        data, metadata = self._data_and_metadata(always_both=True)
        return {self._mimetype: data}, {self._mimetype: metadata} if metadata else {}

    def _data_and_metadata(self, always_both: bool = False) -> Any:
        if isinstance(self.data, str):
            raise FileNotFoundError(f"No such file or directory: '{self.data}'")
        text = base64.b64encode(self.data).decode("ascii")
        given = {"width": self.width, "height": self.height, "unconfined": self.unconfined, "alt": self.alt}
        metadata = {**self.metadata, **{key: value for key, value in given.items() if value}}
        return (text, metadata) if metadata or always_both else text

    def _repr_png_(self) -> Any:
        return self._data_and_metadata() if self.embed and self.format == "png" else None

    def _repr_jpeg_(self) -> Any:
        return self._data_and_metadata() if self.embed and self.format == "jpeg" else None


def _format(where: Any, data: bytes | None) -> str:
    """By what it begins with, else by its name, else PNG."""
    if data is not None:
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return "webp"
        return next((kind for start, kind in _STARTS if data.startswith(start)), "png")
    extension = os.path.splitext(str(where))[1].lower().lstrip(".").partition("?")[0]
    return "jpeg" if extension == "jpg" else extension or "png"


def _size(data: bytes) -> tuple[int, int] | None:
    if data.startswith(_PNG):
        width, height = struct.unpack(">II", data[16:24])
        return int(width), int(height)
    if data[:3] == b"GIF":
        width, height = struct.unpack("<HH", data[6:10])
        return int(width), int(height)
    return _jpeg_size(data) if data.startswith(b"\xff\xd8") else None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data):
        mark, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return int(width), int(height)
        at += 2 + int(length)
    return None


class Audio(DisplayObject):
    """Sound: bytes of a file, or samples with their rate, of which a WAV is made."""

    _read_flags = "rb"

    def __init__(
        self,
        data: Any = None,
        filename: Any = None,
        url: Any = None,
        embed: bool | None = None,
        rate: int | None = None,
        autoplay: bool = False,
        normalize: bool = True,
        *,
        element_id: str | None = None,
    ) -> None:
        if filename is None and url is None and data is None:
            raise ValueError("An Audio needs data, a filename or a url.")
        if embed is False and url is None:
            raise ValueError("With embed=False an Audio needs a url.")
        self.embed = embed if embed is not None else url is None
        self.autoplay = autoplay
        self.element_id = element_id
        self.mimetype = "audio/wav"
        super().__init__(data, url, filename)
        if self.data is not None and not isinstance(self.data, bytes):
            if rate is None:
                raise ValueError("Samples need their rate: Audio(samples, rate=44100).")
            self.data = _wav(self.data, rate, normalize)

    def reload(self) -> None:
        if self.embed:
            super().reload()
        where = self.filename if self.filename is not None else self.url
        self.mimetype = (mimetypes.guess_type(str(where))[0] if where is not None else None) or "audio/wav"

    def _repr_html_(self) -> str:
        name = f'id="{self.element_id}"' if self.element_id else ""
        plays = 'autoplay="autoplay"' if self.autoplay else ""
        return f"""
                <audio {name} controls="controls" {plays}>
                    <source src="{self.src_attr()}" type="{self.mimetype}" />
                    Your browser does not support the audio element.
                </audio>
              """

    def src_attr(self) -> str:
        if self.embed and self.data is not None:
            return f"data:{self.mimetype};base64,{base64.b64encode(self.data).decode('ascii')}"
        return self.url if self.url is not None else ""

    def autoplay_attr(self) -> str:
        return 'autoplay="autoplay"' if self.autoplay else ""

    def element_id_attr(self) -> str:
        return f'id="{self.element_id}"' if self.element_id else ""


def _wav(samples: Any, rate: int, normalize: bool) -> bytes:
    values, channels = _flat(samples)
    peak = max((abs(value) for value in values), default=0.0)
    if not normalize:
        if peak > 1:
            raise ValueError("With normalize=False samples lie between -1 and 1.")
        peak = 1.0
    peak = peak or 1.0
    scaled = array.array("h", (int(value / peak * 32767) for value in values))
    if sys.byteorder == "big":
        scaled.byteswap()
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setframerate(int(rate))
        sound.setsampwidth(2)
        sound.writeframes(scaled.tobytes())
    return file.getvalue()


def _flat(samples: Any) -> tuple[list[float], int]:
    """All samples in the order they sound, and of how many channels they are: rows are channels."""
    rows = samples.tolist() if hasattr(samples, "tolist") else list(samples)
    if rows and isinstance(rows[0], Iterable):
        tracks = [[float(value) for value in row] for row in rows]
        return [value for moment in zip(*tracks, strict=True) for value in moment], len(tracks)
    return [float(value) for value in rows], 1


class Video(DisplayObject):
    """A film: by address, or embedded where that is asked for."""

    _read_flags = "rb"

    def __init__(
        self,
        data: Any = None,
        url: Any = None,
        filename: Any = None,
        embed: bool = False,
        mimetype: str | None = None,
        width: int | None = None,
        height: int | None = None,
        html_attributes: str = "controls",
    ) -> None:
        data = str(data) if isinstance(data, PurePath) else data
        if url is None and isinstance(data, str) and data.startswith(("http:", "https:")):
            data, url = None, data
        elif isinstance(data, str) and os.path.exists(data):
            data, filename = None, data
        if data and not embed:
            raise ValueError(
                "A film is put into the notebook with embed=True, which makes it large; Video(url=...) links to it."
            )
        self.mimetype = mimetype
        self.embed = embed
        self.width = width
        self.height = height
        self.html_attributes = html_attributes
        super().__init__(data, url, filename)

    def reload(self) -> None:
        """It is read when it is shown."""

    def _repr_html_(self) -> str:
        width = f' width="{self.width:d}"' if self.width else ""
        height = f' height="{self.height:d}"' if self.height else ""
        if not self.embed:
            source = html.escape((self.url if self.url is not None else self.filename) or "")
            return (
                f'<video src="{source}" {self.html_attributes} {width} {height}>\n'
                "      Your browser does not support the <code>video</code> element.\n    </video>"
            )
        kind, data = self._embedded()
        return (
            f"<video {self.html_attributes} {width} {height}>\n"
            f' <source src="data:{kind};base64,{data}" type="{kind}">\n'
            " Your browser does not support the video tag.\n </video>"
        )

    def _embedded(self) -> tuple[str | None, str]:
        if self.filename is None:
            data = self.data
        else:
            with open(self.filename, "rb") as file:
                data = file.read()
        kind = self.mimetype or (mimetypes.guess_type(self.filename)[0] if self.filename is not None else None)
        return kind, data if isinstance(data, str) else base64.b64encode(data or b"").decode("ascii")
