"""What a call returns: data with attributes, text, pictures, sound, resources."""

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


def _nobody(do: str, **words: Any) -> dict[str, Any]:
    raise CapabilityGone("There is no server to ask.")


ask: Callable[..., dict[str, Any]] = _nobody
"""How more is asked of the server: the relay's own, once there is one."""


class Record(dict[str, Any]):
    """A dict whose keys are attributes too; one that is named as a method of dict is read by its key."""

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
    """JSON with its objects as records."""
    if type(value) is dict:
        return Record((key, records(each)) for key, each in value.items())
    return [records(each) for each in value] if type(value) is list else value


class Text(str):
    """What a tool said; where it was too long and the server cut it, `read()` brings the whole."""

    truncated: bool = False
    size: int
    _rest: str = ""
    _before: int = 0

    def __new__(cls, text: str = "", rest: str = "", size: int = 0, before: int = 0) -> Text:
        """`rest`: by which key the server has it, from the character `before` of this text on."""
        made = super().__new__(cls, text)
        made.size = size or len(text)
        if rest:
            made._rest, made._before, made.truncated = rest, before, True
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), self._rest, self.size, self._before)

    def json(self) -> Any:
        """The text read as JSON, its objects as records."""
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
    """Bytes of some kind, which are shown as what they are."""

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
    """An image: shown where it is a cell's last expression, or by display()."""

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
    """Something a server holds under an address; `read()` brings it."""

    def __init__(self, capability: str, said: dict[str, Any], content: Any = None) -> None:
        self._capability = capability
        self._content = content
        self.uri = _text(said.get("uri"))
        self.name = _text(said.get("name")) or self.uri
        self.mime = _text(said.get("mimeType"))
        self.description = _text(said.get("description"))

    def read(self) -> Any:
        """Text, bytes, or a list of these where there are several."""
        if self._content is None:
            return contents(self._capability, ask("read", capability=self._capability, given={"uri": self.uri}))
        return self._content

    def __repr__(self) -> str:
        return f"<Resource {self.uri}{f', {self.mime}' if self.mime else ''}>"


class Contents(list[Any]):
    """Several things at once; as a cell's last expression each is shown as what it is."""

    def _ipython_display_(self) -> None:
        for each in self:
            if isinstance(each, str):
                builtins.display({"text/plain": str(each)}, raw=True)  # type: ignore[attr-defined]
            else:
                builtins.display(each)  # type: ignore[attr-defined]


KINDS = (Record, Text, Picture, Sound, Resource, Contents)

for _each in KINDS:
    _each.__module__ = "builtins"  # so that pickle finds them: no import leads to this package from a cell
    _each.__qualname__ = f"caps.{_each.__name__}"


def made(capability: str, tool: dict[str, Any], value: dict[str, Any]) -> Any:
    """What a tool's answer is in Python: what is structured, else what its content is."""
    content = list(_pieces(capability, value.get("content")))
    structured = value.get("structured")
    if structured is None:
        return _joined(content)
    if tools.is_wrapped(tool.get("output")) and type(structured) is dict and "result" in structured:
        structured = structured["result"]
    found = records(structured)
    if type(found) is Record:
        beside = [each for each in content if not isinstance(each, Text)]
        if beside:
            found._content = Contents(beside)
    return found


def _joined(content: list[Any]) -> Any:
    if not content:
        return None
    if all(isinstance(each, Text) for each in content):
        if len(content) == 1:
            return content[0]
        if not any(each.truncated for each in content[:-1]):
            last = content[-1]
            before = sum(len(each) + 1 for each in content[:-1])
            return Text("\n".join(content), last._rest, last.size + before, before)
    return content[0] if len(content) == 1 else Contents(content)


def _pieces(capability: str, content: Any) -> Iterator[Any]:
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
    """What reading a resource brought."""
    listed = value.get("contents")
    found = [_content(each) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return found[0] if len(found) == 1 else found


def _content(said: dict[str, Any]) -> Text | bytes:
    if isinstance(said.get("blob"), str):
        return _bytes(said["blob"])
    size = said.get("size")
    return Text(_text(said.get("text")), _text(said.get("rest")), size if type(size) is int else 0)


def prompt(capability: str, value: dict[str, Any]) -> list[Record]:
    """The messages of a prompt, each with its role and content."""
    listed = value.get("messages")
    found = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            said = each.get("content")
            blocks = said if isinstance(said, list) else [said]
            found.append(Record(role=_text(each.get("role")), content=_joined(list(_pieces(capability, blocks)))))
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value))
    except (ValueError, binascii.Error):
        return b""
