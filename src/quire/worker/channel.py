"""The worker's connection to the server: frames on a socket, in exact order with the bytes on stdout and stderr.

stdout and stderr are pipes whose read ends both sides hold. Before it sends a frame, the worker moves the pipes'
content into Printed frames; while the worker sends nothing, the server empties the pipes. Both hold one file lock
meanwhile, so each byte is read once and the order is kept: no frame is sent while the server holds the lock, and every
frame sent before it found the pipes empty.

The order between the two pipes is kept by emptying them whenever the writer changes: before Python writes to one while
the other holds bytes, and before a child process starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import os
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from typing import Any

from quire.wire import frames, packets
from quire.wire.messages import INTERRUPTS_BYTES, Printed
from quire.worker.execution.interrupts import Interrupts

_CHUNK_BYTES = 1 << 20
_FORK_EVENTS = ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn")
_libc = ctypes.CDLL(None)


DESCRIPTOR_COUNT = 7  # of a live process: six for the channel, and the relay
RELAY_INDEX = 6  # of the relay's descriptor
MAX_PASSED_DESCRIPTORS = 100  # with the first message
FIRST_HIGH_DESCRIPTOR = 200  # for our descriptors: a cell that closes "all" usually closes low numbers


class Channel:
    """One per process. A copy woken from a checkpoint connects it again."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.is_detached = True  # also in a child process that a cell forked
        os.register_at_fork(after_in_child=self._detach)
        self.audited: dict[str, Callable[[Any], None]] = dict.fromkeys(_FORK_EVENTS, lambda arguments: self.flush())
        sys.addaudithook(self._on_audit)

    def connect(self, descriptors: list[int]) -> None:
        sock, out_write, stdout, err_write, stderr, lock = descriptors
        os.dup2(out_write, 1)
        os.dup2(err_write, 2)
        os.close(out_write)
        os.close(err_write)
        sock, stdout, stderr, lock = (move_high(descriptor) for descriptor in (sock, stdout, stderr, lock))
        self.descriptors = [sock, stdout, stderr, lock]
        self._sock = packets.socket_from_descriptor(sock)
        self._pipes = (("stdout", stdout), ("stderr", stderr))
        self._lock_file = lock
        self._lock = threading.RLock()
        self._unsent = b""
        self.is_detached = False

    def receive(self, size: int) -> bytes:
        return self._sock.recv(size)

    def receive_with_descriptors(self, size: int) -> tuple[bytes, list[int]]:
        """The first message, with the descriptors sent along."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, size, MAX_PASSED_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        return data, descriptors

    def send(self, message: Any, *, more: bool = False) -> None:
        """Send a message after all earlier output; with `more`, together with the next message."""
        self._send(message, more=more)

    def flush(self) -> None:
        """Send the output so far."""
        self._send(None)

    def before_write(self, stream: str) -> None:
        """Called before Python code writes: send what is pending, and what the other stream holds, first."""
        if self._unsent:
            self._send(None, streams=False)
        for name, pipe in self._pipes:
            if name != stream and _unread_bytes(pipe):
                self._send(None, streams=False)

    def _send(self, message: Any | None, *, more: bool = False, streams: bool = True) -> None:
        if self.is_detached:
            return
        if not self._interrupts.hold():
            self._send_now(message, more, streams)
            return
        try:
            self._send_now(message, more, streams)
        except BaseException:
            self._interrupts.held = False
            raise
        self._interrupts.release()

    def _send_now(self, message: Any | None, more: bool, streams: bool) -> None:
        # before taking our lock: a thread that writes holds its stream's lock and waits for ours
        for name in ("stdout", "stderr") if streams else ():
            with contextlib.suppress(BaseException):  # a cell replaced, closed or deleted it
                getattr(sys, name).flush()
        with self._lock:
            _libc.fflush(None)  # output of C code that libc buffers
            fcntl.lockf(self._lock_file, fcntl.LOCK_EX)
            try:
                self._unsent += b"".join(frames.encode(printed) for printed in self._read_pipes())
                if message is not None:
                    self._unsent += frames.encode(message)
                if self._unsent and not more:
                    self._sock.sendall(self._unsent)
                    self._unsent = b""
            finally:
                fcntl.lockf(self._lock_file, fcntl.LOCK_UN)

    def _on_audit(self, event: str, arguments: Any) -> None:
        if event in self.audited:
            self.audited[event](arguments)

    def _read_pipes(self) -> Iterator[Printed]:
        """Read what is in the pipes now. Not what another thread adds meanwhile, which might never end."""
        for name, pipe in self._pipes:
            remaining = _unread_bytes(pipe)
            with contextlib.suppress(BlockingIOError):
                while remaining > 0 and (data := os.read(pipe, min(remaining, _CHUNK_BYTES))):
                    remaining -= len(data)
                    yield Printed(stream=name, data=data)

    def count_interrupts(self) -> int:
        """Interrupts the server has sent to this process. The server writes the number to the lock file."""
        with contextlib.suppress(OSError):  # a cell closed it
            if self._lock_file >= 0:
                return int.from_bytes(os.pread(self._lock_file, INTERRUPTS_BYTES, 0), "little")
        return 0

    def detach(self) -> None:
        """In a checkpoint: close the descriptors, until it is connected again."""
        self._detach()
        for descriptor in self.descriptors[1:]:
            os.close(descriptor)
        self._lock_file = -1

    def _detach(self) -> None:
        """In a child that user code forked: only the parent sends frames; output goes through the pipes."""
        if not self.is_detached:
            self.is_detached = True
            self._sock.close()


def move_high(descriptor: int) -> int:
    """Move a descriptor to a high number."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_DESCRIPTOR)
    os.close(descriptor)
    return moved


def _unread_bytes(pipe: int) -> int:
    """Bytes in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0])


class _OrderedWriter(io.BufferedWriter):
    """Writes to descriptor 1 or 2, and calls the channel before each write.

    The write itself is done in C: after an interrupt in Python code, the same bytes would be written twice.
    """

    def __init__(self, channel: Channel, name: str, fd: int) -> None:
        raw = io.FileIO(fd, "wb", closefd=False)
        raw.name = name  # as in ipykernel
        super().__init__(raw, 1 << 16)
        self._channel = channel
        self._stream = name

    def write(self, data: Any) -> int:
        self._channel.before_write(self._stream)
        return super().write(data)

    def flush(self) -> None:
        self._channel.before_write(self._stream)
        super().flush()


def open_stream(channel: Channel, name: str, fd: int) -> io.TextIOWrapper:
    """A line-buffered text stream over stdout or stderr; characters that UTF-8 cannot encode are escaped."""
    writer = _OrderedWriter(channel, name, fd)
    return io.TextIOWrapper(writer, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def is_usable(stream: io.TextIOWrapper | None) -> bool:
    try:
        return stream is not None and not stream.closed
    except ValueError:  # detached
        return False


class StandardDescriptors:
    """Copies of the descriptors 0, 1 and 2, to restore them after a cell changed them."""

    def __init__(self) -> None:
        self.copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_DESCRIPTOR) for fd in (0, 1, 2)]

    def restore(self) -> None:
        for fd, copy in enumerate(self.copies):
            os.dup2(copy, fd)


def line_buffer_c() -> None:
    """Line-buffer C's stdout, as Python's is. In a pipe, libc would buffer 4 KiB."""
    _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, 1, 0)  # 1 is _IOLBF
