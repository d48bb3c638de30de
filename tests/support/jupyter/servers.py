"""A real Jupyter server in a process of its own, on a free port of loopback; its kernels end with it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE = 60.0  # seconds anything is waited for


@dataclass(kw_only=True)
class JupyterServer:
    """`folder` holds the root that it serves, its log, and whatever else it writes."""

    folder: Path
    collaboration: bool = True
    lab: bool = False
    quire: bool = False  # the extension
    base_url: str = "/"
    password: str = ""  # beside the token
    extensions: dict[str, bool] = field(default_factory=dict)  # others, on or off
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    port: int = 0
    stdin: int = subprocess.DEVNULL  # a terminal, for what asks there
    process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_url}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """On the port it had, if it had one."""
        self.root.mkdir(parents=True, exist_ok=True)
        for _ in range(5):
            self.port = self.port or free_port()
            if self._started():
                return
            self.port = 0  # another program took it meanwhile
        raise RuntimeError(f"no Jupyter server: {self.log()}")

    def _started(self) -> bool:
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "jupyter_server", *self._arguments()]
            self.process = subprocess.Popen(
                command, env=self._environment(), stdin=self.stdin, stdout=log, stderr=log, cwd=self.root
            )
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            with suppress(OSError, urllib.error.URLError):
                self.call("GET", "api/status")
                return True
            time.sleep(0.05)
        self.kill()
        return False

    def _arguments(self) -> list[str]:
        extensions = {
            "jupyter_server_ydoc": self.collaboration,
            "jupyter_server_fileid": self.collaboration,
            "jupyterlab": self.lab,
            "jupyter_lsp": self.lab,
            "notebook_shim": self.lab,
            "jupyter_server_terminals": False,
            **self.extensions,
            "quire": self.quire,
        }
        given = [
            f"--ServerApp.jpserver_extensions={extensions}",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.base_url={self.base_url}",
            f"--ServerApp.root_dir={self.root}",
            "--ServerApp.open_browser=False",
            "--ServerApp.allow_root=True",
            f"--IdentityProvider.token={self.token}",
        ]
        if self.password:
            from jupyter_server.auth import passwd

            given.append(f"--PasswordIdentityProvider.hashed_password={passwd(self.password)}")
        return [*given, *self.options]

    def _environment(self) -> dict[str, str]:
        own = {
            "HOME": "home",
            "IPYTHONDIR": "ipython",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "JPY", "QUIRE_"))}
        folders = {name: str(self.folder / place) for name, place in own.items()}
        for each in folders.values():
            Path(each).mkdir(parents=True, exist_ok=True)
        return {**clean, **folders, **self.environment}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON that its API answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def notebook(self, *sources: str, name: str = "") -> str:
        """The path of a new notebook file with these code cells, their ids `cell-0`, `cell-1` …"""
        path = name or f"{uuid.uuid4().hex[:8]}.ipynb"
        cells = [
            {
                "cell_type": "code",
                "id": f"cell-{place}",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for place, source in enumerate(sources)
        ]
        spec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec}, "cells": cells}
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(json.dumps(content, indent=1))
        return path

    def kernelspec(self, name: str, language: str, *command: str) -> None:
        """One more kind of kernel; the file that says how to reach it follows the command."""
        place = self.folder / "data" / "kernels" / name
        place.mkdir(parents=True, exist_ok=True)
        said = {"argv": [*command, "{connection_file}"], "display_name": name, "language": language}
        (place / "kernel.json").write_text(json.dumps(said))

    def saved(self, path: str) -> Any:
        """What stands in the file."""
        return json.loads((self.root / path).read_text())

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-8000:]

    def stop(self) -> None:
        """Asked to end; what of its kernels is there then is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As by kill -9; its kernels too, since they would live on."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        below = descendants(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid, began in below:
            if began and began == birth(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process = None

    def kernel_pid(self, kernel: str) -> int:
        """The process of a kernel of this server's."""
        for pid, _ in descendants(self.pid):
            with suppress(OSError):
                if kernel in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        raise LookupError(f"no process of kernel {kernel}")


@contextmanager
def jupyter(folder: Path, **how: Any) -> Iterator[JupyterServer]:
    """`how` as the fields of JupyterServer say."""
    server = JupyterServer(folder=folder, **how)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def descendants(pid: int) -> list[tuple[int, str]]:
    """Every process below this one, with when it began, by which a number that was given again is told."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parents.setdefault(int(stat(int(each.name))[1]), []).append(int(each.name))
    found, below = [], list(parents.get(pid, []))
    while below:
        child = below.pop()
        found.append((child, birth(child)))
        below += parents.get(child, [])
    return found


def birth(pid: int) -> str:
    with suppress(OSError, IndexError):
        return stat(pid)[19]
    return ""


def stat(pid: int) -> list[str]:
    """The fields after the name: state, parent … the time it began."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
