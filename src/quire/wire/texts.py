"""Messages as strings, for interfaces without bytes: the JSON header in one line, then the bytes as Latin-1."""

from __future__ import annotations

import json
import re
from typing import Any

from quire.wire import frames, messages
from quire.wire.messages import BadMessage

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def dump(message: Any, limits: frames.Limits = frames.FROM_CODE) -> str:
    """The text of a message. Raises TooLarge if its frame would exceed the limits."""
    fields, parts = messages.dump(message)
    fields["parts"] = [len(part) for part in parts]
    header = frames.as_json(fields).encode("utf-8", "replace").decode()  # lone surrogates become "?"
    body = b"".join(parts).decode("latin-1")
    if len(header) > frames.LONG_TEXT or len(body) > frames.LONG_TEXT:
        frames.encode(message, limits)  # raises
    return f"{header}\n{body}" if parts else header


def load(words: dict[str, type], text: str, limits: frames.Limits = frames.FROM_SERVER) -> Any:
    """The message in a text, one of the types in `words`, with every field checked. Raises BadMessage."""
    header, _, body = text.partition("\n")
    values = header.count(",") + header.count("{") + header.count("[")
    if len(text) > limits.header + limits.parts or values > limits.values:
        raise BadMessage(f"a message of {len(text):,} characters is over the limit")
    try:
        fields = json.loads(header)
        if _SURROGATE.search(header):
            json.dumps(fields, ensure_ascii=False).encode()  # raises UnicodeEncodeError for a lone surrogate
        sizes, at, parts = fields.pop("parts"), 0, []
        data = body.encode("latin-1")
        for size in sizes:
            if type(size) is not int or size < 0:
                raise BadMessage("an attachment's length is not a length")
            parts.append(data[at : at + size])
            at += size
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadMessage("the message cannot be read") from error
    if at != len(data):
        raise BadMessage("attachments do not add up")
    return messages.parse(words, fields, parts)
