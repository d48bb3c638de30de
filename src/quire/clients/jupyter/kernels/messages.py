"""Encodes and decodes kernel messages on a websocket: Jupyter's protocol v1, and the one of older servers."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

V1 = "v1.kernel.websocket.jupyter.org"
PROTOCOL_VERSION = "5.4"  # of the Jupyter messaging protocol


@dataclass(frozen=True, kw_only=True)
class KernelMessage:
    channel: str
    header: dict[str, Any]
    parent: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()

    @property
    def id(self) -> str:
        return str(self.header.get("msg_id", ""))

    @property
    def kind(self) -> str:
        return str(self.header.get("msg_type", ""))

    @property
    def parent_id(self) -> str:
        """The id of the request that the message answers."""
        return str(self.parent.get("msg_id", ""))


def create_message(channel: str, kind: str, content: dict[str, Any], session: str, parent: Any = None) -> KernelMessage:
    header = {
        "msg_id": uuid4().hex,
        "msg_type": kind,
        "session": session,
        "username": "quire",
        "date": datetime.now(UTC).isoformat(),
        "version": PROTOCOL_VERSION,
    }
    return KernelMessage(channel=channel, header=header, content=content, parent=parent or {})


def encode(message: KernelMessage, subprotocol: str) -> bytes | str:
    if subprotocol != V1:
        parts = {
            "header": message.header,
            "parent_header": message.parent,
            "metadata": message.metadata,
            "content": message.content,
        }
        return json.dumps({"channel": message.channel, "buffers": [], **parts})
    objects = [
        json.dumps(part).encode() for part in (message.header, message.parent, message.metadata, message.content)
    ]
    return join_parts([message.channel.encode(), *objects, *message.buffers])


def decode(data: bytes | str, subprotocol: str) -> KernelMessage:
    """Raises ValueError if `data` is not a kernel message."""
    try:
        if subprotocol == V1 and isinstance(data, bytes):
            channel, header, parent, metadata, content, *buffers = split_parts(data)
            objects = [json.loads(part) for part in (header, parent, metadata, content)]
            return validate(channel.decode(), objects, buffers)
        buffers = []
        if isinstance(data, bytes):
            data, *buffers = split_legacy_parts(data)
        body = json.loads(data)
        objects = [body.get(key) or {} for key in ("header", "parent_header", "metadata", "content")]
        return validate(str(body.get("channel", "")), objects, buffers)
    except (struct.error, IndexError, KeyError, AttributeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no kernel message: {error}") from None


def validate(channel: str, objects: list[Any], buffers: Sequence[bytes]) -> KernelMessage:
    if not all(isinstance(part, dict) for part in objects) or not isinstance(objects[0].get("msg_type"), str):
        raise ValueError("no kernel message: its parts are no objects")
    header, parent, metadata, content = objects
    return KernelMessage(
        channel=channel, header=header, parent=parent, metadata=metadata, content=content, buffers=tuple(buffers)
    )


def join_parts(parts: list[bytes]) -> bytes:
    """The number of offsets, the offsets, then the parts. Numbers have eight bytes, little-endian."""
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return b"".join([struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets), *parts])


def split_parts(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<Q", data)
    if not 6 <= count <= len(data) // 8:
        raise ValueError("no kernel message: it counts its parts wrongly")
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    return [data[start:end] for start, end in pairwise(offsets)]


def split_legacy_parts(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("!I", data)
    if not 1 <= count <= len(data) // 4:
        raise ValueError("no kernel message: it counts its parts wrongly")
    offsets = [*struct.unpack_from(f"!{count}I", data, 4), len(data)]
    return [data[start:end] for start, end in pairwise(offsets)]
