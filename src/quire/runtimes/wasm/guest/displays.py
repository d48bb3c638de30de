"""What `IPython.display` is in a guest: display() and the classes of text, HTML, Markdown, LaTeX, JSON and pictures."""

from __future__ import annotations

import base64
import builtins
import json
import os
import sys
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from quire.runtimes.wasm.guest import formatting

_STARTS = {b"\x89PNG": "png", b"\xff\xd8": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def get_ipython() -> Any:
    """The kernel's shell."""
    return builtins.get_ipython()  # type: ignore[attr-defined]


class DisplayHandle:
    """Something shown, to be shown otherwise later."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = display_id or os.urandom(16).hex()

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, obj: Any, **named: Any) -> None:
        display(obj, display_id=self.display_id, **named)

    def update(self, obj: Any, **named: Any) -> None:
        update_display(obj, display_id=self.display_id, **named)


def display(
    *objs: Any,
    include: Any = None,
    exclude: Any = None,
    metadata: dict[str, Any] | None = None,
    transient: dict[str, Any] | None = None,
    display_id: str | bool | None = None,
    raw: bool = False,
    clear: bool = False,
    update: bool = False,
) -> DisplayHandle | None:
    """Show each value now; with raw=True each is a MIME bundle. A display_id gives a handle to update it by."""
    handle = DisplayHandle(None if display_id is True else display_id) if display_id else None
    transient = {**(transient or {}), **({"display_id": handle.display_id} if handle else {})}
    if clear:
        clear_output(wait=True)
    if not objs and handle is not None:
        objs, raw = ({},), True  # a place to be filled later
    for value in objs:
        data, about = (value, {}) if raw else formatting.format_value(value)
        data = {mime: form for mime, form in data.items() if _is_wanted(mime, include, exclude)}
        if data or raw:
            publish_display_data(data, {**about, **(metadata or {})}, transient=transient, update=update, value=value)
    return handle


def _is_wanted(mime: str, include: Any, exclude: Any) -> bool:
    return (not include or mime in include) and (not exclude or mime not in exclude)


def update_display(obj: Any, *, display_id: str, **named: Any) -> None:
    """Show a value in the place of what was shown under that id."""
    display(obj, display_id=display_id, update=True, **named)


def publish_display_data(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    transient: dict[str, Any] | None = None,
    update: bool = False,
    value: Any = None,
) -> None:
    """Show a MIME bundle."""
    get_ipython().display_pub.publish(data, metadata, transient, update, value=value)


def clear_output(wait: bool = False) -> None:
    """Take back what this cell has shown; with `wait`, when something new is shown."""
    get_ipython().display_pub.clear(wait)


class DisplayObject:
    """Something to show, given as data or by the name of a file."""

    _MIME = ""

    def __init__(self, data: Any = None, filename: Any = None, metadata: Any = None) -> None:
        if isinstance(data, PurePath) or (isinstance(data, str) and filename is None and _is_file(data)):
            data, filename = None, data
        self.filename = filename
        self.data = data if filename is None else self._read(Path(filename))
        self.metadata = metadata or {}

    def _read(self, path: Path) -> Any:
        return path.read_text("utf-8")

    def __repr__(self) -> str:
        return f"<IPython.core.display.{type(self).__name__} object>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return {self._MIME: self._form()}, {self._MIME: self.metadata} if self.metadata else {}

    def _form(self) -> Any:
        return self.data


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


class Pretty(DisplayObject):
    _MIME = "text/plain"


class HTML(DisplayObject):
    _MIME = "text/html"

    def _repr_html_(self) -> str:
        return str(self.data)

    __html__ = _repr_html_  # for template engines, which know by it that it is HTML already


class Markdown(DisplayObject):
    _MIME = "text/markdown"


class Latex(DisplayObject):
    _MIME = "text/latex"


class Math(Latex):
    def _form(self) -> str:
        return f"$\\displaystyle {self.data.strip('$')}$"


class SVG(DisplayObject):
    _MIME = "image/svg+xml"


class Javascript(DisplayObject):
    _MIME = "application/javascript"


class JSON(DisplayObject):
    _MIME = "application/json"

    def _form(self) -> Any:
        return json.loads(self.data) if isinstance(self.data, str) else self.data


class Image(DisplayObject):
    """A PNG, JPEG, GIF or WebP picture."""

    def __init__(
        self,
        data: Any = None,
        filename: Any = None,
        format: str | None = None,
        width: int | None = None,
        height: int | None = None,
        metadata: Any = None,
        alt: str | None = None,
    ) -> None:
        about = {"width": width, "height": height, "alt": alt}
        super().__init__(data, filename, {**(metadata or {}), **{key: item for key, item in about.items() if item}})
        if not isinstance(self.data, bytes):
            raise ValueError("An Image needs the bytes of a picture, or the name of a file.")
        found = next((kind for start, kind in _STARTS.items() if self.data.startswith(start)), "png")
        self.format = {"jpg": "jpeg"}.get(format or found, format or found)
        self._MIME = f"image/{self.format}"

    def _read(self, path: Path) -> bytes:
        return path.read_bytes()

    def _form(self) -> str:
        return base64.b64encode(self.data).decode("ascii")


_CLASSES = (DisplayHandle, DisplayObject, Pretty, HTML, Markdown, Latex, Math, SVG, Javascript, JSON, Image)
_FUNCTIONS = (display, update_display, publish_display_data, clear_output)


def install() -> None:
    """Let cells and libraries import these from where IPython has them."""
    public = {item.__name__: item for item in (*_CLASSES, *_FUNCTIONS)}
    for kind in _CLASSES:
        kind.__module__ = "IPython.core.display"
    about: dict[str, dict[str, Any]] = {
        "IPython": {
            "__version__": "9.0.0",
            "version_info": (9, 0, 0, ""),
            "get_ipython": get_ipython,
            "display": display,
        },
        "IPython.display": public,
        "IPython.core": {},
        "IPython.core.display": public,
        "IPython.core.getipython": {"get_ipython": get_ipython},
    }
    for name, contents in about.items():
        module = sys.modules[name] = ModuleType(name, "The part of IPython that there is in WebAssembly.")
        module.__path__ = []
        module.__dict__.update(contents)
        if contents is public:
            module.__dict__["__getattr__"] = _missing
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def _missing(name: str) -> Any:
    """As an ImportError its words reach who writes `from IPython.display import`."""
    if name.startswith("_"):
        raise AttributeError(name)
    there = ", ".join(item.__name__ for item in (*_CLASSES, *_FUNCTIONS))
    raise ImportError(f"IPython.display.{name} is not there in WebAssembly. There are {there}.")
