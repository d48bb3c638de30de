"""Run a notebook's own virtual environment: its Python replaces the live process, inside the sandbox.

A cell may have written anything in the workspace, so nothing of it runs outside the sandbox. The live process enters
the sandbox, creates the environment if needed and executes its Python, which keeps the pid and the connections.
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
from quire.worker.processes.supervisor import WorkerStart

COMMAND = "venv-exec"
_MAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")


class VenvError(Exception):
    """The virtual environment does not exist and could not be created."""


def exec_venv_python(
    request: Enter, descriptors: list[int], announce_socket: socket.socket, supervisor_pid: int
) -> None:
    """Execute the environment's Python in place of this process. Raises VenvError."""
    python = os.path.join(request.venv, "bin", "python")
    if not os.path.exists(python):
        _create_venv(request.venv)
    state = {
        "descriptors": descriptors,
        "announce_socket": announce_socket.fileno(),
        "supervisor_pid": supervisor_pid,
        "enter": asdict(replace(request, sandbox={}, venv="")),
    }
    for descriptor in (*descriptors, announce_socket.fileno()):
        os.set_inheritable(descriptor, True)
    try:
        os.execv(python, [python, "-P", _MAIN, COMMAND, json.dumps(state)])  # noqa: S606 - no shell is needed
    except OSError as error:
        raise VenvError(
            f"The notebook's environment has no Python that starts ({error}). Remove {request.venv}."
        ) from error


def read_start(text: str) -> tuple[WorkerStart, Enter]:
    """In the new Python: what it continues with."""
    state: dict[str, Any] = json.loads(text)
    for descriptor in (*state["descriptors"], state["announce_socket"]):
        os.set_inheritable(descriptor, False)
    start = WorkerStart(
        state["descriptors"], packets.socket_from_descriptor(state["announce_socket"]), state["supervisor_pid"]
    )
    return start, Enter(**state["enter"])


def _create_venv(folder: str) -> None:
    uv = os.environ.get("UV")
    command = [uv, "venv", "--quiet", "--offline", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    try:
        subprocess.run([*command, folder], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        text = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise VenvError(f"The notebook's environment could not be created ({command[0]}): {text}") from error
    except OSError as error:
        raise VenvError(f"The notebook's environment could not be created: {error}.") from error
