"""A message as one text, for a boundary that takes strings: its JSON header in one line, then its bytes as Latin-1."""

from __future__ import annotations

import json
import re
from typing import Any

from quire.wire import frames, messages
from quire.wire.messages import BadMessage

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def dump(message: Any) -> str:
    said, parts = messages.dump(message)
    said["parts"] = [len(part) for part in parts]
    # a lone surrogate is no text: it goes as "?"
    header = frames.as_json(said).encode("utf-8", "replace").decode()
    body = b"".join(parts).decode("latin-1")
    if len(header) > frames.HEADER_LIMIT or len(body) > frames.PARTS_LIMIT:
        raise frames.BadFrame(
            f"{len(header) + len(body):,} characters at once are more than a cell can show ({frames.HEADER_LIMIT:,} of "
            f"text, {frames.PARTS_LIMIT:,} of pictures). Write them to a file in the workspace instead."
        )
    return f"{header}\n{body}" if parts else header


def load(words: dict[str, type], text: str) -> Any:
    """The message, of the given vocabulary, with every field checked. Raises BadMessage."""
    header, _, body = text.partition("\n")
    if len(header) > frames.HEADER_LIMIT or len(body) > frames.PARTS_LIMIT:
        raise BadMessage(f"a message of {len(text):,} characters is over the limit")
    try:
        said = json.loads(header)
        if _SURROGATE.search(header):
            json.dumps(said, ensure_ascii=False).encode()  # raises where one is alone
        sizes, at, parts = said.pop("parts"), 0, []
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
    return messages.parse(words, said, parts)
