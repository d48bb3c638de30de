"""Results of calls: data with attributes, text, pictures, sound, resources."""

from __future__ import annotations

import base64
import binascii
import builtins
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from quire.tool_descriptions import tools
from quire.worker.capabilities.errors import CapabilityGone


def _no_server(do: str, **words: Any) -> dict[str, Any]:
    raise CapabilityGone("There is no server to ask.")


ask: Callable[..., dict[str, Any]] = _no_server
"""Sends further requests to the server; set to that of the relay."""


class Record(dict[str, Any]):
    """A dict whose keys are attributes too, except keys named like methods of dict."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            keys = ", ".join(map(str, self))[:300]
            raise AttributeError(f"There is no {name!r} in this record; there are {keys or 'no keys'}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(key for key in self if key.isidentifier())]


def records(value: Any) -> Any:
    """JSON with records in place of dicts."""
    if type(value) is dict:
        return Record((key, records(item)) for key, item in value.items())
    return [records(item) for item in value] if type(value) is list else value


class Text(str):
    """Text from a tool. If the server truncated it, `read()` returns the whole."""

    truncated: bool = False
    size: int
    _rest: str = ""
    _before: int = 0

    def __new__(cls, text: str = "", rest: str = "", size: int = 0, before: int = 0) -> Text:
        """`rest`: key of the whole text on the server, which begins at character `before` of this text."""
        text_ = super().__new__(cls, text)
        text_.size = size or len(text)
        if rest:
            text_._rest, text_._before, text_.truncated = rest, before, True
        return text_

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), self._rest, self.size, self._before)

    def json(self) -> Any:
        """The text parsed as JSON, with records in place of dicts."""
        return records(json.loads(self.read()))

    def read(self) -> str:
        """The whole text."""
        if not self.truncated:
            return str(self)
        parts, start, more = [str(self)], len(self) - self._before, True
        while more:
            found = ask("rest", given={"key": self._rest, "start": start})
            part = str(found.get("text", ""))
            parts.append(part)
            start += len(part)
            more = bool(part) and bool(found.get("more"))
        return "".join(parts)


class _Media:
    """Bytes with a MIME type, displayed accordingly."""

    def __init__(self, data: bytes, mime: str) -> None:
        self.data = data
        self.mime = mime

    def save(self, path: str | os.PathLike[str]) -> None:
        with open(path, "wb") as file:
            file.write(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.mime}, {len(self.data):,} bytes>"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((self.mime, self.data))


class Picture(_Media):
    """An image, displayed as last expression of a cell or by display()."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if self.mime == "image/svg+xml":
            return {self.mime: self.data.decode("utf-8", "replace")}
        return {self.mime: base64.b64encode(self.data).decode("ascii")}

    def _repr_png_(self) -> bytes | None:
        return self.data if self.mime == "image/png" else None


class Sound(_Media):
    """A piece of audio."""

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.data).decode("ascii")
        return f'<audio controls src="data:{self.mime if self.mime.isascii() else ""};base64,{data}"></audio>'


class Resource:
    """A resource of a server; `read()` returns its content."""

    def __init__(self, capability: str, description: dict[str, Any], content: Any = None) -> None:
        self._capability = capability
        self._content = content
        self.uri = _text(description.get("uri"))
        self.name = _text(description.get("name")) or self.uri
        self.mime = _text(description.get("mimeType"))
        self.description = _text(description.get("description"))

    def read(self) -> Any:
        """Text, bytes, or a list of several."""
        if self._content is None:
            return contents(self._capability, ask("read", capability=self._capability, given={"uri": self.uri}))
        return self._content

    def __repr__(self) -> str:
        return f"<Resource {self.uri}{f', {self.mime}' if self.mime else ''}>"


class Contents(list[Any]):
    """Several results; as last expression of a cell each is displayed."""

    def _ipython_display_(self) -> None:
        for item in self:
            if isinstance(item, str):
                builtins.display({"text/plain": str(item)}, raw=True)  # type: ignore[attr-defined]
            else:
                builtins.display(item)  # type: ignore[attr-defined]


KINDS = (Record, Text, Picture, Sound, Resource, Contents)

for _each in KINDS:
    _each.__module__ = "builtins"  # so that pickle finds them, since cells cannot import this package
    _each.__qualname__ = f"caps.{_each.__name__}"


def to_python(capability: str, tool: dict[str, Any], value: dict[str, Any]) -> Any:
    """The result of a tool as Python objects: structured content, else the content blocks."""
    content = list(_content_objects(capability, value.get("content")))
    structured = value.get("structured")
    if structured is None:
        return _join_content(content)
    if tools.is_wrapped(tool.get("output")) and type(structured) is dict and "result" in structured:
        structured = structured["result"]
    found = records(structured)
    if type(found) is Record:
        beside = [item for item in content if not isinstance(item, Text)]
        if beside:
            found._content = Contents(beside)
    return found


def _join_content(content: list[Any]) -> Any:
    if not content:
        return None
    if all(isinstance(item, Text) for item in content):
        if len(content) == 1:
            return content[0]
        if not any(item.truncated for item in content[:-1]):
            last = content[-1]
            before = sum(len(item) + 1 for item in content[:-1])
            return Text("\n".join(content), last._rest, last.size + before, before)
    return content[0] if len(content) == 1 else Contents(content)


def _content_objects(capability: str, content: Any) -> Iterator[Any]:
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                size = block.get("size")
                yield Text(_text(block.get("text")), _text(block.get("rest")), size if type(size) is int else 0)
            case "image":
                yield Picture(_bytes(block.get("data")), _text(block.get("mimeType")))
            case "audio":
                yield Sound(_bytes(block.get("data")), _text(block.get("mimeType")))
            case "resource_link":
                yield Resource(capability, block)
            case "resource" if isinstance(block.get("resource"), dict):
                yield Resource(capability, block["resource"], _content(block["resource"]))
            case _:
                yield records(block)


def contents(capability: str, value: dict[str, Any]) -> Any:
    """The contents of a resource."""
    listed = value.get("contents")
    found = [_content(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return found[0] if len(found) == 1 else found


def _content(item: dict[str, Any]) -> Text | bytes:
    if isinstance(item.get("blob"), str):
        return _bytes(item["blob"])
    size = item.get("size")
    return Text(_text(item.get("text")), _text(item.get("rest")), size if type(size) is int else 0)


def prompt(capability: str, value: dict[str, Any]) -> list[Record]:
    """The messages of a prompt, each with its role and content."""
    listed = value.get("messages")
    found = []
    for message in listed if isinstance(listed, list) else ():
        if isinstance(message, dict):
            content = message.get("content")
            blocks = content if isinstance(content, list) else [content]
            found.append(
                Record(
                    role=_text(message.get("role")), content=_join_content(list(_content_objects(capability, blocks)))
                )
            )
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value))
    except (ValueError, binascii.Error):
        return b""
