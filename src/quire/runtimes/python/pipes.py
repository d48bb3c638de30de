"""Read from pipes and sockets without waiting."""

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
    """Enlarge the pipe and make it non-blocking."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(OSError):  # a user may hold a limited amount of pipe memory
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def read(pipe: int) -> bytes:
    try:
        return os.read(pipe, _CHUNK)
    except (BlockingIOError, OSError):
        return b""


def unread_bytes(sock: socket.socket) -> int:
    """Bytes that were sent and not yet read."""
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, b"\0\0\0\0"))[0])
