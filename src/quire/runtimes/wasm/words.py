"""What the server and a host of guests say to each other, beside the words every worker has.

Each frame goes in an envelope: the number of the guest it is for or from, and its length. 0 is the host itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quire.wire import frames, messages, relay
from quire.wire.messages import checked_field, is_type

ENVELOPE = struct.Struct("!II")
CREDIT = 1 << 20  # bytes of events a guest may have under way before it waits
NOT_READY = 3  # the exit status of a host that has no program to load


def _mounts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and [type(part) for part in each] == [str, bool] for each in value
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is str for each in value)


# Server to guest


@dataclass(frozen=True, kw_only=True)
class Make:
    """Have a guest; with `image`, a file, as that says. Answered by Made."""

    workspace: str = checked_field(is_type(str))
    mounts: list[list[Any]] = checked_field(_mounts, default_factory=list)  # path, whether it may be written
    memory: int = checked_field(is_type(int), default=0)
    fuel: int = checked_field(is_type(int), default=0)
    files: int = checked_field(is_type(int), default=0)
    calls: int = checked_field(is_type(int), default=0)
    image: str = checked_field(is_type(str), default="")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Write an image of the guest into this file, which is not there yet; answered by Kept."""

    file: str = checked_field(is_type(str))


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    """Have what runs stop."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """So many bytes of its events were taken."""

    size: int = checked_field(is_type(int))


@dataclass(frozen=True, kw_only=True)
class End:
    """Let go of the guest, whatever it does; answered by Stopped."""


# Guest to server


@dataclass(frozen=True, kw_only=True)
class Hello:
    """From the host: it listens, and makes guests of this program."""

    version: str = checked_field(is_type(str))
    artefact: str = checked_field(is_type(str))
    packages: list[str] = checked_field(_texts, default_factory=list)
    layers: dict[str, str] = checked_field(messages.is_bundle, default_factory=dict)  # the walls, or why one failed


@dataclass(frozen=True, kw_only=True)
class Made:
    """The guest is there."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The image is in its file, or why it is not; what the namespace holds."""

    why_not: str = checked_field(is_type(str), default="")
    size: int = checked_field(is_type(int), default=0)  # bytes of the file
    memory: int = checked_field(is_type(int), default=0)  # bytes the guest holds
    seconds: float = checked_field(is_type(int, float), default=0)  # of processor time it took
    variables: dict[str, str] = checked_field(messages.is_bundle, default_factory=dict)
    functions: list[dict[str, str]] = checked_field(messages.is_bundle_list, default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The guest is no more, and why."""

    reason: str = checked_field(is_type(str))
    hint: str = checked_field(is_type(str), default="")


TO_GUEST: dict[str, type] = {
    **messages.REQUESTS,
    **relay.SERVER_MESSAGES,
    **{kind.__name__: kind for kind in (Make, Keep, Interrupt, Heard, End)},
}
FROM_GUEST: dict[str, type] = {
    **messages.EVENTS,
    **relay.KERNEL_MESSAGES,
    **{kind.__name__: kind for kind in (Hello, Made, Kept, Stopped)},
}


def sealed(guest: int, message: Any, limits: frames.Limits = frames.FROM_CODE) -> bytes:
    """A message in its envelope."""
    frame = frames.encode(message, limits)
    return ENVELOPE.pack(guest, len(frame)) + frame


class Opener:
    """Bytes in any portions; whole frames out, each with whose it is."""

    def __init__(self, limits: frames.Limits) -> None:
        self._buffer = bytearray()
        self._largest = frames.PREFIX.size + limits.header + limits.parts

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        self._buffer += data
        while len(self._buffer) >= ENVELOPE.size:
            guest, size = ENVELOPE.unpack_from(self._buffer)
            if size > self._largest:
                raise frames.BadFrame(f"a frame of {size:,} bytes is over the limit")
            end = ENVELOPE.size + size
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[ENVELOPE.size : end])
            del self._buffer[:end]
            yield guest, frame
