"""What code asks of capabilities: its words checked and passed on, the answer made what JavaScript gets."""

from __future__ import annotations

import json
from typing import Any

from quire.runtimes.wasm.host.guest import Host
from quire.tool_descriptions import schemas, tools
from quire.wire import messages, relay

LARGEST = 8 << 20  # bytes of what is asked: it has to fit in a frame
_NAMES = {
    "timeout": "ToolTimeout",
    "denied": "ApprovalDenied",
    "gone": "CapabilityGone",
    "wrong_type": "TypeError",
    "wrong_value": "RangeError",
}
_ALLOWED = ("tool", "resources", "read", "prompts", "prompt")


class Failed(Exception):
    """To be thrown in the guest."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def simplified(offer: messages.Offer) -> list[dict[str, Any]]:
    """The catalog as the prelude takes it: names JavaScript can say, each tool's own name beside them."""
    entries = [each for each in offer.catalog if isinstance(each.get("name"), str)]
    names = tools.python_names([each["name"] for each in entries])
    return [
        {
            "name": names[each["name"]],
            "own": each["name"],
            "about": _about(each),
            "tools": [_tool(name, tool) for name, tool in tools.methods(each).items()],
        }
        for each in entries
    ]


def _about(entry: dict[str, Any]) -> str:
    try:
        return tools.overview(entry)[:20_000]
    except Exception:  # a server's own words, however odd, cost no capability
        return str(entry.get("about") or "")[:20_000]


def _tool(name: str, tool: dict[str, Any]) -> dict[str, Any]:
    first, *rest = name.split("_") if not name.startswith("_") else [name]
    camel = first + "".join(each[:1].upper() + each[1:] for each in rest)
    plain = tool["name"]
    names = list(dict.fromkeys((name, camel, plain)))
    listed = list(schemas.properties(tool.get("input"), tool.get("input")))[:200]
    about = tool.get("description")
    return {"own": plain, "names": names, "parameters": listed, "about": about[:4000] if isinstance(about, str) else ""}


def made(host: Host, number: int, said: str, offer: messages.Offer) -> str:
    """The answer to a call, as JSON. Raises Failed; Ended if no answer can come."""
    if len(said.encode("utf-8", "replace")) > LARGEST:
        raise Failed("ToolError", f"The arguments are larger than {LARGEST:,} bytes.")
    try:
        asked = json.loads(said)
        does, capability, method, given = (asked[key] for key in ("do", "capability", "method", "given"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Failed("ToolError", "The arguments cannot be read.") from None
    if type(given) is not dict or not messages.is_shallow(given):
        raise Failed("TypeError", "Arguments are an object, nested no deeper than 50.")
    if does not in _ALLOWED or not isinstance(capability, str) or not isinstance(method, str):
        raise Failed("TypeError", "There is no such call.")
    timeout = given.pop(tools.TIMEOUT, 0) if does == "tool" else 0
    timeout = timeout if type(timeout) in (int, float) and 0 <= timeout < 1e9 else 0
    called = relay.Called(call=number, do=does, capability=capability, method=method, given=given, timeout=timeout)
    answer = host.call(called)
    if isinstance(answer, relay.Refused):
        ends = f" {answer.hint}" if answer.hint else ""
        where = f"{capability}.{method}" if method else capability
        raise Failed(_NAMES.get(answer.kind, "ToolError"), f"{where}: {answer.message}{ends}"[:4000])
    for block in answer.value.get("content") or ():
        _complete(host, number, block)
    return json.dumps(_unpacked(does, answer.value, _declared(offer, capability, method)))


def _complete(host: Host, number: int, block: Any) -> None:
    """Bring the rest of a text that was cut on its way: nothing else would say that there is one."""
    if not isinstance(block, dict) or not isinstance(block.get("rest"), str):
        return
    text, more = str(block["text"]), True
    while more:
        given = {"key": block["rest"], "start": len(text)}
        answer = host.call(relay.Called(call=number, do="rest", given=given))
        if isinstance(answer, relay.Refused):
            raise Failed("ToolError", f"The answer was cut, and its rest did not come: {answer.message}")
        part = str(answer.value.get("text", ""))
        text, more = text + part, bool(part) and bool(answer.value.get("more"))
        if len(text) > LARGEST:
            raise Failed("ToolError", f"The answer has more than {LARGEST:,} characters. Ask for less at once.")
    block["text"] = text


def _declared(offer: messages.Offer, capability: str, method: str) -> Any:
    for entry in offer.catalog:
        if entry.get("name") == capability:
            for tool in entry.get("tools") or ():
                if isinstance(tool, dict) and tool.get("name") == method:
                    return tool.get("output")
    return None


def _unpacked(does: str, value: dict[str, Any], output: Any) -> Any:
    if does == "tool":
        structured = value.get("structured")
        if structured is None:
            text = _joined(value.get("content"))
            structured = _as_json(text) if output is not None and isinstance(text, str) else None
            if structured is None:
                return text
        if tools.is_wrapped(output) and type(structured) is dict and "result" in structured:
            return structured["result"]
        return structured
    if does == "read":
        found = [_piece(each) for each in value.get("contents") or () if isinstance(each, dict)]
        return found[0] if len(found) == 1 else found
    if does == "resources":
        return [*(value.get("resources") or ()), *(value.get("templates") or ())]
    return value.get("prompts" if does == "prompts" else "messages") or []


def _as_json(text: str) -> Any:
    """What was too large to come beside its text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _joined(content: Any) -> Any:
    """Text as one string; else each piece as what it is."""
    found = [_piece(each) for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    if not found:
        return None
    if all(isinstance(each, str) for each in found):
        return "\n".join(found)
    return found[0] if len(found) == 1 else found


def _piece(block: dict[str, Any]) -> Any:
    return block["text"] if isinstance(block.get("text"), str) else block
