"""Messages between a replica and its room: sync and awareness messages of Y, and Jupyter's save messages."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pycrdt import Decoder, Encoder, YMessageType, YSyncMessageType, write_message

RAW_MESSAGE = 2  # Jupyter's own message type, besides SYNC and AWARENESS of Y
EMPTY_STATE = b"\x00"  # the state vector of an empty document


class RoomConnection(Protocol):
    """A connection to one room."""

    @property
    def server_run(self) -> str:
        """Identifies the server process: it changes when the server restarts."""
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
        """To the room of JupyterLab's list of collaborators. Raises JupyterError if it is missing."""
        ...


ConnectToRoom = Callable[[str], Awaitable[RoomConnection]]
"""As `Rooms.connect`."""


@dataclass(frozen=True)
class SyncRequest:
    """The room's state vector. It expects the updates that it does not have."""

    state: bytes


@dataclass(frozen=True)
class Update:
    """`is_reply`: the update answers our sync request."""

    update: bytes
    is_reply: bool


@dataclass(frozen=True)
class AwarenessUpdate:
    """Presence of others."""

    update: bytes


@dataclass(frozen=True)
class ServerNotice:
    """A message of Jupyter itself, such as the result of a save."""

    body: dict[str, Any]


def parse(message: bytes | str) -> SyncRequest | Update | AwarenessUpdate | ServerNotice | None:
    """None for an unknown message type. Raises ValueError if the message is invalid."""
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
    """Ask the room for the updates that a document with this state vector does not have."""
    return sync_message(state, YSyncMessageType.SYNC_STEP1)


def sync_reply(update: bytes) -> bytes:
    """Answer a sync request."""
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
    """The number of a save request."""
    decoder = Decoder(message)
    decoder.read_var_uint()
    decoder.read_var_string()
    return decoder.read_var_uint()


def encode_notice(body: dict[str, Any]) -> bytes:
    encoder = Encoder()
    encoder.write_var_uint(RAW_MESSAGE)
    encoder.write_var_string(json.dumps(body))
    return encoder.to_bytes()
