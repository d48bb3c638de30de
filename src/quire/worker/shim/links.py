"""Display classes of pages in a frame, and of files by their links."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode


class IFrame:
    """A page shown inside the notebook; what else is named goes into its address."""

    def __init__(self, src: str, width: Any, height: Any, extras: Iterable[str] | None = None, **named: Any) -> None:
        self.src = src
        self.width = width
        self.height = height
        self.extras = list(extras or [])
        self.params = named

    def _repr_html_(self) -> str:
        address = f"{self.src}?{urlencode(self.params)}" if self.params else self.src
        return f"""
        <iframe
            width="{self.width}"
            height="{self.height}"
            src="{address}"
            frameborder="0"
            allowfullscreen
            referrerpolicy="strict-origin-when-cross-origin"
            {" ".join(self.extras)}
        ></iframe>
        """


class YouTubeVideo(IFrame):
    def __init__(
        self, id: str, width: Any = 400, height: Any = 300, allow_autoplay: bool = False, **named: Any
    ) -> None:
        self.id = id
        extras = list(named.pop("extras", []))
        if allow_autoplay:
            extras.append('allow="autoplay"')
            named = {**named, "autoplay": 1}
        super().__init__(f"https://www.youtube.com/embed/{id}", width, height, extras, **named)


class VimeoVideo(IFrame):
    def __init__(self, id: str, width: Any = 400, height: Any = 300, **named: Any) -> None:
        self.id = id
        super().__init__(f"https://player.vimeo.com/video/{id}", width, height, **named)


class ScribdDocument(IFrame):
    def __init__(self, id: str, width: Any = 400, height: Any = 300, **named: Any) -> None:
        self.id = id
        super().__init__(f"https://www.scribd.com/embeds/{id}/content", width, height, **named)


class FileLink:
    """A file, as a link to it."""

    html_link_str = "<a href='%s' target='_blank'>%s</a>"

    def __init__(
        self, path: Any, url_prefix: str = "", result_html_prefix: str = "", result_html_suffix: str = "<br>"
    ) -> None:
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; FileLinks shows those.")
        self.path = os.fsdecode(path)
        self.url_prefix = url_prefix
        self.result_html_prefix = result_html_prefix
        self.result_html_suffix = result_html_suffix

    def _format_path(self) -> str:
        link = self.html_link_str % (html.escape(f"{self.url_prefix}{self.path}"), html.escape(self.path, quote=False))
        return f"{self.result_html_prefix}{link}{self.result_html_suffix}"

    def _repr_html_(self) -> str:
        if os.path.exists(self.path):
            return self._format_path()
        return (
            f"Path (<tt>{self.path}</tt>) doesn't exist. It may still be in the process of being generated, "
            "or you may have the incorrect path."
        )

    def __repr__(self) -> str:
        return os.path.abspath(self.path)


Lister = Callable[..., list[str]]


class FileLinks(FileLink):
    """The files of a folder, as links."""

    def __init__(
        self,
        path: Any,
        url_prefix: str = "",
        included_suffixes: Iterable[str] | None = None,
        result_html_prefix: str = "",
        result_html_suffix: str = "<br>",
        notebook_display_formatter: Lister | None = None,
        terminal_display_formatter: Lister | None = None,
        recursive: bool = True,
    ) -> None:
        if os.path.isfile(path):
            raise ValueError(f"{path} is a file; FileLink shows those.")
        self.included_suffixes = included_suffixes
        self.path = os.fsdecode(path).rstrip("/")
        self.url_prefix = url_prefix
        self.result_html_prefix = result_html_prefix
        self.result_html_suffix = result_html_suffix
        self.notebook_display_formatter = notebook_display_formatter or self._as_links
        self.terminal_display_formatter = terminal_display_formatter or self._as_text
        self.recursive = recursive

    def _wanted(self, folder: str, names: Iterable[str], suffixes: Iterable[str] | None) -> list[str]:
        return [
            name
            for name in names
            if os.path.isfile(os.path.join(folder, name))
            and (suffixes is None or os.path.splitext(name)[1] in suffixes)
        ]

    def _as_links(self, folder: str, names: Iterable[str], suffixes: Iterable[str] | None = None) -> list[str]:
        before, after = self.result_html_prefix, self.result_html_suffix
        lines = [
            before
            + "&nbsp;&nbsp;"
            + self.html_link_str % (html.escape(f"{self.url_prefix}{folder}/{name}"), html.escape(name))
            + after
            for name in self._wanted(folder, names, suffixes)
        ]
        return [f"{before}{html.escape(folder)}/{after}", *lines] if lines else []

    def _as_text(self, folder: str, names: Iterable[str], suffixes: Iterable[str] | None = None) -> list[str]:
        found = self._wanted(folder, names, suffixes)
        return [f"{folder}/", *(f"  {name}" for name in found)] if found else []

    def _lines(self, lister: Lister) -> str:
        walked = sorted(os.walk(self.path))
        if not self.recursive:
            walked = walked[:1]
        return "\n".join(line for folder, _, names in walked for line in lister(folder, names, self.included_suffixes))

    def _format_path(self) -> str:
        return self._lines(self.notebook_display_formatter)

    def __repr__(self) -> str:
        return self._lines(self.terminal_display_formatter)
