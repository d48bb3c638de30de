"""An HTTP proxy in the server: the only network access of a kernel, through a socket in the kernel's own loopback.

It connects only to the hosts and ports the notebook was granted, and names what it denies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from quire.core.limits import network_rules

_MAX_HEAD_BYTES = 64 * 1024  # of a request
_TIMEOUT_S = 30.0  # for the request, and for the connection
_MAX_CONNECTIONS = 100  # of one kernel
_CHUNK_BYTES = 1 << 16
_MAX_HOST_CHARS = 255

_log = logging.getLogger(__name__)


class Proxy:
    """Serves a kernel and its branches. `on_denied` is called with each denied host."""

    def __init__(self, listener: socket.socket, granted: Iterable[str], on_denied: Callable[[str], None]) -> None:
        self._listener = listener
        self._granted = network_rules.parse_rules(granted)
        self._on_denied = on_denied
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listener, limit=_MAX_HEAD_BYTES)

    def close(self) -> None:
        """Close the listening socket and all connections."""
        if self._server is not None:
            self._server.close()
        else:
            self._listener.close()
        for task in self._serving:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) > _MAX_CONNECTIONS:
                await _respond(writer, 503, f"This notebook has {_MAX_CONNECTIONS} connections open; close some.")
                return
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._request(head, reader, writer)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("a kernel's connection ended: %s", error)
        finally:
            self._serving.discard(task)
            writer.close()

    async def _request(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            tunnel = method == "CONNECT"
            parts = urlsplit(f"//{target}" if tunnel else target)
            host, port = (parts.hostname or "").rstrip("."), parts.port or (443 if tunnel else 80)
            if not 0 < len(host) <= _MAX_HOST_CHARS or (not tunnel and parts.scheme != "http"):
                raise ValueError(target)
        except ValueError:
            await _respond(writer, 400, "This is a proxy: ask for http://host/path, or CONNECT host:port.")
            return
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                remote_reader, remote_writer = await self._connect(host, port)
        except _HostDenied as denied:
            self._on_denied(f"{host}:{port}")
            await _respond(writer, 403, str(denied))
            return
        except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: the name cannot be looked up
            await _respond(writer, 502, f"{host}:{port} could not be reached: {error or 'it did not answer'}.")
            return
        if tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            remote_writer.write(_origin_request(head, method, parts.path or "/", parts.query))
        await _relay(reader, writer, remote_reader, remote_writer)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a checked address, so that no name leads into this machine or its network."""
        rule = network_rules.find_rule(self._granted, host, port)
        if rule is None:
            raise _HostDenied(
                f"This notebook may not connect to {host}:{port}. The operator can allow it: setting `sandbox.network`."
            )
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(address[0]) for *_, address in infos]
        if not network_rules.is_literal_address(rule.host):
            addresses = [address for address in addresses if not network_rules.is_internal(address)]
        if not addresses:
            raise _HostDenied(
                f"{host} leads into the server's own network; only the address itself can be allowed there."
            )
        return await asyncio.open_connection(addresses[0], port, limit=_CHUNK_BYTES)


class _HostDenied(Exception):
    pass


def _origin_request(head: bytes, method: str, path: str, query: str) -> bytes:
    """The request as the server expects it, for one connection."""
    lines = head[:-4].split(b"\r\n")[1:]
    headers = [line for line in lines if not line.lower().startswith((b"proxy-", b"connection:"))]
    first = f"{method} {path}{'?' + query if query else ''} HTTP/1.1".encode()
    return b"\r\n".join([first, *headers, b"Connection: close", b"", b""])


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    remote_reader: asyncio.StreamReader,
    remote_writer: asyncio.StreamWriter,
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, remote_writer))
            group.create_task(_copy(remote_reader, writer))
    except* OSError:
        pass
    finally:
        remote_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def _respond(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} {text}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    writer.write(f"{head}\r\n\r\n".encode("ascii", "replace") + body)
    await writer.drain()
