"""All that `IPython.display` offers."""

from __future__ import annotations

from typing import Any

from quire.worker.shim import links, media, show, texts
from quire.worker.shim.links import FileLink, FileLinks, IFrame, ScribdDocument, VimeoVideo, YouTubeVideo
from quire.worker.shim.media import Audio, Image, Video
from quire.worker.shim.settings import inline
from quire.worker.shim.show import (
    DisplayHandle,
    clear_output,
    display,
    display_html,
    display_javascript,
    display_jpeg,
    display_json,
    display_latex,
    display_markdown,
    display_pdf,
    display_png,
    display_pretty,
    display_svg,
    publish_display_data,
    update_display,
)
from quire.worker.shim.texts import (
    HTML,
    JSON,
    SVG,
    Code,
    DisplayObject,
    GeoJSON,
    Javascript,
    Latex,
    Markdown,
    Math,
    Pretty,
    ProgressBar,
    TextDisplayObject,
)

__all__ = [
    "HTML",
    "JSON",
    "SVG",
    "Audio",
    "Code",
    "DisplayHandle",
    "DisplayObject",
    "FileLink",
    "FileLinks",
    "GeoJSON",
    "IFrame",
    "Image",
    "Javascript",
    "Latex",
    "Markdown",
    "Math",
    "Pretty",
    "ProgressBar",
    "ScribdDocument",
    "TextDisplayObject",
    "Video",
    "VimeoVideo",
    "YouTubeVideo",
    "clear_output",
    "display",
    "display_html",
    "display_javascript",
    "display_jpeg",
    "display_json",
    "display_latex",
    "display_markdown",
    "display_pdf",
    "display_png",
    "display_pretty",
    "display_svg",
    "publish_display_data",
    "set_matplotlib_close",
    "set_matplotlib_formats",
    "update_display",
]


def set_matplotlib_formats(*formats: str, **options: Any) -> None:
    """Figures in these formats from now on, saved with these options."""
    inline.choose(*formats, **options)


def set_matplotlib_close(close: bool = True) -> None:
    inline.close_figures = close


def _at_home() -> None:
    """Each class says of itself what IPython's says: notebooks show it."""
    lib = (Audio, Code, *(each for each in vars(links).values() if isinstance(each, type)))
    for module in (texts, media, links):
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                kind.__module__ = "IPython.lib.display" if kind in lib else "IPython.core.display"
    show.DisplayHandle.__module__ = "IPython.core.display_functions"


_at_home()
