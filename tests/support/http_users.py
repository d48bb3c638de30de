"""Several users of one server over HTTP: their tokens, and a client for each."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from quire.core.model import Principal
from quire.stores.tokens import FileTokens


@dataclass
class Users:
    """Of the server at this address, that keeps its tokens there."""

    url: str
    data_dir: Path
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, name: str, *, admin: bool = False) -> str:
        if name not in self.tokens:
            self.tokens[name] = FileTokens(self.data_dir / "tokens.json").add(Principal(name), admin=admin)
        return self.tokens[name]

    def remove(self, name: str) -> None:
        FileTokens(self.data_dir / "tokens.json").remove(Principal(name))
        del self.tokens[name]

    def headers(self, name: str) -> dict[str, str]:
        return bearer(self.token(name))

    @contextlib.asynccontextmanager
    async def client(self, name: str, *, mode: str = "auto", handler: Any = None) -> AsyncIterator[Client[Any]]:
        transport = StreamableHttpTransport(self.url, headers=self.headers(name))
        async with Client(transport, mode=mode, message_handler=handler) as connected:
            yield connected


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextlib.contextmanager
def issuer(pages: dict[str, Callable[[dict[str, str]], Any]]) -> Iterator[str]:
    """A web server of this process. A page is told what it is asked, and answers JSON, or where else to go."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def answer(self, asked: str) -> None:
            page = pages.get(urlsplit(self.path).path)
            said = page(dict(parse_qsl(asked))) if page is not None else None
            data = b"" if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(302 if isinstance(said, str) else 200 if page is not None else 404)
            if isinstance(said, str):
                self.send_header("Location", said)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *said: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
