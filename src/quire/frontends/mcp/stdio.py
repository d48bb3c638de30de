"""MCP over this process's stdin and stdout.

The event loop reads and writes pipes and sockets; the SDK passes every line to a thread and every message through
tasks. A daemon thread reads terminals and files, and everything on Windows: the SDK's thread would keep the process
alive until another line comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import stat
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any, Protocol, Self

import anyio
from fastmcp import FastMCP
from fastmcp.server.context import reset_transport, set_transport
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from quire.frontends.mcp.fastmcp_internals import low_level
from quire.frontends.mcp.lines import LineReader, LongLine, refusal

_log = logging.getLogger(__name__)
_MAX_LINE_BYTES = 64 * 2**20  # where no limit is set
_CHUNK_BYTES = 1 << 16
_FLUSH_S = 1.0  # to write the last answers


async def serve(server: FastMCP[Any], max_bytes: int) -> None:
    """Serve until the client closes stdin. A message of more than `max_bytes` is refused; 0 means 64 MiB."""
    token = set_transport("stdio")
    low = low_level(server)  # fastmcp's run_stdio_async takes no streams
    try:
        async with _streams(max_bytes or _MAX_LINE_BYTES) as (incoming, outgoing):
            await low.run(incoming, outgoing, low.create_initialization_options())
    finally:
        reset_transport(token)


@contextlib.asynccontextmanager
async def _streams(max_bytes: int) -> AsyncIterator[tuple[_Incoming, _Outgoing]]:
    """Streams over copies of descriptors 0 and 1. The originals lead to the null device and to stderr, so that no
    other input and output is in the protocol stream."""
    stdin, stdout = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: ASYNC230, PTH123 - the null device does not block
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(max_bytes)
    async with contextlib.AsyncExitStack() as stack:
        if _loop_can_wait_for(stdin):
            stack.callback((await _connect_reader(reader, stdin)).close)
        else:
            _read_in_thread(reader, stdin)
        writer: _Writer
        if _loop_can_wait_for(stdout):
            writer = connected = await _connect_writer(stdout)
            stack.callback(connected.close)
        else:
            writer = _ThreadWriter(stdout)
            stack.push_async_callback(_flush, writer)
        outgoing = _Outgoing(writer)
        yield _Incoming(reader, max_bytes, outgoing), outgoing


def _loop_can_wait_for(fd: int) -> bool:
    """Not terminals: the event loop would make them non-blocking for the shell, too."""
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


async def _connect_reader(reader: asyncio.StreamReader, fd: int) -> asyncio.ReadTransport:
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    return transport


async def _connect_writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(fd, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _read_in_thread(reader: asyncio.StreamReader, fd: int) -> None:
    """Feed the reader from a daemon thread: it may be waiting in read() when the process ends."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while data := _read(fd):
                loop.call_soon_threadsafe(reader.feed_data, data)
            loop.call_soon_threadsafe(reader.feed_eof)

    threading.Thread(target=read, name="quire-stdin", daemon=True).start()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK_BYTES)
    except OSError:  # the terminal was closed
        return b""


class _Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...

    async def drain(self) -> None: ...


class _ThreadWriter:
    """Writes from a daemon thread: a terminal that is paused must not block the event loop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._unwritten = 0  # messages
        self._empty = asyncio.Event()
        self._empty.set()
        threading.Thread(target=self._write_all, name="quire-stdout", daemon=True).start()

    def write(self, data: bytes, /) -> None:
        self._unwritten += 1
        self._empty.clear()
        self._queue.put(data)

    async def drain(self) -> None:
        await self._empty.wait()

    def _write_all(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while True:
                view = memoryview(self._queue.get())
                with contextlib.suppress(OSError):  # the client disconnected: stdin ends, too
                    while view:
                        view = view[os.write(self._fd, view) :]
                self._loop.call_soon_threadsafe(self._wrote_one)

    def _wrote_one(self) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._empty.set()


async def _flush(writer: _Writer) -> None:
    with anyio.move_on_after(_FLUSH_S):
        await writer.drain()


class _Stream:
    """What the SDK needs of both streams. `_streams` closes them."""

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class _Incoming(_Stream):
    """Messages. A line that is not a message is answered with an error."""

    def __init__(self, reader: asyncio.StreamReader, max_bytes: int, outgoing: _Outgoing) -> None:
        self._lines = LineReader(reader)
        self._max_bytes = max_bytes
        self._outgoing = outgoing

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        while True:
            line = await self._lines.next()
            if line == b"":
                raise anyio.EndOfStream
            if isinstance(line, LongLine):
                message = await self._refuse(line)
            elif line.strip():
                try:
                    text = line.decode("utf-8", "replace")
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
                except ValueError:
                    message = await self._refuse(line)
            else:
                continue
            if message is not None:
                return message

    async def _refuse(self, line: bytes | LongLine) -> SessionMessage | None:
        """Answer with an error. Returns the message that replaces the line if a request of this server waits for it."""
        refused = refusal(line, self._max_bytes)
        _log.warning("A message of the client was refused: %s", refused.error.error.message)
        if refused.is_answer:
            return SessionMessage(refused.error)
        if not refused.is_notification:
            await self._outgoing.send(SessionMessage(refused.error))
        return None


class _Outgoing(_Stream):
    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message. If it is cancelled while the client does not read, nothing is written."""
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise anyio.BrokenResourceError from error
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
