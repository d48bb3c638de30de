"""The stdio server against malformed lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import server_environment
from tests.support.waiting import DEADLINE


class Raw:
    """JSON-RPC by hand, a line at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def answer_to(self, number: int) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)  # every line on stdout is protocol, whatever a cell does
            if message.get("id") == number:
                return message
        raise AssertionError("the server ended")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    """One server for all lines: it ends well after all of them."""
    data_dir = tmp_path_factory.mktemp("raw") / "data"
    process = subprocess.Popen(
        [sys.executable, "-m", "quire"],
        env=server_environment(data_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        talk = Raw(process)
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        talk.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode())
        talk.answer_to(0)
        talk.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        yield talk
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def execute(code: str) -> bytes:
    call = {"name": "execute", "arguments": {"code": code}}
    return json.dumps({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": call}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"not json at all",
        b"\xff\xfe\x00",
        b"{" * 10_000,
        b"[]",
        b"",
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "execute"}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nothing", "arguments": {}}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "no/such/method"}',
        execute("x = 1").replace(b"x = 1", b"x = '\\ud800'").replace(b"99", b"1"),
        execute("#" * 5_000_000).replace(b"99", b"1"),
    ],
    ids=["text", "bytes", "nesting", "array", "empty", "no-arguments", "no-tool", "no-method", "surrogate", "5MB"],
)
def test_the_server_answers_on_after_a_bad_line(raw: Raw, line: bytes) -> None:
    raw.send(execute("1"))
    before = raw.answer_to(99)["result"]["structuredContent"]["cell_number"]
    raw.send(line)
    raw.send(execute("6 * 7"))
    answer = raw.answer_to(99)
    assert answer["result"]["structuredContent"]["return_value"] == 42
    assert answer["result"]["structuredContent"]["cell_number"] == before + 1


def test_a_cell_cannot_write_into_the_protocol(raw: Raw) -> None:
    raw.send(execute("import os, sys\nos.write(1, b'raw\\n')\nos.system('echo child')\nprint('python')"))
    answer = raw.answer_to(99)
    assert answer["result"]["structuredContent"]["stdout"] == "raw\nchild\npython\n"
