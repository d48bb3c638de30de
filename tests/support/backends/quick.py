"""A backend that starts at once, tells a file what it hears, and answers some calls only when told to.

`python quick.py JOURNAL`: nothing but the standard library. Each line of the journal is one of
    started PID
    called TOOL {arguments}
    cancelled NAME      of a call that was held
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

JOURNAL = Path(sys.argv[1])
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def tool(own: str, description: str, /, *, output: Any = None, hints: Any = None, **properties: Any) -> dict[str, Any]:
    needed = [key for key, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    made = {"name": own, "description": description, "inputSchema": schema}
    if output is not None:
        made["outputSchema"] = output
    if hints is not None:
        made["annotations"] = hints
    return made


PERSON = {
    "type": "object",
    "properties": {"name": TEXT, "tags": {"type": "array", "items": TEXT}, "home": {"type": "object"}},
    "required": ["name", "tags", "home"],
}
TOOLS = [
    tool("echo", "Say a number again.", n=NUMBER),
    tool("echo-text", "Say a text again.", text=TEXT),
    tool("add", "The sum of two numbers.", a=NUMBER, b={**NUMBER, "default": 1}),
    tool("hold", "Answer when it is released.", name=TEXT),
    tool("release", "Let the held call of that name be answered.", name=TEXT),
    tool("held", "Names of the calls that are held."),
    tool("wipe", "Delete all there is at a path.", hints={"destructiveHint": True}, path=TEXT),
    tool("pid", "Of the backend's process."),
    tool("person", "Somebody, as data.", output=PERSON, name=TEXT),
    tool("facts", "What is so, as JSON text."),
    tool("fail", "Fail with these words.", why=TEXT),
    tool("large", "So many characters.", size=NUMBER),
    tool("picture", "A pixel."),
    tool("link", "Where the notes are."),
    tool("enclosed", "The notes themselves."),
    tool("work", "Say how far it is, and answer when it is released.", name=TEXT),
    tool("grow", "Have one tool more, of that name.", name=TEXT),
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOTES = {"uri": "notes://all", "name": "notes", "mimeType": "text/plain"}
held: dict[str, Any] = {}


def main() -> None:
    note(f"started {os.getpid()}")
    for line in sys.stdin:
        hear(json.loads(line))


def hear(said: dict[str, Any]) -> None:
    given = said.get("params") or {}
    if said.get("method") == "notifications/cancelled":
        for name in [name for name, number in held.items() if number == given["requestId"]]:
            del held[name]
            note(f"cancelled {name}")
    if "id" not in said or "method" not in said:
        return
    match said["method"]:
        case "initialize":
            can = {"tools": {"listChanged": True}, "logging": {}, "resources": {}, "prompts": {}}
            info = {"name": "quick", "version": "1"}
            about = "Quick and watched. It is a backend of the tests."
            answer(
                said,
                {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": info, "instructions": about},
            )
        case "tools/list":
            answer(said, {"tools": TOOLS})
        case "tools/call":
            arguments = given.get("arguments") or {}
            note(f"called {given['name']} {json.dumps(arguments)}")
            called(said, given["name"], arguments)
        case "resources/list":
            answer(said, {"resources": [NOTES]})
        case "resources/templates/list":
            answer(said, {"resourceTemplates": [{"uriTemplate": "notes://{name}", "name": "note"}]})
        case "resources/read":
            answer(said, {"contents": [{"uri": given["uri"], "mimeType": "text/plain", "text": f"at {given['uri']}"}]})
        case "prompts/list":
            asked = [{"name": "who", "required": True}]
            answer(said, {"prompts": [{"name": "greet", "description": "A greeting.", "arguments": asked}]})
        case "prompts/get":
            text = f"Greet {given['arguments']['who']}."
            answer(said, {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
        case "logging/setLevel" | "ping":
            answer(said, {})
        case _:
            say({"id": said["id"], "error": {"code": -32601, "message": f"no {said['method']}"}})


def called(said: dict[str, Any], name: str, given: dict[str, Any]) -> None:
    match name:
        case "echo":
            words(said, str(given["n"]))
        case "echo-text":
            words(said, given["text"])
        case "add":
            words(said, str(given["a"] + given.get("b", 1)))
        case "hold":
            held[given["name"]] = said["id"]
        case "work":
            held[given["name"]] = said["id"]
            token = said["params"]["_meta"]["progressToken"]
            far = {"progressToken": token, "progress": 2, "total": 5, "message": "second page"}
            say({"method": "notifications/progress", "params": far})
            say({"method": "notifications/message", "params": {"level": "warning", "data": "page 2 is slow"}})
        case "release":
            words({"id": held.pop(given["name"])}, given["name"])
            words(said, "released")
        case "held":
            words(said, json.dumps(sorted(held)))
        case "wipe":
            words(said, f"wiped {given['path']}")
        case "pid":
            words(said, str(os.getpid()))
        case "person":
            found = {"name": given["name"], "tags": ["a", "b"], "home": {"city": "Bern"}}
            answer(said, {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found})
        case "facts":
            words(said, '{"sky": {"colour": "blue"}, "items": [1, 2]}')
        case "fail":
            answer(said, {"content": [{"type": "text", "text": given["why"]}], "isError": True})
        case "large":
            words(said, "".join(f"{number:9d}," for number in range(given["size"] // 10)))
        case "picture":
            answer(said, {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]})
        case "link":
            answer(said, {"content": [{"type": "resource_link", **NOTES}]})
        case "enclosed":
            inner = {"uri": NOTES["uri"], "mimeType": "text/plain", "text": "the notes themselves"}
            answer(said, {"content": [{"type": "resource", "resource": inner}]})
        case "grow":
            TOOLS.append(tool(given["name"], "One tool more."))
            say({"method": "notifications/tools/list_changed"})
            words(said, given["name"])
        case _:
            words(said, f"{name} was called")


def words(said: dict[str, Any], text: str) -> None:
    answer(said, {"content": [{"type": "text", "text": text}]})


def answer(said: dict[str, Any], result: Any) -> None:
    say({"id": said["id"], "result": result})


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **what}) + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(line + "\n")


if __name__ == "__main__":
    main()
