"""Display classes that are text of some kind: HTML, Markdown, LaTeX, JSON, JavaScript, SVG, code."""

from __future__ import annotations

import copy
import html
import json
import os
import warnings
from pathlib import PurePath
from typing import Any
from xml.dom import minidom

from quire.worker.shim import show


class DisplayObject:
    """Something to show: given as data, or by the name of a file or an address it is read from."""

    _read_flags = "r"
    metadata: Any = None

    def __init__(self, data: Any = None, url: Any = None, filename: Any = None, metadata: Any = None) -> None:
        if isinstance(data, PurePath):
            data = str(data)
        if isinstance(data, str):
            if data.startswith("http") and url is None:
                data, url, filename = None, data, None
            elif filename is None and _exists(data):
                data, url, filename = None, None, data
        self.url = url
        self.filename = filename
        self.data = data
        self.metadata = metadata if metadata is not None else (self.metadata if self.metadata is not None else {})
        self.reload()
        self._check_data()

    def __repr__(self) -> str:
        kind = type(self)
        return f"<{kind.__module__}.{kind.__name__} object>"

    def _check_data(self) -> None:
        """Whether the data is of the right type, if there is any."""

    def _data_and_metadata(self) -> Any:
        return (self.data, copy.deepcopy(self.metadata)) if self.metadata else self.data

    def reload(self) -> None:
        """Read the data again from where it is."""
        if self.filename is not None:
            encoding = None if "b" in self._read_flags else "utf-8"
            with open(self.filename, self._read_flags, encoding=encoding) as file:
                self.data = file.read()
        elif self.url is not None:
            self.data = _downloaded(self.url, text="b" not in self._read_flags)


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except (ValueError, OSError):
        return False


def _downloaded(url: str, text: bool) -> Any:
    from urllib.request import urlopen

    with urlopen(url) as answer:  # noqa: S310 - the address is the user's own
        data = answer.read()
        return data.decode(answer.headers.get_content_charset() or "utf-8", "replace") if text else data


class TextDisplayObject(DisplayObject):
    def _check_data(self) -> None:
        if self.data is not None and not isinstance(self.data, str):
            raise TypeError(f"{type(self).__name__} takes text, not {type(self.data).__name__}.")


class Pretty(TextDisplayObject):
    def _repr_pretty_(self, p: Any, cycle: bool) -> None:
        p.text(self.data)


class HTML(TextDisplayObject):
    def __init__(self, data: Any = None, url: Any = None, filename: Any = None, metadata: Any = None) -> None:
        if (
            isinstance(data, str)
            and data[:10].lower().startswith("<iframe ")
            and data[-10:].lower().endswith("</iframe>")
        ):
            warnings.warn("IPython.display.IFrame is the class for a page in a frame.", stacklevel=2)
        super().__init__(data, url, filename, metadata)

    def _repr_html_(self) -> Any:
        return self._data_and_metadata()

    def __html__(self) -> Any:
        """For template engines, which know by it that it is HTML already."""
        return self._repr_html_()


class Markdown(TextDisplayObject):
    def _repr_markdown_(self) -> Any:
        return self._data_and_metadata()


class Latex(TextDisplayObject):
    def _repr_latex_(self) -> Any:
        return self._data_and_metadata()


class Math(TextDisplayObject):
    def _repr_latex_(self) -> Any:
        text = f"$\\displaystyle {self.data.strip('$')}$"
        return (text, copy.deepcopy(self.metadata)) if self.metadata else text


class SVG(DisplayObject):
    """A picture in SVG; what stands around the svg element is left out."""

    _data: Any = None

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, text: Any) -> None:
        if text is None:
            self._data = None
            return
        found = minidom.parseString(text).getElementsByTagName("svg")  # noqa: S318 - the user's own
        shown = found[0].toxml() if found else text
        self._data = shown.decode() if isinstance(shown, bytes) else shown

    def _repr_svg_(self) -> Any:
        return self._data_and_metadata()


class JSON(DisplayObject):
    _data: Any = None

    def __init__(
        self,
        data: Any = None,
        url: Any = None,
        filename: Any = None,
        expanded: bool = False,
        metadata: Any = None,
        root: str = "root",
        **named: Any,
    ) -> None:
        self.metadata = {"expanded": expanded, "root": root, **(metadata or {}), **named}
        super().__init__(data, url, filename)

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, given: Any) -> None:
        if isinstance(given, PurePath):
            given = str(given)
        if isinstance(given, str):
            if self.filename is None and self.url is None:
                warnings.warn("JSON() takes a dict or a list; this text was read as JSON.", stacklevel=2)
            given = json.loads(given)
        self._data = given

    def _check_data(self) -> None:
        if self.data is not None and not isinstance(self.data, (dict, list)):
            raise TypeError(f"{type(self).__name__} takes a dict or a list, not {type(self.data).__name__}.")

    def _data_and_metadata(self) -> Any:
        return self.data, self.metadata

    def _repr_json_(self) -> Any:
        return self._data_and_metadata()


class GeoJSON(JSON):
    """A map, with the address of the tiles to draw it on."""

    def __init__(self, *args: Any, **named: Any) -> None:
        given = {"layer_options": named.pop("layer_options", None), "url_template": named.pop("url_template", None)}
        super().__init__(*args, **named)
        self.metadata = {key: value for key, value in given.items() if value is not None} | {
            key: value for key, value in self.metadata.items() if key not in ("expanded", "root")
        }

    def _ipython_display_(self) -> None:
        bundle = {"application/geo+json": self.data, "text/plain": "<IPython.display.GeoJSON object>"}
        show.display(bundle, metadata={"application/geo+json": self.metadata}, raw=True)


_STYLE = """var link = document.createElement("link");
	link.rel = "stylesheet";
	link.type = "text/css";
	link.href = "%s";
	document.head.appendChild(link);
"""
_SCRIPT = """new Promise(function(resolve, reject) {
	var script = document.createElement("script");
	script.onload = resolve;
	script.onerror = reject;
	script.src = "%s";
	document.head.appendChild(script);
}).then(() => {
"""


class Javascript(TextDisplayObject):
    """A script, run after the libraries and styles it needs are there."""

    def __init__(
        self, data: Any = None, url: Any = None, filename: Any = None, lib: Any = None, css: Any = None
    ) -> None:
        self.lib = [lib] if isinstance(lib, str) else list(lib or [])
        self.css = [css] if isinstance(css, str) else list(css or [])
        super().__init__(data, url, filename)

    def _repr_javascript_(self) -> str:
        before = "".join(_STYLE % each for each in self.css) + "".join(_SCRIPT % each for each in self.lib)
        return f"{before}{self.data}" + "\n});" * len(self.lib)


class Code(TextDisplayObject):
    """Source, as it stands; with colours where Pygments is installed is IPython's own."""

    def __init__(self, data: Any = None, url: Any = None, filename: Any = None, language: str | None = None) -> None:
        self.language = language
        super().__init__(data, url, filename)

    def _repr_html_(self) -> str:
        return f'<div class="highlight"><pre>{html.escape(self.data or "")}\n</pre></div>\n'

    def __repr__(self) -> str:
        return self.data or ""


class ProgressBar(DisplayObject):
    """How far something is; iterated over, it counts up to its total and shows it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._progress = 0
        self.html_width = "60ex"
        self.text_width = 60
        self._display_id = os.urandom(8).hex()

    def __repr__(self) -> str:
        filled = "=" * int((self.progress / self.total if self.total else 0) * self.text_width)
        return f"[{filled:<{self.text_width}}] {self.progress}/{self.total}"

    def _repr_html_(self) -> str:
        return f"<progress style='width:{self.html_width}' max='{self.total}' value='{self.progress}'></progress>"

    def display(self) -> None:
        show.display(self, display_id=self._display_id)

    def update(self) -> None:
        show.display(self, display_id=self._display_id, update=True)

    @property
    def progress(self) -> int:
        return self._progress

    @progress.setter
    def progress(self, value: int) -> None:
        self._progress = value
        self.update()

    def __iter__(self) -> ProgressBar:
        self.display()
        self._progress = -1  # the first is 0
        return self

    def __next__(self) -> int:
        self.progress += 1
        if self.progress < self.total:
            return self.progress
        raise StopIteration
