"""What a replica and a room say to each other: Y's sync and awareness messages, and Jupyter's word for saving."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pycrdt import Decoder, Encoder, YMessageType, YSyncMessageType, write_message

RAW = 2  # Jupyter's own kind, beside Y's SYNC and AWARENESS
NOTHING = b"\x00"  # the state of a document that knows nothing


class Line(Protocol):
    """To one room, until it is cut."""

    @property
    def run(self) -> str:
        """Names this run of the server: started anew, it has another."""
        ...

    async def send(self, message: bytes) -> None:
        """Raises Cut."""

    async def receive(self) -> bytes:
        """Raises Cut."""
        ...

    async def close(self) -> None: ...


Dial = Callable[[str], Awaitable[Line]]
"""A new line to the room of the document at a path. Raises Missing or Unreachable."""


@dataclass(frozen=True)
class Asked:
    """The other side's state: it wants what it has not."""

    state: bytes


@dataclass(frozen=True)
class Told:
    """An update; `answer` when it is what we asked for."""

    update: bytes
    answer: bool


@dataclass(frozen=True)
class Aware:
    """Who is there."""

    update: bytes


@dataclass(frozen=True)
class Noted:
    """What Jupyter itself says, such as that a save is done."""

    body: dict[str, Any]


def read(message: bytes | str) -> Asked | Told | Aware | Noted | None:
    """None for a kind that does not concern us. Raises ValueError for what is no message."""
    if isinstance(message, str) or not message:
        raise ValueError("a text where a Y message belongs")
    decoder = Decoder(message)
    try:
        kind = decoder.read_var_uint()
        match kind:
            case YMessageType.SYNC:
                return read_sync(decoder)
            case YMessageType.AWARENESS:
                return Aware(decoder.read_message() or b"")
            case 2:
                body = json.loads(decoder.read_var_string())
                return Noted(body) if isinstance(body, dict) else None
            case _:
                return None
    except (IndexError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(f"no Y message: {error}") from None


def read_sync(decoder: Decoder) -> Asked | Told | None:
    kind = decoder.read_var_uint()
    body = decoder.read_message() or b""
    match kind:
        case YSyncMessageType.SYNC_STEP1:
            return Asked(body)
        case YSyncMessageType.SYNC_STEP2 | YSyncMessageType.SYNC_UPDATE:
            return Told(body, kind == YSyncMessageType.SYNC_STEP2)
        case _:
            raise ValueError("no Y message: it is of no known kind")


def question(state: bytes) -> bytes:
    """What has the other side that this state has not?"""
    return create_message(state, YSyncMessageType.SYNC_STEP1)


def answer(update: bytes) -> bytes:
    """To such a question."""
    return create_message(update, YSyncMessageType.SYNC_STEP2)


def create_message(body: bytes, kind: int) -> bytes:
    return bytes([YMessageType.SYNC, kind]) + write_message(body)


def save_message(number: int) -> bytes:
    encoder = Encoder()
    encoder.write_var_uint(RAW)
    encoder.write_var_string("save")
    encoder.write_var_uint(number)
    return encoder.to_bytes()


def save_number(message: bytes) -> int:
    """The number in such a message."""
    decoder = Decoder(message)
    decoder.read_var_uint()
    decoder.read_var_string()
    return decoder.read_var_uint()


def noted_message(body: dict[str, Any]) -> bytes:
    encoder = Encoder()
    encoder.write_var_uint(RAW)
    encoder.write_var_string(json.dumps(body))
    return encoder.to_bytes()
