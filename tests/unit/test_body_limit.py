"""The guard before the HTTP endpoint, spoken to as a server does: bodies that are late, long, deep or broken."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from quire.frontends.http.body_limit import BadBody, BodyLimitMiddleware, check_json

BAD = {
    "not json": b"{",
    "empty": b"",
    "utf-8": b'"\xff"',
    "encoded surrogate": b'"\xed\xa0\x80"',
    "lone surrogate": b'"\\ud800"',
    "control character": b'"\x00"',
    "nan": b"[NaN]",
    "infinity": b"[-Infinity]",
    "past all floats": b'{"a": [1, 1e999]}',
    "long digits": b"[" + b"9" * 5_000 + b"]",
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
    "unclosed": b"[" * 100_000,
    "two values": b"{} {}",
    "byte order mark": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize("what", BAD)
def test_json_that_is_not_sound_is_refused_in_a_sentence(what: str) -> None:
    with pytest.raises(BadBody, match=r"Nothing was done\.$"):
        check_json(BAD[what])


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[" * 150 + b"]" * 150,
        b'"\\ud83d\\ude00 \\u0000"',
        b"[1e300, 0.1e-999]",
        b"9" * 400,
        b'{"a": 1, "a": 2}',
        "é".encode(),
    ],
)
def test_sound_json_passes(body: bytes) -> None:
    check_json(body if body[:1] in b'{["9' else json.dumps(body.decode()).encode())


async def asked(
    *pieces: bytes, method: str = "POST", path: str = "/mcp", headers: Any = (), waits: bool = False
) -> tuple[int, bytes, list[bytes]]:
    """The answer to a request that comes in these pieces: status, body, and what reached the endpoint."""
    reached: list[bytes] = []
    said: list[Any] = []
    left = list(pieces)

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        reached.append(message["body"])
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def receive() -> Any:
        if not left:
            if waits:
                await anyio.sleep_forever()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or waits}

    async def send(message: Any) -> None:
        said.append(message)

    guard = BodyLimitMiddleware(endpoint, path="/mcp", max_bytes=1_000, timeout=0.05)
    await guard({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
    assert guard._reading == 0
    return (said[0]["status"], said[1]["body"], reached) if said else (0, b"", reached)


async def test_a_body_in_pieces_reaches_the_endpoint_whole() -> None:
    assert await asked(b'{"a"', b": ", b"1}") == (200, b"done", [b'{"a": 1}'])


async def test_what_is_too_long_is_refused_when_it_is_seen_to_be() -> None:
    status, body, reached = await asked(b'"', b"x" * 2_000, b'"')
    assert (status, reached) == (413, []) and "max_request_bytes" in json.loads(body)["error"]["message"]
    status, _, reached = await asked(headers=[(b"content-length", b"1001")], waits=True)  # before a byte of it
    assert (status, reached) == (413, [])


async def test_what_is_not_sent_in_time_is_refused() -> None:
    status, body, reached = await asked(b'{"a"', waits=True)
    assert (status, reached) == (408, []) and "request_timeout" in json.loads(body)["error"]["message"]


async def test_a_client_that_leaves_gets_no_answer() -> None:
    assert await asked() == (0, b"", [])


async def test_forms_at_other_paths_are_not_read_as_json() -> None:
    assert await asked(b"grant_type=x", path="/token") == (200, b"done", [b"grant_type=x"])
    assert (await asked(b"x" * 2_000, path="/token"))[0] == 413


async def test_bad_json_is_a_json_rpc_error() -> None:
    status, body, reached = await asked(b"[" * 900)
    assert (status, reached) == (400, [])
    assert json.loads(body)["error"]["code"] == -32700 and json.loads(body)["id"] is None
