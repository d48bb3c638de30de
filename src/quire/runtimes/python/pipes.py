"""Bytes that wait in a pipe or a socket: how many, and reading them without waiting for more."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios

_CHUNK = 1 << 20
_PIPE_BYTES = 1 << 20


def prepare_pipe(pipe: int) -> None:
    """Make it large, and reading from it never wait."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(OSError):  # a user may hold only so much pipe memory
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def read(pipe: int) -> bytes:
    try:
        return os.read(pipe, _CHUNK)
    except (BlockingIOError, OSError):
        return b""


def unread_bytes(sock: socket.socket) -> int:
    """Bytes that were sent and not read."""
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, b"\0\0\0\0"))[0])
