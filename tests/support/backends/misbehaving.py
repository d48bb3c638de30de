"""A backend that misbehaves as its first argument says; nothing but the standard library, so that it starts fast.

exits     says why on stderr and ends
silent    never answers, and says a word on either stream
stubborn  never answers, ignores SIGTERM and the end of its input
deaf      behaves, but ignores SIGTERM and the end of its input, and so does a child of it
junk      prints junk before and between messages
dies N    ends at the N-th call
garbage   answers calls with what is no result
strict    ends when the first thing it hears is not `initialize`, as some servers of the older era do
hostile   lists what no server should
grows     lists one tool more after each call, and says so
wide      answers one call with more than the longest line
mute      does not answer what it does not know, as some servers of the older era do
earless   closes its input at the first call, and lives on
curious   asks its client for a sample before it answers
errors    answers calls with JSON-RPC errors
leaks     prints its environment variable SECRET everywhere
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
TOOL = {"name": "poke", "description": "Do it.", "inputSchema": {"type": "object"}}
grown = [TOOL]
calls = 0


def main() -> None:
    if MODE == "exits":
        sys.exit("no database at 10.0.0.1\nset DB_URL")
    if MODE in ("silent", "stubborn"):
        print("Listening on port 80", flush=True)
        print("ready to serve", file=sys.stderr, flush=True)
    if MODE in ("stubborn", "deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "deaf":
        subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(9)"])
    if MODE == "junk":
        print("Welcome!\n{not json}\n[1, 2]\n\n{}", flush=True)
    if MODE == "leaks":
        print("starting with", os.environ["SECRET"], file=sys.stderr, flush=True)
    for line in sys.stdin:
        if MODE not in ("silent", "stubborn"):
            hear(json.loads(line))
    while MODE in ("stubborn", "deaf"):
        time.sleep(9)


def hear(said: dict[str, Any]) -> None:
    global calls
    method = said.get("method", "")
    if MODE == "strict" and method == "server/discover":
        sys.exit("expected initialize")
    if "id" not in said or not method:
        return
    if method == "initialize":
        can: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        info = {"name": "misbehaving", "version": "0"}
        answer(said, {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": info})
    elif method == "tools/list":
        answer(said, {"tools": hostile() if MODE == "hostile" else grown, "nextCursor": page(said)})
    elif method == "tools/call":
        calls += 1
        called(said)
    elif method == "logging/setLevel":
        answer(said, {})
    elif MODE != "mute":
        say({"id": said["id"], "error": {"code": -32601, "message": f"no {method}"}})


def called(said: dict[str, Any]) -> None:
    match MODE:
        case "dies" if calls == int(sys.argv[2]):
            print("out of memory", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case "garbage":
            wrong = [5, {"content": "text"}, {"content": [1]}, {}, nested(2000), {"content": [{"type": "text"}]}]
            answer(said, wrong[(calls - 1) % len(wrong)])
            return
        case "grows":
            grown.append({**TOOL, "name": f"poke{calls}"})
            say({"method": "notifications/tools/list_changed"})
        case "wide":
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{said["id"]},"result":{{"content":[{{"type":"text","text":"')
            for _ in range(65):
                sys.stdout.write("x" * 2**20)
            sys.stdout.write('"}]}}\n')
            return
        case "earless":
            os.close(0)
            time.sleep(9999)
        case "curious":
            say({"id": 99, "method": "sampling/createMessage", "params": {}})
            while (reply := json.loads(sys.stdin.readline())).get("id") != 99 or "method" in reply:
                hear(reply)
            answer(said, {"content": [{"type": "text", "text": json.dumps(reply["error"])}]})
            return
        case "errors":
            say({"id": said["id"], "error": {"code": -32000, "message": "the table is locked", "data": [1]}})
            return
        case "junk":
            print("debug: called\nTraceback (most recent call last):", flush=True)
        case "leaks":
            leak(said)
            return
    answer(said, {"content": [{"type": "text", "text": f"call {calls}"}]})


def leak(said: dict[str, Any]) -> None:
    secret = os.environ["SECRET"]
    say({"method": "notifications/message", "params": {"level": "info", "data": f"using {secret}"}})
    if calls == 1:
        answer(said, {"content": [{"type": "text", "text": secret}], "structuredContent": {"key": [secret]}})
    elif calls == 2:
        say({"id": said["id"], "error": {"code": 1, "message": f"{secret} is refused"}})
    else:
        sys.exit(f"bad key {secret}")


def hostile() -> list[Any]:
    odd: list[Any] = [
        5,
        {},
        {"name": 5},
        {"name": ""},
        {"name": "bell\u0007"},
        {"name": "line\nbreak"},
        {"name": "a" * 100_000},
        {"name": "twice", "description": "first"},
        {"name": "twice", "description": "second"},
        {"name": "long", "description": "d" * 1_000_000},
        {"name": "listed", "inputSchema": [1], "outputSchema": "text", "annotations": 3},
        {"name": "deep", "inputSchema": nested(200)},
        {"name": "null", "description": None, "inputSchema": None},
    ]
    return [*odd, *({"name": f"tool{number}"} for number in range(10_000))]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def page(said: dict[str, Any]) -> str | None:
    """The hostile one's pages never end."""
    return "more" + (said.get("params") or {}).get("cursor", "") if MODE == "hostile" else None


def answer(said: dict[str, Any], result: Any) -> None:
    say({"id": said["id"], "result": result})


def say(what: dict[str, Any]) -> None:
    try:
        text = json.dumps({"jsonrpc": "2.0", **what})
    except RecursionError:
        text = f'{{"jsonrpc":"2.0","id":{what["id"]},"result":' + '{"a":' * 2000 + "1" + "}" * 2001
    print(text, flush=True)


if __name__ == "__main__":
    main()
