"""Requests that no decent client sends, and some that one does, made by chance from a seed, as bytes for a socket."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_META = "io.modelcontextprotocol/"
_HOST = b"host: 127.0.0.1\r\n"
_JSON = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
_NOT_CALLED = {"install_capability", "uninstall_capability", "import_ipynb", "reset", "clear_notebook"}
_CODE = ["1+1", "x = 1", "print('x')", "1/0", "raise SystemExit", "def f(:", "", " ", "\x00", "# é", "?", "%nothing"]
_TEXTS = [
    "main", "", " ", "a" * 300, "\x00", "é\u200f\U0001f600", "../../etc/passwd", "%00", "'; DROP TABLE notebooks; --",
    "{}", "-1", "0", "all", "2-1", "nan", "current", "\r\n", "notebook://main", "\\", "a/b",
]  # fmt: skip
_NUMBERS = [0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320, True]
_ODD: list[Any] = [None, True, [], {}, [[[]]], {"a": {"b": [1]}}, *_NUMBERS, *_TEXTS]
_ADDRESSES = [
    *_TEXTS, "notebook://main", "notebook://current", "notebook://notebooks", "notebook://main/cell/0",
    f"notebook://main/cell/{10**30}", f"notebook://main/cell/0/image/{10**30}", "notebook://main/cell/0/output/-1",
    "notebook://main/cell/0/output/0?start=1e9", "notebook://%00/cell/\x00", "notebook://main/cell/" + "9" * 5000,
    "file:///etc/passwd", "http://[", "notebook://" + "a" * 100_000,
]  # fmt: skip
_METHODS = [
    "ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "server/discover", "tools/call",
    "resources/read", "prompts/get", "completion/complete", "logging/setLevel", "resources/subscribe", "initialize",
    "notifications/initialized", "notifications/cancelled", "notifications/progress", "tasks/get", "no/such", "",
]  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """One request, and whether the server may close the connection without an answer."""

    data: bytes
    closes: bool = False


class Hostile:
    def __init__(self, seed: int, tools: list[dict[str, Any]], session: str = "") -> None:
        """`tools` as tools/list gives them; `session` is one that a client of the older era has."""
        self._chance = random.Random(seed)
        self._tools = [tool for tool in tools if tool["name"] not in _NOT_CALLED]
        self._session = session

    def next(self) -> Sent:
        kinds = [self._call, self._wrong_call, self._rpc, self._broken_json, self._http, self._garbage]
        return self._chance.choices(kinds, weights=[30, 25, 15, 20, 8, 2])[0]()

    # Of a sound envelope

    def _call(self) -> Sent:
        """A tool with arguments that its schema allows."""
        tool = self._chance.choice(self._tools)
        properties = tool["inputSchema"].get("properties", {})
        needed = tool["inputSchema"].get("required", [])
        arguments = {
            name: self._fitting(name, schema)
            for name, schema in properties.items()
            if name in needed or self._chance.random() < 0.3
        }
        return self._posted("tools/call", {"name": tool["name"], "arguments": arguments})

    def _fitting(self, name: str, schema: dict[str, Any]) -> Any:
        if name == "code" or name == "source":
            return self._chance.choice(_CODE)
        if name == "python":
            return None
        if "enum" in schema:
            return self._chance.choice(schema["enum"])
        match schema.get("type"):
            case "string":
                return self._chance.choice(_TEXTS)
            case "integer":
                return self._chance.choice([number for number in _NUMBERS if isinstance(number, int)])
            case "number":
                return self._chance.choice(_NUMBERS)
            case "boolean":
                return self._chance.random() < 0.5
            case "array":
                return [self._fitting("", schema.get("items", {})) for _ in range(self._chance.randrange(3))]
            case "object":
                return {self._chance.choice(_TEXTS): self._chance.choice(_ODD)}
        choices = schema.get("anyOf", [])
        return self._fitting(name, self._chance.choice(choices)) if choices else self._chance.choice(_ODD)

    def _wrong_call(self) -> Sent:
        """A tool with arguments of any kind, or one there is not."""
        tool = self._chance.choice(self._tools)
        names = [*tool["inputSchema"].get("properties", {}), *_TEXTS]
        few = {self._chance.choice(names): self._odd(3) for _ in range(self._chance.randrange(4))}
        few.pop("python", None)
        if "code" in few and not isinstance(few["code"], (list, dict)):
            few["code"] = self._chance.choice(_CODE)
        name = tool["name"] if self._chance.random() < 0.8 else self._odd(1)
        arguments = few if self._chance.random() < 0.8 else self._odd(2)
        return self._posted("tools/call", {"name": name, "arguments": arguments})

    def _odd(self, depth: int) -> Any:
        if depth and self._chance.random() < 0.3:
            if self._chance.random() < 0.5:
                return [self._odd(depth - 1) for _ in range(self._chance.randrange(3))]
            return {self._chance.choice(_TEXTS): self._odd(depth - 1) for _ in range(self._chance.randrange(3))}
        return self._chance.choice(_ODD)

    def _rpc(self) -> Sent:
        """JSON-RPC that is not quite: methods, parameters, ids, batches, answers nobody asked for."""
        method: Any = self._chance.choice(_METHODS)
        params = self._odd(3) if self._chance.random() < 0.6 else {"uri": self._chance.choice(_ADDRESSES)}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        for key in list(message):
            if self._chance.random() < 0.15:
                message[key] = self._odd(2)
            elif self._chance.random() < 0.1:
                del message[key]
        if method == "resources/read":
            message["params"] = self._with_meta(params if isinstance(params, dict) else {})
        if method == "initialize" and self._chance.random() < 0.9:  # a session each: few are enough
            message["method"] = "ping"
        body: Any = message
        match self._chance.randrange(8):
            case 0:
                body = [message] * self._chance.randrange(4)
            case 1:
                body = {"jsonrpc": "2.0", "id": self._odd(1), "result": self._odd(2)}
            case 2:
                body = self._odd(3)
        return self._post(json.dumps(body).encode(), str(method))

    # Of bytes

    def _broken_json(self) -> Sent:
        call = {"name": "execute", "arguments": {"code": "1+1"}}
        sound = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": self._with_meta(call)}
        ).encode()
        depth = self._chance.choice([50, 190, 900, 5_000, 100_000])
        body = self._chance.choice(
            [
                b"[" * depth + b"]" * depth,
                b'{"a":' * depth + b"1" + b"}" * depth,
                sound.replace(b'"1+1"', b"[" * depth + b"]" * depth),
                sound.replace(b"1+1", b"\\ud800"),
                sound.replace(b"1+1", b"\xff\xfe"),
                sound.replace(b"1+1", b"\\u0000"),
                sound.replace(b"1+1", b"\x00"),
                sound.replace(b'"1+1"', b"NaN"),
                sound.replace(b'"id": 1', b'"id": ' + b"9" * self._chance.choice([20, 400, 5_000])),
                sound.replace(b'"id": 1', b'"id": 1e999'),
                sound.replace(b'"1+1"', b'"1+1", "code": "2"'),
                sound.replace(b'"1+1"', b'"1+1", "timeout": 1e999'),
                sound[: self._chance.randrange(len(sound))],
                b"",
                b"null",
                b"\xef\xbb\xbf" + sound,
                self._mutated(sound),
                sound.replace(b"1+1", b"x" * self._chance.choice([1_000, 100_000])),
            ]
        )
        return self._post(body, "tools/call", name=b"execute")

    def _mutated(self, sound: bytes) -> bytes:
        data = bytearray(sound)
        for _ in range(self._chance.randrange(1, 6)):
            data[self._chance.randrange(len(data))] = self._chance.randrange(256)
        return bytes(data)

    def _http(self) -> Sent:
        """Methods, paths, types and headers that are not those of MCP."""
        verb = self._chance.choice(
            [b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD", b"TRACE", b"POST", b"BREW"]
        )
        path = self._chance.choice(
            [b"/mcp", b"/", b"/mcp/", b"/mcp?x=%00", b"/healthz", b"/%2e%2e/etc/passwd", b"/" * 99]
        )
        more = self._chance.choice(
            [
                b"",
                b"content-type: text/plain\r\n",
                b"content-type: \xff\r\n",
                b"accept: text/html\r\n",
                b"mcp-protocol-version: 1999-01-01\r\naccept: application/json, text/event-stream\r\n",
                b"mcp-session-id: nobody\r\naccept: application/json, text/event-stream\r\n",
                b"last-event-id: 1\r\naccept: application/json, text/event-stream\r\n",
                b"origin: https://evil.example\r\n",
                b"upgrade: websocket\r\nconnection: upgrade\r\n",
                b"x-long: " + b"a" * 20_000 + b"\r\n",
            ]
        )
        if verb == b"GET" and path.startswith(b"/mcp") and b"event-stream" in more:
            verb = b"DELETE"  # a stream would stay open, as it is meant to
        return Sent(verb + b" " + path + b" HTTP/1.1\r\n" + _HOST + more + b"content-length: 0\r\n\r\n", closes=True)

    def _garbage(self) -> Sent:
        return Sent(
            self._chance.choice(
                [
                    self._chance.randbytes(self._chance.randrange(1, 200)) + b"\r\n\r\n",
                    b"POST /mcp HTTP/1.1\r\n" + _HOST + b"content-length: -1\r\n\r\n",
                    b"POST /mcp HTTP/1.1\r\n" + _HOST + b"content-length: 99999999999999\r\n\r\n",
                    b"POST /mcp HTTP/1.1\r\n" + _HOST + b"transfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
                    b"POST /mcp HTTP/9.9\r\n\r\n",
                    b"GET /mcp HTTP/1.1\r\nhost: evil.example\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
                ]
            ),
            closes=True,
        )

    # Put together

    def _with_meta(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": {f"{_META}protocolVersion": MODERN, f"{_META}clientCapabilities": {}}}

    def _posted(self, method: str, params: dict[str, Any]) -> Sent:
        modern = not self._session or self._chance.random() < 0.7
        sent = self._with_meta(params) if modern else params
        name = params.get("name")
        plain = isinstance(name, str) and name.isascii() and name.isprintable() and name.strip() == name
        body = json.dumps({"jsonrpc": "2.0", "id": self._chance.randrange(10**6), "method": method, "params": sent})
        return self._post(body.encode(), method, modern=modern, name=str(name).encode() if plain else b"x")

    def _post(self, body: bytes, method: str, *, modern: bool | None = None, name: bytes = b"") -> Sent:
        modern = self._chance.random() < 0.6 if modern is None else modern
        head = b"POST /mcp HTTP/1.1\r\n" + _HOST + _JSON
        if modern:
            plain = method if method.isascii() and method.isprintable() else "x"
            head += f"mcp-protocol-version: {MODERN}\r\nmcp-method: {plain}\r\n".encode()
            head += b"mcp-name: " + name + b"\r\n" if name else b""
        elif self._session:
            head += f"mcp-session-id: {self._session}\r\nmcp-protocol-version: {LEGACY}\r\n".encode()
        return Sent(head + b"content-length: %d\r\n\r\n" % len(body) + body)
