"""A saved state as JSON for people to read, and such a file as code that restores it. Pure."""

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
    """`values` are the variables that JSON can hold. For the others, the file names their type and the snapshot."""
    variables = {
        name: {"type": "json", "value": values[name]} if name in values else {"type": kind, "snapshot": snapshot.id}
        for name, kind in snapshot.variables.items()
    }
    imports = dict.fromkeys(line for run in runs for line in run.imports)
    state = {
        "version": VERSION,
        "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(snapshot.created_at)),
        "notebook": notebook.name,
        "name": snapshot.name,
        "python": snapshot.python,
        "capabilities": {capability.name: describe_backend(capability.backend) for capability in capabilities},
        "imports": list(imports),
        "functions": {
            function["name"]: {"source": function.get("source", ""), "signature": function["signature"]}
            for function in snapshot.functions
        },
        "variables": variables,
        "lost": {loss.name: f"{loss.what}: {loss.why}" for loss in snapshot.lost},
        "history": [run.source for run in runs],
    }
    return json.dumps(state, indent=2, ensure_ascii=False) + "\n"


def to_code(text: str) -> str:
    """Code that restores the imports, functions and plain values of such a file. Raises InvalidRequest."""
    try:
        state = json.loads(text)
        if state["version"] != VERSION:
            raise InvalidRequest(f"The state file has version {state['version']!r}; this Quire reads {VERSION}.")
        lines = [str(statement) for statement in state.get("imports", [])]
        lines += [str(function["source"]) for function in state["functions"].values() if function.get("source")]
        values = {name: held["value"] for name, held in state["variables"].items() if held.get("type") == "json"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRequest("The file is not a saved state: it has no functions and variables.") from error
    if values:
        lines += ["import json as _json", f"globals().update(_json.loads({json.dumps(values)!r}))", "del _json"]
    if not lines:
        raise InvalidRequest("The state file has no functions and no plain values, so there is nothing to restore.")
    return "\n".join(lines)
