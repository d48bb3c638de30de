"""Several users of one server over HTTP: their tokens, and a client for each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
