"""A saved state for people to read: functions with their source, plain values, history; and back, as code. Pure."""

from __future__ import annotations

import json
import time
from typing import Any

from quire.core.capabilities.model import Capability
from quire.core.capabilities.request import describe_backend
from quire.core.errors import InvalidRequest
from quire.core.model import Notebook, Run, Snapshot

VERSION = 1


def to_json(
    notebook: Notebook, snapshot: Snapshot, runs: list[Run], values: dict[str, Any], capabilities: list[Capability]
) -> str:
    """`values` are those that JSON can say, by name; of the rest it says what it is and which snapshot has it."""
    held = {"snapshot": snapshot.id}
    variables = {
        name: {"type": "json", "value": values[name]} if name in values else {"type": kind, **held}
        for name, kind in snapshot.variables.items()
    }
    imports = dict.fromkeys(line for run in runs for line in run.imports)
    state = {
        "version": VERSION,
        "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(snapshot.created_at)),
        "notebook": notebook.name,
        "name": snapshot.name,
        "python": snapshot.python,
        "capabilities": {each.name: describe_backend(each.backend) for each in capabilities},
        "imports": list(imports),
        "functions": {
            each["name"]: {"source": each.get("source", ""), "signature": each["signature"]}
            for each in snapshot.functions
        },
        "variables": variables,
        "lost": {each.name: f"{each.what}: {each.why}" for each in snapshot.lost},
        "history": [run.source for run in runs],
    }
    return json.dumps(state, indent=2, ensure_ascii=False) + "\n"


def to_code(text: str) -> str:
    """Source that makes what such a file says again: imports, functions, plain values. Raises InvalidRequest."""
    try:
        state = json.loads(text)
        if state["version"] != VERSION:
            raise InvalidRequest(f"The state file has version {state['version']!r}; this Quire reads {VERSION}.")
        lines = [str(each) for each in state.get("imports", [])]
        lines += [str(each["source"]) for each in state["functions"].values() if each.get("source")]
        values = {name: each["value"] for name, each in state["variables"].items() if each.get("type") == "json"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRequest(
            "The file is not a state that Quire or its kind saved: it has no functions and variables."
        ) from error
    if values:
        lines += ["import json as _json", f"globals().update(_json.loads({json.dumps(values)!r}))", "del _json"]
    if not lines:
        raise InvalidRequest(
            "The state file holds no functions and no plain values: there is nothing to restore from it."
        )
    return "\n".join(lines)
