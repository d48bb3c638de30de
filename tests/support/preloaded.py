"""Servers of tests, forked from a process that has loaded their modules: loading them is most of what a start costs.

A test starts `launch.py`, which stands for the server: it hands its descriptors, environment, folder and arguments to
the process here, passes signals on, and ends as the server ends. Where it is killed, the server is killed.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import gc
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

_LAUNCH = Path(__file__).with_name("launch.py")


def command(*arguments: str) -> list[str]:
    """What to start in place of Python with these arguments: `-m quire` or `-c` and a program."""
    return [sys.executable, "-I", "-S", str(_LAUNCH), _address(), *arguments]


def quire(*arguments: str) -> list[str]:
    """What to start in place of the command `quire` with these arguments."""
    return command("-m", "quire", *arguments)


@functools.cache
def folder_of_quire() -> Path:
    """Of a program `quire` that does so, for commands of documents: a folder for PATH."""
    program = Path(_address()).with_name("bin") / "quire"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(quire())} "$@"\n')
    program.chmod(0o755)
    return program.parent


@functools.cache
def _address() -> str:
    """Of the process that forks the servers of this one's tests; it ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="quire-tests-")
    address = f"{folder.name}/servers"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.preloaded", str(listener.fileno())],
            cwd=_LAUNCH.parents[2],
            env={name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    assert process.stdin is not None
    for end in (folder.cleanup, process.wait, process.stdin.close):  # the last one first
        atexit.register(end)
    return address


class _Servers:
    """One for each launcher, until the tests end."""

    def __init__(self, listener: socket.socket) -> None:
        self._ready = selectors.DefaultSelector()
        self._ready.register(0, selectors.EVENT_READ, self._end)
        self._ready.register(listener, selectors.EVENT_READ, lambda: self._start(listener.accept()[0]))

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._ready.select():
                key.data()

    def _end(self) -> None:
        os._exit(0)

    def _start(self, launcher: socket.socket) -> None:
        size, descriptors, _, _ = socket.recv_fds(launcher, 4, 3)
        length, said = int.from_bytes(size), b""
        while len(said) < length and (data := launcher.recv(length - len(said))):
            said += data
        if len(said) < max(length, 1):
            launcher.close()  # it was killed
        elif (pid := os.fork()) == 0:
            for key in list(self._ready.get_map().values()):
                if key.fd:
                    os.close(key.fd)
            self._ready.close()
            launcher.close()
            _be_server(descriptors, *ast.literal_eval(said.decode()))
        else:
            pidfd = os.pidfd_open(pid)
            self._ready.register(launcher, selectors.EVENT_READ, lambda: self._pass_on(launcher, pid))
            self._ready.register(pidfd, selectors.EVENT_READ, lambda: self._bury(launcher, pid, pidfd))
        for descriptor in descriptors:
            os.close(descriptor)

    def _pass_on(self, launcher: socket.socket, pid: int) -> None:
        number = launcher.recv(1)
        os.kill(pid, number[0] if number else signal.SIGKILL)
        if not number:
            self._ready.unregister(launcher)

    def _bury(self, launcher: socket.socket, pid: int, pidfd: int) -> None:
        _, status = os.waitpid(pid, 0)
        self._ready.unregister(pidfd)
        os.close(pidfd)
        with contextlib.suppress(KeyError):
            self._ready.unregister(launcher)
        with contextlib.suppress(OSError):
            launcher.send(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
        launcher.close()


def _be_server(descriptors: list[int], folder: str, environment: dict[str, str], arguments: list[str]) -> NoReturn:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.setsid()
    code = 1
    try:
        kind, program, *rest = arguments
        sys.argv = [kind, *rest]
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(program, {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    # all that a server loads
    import quire.cli
    import quire.compose
    import quire.frontends.http.serve
    import quire.frontends.mcp.server
    import quire.frontends.mcp.stdio  # noqa: F401

    assert threading.active_count() == 1, "what is forked would lack the other threads"
    gc.collect()
    gc.freeze()
    _Servers(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
