"""Encode and decode messages as frames: a fixed prefix, a JSON header and raw attachments.

    magic "QW" | version u8 | 0 u8 | header length u32 | attachments length u32 | header | attachments

The header is `{"say": word, "with": fields, "parts": [length, ...]}`. Long texts of the fields are attachments, too:
then it has `"texts": [[number of the attachment, key, key, ...], ...]`, the keys from `fields` down to the text.

Lengths are checked before memory is allocated. JSON is parsed in the event loop, which is slow for many small values,
so a header from a cell's process may have at most 100,000.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from typing import Any

from quire.wire import messages

PREFIX = struct.Struct("!2sBBII")
MAGIC = b"QW"
LONG_TEXT = 4 * 2**10  # characters of a text that is sent as an attachment
_LONG_HEADER = 64 * 2**10  # bytes of a header whose long texts become attachments
_MAX_TEXTS = 1_000  # of one message
_MAX_KEYS = 60  # down to one text: messages are nested at most 50 levels
_VALUE_COST = 100  # bytes of memory that one parsed JSON value takes, about
as_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large a message may be. `values` counts every item, key and container of its JSON header."""

    header: int  # bytes
    parts: int  # bytes
    values: int


FROM_CODE = Limits(header=2 * 2**20, parts=32 * 2**20, values=100_000)
"""For messages from a process that runs cells: hostile, and parsed in the server's event loop."""

FROM_SERVER = Limits(header=16 * 2**20, parts=256 * 2**20, values=2**62)


class BadFrame(ValueError):
    """The bytes are not a frame of this protocol; the stream cannot be trusted further."""


class TooLarge(BadFrame):
    """The message is over the limits and was not sent."""


def encode(message: Any, limits: Limits = FROM_CODE) -> bytes:
    """The frame of a message. Raises TooLarge."""
    header_fields, parts = messages.dump(message)
    header = _header(header_fields, parts)
    if len(header) > _LONG_HEADER:
        header_fields["texts"] = []
        header_fields["with"] = _lift_texts(header_fields["with"], (), parts, header_fields["texts"])
        header = _header(header_fields, parts)
    size = sum(map(len, parts))
    if len(header) > limits.header or size > limits.parts:
        raise TooLarge(
            f"{len(header) + size:,} bytes at once are more than a cell can show ({limits.parts:,} of text and "
            f"pictures, {limits.header:,} of other data). Write them to a file in the workspace instead."
        )
    if _count_values(header) > limits.values:
        raise TooLarge(f"More than {limits.values:,} values at once. Write them to a file in the workspace instead.")
    return b"".join((PREFIX.pack(MAGIC, messages.VERSION, 0, len(header), size), header, *parts))


def _header(header_fields: dict[str, Any], parts: list[bytes]) -> bytes:
    header_fields["parts"] = [len(part) for part in parts]
    return as_json(header_fields).encode("utf-8", "replace")  # lone surrogates become "?"


def _lift_texts(value: Any, keys: tuple[Any, ...], parts: list[bytes], texts: list[list[Any]]) -> Any:
    """The value without its long texts: they go to `parts`, and where they were to `texts`."""
    if isinstance(value, str) and len(value) > LONG_TEXT and len(texts) < _MAX_TEXTS:
        texts.append([len(parts), *keys])
        parts.append(value.encode("utf-8", "replace"))
        return ""
    if isinstance(value, dict):
        return {key: _lift_texts(item, (*keys, key), parts, texts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_lift_texts(item, (*keys, place), parts, texts) for place, item in enumerate(value)]
    return value


def _count_values(header: bytes) -> int:
    """At least the number of values in a JSON text: commas and brackets inside texts count, too."""
    return header.count(b",") + header.count(b"{") + header.count(b"[")


class Decoder:
    """Turns received bytes, in portions of any size, into messages."""

    def __init__(self, words: dict[str, type], limits: Limits = FROM_SERVER) -> None:
        self._words = words
        self._limits = limits
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add the bytes and return all complete messages."""
        self.add(data)
        found = []
        while (taken := self.take()) is not None:
            found.append(taken[0])
        return found

    def add(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> tuple[Any, int] | None:
        """The next complete message and the approximate memory it takes, or None. Raises BadFrame or BadMessage."""
        if len(self._buffer) < PREFIX.size:
            return None
        magic, version, zero, header_size, parts_size = PREFIX.unpack_from(self._buffer)
        if magic != MAGIC or zero != 0:
            raise BadFrame("not a frame")
        if version != messages.VERSION:
            raise BadFrame(f"protocol version {version}, expected {messages.VERSION}")
        if header_size > self._limits.header or parts_size > self._limits.parts:
            raise BadFrame(f"a frame of {header_size + parts_size:,} bytes is over the limit")
        end = PREFIX.size + header_size + parts_size
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            header = bytes(view[PREFIX.size : PREFIX.size + header_size])
            values = _count_values(header)
            if values > self._limits.values:
                raise BadFrame(f"a header of {values:,} values is over the limit")
            with view[PREFIX.size + header_size : end] as body:
                header_fields, parts = _read(header, body)
        del self._buffer[:end]
        return messages.parse(self._words, header_fields, parts), end + _VALUE_COST * values


def _read(header: bytes, body: memoryview) -> tuple[dict[str, Any], list[bytes]]:
    try:
        header_fields = json.loads(header.decode("utf-8"))  # from bytes, json would accept lone surrogates
        if _SURROGATE.search(header):
            json.dumps(header_fields, ensure_ascii=False).encode("utf-8")  # raises for lone surrogates
        sizes = header_fields.pop("parts")
        cut, parts = 0, []
        for size in sizes:
            if type(size) is not int or size < 0:
                raise BadFrame("an attachment's length is not a length")
            parts.append(bytes(body[cut : cut + size]))
            cut += size
        _put_back_texts(header_fields, parts)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadFrame("the header cannot be read") from error
    if cut != len(body):
        raise BadFrame("attachments do not add up")
    return header_fields, parts


def _put_back_texts(header_fields: dict[str, Any], parts: list[bytes]) -> None:
    before = -1
    for number, *keys, last in header_fields.pop("texts", ()):
        if type(number) is not int or number <= before or len(keys) > _MAX_KEYS:  # each attachment is used once
            raise BadFrame("a long text is in no place")
        before, place = number, header_fields["with"]
        for key in keys:
            place = place[key]
        place[last] = parts[number].decode("utf-8")
