"""What a replica and a room say to each other: Y's sync and awareness messages, and Jupyter's word for saving."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pycrdt import Decoder, Encoder, YMessageType, YSyncMessageType, write_message

RAW_MESSAGE = 2  # Jupyter's own kind, beside Y's SYNC and AWARENESS
EMPTY_STATE = b"\x00"  # the state of a document that knows nothing


class RoomConnection(Protocol):
    """To one room, until it is cut."""

    @property
    def server_run(self) -> str:
        """Names this run of the server: started anew, it has another."""
        ...

    async def send(self, message: bytes) -> None:
        """Raises ConnectionLost."""

    async def receive(self) -> bytes:
        """Raises ConnectionLost."""
        ...

    async def close(self) -> None: ...


class Rooms(Protocol):
    async def connect(self, path: str) -> RoomConnection:
        """A new connection to the room of the document at this path. Raises Missing or Unreachable."""
        ...

    async def connect_collaborators(self) -> RoomConnection:
        """To the room of JupyterLab's list of collaborators. Raises JupyterError where there is none."""
        ...


ConnectToRoom = Callable[[str], Awaitable[RoomConnection]]
"""As `Rooms.connect`."""


@dataclass(frozen=True)
class SyncRequest:
    """The other side's state: it wants what it has not."""

    state: bytes


@dataclass(frozen=True)
class Update:
    """An update; `is_reply` when it is what we asked for."""

    update: bytes
    is_reply: bool


@dataclass(frozen=True)
class AwarenessUpdate:
    """Who is there."""

    update: bytes


@dataclass(frozen=True)
class ServerNotice:
    """What Jupyter itself says, such as that a save is done."""

    body: dict[str, Any]


def parse(message: bytes | str) -> SyncRequest | Update | AwarenessUpdate | ServerNotice | None:
    """None for a kind that does not concern us. Raises ValueError for what is no message."""
    if isinstance(message, str) or not message:
        raise ValueError("a text where a Y message belongs")
    decoder = Decoder(message)
    try:
        kind = decoder.read_var_uint()
        match kind:
            case YMessageType.SYNC:
                return parse_sync(decoder)
            case YMessageType.AWARENESS:
                return AwarenessUpdate(decoder.read_message() or b"")
            case 2:  # RAW_MESSAGE
                body = json.loads(decoder.read_var_string())
                return ServerNotice(body) if isinstance(body, dict) else None
            case _:
                return None
    except (IndexError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(f"no Y message: {error}") from None


def parse_sync(decoder: Decoder) -> SyncRequest | Update | None:
    kind = decoder.read_var_uint()
    body = decoder.read_message() or b""
    match kind:
        case YSyncMessageType.SYNC_STEP1:
            return SyncRequest(body)
        case YSyncMessageType.SYNC_STEP2 | YSyncMessageType.SYNC_UPDATE:
            return Update(body, kind == YSyncMessageType.SYNC_STEP2)
        case _:
            raise ValueError("no Y message: it is of no known kind")


def sync_request(state: bytes) -> bytes:
    """What has the other side that this state has not?"""
    return sync_message(state, YSyncMessageType.SYNC_STEP1)


def sync_reply(update: bytes) -> bytes:
    """To such a question."""
    return sync_message(update, YSyncMessageType.SYNC_STEP2)


def sync_message(body: bytes, kind: int) -> bytes:
    return bytes([YMessageType.SYNC, kind]) + write_message(body)


def save_request(number: int) -> bytes:
    encoder = Encoder()
    encoder.write_var_uint(RAW_MESSAGE)
    encoder.write_var_string("save")
    encoder.write_var_uint(number)
    return encoder.to_bytes()


def parse_save_request(message: bytes) -> int:
    """The number in such a message."""
    decoder = Decoder(message)
    decoder.read_var_uint()
    decoder.read_var_string()
    return decoder.read_var_uint()


def encode_notice(body: dict[str, Any]) -> bytes:
    encoder = Encoder()
    encoder.write_var_uint(RAW_MESSAGE)
    encoder.write_var_string(json.dumps(body))
    return encoder.to_bytes()
