"""A notebook's own environment: its interpreter takes the live process's place, inside the sandbox.

What lies in a workspace may have been written by a cell: nothing of it is run outside. So the environment is made,
and its Python started, by the process that has entered the sandbox already, which keeps its place: its pid, and
what connects it to keeper and server.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

from quire.wire import packets
from quire.wire.messages import Enter
from quire.worker.processes.supervisor import Live

WORD = "afresh"
_MAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")


class NotMade(Exception):
    """There is no environment, and it could not be made."""


def begin(request: Enter, descriptors: list[int], nursery: socket.socket, keeper: int) -> None:
    """Be the environment's Python from now on, which enters the same place. Raises NotMade."""
    python = os.path.join(request.venv, "bin", "python")
    if not os.path.exists(python):
        _make(request.venv)
    beginning = {
        "descriptors": descriptors,
        "nursery": nursery.fileno(),
        "keeper": keeper,
        "enter": asdict(replace(request, sandbox={}, venv="")),
    }
    for descriptor in (*descriptors, nursery.fileno()):
        os.set_inheritable(descriptor, True)
    try:
        os.execv(python, [python, "-P", _MAIN, WORD, json.dumps(beginning)])  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise NotMade(
            f"The notebook's environment has no Python that starts ({error}). Remove {request.venv}."
        ) from error


def begun(words: str) -> tuple[Live, Enter]:
    """In that Python: where it goes on."""
    said: dict[str, Any] = json.loads(words)
    for descriptor in (*said["descriptors"], said["nursery"]):
        os.set_inheritable(descriptor, False)
    live = Live(said["descriptors"], packets.of_descriptor(said["nursery"]), said["keeper"])
    return live, Enter(**said["enter"])


def _make(folder: str) -> None:
    uv = os.environ.get("UV")
    command = [uv, "venv", "--quiet", "--offline", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    try:
        subprocess.run([*command, folder], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise NotMade(f"The notebook's environment could not be made ({command[0]}): {words}") from error
    except OSError as error:
        raise NotMade(f"The notebook's environment could not be made: {error}.") from error
