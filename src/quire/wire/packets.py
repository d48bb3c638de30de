"""JSON packets with file descriptors, between server, zygote and supervisor."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

_SIZE = 1 << 16
_DESCRIPTORS = 200
_UCRED = struct.Struct("3i")


def socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(None)
    theirs.settimeout(None)
    return ours, theirs


def socket_from_descriptor(descriptor: int) -> socket.socket:
    """A socket without a timeout, even if a cell has set a default timeout for sockets."""
    sock = socket.socket(fileno=descriptor)
    sock.settimeout(None)
    return sock


def send(sock: socket.socket, words: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([json.dumps(words).encode()], beside)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int], int]:
    """Words, descriptors, and the sender's pid if the socket passes credentials; no words at end of file."""
    space = socket.CMSG_SPACE(_DESCRIPTORS * 4) + socket.CMSG_SPACE(_UCRED.size)
    try:
        data, beside, _, _ = sock.recvmsg(_SIZE, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        data, beside = b"", []
    descriptors: list[int] = []
    sender = 0
    for level, kind, value in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += array.array("i", value[: len(value) - len(value) % 4])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            sender = _UCRED.unpack(value[: _UCRED.size])[0]
    if not data:
        return {}, descriptors, sender
    words = parse(data)
    if "bad" in words:
        close(descriptors)
        return words, [], sender
    return words, descriptors, sender


def parse(data: bytes) -> dict[str, Any]:
    """The words of a packet; {"bad": True} if it is not one, since a cell may write to the socket."""
    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        words = None
    return words if isinstance(words, dict) else {"bad": True}


def close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
