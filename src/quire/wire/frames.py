"""The bytes: a frame is a fixed prefix, a JSON header, and raw attachments.

    magic "QW" | version u8 | 0 u8 | header length u32 | attachments length u32 | header | attachments

The header is `{"say": word, "with": fields, "parts": [length, ...]}`. Lengths are bounded before
anything is allocated, so that a forged prefix costs nothing.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

from quire.wire import messages

PREFIX = struct.Struct("!2sBBII")
MAGIC = b"QW"
HEADER_LIMIT = 16 * 2**20  # bytes
PARTS_LIMIT = 256 * 2**20  # bytes
as_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BadFrame(ValueError):
    """The bytes are not a frame of this protocol; the stream cannot be trusted further."""


def encode(message: Any) -> bytes:
    said, parts = messages.dump(message)
    said["parts"] = [len(part) for part in parts]
    # a lone surrogate is no text: it goes as "?"
    header = as_json(said).encode("utf-8", "replace")
    body = b"".join(parts)
    if len(header) > HEADER_LIMIT or len(body) > PARTS_LIMIT:
        raise BadFrame(
            f"{len(header) + len(body):,} bytes at once are more than a cell can show ({HEADER_LIMIT:,} of text, "
            f"{PARTS_LIMIT:,} of pictures). Write them to a file in the workspace instead."
        )
    return PREFIX.pack(MAGIC, messages.VERSION, 0, len(header), len(body)) + header + body


class Decoder:
    """Bytes in any portions, whole messages out."""

    def __init__(self, words: dict[str, type]) -> None:
        self._words = words
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        self._buffer += data
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> Any | None:
        if len(self._buffer) < PREFIX.size:
            return None
        magic, version, zero, header_size, parts_size = PREFIX.unpack_from(self._buffer)
        if magic != MAGIC or zero != 0:
            raise BadFrame("not a frame")
        if version != messages.VERSION:
            raise BadFrame(f"protocol version {version}, expected {messages.VERSION}")
        if header_size > HEADER_LIMIT or parts_size > PARTS_LIMIT:
            raise BadFrame(f"a frame of {header_size + parts_size:,} bytes is over the limit")
        end = PREFIX.size + header_size + parts_size
        if len(self._buffer) < end:
            return None
        header = bytes(self._buffer[PREFIX.size : PREFIX.size + header_size])
        body = bytes(self._buffer[PREFIX.size + header_size : end])
        del self._buffer[:end]
        return self._message(header, body)

    def _message(self, header: bytes, body: bytes) -> Any:
        try:
            said = json.loads(header.decode("utf-8"))  # given bytes, json would let lone surrogates pass
            if _SURROGATE.search(header):
                json.dumps(said, ensure_ascii=False).encode("utf-8")  # raises where one is alone
            sizes = said.pop("parts")
            cut, parts = 0, []
            for size in sizes:
                if type(size) is not int or size < 0:
                    raise BadFrame("an attachment's length is not a length")
                parts.append(body[cut : cut + size])
                cut += size
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadFrame("the header cannot be read") from error
        if cut != len(body):
            raise BadFrame("attachments do not add up")
        return messages.parse(self._words, said, parts)
