"""A kernel's capabilities with a server of the tests' own at the other end of the wire."""

from __future__ import annotations

import builtins
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

from quire.wire import frames, relay
from quire.wire.relay import Called, GivenUp, Refused, Returned
from quire.worker.capabilities.kernel_capabilities import KernelCapabilities
from quire.worker.capabilities.relay import Relay
from quire.worker.execution.interrupts import Interrupts

DEADLINE = 30.0


class Server:
    """Reads calls in a thread of its own; `answer` says what becomes of each."""

    def __init__(self, sock: socket.socket, answer: Callable[[Server, Called], None]) -> None:
        self.sock = sock
        self.given_up: queue.Queue[int] = queue.Queue()
        self.called: queue.Queue[Called] = queue.Queue()
        self._answer = answer
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        decoder = frames.Decoder(relay.KERNEL_MESSAGES)
        while data := self.sock.recv(1 << 16):
            for word in decoder.feed(data):
                if isinstance(word, GivenUp):
                    self.given_up.put(word.call)
                else:
                    self.called.put(word)
                    self._answer(self, word)

    def send(self, *words: Any) -> None:
        with self._lock:
            self.sock.sendall(b"".join(map(frames.encode, words)))

    def close(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE)
        self.sock.close()


SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Find messages.\n\nWith a query as in the search box.",
    "input": {
        "type": "object",
        "properties": {
            "max": {"type": "integer", "default": 10, "minimum": 1, "maximum": 500},
            "query": {"type": "string", "description": "What to look for", "minLength": 1},
            "in-folder": {"enum": ["inbox", "sent"]},
            "labels": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["query"],
    },
    "output": {
        "type": "object",
        "title": "Hits",
        "properties": {
            "hits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "title": "Hit",
                    "properties": {"id": {"type": "integer"}},
                    "required": ["id"],
                },
            }
        },
        "required": ["hits"],
    },
}
SUM: dict[str, Any] = {
    "name": "get-sum",
    "description": "Adds.",
    "input": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    "output": {
        "type": "object",
        "properties": {"result": {"type": "number"}},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
    },
}
SAY: dict[str, Any] = {"name": "say", "description": "Says.", "input": {"type": "object"}, "output": None}
MAIL: dict[str, Any] = {
    "name": "mail",
    "about": "Mail of the user.",
    "tools": [SEARCH, SUM, SAY, {"name": "read", "description": "A tool of that name.", "input": {}}],
    "resources": True,
    "prompts": True,
}


class Book:
    """A kernel's capabilities, with what the server is asked and answers."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self.known = KernelCapabilities(Interrupts(), self.namespace)
        self.answers: dict[str, Callable[[Called], Any]] = {}
        self.asked: list[Called] = []
        ours, theirs = socket.socketpair()
        self.known.relay.connect(theirs.detach())
        self._server = Server(ours, self._answer)
        self.known.apply([MAIL])

    def _answer(self, server: Server, called: Called) -> None:
        self.asked.append(called)
        said = self.answers.get(called.method or called.do, lambda called: {"content": []})(called)
        if isinstance(said, tuple):
            server.send(Refused(call=called.call, kind=said[0], message=said[1], hint=""))
        else:
            server.send(Returned(call=called.call, value=said))

    @property
    def caps(self) -> Any:
        return self.known.caps

    @property
    def mail(self) -> Any:
        return vars(builtins)["mail"]

    def close(self) -> None:
        self.known.relay.leave()
        self._server.close()
        for name, value in self.known._put.items():
            if vars(builtins).get(name) is value:
                delattr(builtins, name)


class Pair:
    def __init__(self) -> None:
        self.interrupts = Interrupts()
        self.client = Relay(self.interrupts)
        self._servers: list[Server] = []

    def serve(self, answer: Callable[[Server, Called], None]) -> Server:
        ours, theirs = socket.socketpair()
        self.client.connect(theirs.detach())
        self._servers.append(Server(ours, answer))
        return self._servers[-1]

    def close(self) -> None:
        self.client.leave()
        for server in self._servers:
            server.close()


def echo(server: Server, called: Called) -> None:
    server.send(Returned(call=called.call, value={"back": called.given}))
